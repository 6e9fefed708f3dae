"""Live parts: what the stream sends is what the page shows, for everybody with the same role alike."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from flask import Flask
from sqlalchemy import select

from app.config import ROOT
from app.errors import NotFound
from app.events.topics import Topic, newest_event, notes_after
from app.extensions import db, writing
from app.models import AccessGrant, Agent, Event, Refinement, Rollback, announce
from app.models.rollback import ROLLED_BACK
from app.views.live import LIVE_PAGES, LivePage
from tests.history.going_back import refined, update
from tests.support.factories import HOME, begin, make_agent, remember
from tests.views.conftest import Browser
from tests.views.undoing import rollbacks

NOBODY = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Looker:
    account_id: int = HOME
    roles: frozenset[str] = frozenset({"auditor", "admin"})

    def may(self, role: str) -> bool:
        return role in self.roles


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    remember(made, "Ann likes tea.", "Bob likes rum and other things that are longer.")
    return made


def send(web: Flask, topic: str, looker: Looker) -> str:
    with web.test_request_context("/events", base_url="http://127.0.0.1"):
        return str(web.extensions["stream_partials"](topic, looker))


def parts(markup: str) -> dict[str, str]:
    found = re.findall(r'<hx-partial hx-target="#([\w-]+)" hx-swap="outerMorph">(.*?)</hx-partial>', markup, re.S)
    return dict(found)


def squeeze(markup: str) -> str:
    """Without white space, tokens, and the words that the page's script keeps fresh."""
    markup = re.sub(r'<input type="hidden" name="csrf_token"[^>]*>', "", markup)
    markup = re.sub(r' data-running="[^"]*">[^<]*<', "><", markup)
    return re.sub(r"\s+", " ", markup).strip()


@pytest.mark.parametrize("topic", ["overview", "agents", "agent", "ledger", "refinement"])
def test_each_part_is_one_element_of_its_id_and_stands_so_on_the_page(
    web: Flask, admin: Browser, agent: Agent, topic: str
) -> None:
    run = begin(agent)
    run.tool.execute("delete", id=99, carried_by=1)
    topics = {name: f"{name}:{agent.id}" for name in ("agent", "ledger")} | {
        "refinement": f"refinement:{run.refinement.id}"
    }
    paths = {
        "overview": "/",
        "agents": "/agents",
        "agent": f"/agents/{agent.id}",
        "ledger": f"/agents/{agent.id}/ledger",
    }
    page = squeeze(admin.get(paths.get(topic, f"/refinements/{run.refinement.id}")).text)

    found = parts(send(web, topics.get(topic, topic), Looker()))

    assert found
    for element_id, markup in found.items():
        assert re.match(rf'\s*<\w+ id="{element_id}"', markup), element_id
        assert squeeze(markup) in page, element_id


def test_what_an_admin_marks_as_seen_leaves_every_open_page(web: Flask, admin: Browser, agent: Agent) -> None:
    run = begin(agent)
    run.tool.execute("complete", summary="Done.", note_to_admins="Mind the tea.")
    topics = {"overview": "overview-attention", f"agent:{agent.id}": "attention"}
    assert all("Mind the tea." in parts(send(web, topic, Looker()))[part] for topic, part in topics.items())
    seen_until = newest_event(HOME)

    admin.post(f"/attention/{run.reload().notes[0].id}/seen")
    db.session.rollback()

    assert not any("Mind the tea." in parts(send(web, topic, Looker()))[part] for topic, part in topics.items())
    for topic in topics:
        parsed = Topic.parse(topic)
        assert parsed is not None
        assert parsed.newest(HOME, seen_until) is not None, f"{topic} hears nothing of it"


def test_every_stream_that_a_page_opens_has_its_entry() -> None:
    opened = re.compile(r'{{ stream\("(\w+)(:?)"')
    found = {match for path in (ROOT / "templates").rglob("*.html") for match in opened.findall(path.read_text())}

    assert found == {(page.name, ":" if page.row else "") for page in LIVE_PAGES}


@pytest.mark.parametrize("page", LIVE_PAGES, ids=lambda page: f"{page.name}{':' if page.row else ''}")
def test_a_page_hears_of_the_same_events_as_they_come_and_from_the_table(agent: Agent, page: LivePage) -> None:
    other = make_agent("other")
    remember(other, "Cid likes gin and other things that are longer.")
    mine = [refined(each, update(row, "A shorter text.")) for each, row in ((agent, 2), (other, 3))]
    with writing():
        for account_id, about in ((HOME, agent), (HOME, other)):
            for kind in ("exception.granted", "account.sign_in", "account.notices", ROLLED_BACK):
                announce(kind, account_id, about.id)
    ids = {Agent: agent.id, Refinement: mine[0], Rollback: NOBODY, AccessGrant: NOBODY}
    topic = Topic(page, ids[page.row] if page.row else None)

    heard = [note.id for note in notes_after(HOME, 0) if topic.concerns(note)]

    assert heard == list(db.session.scalars(select(Event.id).where(*topic.conditions()).order_by(Event.id)))
    assert heard


def test_what_is_sent_to_all_carries_nobodys_token(web: Flask, agent: Agent) -> None:
    markup = send(web, f"agent:{agent.id}", Looker())

    assert f'hx-post="/agents/{agent.id}/refinements"' in markup
    assert "csrf_token" not in markup


def test_auditors_are_sent_nothing_that_acts(web: Flask, agent: Agent) -> None:
    begin(agent)
    auditor = Looker(roles=frozenset({"auditor"}))

    for topic in ("overview", "agents", f"agent:{agent.id}"):
        markup = send(web, topic, auditor)
        assert "<form" not in markup, topic
        assert 'type="checkbox"' not in markup, topic


def test_another_account_is_sent_nothing(web: Flask, agent: Agent) -> None:
    run = begin(agent)
    other = Looker(account_id=77)

    for topic in (f"agent:{agent.id}", f"refinement:{run.refinement.id}", "agent:x", "nonsense", "agent:" + "9" * 30):
        with pytest.raises(NotFound):
            send(web, topic, other)
    assert parts(send(web, "agents", other)) == {}


def test_a_page_opens_its_stream_from_what_it_already_shows(admin: Browser, agent: Agent) -> None:
    from sqlalchemy import func, select

    from app.extensions import db
    from app.models import Event

    run = begin(agent)
    newest = db.session.scalar(select(func.max(Event.id)))
    page = admin.get(f"/refinements/{run.refinement.id}").text

    assert f'hx-sse:connect="/events?topic=refinement%3A{run.refinement.id}&amp;after={newest}"' in page


def test_an_ended_refinement_s_page_and_a_rollback_s_go_on_listening(web: Flask, admin: Browser, agent: Agent) -> None:
    refinement_id = refined(agent, update(2, "Bob likes rum and other, longer things."))
    admin.post(f"/refinements/{refinement_id}/rollback")
    (made,) = rollbacks()
    for topic, path in (
        (f"refinement:{refinement_id}", f"/refinements/{refinement_id}"),
        (f"rollback:{made.id}", f"/rollbacks/{made.id}"),
    ):
        assert f'hx-sse:connect="/events?topic={topic.replace(":", "%3A")}&amp;after=' in admin.get(path).text
        with pytest.raises(NotFound):
            send(web, topic, Looker(account_id=77))
    assert "stands" in send(web, f"rollback:{made.id}", Looker())
    admin.post(f"/rollbacks/{made.id}/rollback")
    assert "stands" not in send(web, f"rollback:{made.id}", Looker())


def test_later_pages_of_the_ledger_are_left_alone_by_the_stream(web: Flask, admin: Browser, app: Flask) -> None:
    agent = make_agent("long")
    remember(agent, *(f"Memory {number}." for number in range(60)))
    after = admin.get(f"/agents/{agent.id}.json").json["next_after"]  # type: ignore[index]
    page = admin.get(f"/agents/{agent.id}/ledger", query_string={"after": after}).text

    assert 'id="ledger-other"' in page
    assert 'id="ledger"' not in page
