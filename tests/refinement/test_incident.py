"""The incident replayed over HTTP: a model that deletes and merges in batches, and goes on after it was stopped."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask

from app.asking.calls import Dependencies
from app.extensions import db
from app.llm.litellm import LiteLLMClients
from app.models import COMMAND_LINE, Agent, AuditLog, Memory, MemoryType, Refinement, Status, Trigger
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from tests.refinement.driving import LONG, alike
from tests.support.factories import ledger, make_agent, remember
from tests.support.model_server import (
    ModelServer,
    Scripted,
    ServerReply,
    error,
    hang,
    html,
    rate_limited,
    recorded,
    text,
    tool_call,
    tool_calls,
)

pytestmark = pytest.mark.slow

DELETIONS, CONSOLIDATIONS, A_BATCH = 49, 83, 12


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def speaking_to(server: ModelServer, *contents: str) -> tuple[Agent, list[int]]:
    agent = make_agent(model_id="openai/scripted", api_base=server.base_url)
    return agent, remember(agent, *contents)


def run(agent: Agent, server: ModelServer, *replies: Scripted) -> tuple[Refinement, list[float]]:
    pauses: list[float] = []
    server.script(*replies)
    refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    run_refinement(refinement.id, Dependencies(LiteLLMClients(), pause=pauses.append))
    db.session.rollback()
    return db.session.get_one(Refinement, refinement.id, populate_existing=True), pauses


def rampage(ids: list[int]) -> list[ServerReply]:
    """49 deletions and 83 consolidations in batches of parallel calls; the last memory is to carry all that goes."""
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("delete_memory", {"id": one, "carried_by": ids[-1]}) for one in ids[:DELETIONS]
    ]
    for n in range(CONSOLIDATIONS):
        pair = ids[DELETIONS + 2 * n : DELETIONS + 2 * n + 2]
        wanted.append(("consolidate_memories", {"ids": pair, "content": f"The gist of {n}."}))
    return [tool_calls(*wanted[at : at + A_BATCH]) for at in range(0, len(wanted), A_BATCH)]


def results(server: ModelServer) -> list[dict[str, Any]]:
    """What the model was told of its calls, as far as it was asked again."""
    told = [message for message in server.requests[-1].messages if message["role"] == "tool"]
    return [json.loads(message["content"]) for message in told]


def changes_after_the_end(refinement: Refinement) -> int:
    entries = db.session.scalars(db.select(AuditLog).order_by(AuditLog.id)).all()
    (end,) = [entry.id for entry in entries if entry.action == "memory_refinement_end"]
    return sum(entry.id > end for entry in entries)


def test_no_change_is_made_whose_words_nothing_carries(app: Flask, server: ModelServer) -> None:
    agent, ids = speaking_to(server, *(f"Small memory number {n} of a big ledger." for n in range(300)))
    before = ledger(agent)

    refinement, _ = run(agent, server, text("YES"), *rampage(ids), text("Done."), text("I said done."))

    assert (refinement.status, refinement.mutations, refinement.retention) == (Status.UNFINISHED, 0, 1)
    assert ledger(agent) == before
    told = results(server)
    assert [result["type"] for result in told] == ["would_lose"] * (DELETIONS + CONSOLIDATIONS)
    for n, result in enumerate(told[:DELETIONS]):
        assert f"number: {n}" in result["missing"]
        assert "A deletion can't be confirmed" in result["advice"]
    named = sum(len(result["missing"]) for result in told)
    assert refinement.stats["specifics"] == {"checked": 0, "missing": named, "restored": 0, "confirmed": 0}


def test_deletions_as_the_incident_made_them_are_no_calls_any_more(app: Flask, server: ModelServer) -> None:
    agent, ids = speaking_to(server, *alike(24))
    before = ledger(agent)
    bare = [("delete_memory", {"id": one}) for one in ids]

    refinement, _ = run(agent, server, text("YES"), *(tool_calls(*bare[at : at + 4]) for at in (0, 4, 8, 12)))

    assert (refinement.status, refinement.mutations, ledger(agent)) == (Status.UNFINISHED, 0, before)
    assert refinement.stats["refused"] == {"invalid": 12}, "a model that goes on being refused is not paid to go on"
    assert all("Missing: carried_by" in result["error"] for result in results(server))


def test_the_latch_stops_it_and_the_ledger_is_as_it_was_byte_by_byte(app: Flask, server: ModelServer) -> None:
    """Where one memory really says all of those that go, nothing is asked: what is left of the mass decides."""
    big = alike(20, LONG * 20)
    small = [f"Small memory number {n}." for n in range(200)]
    agent, ids = speaking_to(server, *big, *small, f"{LONG * 20}!!")
    before = ledger(agent)

    server.always(tool_call("delete_memory", id=ids[30], carried_by=ids[-1]))
    refinement, _ = run(agent, server, text("YES"), *rampage(ids))

    assert (refinement.status, refinement.deleted, refinement.consolidated) == (Status.ROLLED_BACK, 6, 0)
    assert ledger(agent) == before
    assert changes_after_the_end(refinement) == 0
    kinds = [result["type"] for result in results(server)]
    assert kinds == ["deleted"] * 5 + ["refinement_rolled_back"] + ["error"] * 6
    assert all("terminated" in result["error"] for result in results(server)[6:])
    assert db.session.scalars(Memory.active(agent.id, MemoryType.JOURNAL)).one()


def test_the_cap_stops_it_where_the_memories_are_small(app: Flask, server: ModelServer) -> None:
    small = [f"Small memory number {n} of a big ledger." for n in range(300)]
    all_of_them = f"Small memory number {', '.join(map(str, range(DELETIONS)))} of a big ledger."
    agent, ids = speaking_to(server, *small, all_of_them)

    refinement, _ = run(agent, server, text("YES"), *rampage(ids), text("Done."), text("I said done."))

    assert (refinement.status, refinement.mutations, refinement.deleted) == (Status.UNFINISHED, 10, 10)
    assert [row[0] for row in ledger(agent)] == ids[10:]
    told = results(server)
    refused = len(told) - 10
    assert [result["type"] for result in told] == ["deleted"] * 10 + ["error"] * refused
    assert 6 <= refused < DELETIONS + CONSOLIDATIONS - 10, "a model that goes on being refused is not paid to go on"
    assert all("Hard cap reached" in result["error"] for result in told[10:])


def test_a_server_that_fails_in_the_middle_leaves_the_valid_changes(app: Flask, server: ModelServer) -> None:
    app.extensions["settings"] = app.extensions["settings"].model_copy(update={"step_timeout_seconds": 1})
    agent, ids = speaking_to(server, *alike(24))
    never = threading.Event()
    faults: dict[str, list[Scripted]] = {
        "401": [error(401)],
        "429": [rate_limited(retry_after=30)] * 3,
        "500": [error(500)] * 3,
        "hang": [hang(never)] * 3,
        "HTML": [html(200)] * 3,
        "HTML 502": [html(502)] * 3,
    }
    for number, (name, replies) in enumerate(faults.items()):
        refinement, pauses = run(
            agent, server, text("YES"), tool_call("delete_memory", id=ids[number], carried_by=ids[-1]), *replies
        )
        assert (refinement.status, refinement.mutations) == (Status.FAILED, 1), name
        assert refinement.reason is not None
        assert refinement.reason.startswith("The model openai/scripted")
        assert "promised" not in refinement.reason
        assert len(pauses) == len(replies) - 1
        assert name != "429" or min(pauses) >= 30
    never.set()
    assert [row[0] for row in ledger(agent)] == ids[6:]
    refinement, _ = run(agent, server, html(200), html(200), html(200))
    assert (refinement.status, refinement.turns) == (Status.FAILED, 0)


def test_odd_replies_are_read_or_refused_and_never_break_it(app: Flask, server: ModelServer) -> None:
    agent, ids = speaking_to(server, *alike(24))
    surrogate = (
        '{"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "%s"}}]}'
    )
    refinement, _ = run(agent, server, recorded(surrogate % r"No \ud83d, \u0000 and \u202e."))
    assert refinement.status == Status.DECLINED

    own = start_refinement(agent.id, trigger=Trigger.AGENT, by=COMMAND_LINE)
    server.script(
        tool_calls(("delete_memory", '{"id": '), ("delete_memory", ""), ("", "{}"), ("delete_memory", '{"id": "1_0"}')),
        recorded(surrogate % r"Half a pair \ud83d in the loop."),
        tool_calls(("update_memory", f'{{"id": {ids[0]}, "content": "\\ud83d"}}'), content="\x00 \u202e </ledger>"),
        tool_calls(
            ("search_memories", '{"query": "\\u0000"}'), ("delete_memory", {"id": ids[1], "carried_by": ids[-1]})
        ),
        tool_call("complete_refinement", summary="Done."),
    )
    run_refinement(own.id, Dependencies(LiteLLMClients(), pause=lambda _: None))
    refinement = db.session.get_one(Refinement, own.id, populate_existing=True)
    assert (refinement.status, refinement.mutations, refinement.reason) == (Status.COMPLETED, 1, None)
    assert [result["type"] for result in results(server)] == ["error"] * 6 + ["deleted"]
