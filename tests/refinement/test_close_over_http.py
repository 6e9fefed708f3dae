"""The close of a refinement, asked over real HTTP: how many requests it sends, to whom, and what they hold."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from app.asking.calls import Dependencies
from app.extensions import db, writing
from app.llm.litellm import LiteLLMClients
from app.models import COMMAND_LINE, Agent, Refinement, Trigger
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from tests.refinement.reading import TEXTS, want_probes
from tests.support.factories import ledger, make_agent, remember
from tests.support.model_server import ModelServer, Scripted, error, text, tool_call

SHORTER = TEXTS[0].replace("even when", "when")


@pytest.fixture
def own() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def reader() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def agent(app: object, own: ModelServer) -> Agent:
    made = make_agent(model_id="openai/own", api_base=own.base_url)
    remember(made, *TEXTS)
    return made


def run(agent: Agent, own: ModelServer, *before: Scripted, after: tuple[Scripted, ...] = ()) -> Refinement:
    """The agent says YES, shortens one memory and completes; `before` and `after` are further replies."""
    change = tool_call("update_memory", id=ledger(agent)[0][0], content=SHORTER)
    own.script(text("YES"), *before, change, tool_call("complete_refinement", summary="Done."), *after)
    refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    run_refinement(refinement.id, Dependencies(LiteLLMClients(), pause=lambda _: None))
    db.session.rollback()
    return db.session.get_one(Refinement, refinement.id, populate_existing=True)


def read_by(agent: Agent, reader: ModelServer, action: str = "flag") -> None:
    with writing():
        Agent.lock(agent.id).change(
            by=COMMAND_LINE,
            second_reader_model="openai/reader",
            second_reader_api_base=reader.base_url,
            second_reader_action=action,
        )


def test_with_both_off_there_is_no_call_beside_the_question_and_the_turns(
    agent: Agent, own: ModelServer, reader: ModelServer
) -> None:
    done = run(agent, own)
    assert (done.status, len(own.requests), len(reader.requests)) == ("completed", 3, 0)


def test_with_both_on_there_are_two_more_of_the_agents_model_and_one_of_the_reader(
    agent: Agent, own: ModelServer, reader: ModelServer
) -> None:
    read_by(agent, reader)
    want_probes(agent, 1)
    (number, *_) = (row[0] for row in ledger(agent))
    asked = {"probes": [{"memory": number, "question": "Where did we promise that?", "answer": "in Lisbon"}]}
    reader.script(text("1: kept"))
    done = run(agent, own, text(json.dumps(asked)), after=(text('{"answers": ["in Lisbon"]}'),))

    assert (done.status, len(own.requests), len(reader.requests)) == ("completed", 5, 1)
    assert done.second_reading == {"groups": 1, "kept": 1, "flagged": [], "action": "flag", "outcome": "read"}
    assert done.probes == {"asked": 1, "kept": 1, "missing": 0, "missing_in_ledger": 0}
    sent = json.dumps(reader.requests[0].body)
    assert reader.requests[0].body.get("tools") in (None, [])
    assert SHORTER in sent
    for hidden in (TEXTS[1], TEXTS[2], "Done.", "YES"):
        assert hidden not in sent


def test_a_reader_that_fails_three_times_has_called_nothing_kept(
    agent: Agent, own: ModelServer, reader: ModelServer
) -> None:
    read_by(agent, reader, "reverse")
    before = ledger(agent)
    reader.script(*[error(503)] * 3)
    done = run(agent, own)
    assert (done.status, len(reader.requests), ledger(agent)) == ("rolled_back", 3, before)
    assert done.reason == "The second reader gave no answer, so it called no change kept."
