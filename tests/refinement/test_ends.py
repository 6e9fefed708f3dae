"""After an end nothing happens any more: every call, search included, answers "terminated" and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from app.extensions import db, writing
from app.models import COMMAND_LINE, Agent, AuditLog, Refinement, Status
from app.refinement.functions import ACTIONS
from app.refinement.guard import Claim
from app.refinement.start import request_stop
from app.refinement.tool import RefinementTool
from tests.refinement.driving import alike
from tests.support.factories import Running, begin, ledger, remember

ENDS = [status for status in Status if status not in ("queued", "asking", "running")]


def every_call(ids: list[int]) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("search", {"query": "tea"}),
        ("consolidate", {"ids": ids[:2], "content": "tea"}),
        ("update", {"id": ids[0], "content": "tea"}),
        ("delete", {"id": ids[0], "carried_by": ids[-1]}),
        ("protect", {"id": ids[0]}),
        ("complete", {"summary": "Done."}),
        ("delete", {"id": "nonsense", "carried_by": ids[-1]}),
        ("complete", {}),
        ("burn", {}),
    ]


def assert_terminated(run: Running, tool: RefinementTool, ids: list[int]) -> None:
    before = ledger(run.agent), run.reload().mutations, db.session.scalar(db.select(db.func.max(AuditLog.id)))
    for action, arguments in every_call(ids):
        result = tool.execute(action, **arguments)
        assert result["type"] == "error", action
        assert "terminated" in result["error"], (action, result)
        assert result["changes_left"] == 0
        assert tool.is_over
    for name in [*ACTIONS, "burn"]:
        assert "terminated" in tool.call(name, "not json")["error"]
    after = ledger(run.agent), run.reload().mutations, db.session.scalar(db.select(db.func.max(AuditLog.id)))
    assert after == before


def end(run: Running, status: Status) -> None:
    with writing():
        row = Refinement.lock(run.refinement.id)
        row.end(Agent.lock(run.agent.id), status, reason="A test ended it.")


def test_every_end_state_terminates_every_call_for_good(agent: Agent) -> None:
    ids = remember(agent, *alike(5))
    for status in sorted(ENDS, key=lambda status: status == "declined"):  # last: a NO rests
        run = begin(agent)
        end(run, status)
        assert_terminated(run, run.tool, ids)
        assert_terminated(run, RefinementTool(run.claim, run.tool._keys), ids)
        assert run.reload().status == status


def test_a_call_after_the_agents_own_complete_is_late_too(agent: Agent) -> None:
    ids = remember(agent, *alike(5))
    run = begin(agent)
    run.tool.execute("complete", summary="Done.")
    assert_terminated(run, run.tool, ids)


def test_a_tool_of_an_ended_refinement_is_no_tool_of_the_next(agent: Agent) -> None:
    ids = remember(agent, *alike(5))
    first = begin(agent)
    end(first, Status.INTERRUPTED)
    second = begin(agent)
    assert_terminated(first, first.tool, ids)
    assert second.tool.execute("delete", id=ids[0], carried_by=ids[-1])["type"] == "deleted"


def test_another_worker_holds_nothing(agent: Agent) -> None:
    ids = remember(agent, *alike(5))
    run = begin(agent, worker="mine")
    for worker in ("theirs", "", "MINE", "mine "):
        assert_terminated(run, RefinementTool(Claim(run.refinement.id, worker), run.tool._keys), ids)
    assert run.tool.execute("delete", id=ids[0], carried_by=ids[-1])["type"] == "deleted"


def test_stop_acts_before_the_next_change_and_on_all_other_calls(agent: Agent) -> None:
    ids = remember(agent, *alike(5))
    run = begin(agent)
    assert run.tool.execute("delete", id=ids[4], carried_by=ids[0])["type"] == "deleted"
    request_stop(run.refinement.id, by=COMMAND_LINE)
    assert_terminated(run, run.tool, ids)
    assert run.reload().mutations == 1


@pytest.mark.parametrize("status", [Status.QUEUED, Status.ASKING])
def test_nothing_is_changed_before_the_loop_has_begun_either(agent: Agent, status: Status) -> None:
    ids = remember(agent, *alike(5))
    run = begin(agent)
    with writing():
        Refinement.lock(run.refinement.id).status = status
    assert_terminated(run, run.tool, ids)


def test_stop_twice_and_stop_after_the_end_change_nothing(agent: Agent) -> None:
    remember(agent, "tea")
    run = begin(agent)
    run.tool.execute("complete", summary="Done.")
    newest = db.session.scalar(db.select(db.func.max(AuditLog.id)))
    assert request_stop(run.refinement.id, by=COMMAND_LINE).stop_requested_at is None
    second = begin(agent)
    request_stop(second.refinement.id, by=COMMAND_LINE)
    stopped = db.session.scalar(db.select(db.func.max(AuditLog.id)))
    request_stop(second.refinement.id, by=COMMAND_LINE)
    assert db.session.scalar(db.select(db.func.max(AuditLog.id))) == stopped
    assert newest is not None
