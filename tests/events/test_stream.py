"""The event stream over a real server: what reaches a page, what it may miss, and when it has to go."""

from __future__ import annotations

import asyncio
import socket
import threading

import httpx
import pytest
from flask import Flask
from itsdangerous import URLSafeTimedSerializer
from starlette.types import Receive, Scope, Send

from app.config import Settings
from app.events import stream
from app.events.hub import Hub
from app.events.topics import Topic
from app.extensions import db, writing
from app.history.plan import Target
from app.history.undo import roll_back
from app.models import COMMAND_LINE, Agent, Trigger, User
from app.models.user import ADMIN, AUDITOR, SITE_ADMIN
from app.processes.asgi import RequestNormalizer, wake_pages_of
from app.processes.broker import EmbeddedBroker
from app.refinement.start import start_refinement
from tests.events.conftest import Rendered, happen, make_neighbour
from tests.support.factories import begin, cookie_id, make_agent, make_user, remember
from tests.support.pages import Page, Site, seconds_until, serving
from tests.support.processes import wait_for
from tests.support.workers import REDIS

NEVER = 3600.0
"""Where the hub must not look by itself: what arrives came by the broker."""


def shows(page: Page, count: int) -> bool:
    newest = page.newest()
    return newest is not None and f"\n{count} so far" in newest.data


def test_an_event_reaches_the_page_by_the_broker(app: Flask, web: Flask, broker: EmbeddedBroker, admin: User) -> None:
    with serving(web, look=NEVER) as site, Page(site, "overview", site.cookie_of(admin)) as page:
        wait_for(lambda: shows(page, 0))
        event_id = happen()
        wait_for(lambda: shows(page, 1))
        assert page.newest().id == str(event_id)
        assert page.newest().data == "<hx-partial>\n1 so far</hx-partial>"


def test_the_only_web_process_wakes_its_pages_itself(web: Flask, settings: Settings, admin: User) -> None:
    with serving(web, look=NEVER) as site, Page(site, "overview", site.cookie_of(admin)) as page:
        wait_for(lambda: shows(page, 0))
        wake_pages_of(web, web.extensions["stream_hub"], settings.model_copy(update={"redis_url": ""}))
        happen_in(web)
        wait_for(lambda: shows(page, 1))
        for _ in range(30):
            happen_in(web)
        wait_for(lambda: shows(page, 31))


def happen_in(web: Flask) -> None:
    """By a thread of the web process."""

    def work() -> None:
        with web.app_context():
            happen()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_several_web_processes_wake_one_another_by_the_broker(
    app: Flask, web: Flask, settings: Settings, broker: EmbeddedBroker, admin: User
) -> None:
    with serving(web, look=NEVER) as site, Page(site, "overview", site.cookie_of(admin)) as page:
        wait_for(lambda: shows(page, 0))
        wake_pages_of(app, Hub(app), settings.model_copy(update={"web_processes": 2}))
        happen()
        wait_for(lambda: shows(page, 1))


def test_without_a_broker_the_page_hears_it_all_the_same(app: Flask, web: Flask, admin: User) -> None:
    with serving(web, look=0.05) as site, Page(site, "overview", site.cookie_of(admin)) as page:
        wait_for(lambda: shows(page, 0))
        happen()
        wait_for(lambda: shows(page, 1))


@pytest.mark.skipif(bool(REDIS), reason="a server of one's own is not for tests to restart")
def test_a_broker_that_comes_back_is_heard_again(app: Flask, web: Flask, broker: EmbeddedBroker, admin: User) -> None:
    with serving(web, look=NEVER) as site, Page(site, "overview", site.cookie_of(admin)) as page:
        wait_for(lambda: shows(page, 0))
        assert broker._running is not None
        broker._running.stop()
        happen()
        broker.start()

        wait_for(lambda: shows(page, 1))
        happen()
        wait_for(lambda: shows(page, 2))


def test_what_was_missed_comes_as_one_frame_and_only_once(app: Flask, web: Flask, admin: User) -> None:
    seen = happen(3)
    newest = happen(40)
    with serving(web, look=0.05) as site:
        cookie = site.cookie_of(admin)
        with Page(site, "overview", cookie, last_event_id=str(seen), after="1") as page:
            wait_for(lambda: shows(page, 43))
            assert [message.id for message in page.messages] == [str(newest)]
        with Page(site, "overview", cookie, last_event_id=str(newest), after="1") as page:
            wait_for(lambda: page.beats > 4)
            assert page.messages == []
            happen()
            wait_for(lambda: shows(page, 44))


@pytest.mark.parametrize("after", ["", "x", "-1", "9" * 30, "1e3", "99999"])
def test_a_page_that_names_no_real_event_is_brought_to_now(app: Flask, web: Flask, admin: User, after: str) -> None:
    happen(2)
    with serving(web, look=0.05) as site, Page(site, "overview", site.cookie_of(admin), after=after) as page:
        wait_for(lambda: shows(page, 2))
        happen()
        wait_for(lambda: shows(page, 3))


def test_a_first_event_goes_out_at_once_and_those_right_behind_it_as_one(
    app: Flask, web: Flask, broker: EmbeddedBroker, admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.events.hub.GATHER_SECONDS", NEVER)
    with serving(web, look=NEVER) as site, Page(site, "overview", site.cookie_of(admin)) as page:
        wait_for(lambda: shows(page, 0))
        first = happen()
        wait_for(lambda: shows(page, 1))
        assert page.newest().id == str(first)

    monkeypatch.setattr("app.events.hub.GATHER_SECONDS", 1.0)
    with serving(web, look=NEVER) as site, Page(site, "overview", site.cookie_of(admin), after=str(first)) as page:
        wait_for(lambda: page.beats > 1)
        second = happen()
        wait_for(lambda: shows(page, 2))
        happen(2)
        last = happen()
        wait_for(lambda: shows(page, 5))
        assert [message.id for message in page.messages] == [str(second), str(last)]


def test_nothing_is_lost_while_pages_come_and_go(app: Flask, web: Flask, broker: EmbeddedBroker, admin: User) -> None:
    happening, last = threading.Event(), ""

    def go_on() -> None:
        with app.app_context():
            for _ in range(150):
                happen()
            db.session.remove()
        happening.set()

    writer = threading.Thread(target=go_on)
    with serving(web, look=0.5) as site:
        writer.start()
        while not happening.is_set():
            with Page(site, "overview", site.cookie_of(admin), last_event_id=last) as page:
                wait_for(lambda page=page: len(page.messages) > 1 or happening.is_set())
            ids = [int(message.id) for message in page.messages]
            assert ids == sorted(set(ids))
            last = str(ids[-1]) if ids else last
        with Page(site, "overview", site.cookie_of(admin), last_event_id=last) as page:
            wait_for(lambda: shows(page, 150) or last == str(happening_id()))
    writer.join()


def happening_id() -> int:
    from app.events.topics import newest_event

    db.session.rollback()
    return newest_event(1)


def test_a_topic_hears_its_own_events_only(app: Flask, web: Flask, admin: User) -> None:
    agent, other = make_agent(), make_agent("other")
    remember(agent, "Ann likes tea.")
    refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    with serving(web, look=0.05) as site:
        cookie = site.cookie_of(admin)
        with (
            Page(site, f"agent:{agent.id}", cookie) as of_agent,
            Page(site, f"agent:{other.id}", cookie) as of_other,
            Page(site, f"refinement:{refinement.id}", cookie) as of_refinement,
        ):
            pages = (of_agent, of_other, of_refinement)
            wait_for(lambda: all(page.newest() for page in pages))
            before = len(of_refinement.messages)
            happen(agent_id=other.id)
            wait_for(lambda: shows(of_other, 1))
            beats = of_refinement.beats
            wait_for(lambda: of_refinement.beats > beats + 1)
            assert len(of_refinement.messages) == before
            assert not shows(of_agent, 2)


def test_pages_of_refinements_and_rollbacks_hear_of_every_rollback(app: Flask, web: Flask, admin: User) -> None:
    first, second = (refined(make_agent(name)) for name in ("one", "other"))
    made = roll_back(Target.refinement(first), by=COMMAND_LINE).rollback
    assert made is not None
    with serving(web, look=0.05) as site:
        cookie = site.cookie_of(admin)
        with Page(site, f"refinement:{second}", cookie) as ended, Page(site, f"rollback:{made.id}", cookie) as done:
            wait_for(lambda: ended.newest() and done.newest())
            happen(agent_id=1)
            roll_back(Target.rollback(made.id), by=COMMAND_LINE)
            wait_for(lambda: all(page.newest().id == str(happening_id()) for page in (ended, done)))
            seen = [len(page.messages) for page in (ended, done)]
            happen(3, agent_id=1)
            beats = done.beats
            wait_for(lambda: done.beats > beats + 1)
            assert [len(page.messages) for page in (ended, done)] == seen
    for topic in (f"refinement:{second}", f"rollback:{made.id}"):
        found = Topic.parse(topic)
        assert found is not None
        assert found.newest(1, happening_id() - 4) == happening_id() - 3


def refined(agent: Agent) -> str:
    """A refinement of the agent that changed something and completed; its id."""
    (number,) = remember(agent, "Ann likes tea very much.")
    run = begin(agent)
    run.tool.execute("update", id=number, content="Ann likes tea a lot.")
    run.tool.execute("complete", summary="Shorter.")
    return run.refinement.id


def test_one_event_is_rendered_once_for_all_pages_of_a_role(
    app: Flask, web: Flask, broker: EmbeddedBroker, admin: User, rendered: Rendered
) -> None:
    auditor = make_user("auditor@example.org", AUDITOR)
    with serving(web, look=NEVER) as site:
        pages = [Page(site, "agents", site.cookie_of(user), after="0") for user in (admin, admin, auditor, admin)]
        for page in pages:
            page.__enter__()
        wait_for(lambda: site.hub.open_streams == 4)
        rendered.clear()
        happen()
        wait_for(lambda: all(shows(page, 1) for page in pages))
        assert sorted(len(roles) for _, roles in rendered) == [1, 2]
        for page in pages:
            page.__exit__()


def test_strangers_and_other_accounts_topics_get_a_goodbye_and_nothing_else(
    app: Flask, web: Flask, admin: User
) -> None:
    neighbour = make_neighbour()
    theirs = make_agent("theirs", account_id=neighbour.id)
    remember(theirs, "Ann likes tea.")
    refinement = start_refinement(theirs.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    operator = make_user("operator@example.org", SITE_ADMIN)
    with serving(web, look=0.05) as site:
        signed_in = site.cookie_of(admin)
        forged = signed_in[:-4] + "AAAA"
        for topic, cookie in [
            ("overview", ""),
            ("overview", forged),
            ("overview", site.cookie_of(operator)),
            (f"agent:{theirs.id}", signed_in),
            ("agent:999999", signed_in),
            (f"refinement:{refinement.id}", signed_in),
            ("refinement:' OR 1=1 --", signed_in),
            ("agent:１", signed_in),
            ("everything", signed_in),
            ("", signed_in),
        ]:
            with Page(site, topic, cookie) as page:
                wait_for(lambda page=page: page.is_closed)
                assert (page.status, [each.event for each in page.messages]) == (200, ["bye"]), topic
        assert site.hub.open_streams == 0


def test_another_account_s_events_are_not_heard(app: Flask, web: Flask, admin: User, rendered: Rendered) -> None:
    neighbour = make_neighbour()
    with serving(web, look=0.05) as site, Page(site, "overview", site.cookie_of(admin)) as page:
        wait_for(lambda: shows(page, 0))
        happen(5, account_id=neighbour.id)
        beats = page.beats
        wait_for(lambda: page.beats > beats + 2)
        assert len(rendered) == len(page.messages) == 1


@pytest.mark.parametrize("change", ["deactivated", "signed out everywhere", "lost the role", "removed"])
def test_a_user_who_may_no_longer_look_is_sent_away(app: Flask, web: Flask, admin: User, change: str) -> None:
    with serving(web, look=0.05, recheck=0.05) as site, Page(site, "overview", site.cookie_of(admin)) as page:
        wait_for(lambda: shows(page, 0))
        with writing() as session:
            user = session.get_one(User, admin.id)
            match change:
                case "deactivated":
                    user.active = False
                case "signed out everywhere":
                    user.fs_uniquifier = "another"
                case "lost the role":
                    user.roles = []
                case "removed":
                    user.roles = []
                    session.flush()
                    session.delete(user)
        wait_for(lambda: page.is_closed)
        assert page.newest().event == "bye"


@pytest.mark.parametrize("with_broker", [True, False])
def test_signing_out_ends_the_streams_of_all_tabs(
    app: Flask, web: Flask, admin: User, with_broker: bool, request: pytest.FixtureRequest
) -> None:
    if with_broker:
        request.getfixturevalue("broker")
    other = make_user("other@example.org", ADMIN)
    with serving(web, look=NEVER, recheck=NEVER) as site:
        cookie = site.cookie_of(admin)
        with Page(site, "overview", cookie) as page, Page(site, "overview", site.cookie_of(other)) as others:
            wait_for(lambda: shows(page, 0) and shows(others, 0))
            token = URLSafeTimedSerializer(str(web.secret_key), salt="wtf-csrf-token").dumps("raw")
            answer = httpx.post(f"{site.url}/sign-out", headers={"Cookie": cookie}, data={"csrf_token": token})
            assert answer.status_code == 302
            wait_for(lambda: page.is_closed)
            assert page.newest().event == "bye"
            assert not others.is_closed


def test_the_stream_is_closed_to_caches_frames_and_other_origins(app: Flask, web: Flask, admin: User) -> None:
    with serving(web) as site, Page(site, "overview", site.cookie_of(admin)) as page:
        assert page.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert page.headers["cache-control"] == "no-store, no-transform"
        assert page.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert page.headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in page.headers
        assert httpx.post(f"{site.url}/events").status_code == 405


def test_two_cookie_headers_and_a_query_beyond_ascii_are_understood(app: Flask, web: Flask, admin: User) -> None:
    with serving(web) as site:
        for path in ("/events?topic=overview&q=%C3%A9", "/events/poll?topic=overview&q=%C3%A9"):
            lines = [f"GET {path} HTTP/1.1", "Host: x", "Cookie: theme=dark", f"Cookie: {site.cookie_of(admin)}"]
            said = ask(site, "\r\n".join([*lines, "Connection: close", "", ""]).encode())
            assert said.startswith(b"HTTP/1.1 200"), said
            assert b"0 so far" in said, said


def test_raw_bytes_in_a_query_reach_flask_as_escapes() -> None:
    """Some ASGI servers hand them on; the bridge to WSGI would break."""
    reached: list[Scope] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope)

    asked = {"type": "http", "headers": [], "query_string": "q=é&r=%C3%A9 1".encode()}
    asyncio.run(RequestNormalizer(note)(asked, None, None))  # type: ignore[arg-type]
    asyncio.run(RequestNormalizer(note)({"type": "lifespan"}, None, None))  # type: ignore[arg-type]

    assert reached[0]["query_string"] == b"q=%C3%A9&r=%C3%A9 1"
    assert reached[1] == {"type": "lifespan"}


def ask(site: Site, request: bytes) -> bytes:
    """Send raw bytes, and read until the first part is there or the connection ends."""
    with socket.create_connection(site.place, timeout=10) as connection:
        connection.sendall(request)
        said = b""
        while b"so far" not in said and (more := connection.recv(65536)):
            said += more
    return said


def test_a_stopping_server_ends_its_streams_at_once(app: Flask, web: Flask, admin: User) -> None:
    with serving(web, look=NEVER) as site, Page(site, "overview", site.cookie_of(admin)) as page:
        wait_for(lambda: shows(page, 0))
        site.server.handle_exit(15, None)
        assert seconds_until(lambda: page.is_closed) < 3
        assert page.newest().event == ""


def test_a_client_that_does_not_read_is_dropped_and_hinders_nobody(app: Flask, web: Flask, admin: User) -> None:
    counting = web.extensions["stream_partials"]
    web.extensions["stream_partials"] = lambda topic, viewer: counting(topic, viewer) + "x" * 20_000_000
    with serving(web, look=0.05, patience=0.5) as site:
        with socket.create_connection(site.place) as stuck:
            lines = ["GET /events?topic=overview HTTP/1.1", "Host: x", f"Cookie: {site.cookie_of(admin)}", "", ""]
            stuck.sendall("\r\n".join(lines).encode())
            wait_for(lambda: site.hub.open_streams == 1)
            happen()
            wait_for(lambda: site.hub.open_streams == 0, seconds=30)
        web.extensions["stream_partials"] = counting
        with Page(site, "overview", site.cookie_of(admin)) as page:
            wait_for(lambda: shows(page, 1))


def test_a_part_that_can_not_be_rendered_closes_the_stream_and_the_page_comes_back(
    app: Flask, web: Flask, admin: User
) -> None:
    counting = web.extensions["stream_partials"]
    with serving(web, look=0.05) as site:
        with Page(site, "overview", site.cookie_of(admin)) as page:
            wait_for(lambda: shows(page, 0))

            def broken(topic: str, viewer: object) -> str:
                raise ValueError("the secret words")

            web.extensions["stream_partials"] = broken
            happen()
            wait_for(lambda: page.is_closed)
        web.extensions["stream_partials"] = counting
        with Page(site, "overview", site.cookie_of(admin), last_event_id="0") as page:
            wait_for(lambda: shows(page, 1))


def test_polling_answers_with_the_same_parts_or_with_nothing(app: Flask, web: Flask, admin: User) -> None:
    theirs = make_agent("theirs", account_id=make_neighbour().id)
    newest = happen(2)
    client = web.test_client()
    with client.session_transaction() as session:
        session.update(_user_id=cookie_id(admin), _fresh=True, fs_cc="set")

    fresh = client.get("/events/poll?topic=overview&after=1")
    assert (fresh.status_code, fresh.headers["Last-Event-ID"]) == (200, str(newest))
    assert fresh.text == "<hx-partial>\n2 so far</hx-partial>"
    assert client.get(f"/events/poll?topic=overview&after={newest}").status_code == 204
    assert client.get("/events/poll?topic=overview").status_code == 200
    assert client.get(f"/events/poll?topic=agent:{theirs.id}").status_code == 404
    assert client.get("/events/poll?topic=nonsense").status_code == 404
    assert web.test_client().get("/events/poll?topic=overview").status_code == 401


def test_one_user_holds_so_many_streams_and_others_still_get_theirs(
    web: Flask, admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MOST_STREAMS_OF_USER", 2)
    other = make_user("auditor@example.org", AUDITOR)
    with serving(web) as site:
        cookie = site.cookie_of(admin)
        with Page(site, "overview", cookie), Page(site, "agents", cookie) as second:
            refused = httpx.get(f"{site.url}/events?topic=overview", headers={"Cookie": cookie})
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "30")
            assert refused.headers["Content-Security-Policy"].startswith("default-src 'none'")
            with Page(site, "overview", site.cookie_of(other)) as page:
                assert page.status == 200
            assert not second.is_closed
        wait_for(lambda: site.hub.open_streams == 0)
        with Page(site, "overview", cookie) as page:
            assert page.status == 200


def test_a_process_holds_so_many_streams_and_is_asked_for_pages_beside_them(
    web: Flask, admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MOST_STREAMS", 2)
    with serving(web) as site:
        cookie = site.cookie_of(admin)
        with Page(site, "overview", cookie), Page(site, "agents", cookie):
            refused = httpx.get(f"{site.url}/events?topic=overview", headers={"Cookie": cookie})
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "30")
            assert httpx.get(f"{site.url}/sign-in").status_code == 200
        wait_for(lambda: site.hub.open_streams == 0)
        stranger = httpx.get(f"{site.url}/events?topic=overview")
        assert (stranger.status_code, "event: bye" in stranger.text) == (200, True)
