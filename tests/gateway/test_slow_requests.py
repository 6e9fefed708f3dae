"""Peers that send slowly, half, too much or for ever: they hold no thread, and all others are answered meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest
from flask import Flask, request

from app.gateway.answers import Refusals
from app.gateway.known import MOST_LOOKS, SenderLookup
from app.gateway.turns import AT_ONCE, MOST_WAITING, FairTurns
from app.health import READY_KEPT_SECONDS, CachedAnswer
from app.processes.asgi import PAGE_THREADS
from app.views.assets import load_assets
from tests.api.conftest import Door, issue
from tests.gateway.conftest import Crowd, Peer
from tests.support.pages import Page, Site
from tests.support.processes import wait_for
from tests.views.conftest import Browser

pytestmark = pytest.mark.once

HOST = b"Host: localhost\r\n"
FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"


def post(path: str, length: int, *headers: bytes) -> bytes:
    return (
        b"POST %s HTTP/1.1\r\n" % path.encode()
        + HOST
        + FORM
        + b"".join(headers)
        + b"Content-Length: %d\r\n\r\n" % length
    )


def get(path: str, *headers: bytes) -> bytes:
    return b"GET %s HTTP/1.1\r\n" % path.encode() + HOST + b"".join(headers) + b"\r\n"


def bearer(door: Door) -> bytes:
    return b"Authorization: Bearer %s\r\n" % door.token.encode()


def cookie(site: Site, who: Browser) -> bytes:
    assert who.user is not None
    return b"Cookie: %s\r\n" % site.cookie_of(who.user).encode()


def status(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 ([0-9]{3}) ", answer)
    assert found, answer[:200]
    return int(found[1])


def test_slow_posts_and_half_sent_heads_stop_no_page(site: Site, crowd: Crowd, admin: Browser, door: Door) -> None:
    slow = [crowd.peer(post("/sign-in", 1000), b"e") for _ in range(100)]
    half = [crowd.peer(b"GET / HTTP/1.1\r\nHost: loc") for _ in range(100)]
    with_token = [crowd.peer(post("/api/v1/memories", 1000, bearer(door)), b"{") for _ in range(30)]
    signed_in = {"Cookie": cookie(site, admin)[8:-2].decode()}

    asked = {"/healthz": {}, "/sign-in": {}, f"/assets/{load_assets()['whetstone.js'].address}": {}, "/": signed_in}
    asked["/api/v1/context"] = {"Authorization": f"Bearer {door.token}"}
    for _ in range(3):
        for path, headers in asked.items():
            assert httpx.get(f"{site.url}{path}", headers=headers, timeout=10).status_code == 200, path
        for peer in (*slow, *with_token):
            peer.send(b"x")
        for peer in half:
            peer.send(b"o")

    left = [peer for peer in (*slow, *half, *with_token) if not peer.is_closed()]
    assert 0 < len(left) <= 64


def test_pages_that_are_open_stay_open_beside_them(site: Site, crowd: Crowd, admin: Browser) -> None:
    assert admin.user is not None
    with Page(site, "overview", site.cookie_of(admin.user)) as page:
        for _ in range(200):
            crowd.peer(post("/sign-in", 1000), b"e")
        beats = page.beats
        wait_for(lambda: page.beats > beats)
        assert not page.is_closed


def test_who_sends_nothing_is_closed_without_a_word(hurried: Crowd) -> None:
    assert hurried.peer().answer() == b""


@pytest.mark.parametrize(
    "piece", [b"GET / HTTP/1.1\r\nHo", b"\r\n", b"GET /sign-in HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 100]
)
def test_a_head_that_does_not_end_in_time_is_refused(hurried: Crowd, piece: bytes) -> None:
    assert status(hurried.peer(piece).answer()) == 408


def test_a_head_that_drips_is_refused_at_the_same_time(hurried: Crowd) -> None:
    began = time.monotonic()
    peer = hurried.peer(b"GET / HTTP/1.1\r\nX: ")

    def drip() -> bool:
        peer.send(b"a")
        return peer.is_closed()

    wait_for(drip)
    assert time.monotonic() - began >= 0.25


def test_a_second_head_on_the_same_connection_has_the_same_deadline(hurried: Crowd) -> None:
    peer = hurried.peer(get("/healthz"))
    assert status(peer.answer(b'{"ok":true}')) == 200
    peer.send(b"\r\n")
    assert status(peer.answer()) == 408


def test_a_body_that_does_not_come_in_time_is_refused_in_the_askers_form(hurried: Crowd, door: Door) -> None:
    page = hurried.peer(post("/sign-in", 1000), b"email=")
    part = hurried.peer(post("/agents/pause", 1000, b"HX-Request: true\r\n"))
    program = hurried.peer(post("/api/v1/memories", 1000, bearer(door)), b"{")

    said = page.answer()
    assert status(said) == 408
    assert b"Request timed out" in said
    assert b"Content-Security-Policy" in said or b"content-security-policy" in said
    assert b"set-cookie" not in said.lower()
    assert b"hx-partial" in part.answer()
    answer = program.answer()
    assert status(answer) == 408
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "request_timeout"


def test_a_body_that_drips_is_refused_too(hurried: Crowd) -> None:
    peer = hurried.peer(post("/sign-in", 1000))

    def drip() -> bool:
        peer.send(b"x")
        return peer.is_closed()

    wait_for(drip)


def test_what_comes_behind_a_body_is_no_second_request_of_the_same_sender(crowd: Crowd) -> None:
    answer = crowd.peer(post("/sign-in", 3), b"email=x&password=y\r\n\r\n").answer()

    assert answer.count(b"HTTP/1.1 ") <= 1
    assert b"HTTP/1.1 200" not in answer


def test_lies_about_the_length_are_refused(crowd: Crowd) -> None:
    for lie in (
        b"Content-Length: -1",
        b"Content-Length: 1e3",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: " + b"9" * 30,
    ):
        assert status(crowd.peer(b"POST /sign-in HTTP/1.1\r\n" + HOST + lie + b"\r\n\r\nhello").answer()) == 400, lie
    both = b"Content-Length: 5\r\nTransfer-Encoding: chunked"
    assert status(crowd.peer(b"POST /sign-in HTTP/1.1\r\n" + HOST + both + b"\r\n\r\n0\r\n\r\n").answer()) == 400


def test_chunks_without_end_are_answered_and_then_closed(hurried: Crowd, door: Door) -> None:
    for path, expected in (("/sign-in", 400), ("/api/v1/memories", 411)):
        head = b"POST %s HTTP/1.1\r\n" % path.encode() + HOST + bearer(door) + b"Transfer-Encoding: chunked\r\n\r\n"
        peer = hurried.peer(head, b"5\r\nhello\r\n")
        assert status(peer.answer(b"\r\n\r\n")) == expected

        def goes_on(peer: Peer = peer) -> bool:
            peer.send(b"5\r\nhello\r\n")
            return peer.is_closed()

        wait_for(goes_on)


def test_chunks_without_end_to_the_tools_are_refused(hurried: Crowd, door: Door) -> None:
    head = b"POST /mcp HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    answer = hurried.peer(head, b"5\r\nhello\r\n").answer(b"\r\n\r\n")
    assert status(answer) == 401


def test_too_many_headers_and_too_long_ones_are_refused(crowd: Crowd) -> None:
    many = crowd.peer(get("/", *(b"X-%d: a\r\n" % number for number in range(200)))).answer()
    assert status(many) == 400
    long = crowd.peer(b"GET / HTTP/1.1\r\nX: ")
    for _ in range(40):
        long.send(b"a" * 10_000)
    wait_for(long.is_closed)


def test_a_head_and_its_body_in_one_piece_are_no_long_head(crowd: Crowd, door: Door) -> None:
    body = json.dumps({"content": "x" * 200_000, "type": "core"}).encode()
    whole = post("/api/v1/memories", len(body), bearer(door), b"Connection: close\r\n") + body
    assert status(crowd.peer(whole).answer()) == 422


def test_requests_sent_ahead_are_answered_in_order_but_not_without_bound(crowd: Crowd) -> None:
    few = crowd.peer(get("/healthz") + get("/nowhere.json") + get("/healthz", b"Connection: close\r\n")).answer()
    assert re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", few) == [b"200", b"404", b"200"]

    many = crowd.peer(get("/sign-in") * 2000)
    assert many.answer().count(b"HTTP/1.1 200") <= 17


def test_who_asks_before_sending_is_told_to_go_on_or_why_not(crowd: Crowd) -> None:
    asks = crowd.peer(post("/sign-in", 7, b"Expect: 100-continue\r\n"))
    assert asks.answer(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    asks.send(b"email=x")
    assert status(asks.answer(b"\r\n\r\n")) == 400

    too_large = crowd.peer(post("/sign-in", 2_000_000, b"Expect: 100-continue\r\n")).answer(b"\r\n\r\n")
    assert status(too_large) == 413


def test_a_large_body_of_a_stranger_is_not_waited_for(crowd: Crowd, site: Site, admin: Browser, door: Door) -> None:
    stranger = crowd.peer(post("/agents/1/imports", 60_000_000)).answer(b"\r\n\r\n")
    assert status(stranger) == 413
    wrong = b"Authorization: Bearer wt_wrong\r\n"
    assert status(crowd.peer(post("/api/v1/imports", 60_000_000, wrong)).answer(b"\r\n\r\n")) == 401
    assert status(crowd.peer(post("/mcp", 60_000_000, wrong)).answer(b"\r\n\r\n")) == 401


def test_a_large_body_of_somebody_known_is_read_whole(site: Site, door: Door, admin: Browser) -> None:
    lines = "\n".join(json.dumps({"content": f"Memory {number}, " + "x" * 500}) for number in range(400))
    headers = {"Authorization": f"Bearer {door.token}"}
    answer = httpx.post(f"{site.url}/api/v1/imports", json={"data": lines, "format": "jsonl"}, headers=headers)
    assert (answer.status_code, answer.json()["memories"]) == (202, 400)

    too_large = httpx.post(f"{site.url}/api/v1/memories", content=b"x" * 1_100_000, headers=headers)
    assert (too_large.status_code, too_large.headers["Content-Type"]) == (413, "application/problem+json")
    assert admin.user is not None
    form = {"Cookie": site.cookie_of(admin.user), "X-CSRFToken": admin.token}
    upload = httpx.post(
        f"{site.url}/agents/{door.agent.id}/imports", files={"file": ("a.jsonl", lines.encode())}, headers=form
    )
    assert upload.status_code == 303


def test_two_cookie_headers_and_a_query_in_no_ascii_are_understood(site: Site, crowd: Crowd, admin: Browser) -> None:
    two = get("/agents?q=caf%C3%A9", b"Cookie: a=b\r\n", cookie(site, admin), b"Connection: close\r\n")
    assert status(crowd.peer(two).answer()) == 200
    assert status(crowd.peer(two.replace(b"%C3%A9", b"\xc3\xa9")).answer()) in (200, 400)


def test_who_does_not_read_is_dropped(hasty: Site, hurried: Crowd, web: Flask) -> None:
    web.add_url_rule("/long", "long", lambda: (b"x" * 65_536 for _ in range(1_000)))
    hurried.peer(get("/long"))
    wait_for(lambda: hasty.server.server_state.total_requests == 0 and not hasty.server.server_state.connections)


def test_who_reads_slowly_but_steadily_gets_all_of_it(site: Site, crowd: Crowd, web: Flask) -> None:
    web.add_url_rule("/long", "long", lambda: (b"x" * 65_536 for _ in range(100)))
    assert len(crowd.peer(get("/long", b"Connection: close\r\n")).answer()) > 6_500_000


def test_health_is_answered_while_every_thread_is_taken(site: Site, web: Flask) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def wait() -> str:
        begun.release()
        go_on.wait(30)
        return "done"

    web.add_url_rule("/waits", "waits", wait)
    with ThreadPoolExecutor(PAGE_THREADS) as pool:
        held = [pool.submit(httpx.get, f"{site.url}/waits", timeout=30) for _ in range(PAGE_THREADS)]
        for _ in held:
            assert begun.acquire(timeout=20)
        try:
            assert httpx.get(f"{site.url}/healthz").json() == {"ok": True}
            assert httpx.head(f"{site.url}/healthz").status_code == 200
            assert httpx.get(f"{site.url}/readyz").status_code == 503
        finally:
            go_on.set()
        assert {answer.result().text for answer in held} == {"done"}


def test_one_token_leaves_threads_for_the_others(site: Site, web: Flask, door: Door, other: Door) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()
    answer = web.view_functions["api.whoami"]

    def wait(**at: object) -> object:
        if request.headers.get("Authorization", "").endswith(door.token):
            begun.release()
            go_on.wait(30)
        return answer(**at)

    web.view_functions["api.whoami"] = wait
    with ThreadPoolExecutor(20) as pool:
        asked = partial(httpx.get, f"{site.url}/api/v1/me", timeout=30)
        held = [pool.submit(asked, headers={"Authorization": f"Bearer {door.token}"}) for _ in range(20)]
        assert begun.acquire(timeout=20)
        try:
            assert asked(headers={"Authorization": f"Bearer {other.token}"}).json()["name"] == "mina"
        finally:
            go_on.set()
        assert {each.result().json()["name"] for each in held} == {"ezra"}


def test_an_agent_s_many_tokens_have_its_turns_and_no_more(site: Site, web: Flask, door: Door, other: Door) -> None:
    tokens = [door.token, *(issue(door.agent) for _ in range(7))]
    begun, go_on = threading.Semaphore(0), threading.Event()
    answer = web.view_functions["api.whoami"]

    def wait(**at: object) -> object:
        if not request.headers.get("Authorization", "").endswith(other.token):
            begun.release()
            go_on.wait(30)
        return answer(**at)

    web.view_functions["api.whoami"] = wait
    asked = partial(httpx.get, f"{site.url}/api/v1/me", timeout=30)
    with ThreadPoolExecutor(24) as pool:
        held = [pool.submit(asked, headers={"Authorization": f"Bearer {token}"}) for token in tokens * 3]
        for _ in range(AT_ONCE):
            assert begun.acquire(timeout=20)
        try:
            assert asked(headers={"Authorization": f"Bearer {other.token}"}).json()["name"] == "mina"
            assert not begun.acquire(blocking=False)
        finally:
            go_on.set()
        assert {each.result().json()["name"] for each in held} == {"ezra"}


def test_all_who_carry_no_live_token_have_the_same_turns(site: Site, web: Flask, door: Door) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()
    answer = web.view_functions["api.whoami"]

    def wait(**at: object) -> object:
        if not request.headers.get("Authorization", "").endswith(door.token):
            begun.release()
            go_on.wait(30)
        return answer(**at)

    web.view_functions["api.whoami"] = wait
    asked = partial(httpx.get, f"{site.url}/api/v1/me", timeout=30)
    public = "_".join(door.token.split("_")[:2])  # the secret may hold the mark, too
    with ThreadPoolExecutor(24) as pool:
        held = [pool.submit(asked, headers={"Authorization": f"Bearer {public}_{n:043}"}) for n in range(24)]
        for _ in range(AT_ONCE):
            assert begun.acquire(timeout=20)
        try:
            assert asked(headers={"Authorization": f"Bearer {door.token}"}).json()["name"] == "ezra"
            assert not begun.acquire(blocking=False)
        finally:
            go_on.set()
        assert {each.result().status_code for each in held} == {401}


def test_a_token_is_looked_up_once_and_by_no_more_than_may_wait(web: Flask, door: Door) -> None:
    known, looks = SenderLookup(web), []
    look = known._owner_of
    known._owner_of = lambda said: looks.append(said) or look(said)  # type: ignore[method-assign, func-returns-value]

    async def ask() -> None:
        good = {"headers": [(b"authorization", f"Bearer {door.token}".encode())]}
        assert set(await asyncio.gather(*(known.agent_of(good) for _ in range(5)))) == {door.agent.id}
        assert await known.agent_of(good) == door.agent.id
        strangers = [{"headers": [(b"authorization", b"Bearer %d" % n)]} for n in range(MOST_LOOKS * 2)]
        assert set(await asyncio.gather(*map(known.agent_of, strangers))) == {None}

    asyncio.run(ask())
    assert len(looks) == 1 + MOST_LOOKS


def test_more_than_may_wait_of_one_agent_are_refused(web: Flask) -> None:
    async def agent_of(_scope: object) -> int:
        return 7

    asyncio.run(_refuses_the_rest(FairTurns(Refusals(web), agent_of)))


async def _refuses_the_rest(turns: FairTurns) -> None:
    go_on, said = asyncio.Event(), []

    async def work(_scope: object, _receive: object, _send: object) -> None:
        await go_on.wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            said.append((message["status"], dict(message["headers"]).get(b"retry-after")))

    app: Any = turns.around(work)
    scope = {"type": "http", "method": "GET", "path": "/api/v1/me", "headers": [(b"authorization", b"Bearer a")]}
    asked = [asyncio.create_task(app(scope, None, send)) for _ in range(AT_ONCE + MOST_WAITING + 3)]
    while len(said) < 3:
        await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(*asked)
    assert said == [(429, b"5")] * 3
    assert turns._held == {}


def test_many_who_ask_whether_all_is_ready_cost_one_look(
    site: Site, web: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def look() -> dict[str, object]:
        looks.append(time.monotonic())
        return {"ready": False, "database": "does not answer", "broker": "ok", "worker": "ok"}

    web.extensions["health_ready"] = CachedAnswer(look, READY_KEPT_SECONDS, lambda found: found["worker"] == "ok")
    all_kept = httpx.Limits(max_keepalive_connections=None)  # a pool that lets go of some may close one just handed out
    with ThreadPoolExecutor(50) as pool, httpx.Client(base_url=site.url, timeout=30, limits=all_kept) as client:
        answers = list(pool.map(lambda _: client.get("/readyz"), range(500)))
    assert {answer.status_code for answer in answers} == {503}
    assert all(later - earlier >= READY_KEPT_SECONDS for earlier, later in itertools.pairwise(looks))
