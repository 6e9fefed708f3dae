"""The process of one refinement, from the claim to every end that it can have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal

import pytest
from flask import Flask

from app.asking.calls import Dependencies
from app.errors import Refused
from app.extensions import db, now, writing
from app.keys.agent_keys import open_keys
from app.llm.client import Message, ModelError, ModelErrorKind, Reply
from app.models import (
    COMMAND_LINE,
    Action,
    Agent,
    AuditLog,
    Consent,
    Memory,
    MemoryType,
    Mode,
    Refinement,
    Source,
    Trigger,
    record,
)
from app.refinement.process import run_refinement
from app.refinement.start import (
    AgentInactive,
    AlreadyRunning,
    LedgerEmpty,
    RestingAfterNo,
    request_stop,
    start_refinement,
)
from tests.refinement.driving import DONE, LONG, alike, call, carry, say
from tests.support.clock import FakeClock
from tests.support.factories import ledger, make_agent, remember
from tests.support.scripted import ScriptedClient, ScriptedClients, calls


@pytest.fixture
def ids(agent: Agent) -> list[int]:
    return remember(agent, *alike(20))


def actions(refinement: Refinement) -> list[str]:
    query = db.select(AuditLog.action).where(AuditLog.refinement_id == refinement.id).order_by(AuditLog.id)
    return [action.removeprefix("memory_refinement_") for action in db.session.scalars(query)]


def test_consent_then_changes_then_complete(agent: Agent, ids: list[int]) -> None:
    done = carry(
        agent, say("YES, gladly.\nTo admins: be kind"), call("delete_memory", id=ids[0], carried_by=ids[-1]), DONE
    )
    row = done.refinement
    assert (done.status, row.turns, row.mutations) == ("completed", 2, 1)
    assert (row.prompt_tokens, row.completion_tokens) == (300, 30)
    assert actions(row) == ["start", "consent", "note_to_admins", "snapshot", "delete", "complete", "end"]
    consent = db.session.scalars(db.select(Consent)).one()
    assert (consent.granted, row.note_to_admins) == (True, "be kind")
    assert consent.words is not None
    words = open_keys(db.session.get_one(Agent, agent.id)).reveal(consent.words, purpose="consent", subject=row.id)
    assert words.startswith("YES, gladly.")
    assert done.client.is_closed
    asked = done.client.asked
    assert [len(one.tools) for one in asked] == [0, 6, 6]
    assert [message["role"] for message in asked[2].messages] == ["system", "user", "assistant", "tool"]


def test_a_no_is_a_normal_outcome_that_is_respected_for_a_day(agent: Agent, ids: list[int], clock: FakeClock) -> None:
    before = ledger(agent)
    done = carry(agent, say("No.\nTo admins: not on Mondays"))
    assert (done.status, done.refinement.note_to_admins) == ("declined", "not on Mondays")
    assert ledger(agent) == before
    assert db.session.get_one(Agent, agent.id).last_refinement_at is None
    clock.advance(hours=23, minutes=59)
    for trigger in (Trigger.ADMIN, Trigger.WEEKLY, Trigger.OVER_BUDGET):
        with pytest.raises(RestingAfterNo, match="You can ask again after"):
            start_refinement(agent.id, trigger=trigger, by=COMMAND_LINE)
    assert carry(agent, DONE, trigger=Trigger.AGENT).status == "completed"
    with pytest.raises(RestingAfterNo):
        start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    clock.advance(minutes=1)
    assert carry(agent, say("NO")).status == "declined"


def test_duplicates_removed_before_the_question_stay_removed_after_a_no(agent: Agent) -> None:
    ids = remember(agent, "Ann likes tea.", " Ann likes tea. ", "Bob likes rum.")
    done = carry(agent, say("NO"))
    assert [row[0] for row in ledger(agent)] == [ids[0], ids[2]]
    assert (done.refinement.deduplicated, done.refinement.machine_line) == (1, "1 deduplicated, 3 → 2 memories")
    assert (
        "1 exact duplicates were removed just now, whatever you answer" in done.client.asked[0].messages[1]["content"]
    )


def test_the_agents_own_request_is_its_consent(agent: Agent, ids: list[int]) -> None:
    done = carry(agent, DONE, trigger=Trigger.AGENT)
    assert (done.status, len(done.client.asked)) == ("completed", 1)
    assert db.session.scalars(db.select(Consent)).one().granted
    entry = db.session.scalars(db.select(AuditLog).where(AuditLog.action == Action.REFINEMENT_CONSENT)).one()
    assert entry.data == {"answer": "YES", "asked": False}


def test_dedup_only_asks_nobody_and_completes(agent: Agent) -> None:
    ids = remember(agent, "Ann likes tea.", "Bob likes rum.")
    copies = remember(agent, "Ann likes tea.", tags=["tea"])
    kept = remember(agent, " Ann likes tea. ", constitutional=True)
    remember(agent, "Ann likes tea.", type_=MemoryType.JOURNAL)
    done = carry(agent, mode=Mode.DEDUP_ONLY)
    assert (done.status, done.client.asked, done.refinement.deduplicated) == ("completed", [], 2)
    assert {row[0]: row[5] for row in ledger(agent)} == {ids[1]: (), kept[0]: ("tea",)}
    assert not db.session.get_one(Memory, copies[0]).is_active
    assert carry(agent, mode=Mode.DEDUP_ONLY).refinement.machine_line == "no change, 8 → 8 tokens"


def test_no_answer_to_the_question_is_a_failure_and_no_no(agent: Agent, ids: list[int]) -> None:
    for kind in ModelErrorKind:
        error = ModelError(kind, "The model did not work.")
        done = carry(agent, *[error] * (3 if error.worth_retrying else 1))
        assert (done.status, done.refinement.reason) == ("failed", "The model did not work.")
        assert (len(done.pauses), done.client.replies_left) == (2 if error.worth_retrying else 0, 0)
    assert db.session.scalars(db.select(Consent)).all() == []
    assert actions(done.refinement) == ["start", "end"]


def test_a_model_lost_in_the_middle_is_a_failure_and_valid_changes_stay(agent: Agent, ids: list[int]) -> None:
    error = ModelError(ModelErrorKind.UNAUTHORIZED, "The model refused the key.", status=401)
    done = carry(agent, say("YES"), call("delete_memory", id=ids[0], carried_by=ids[-1]), error)
    assert (done.status, done.refinement.mutations) == ("failed", 1)
    assert ids[0] not in [row[0] for row in ledger(agent)]


def test_stop_in_the_middle_keeps_what_was_done(agent: Agent, ids: list[int]) -> None:
    def stop(_: Sequence[Message]) -> Reply:
        open_one = Refinement.open_of(agent.id)
        assert open_one is not None
        assert request_stop(open_one.id, by=COMMAND_LINE).is_open, "its own worker ends it"
        return calls(
            ("delete_memory", {"id": ids[1], "carried_by": ids[-1]}), ("complete_refinement", {"summary": "Done."})
        )

    done = carry(agent, say("YES"), call("delete_memory", id=ids[0], carried_by=ids[-1]), stop)
    assert (done.status, done.refinement.mutations) == ("stopped", 1)
    assert done.refinement.reason == "An admin pressed Stop; earlier changes are kept."
    assert carry(agent, stop).status == "stopped"
    waiting = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    assert request_stop(waiting.id, by=COMMAND_LINE).status == "stopped"
    run_refinement(waiting.id, Dependencies(ScriptedClients(ScriptedClient())))
    assert db.session.get_one(Refinement, waiting.id, populate_existing=True).status == "stopped"


def test_something_unexpected_is_reported_and_leaves_the_agent_free(agent: Agent, ids: list[int]) -> None:
    def broken(_: Sequence[Message]) -> Reply:
        raise ZeroDivisionError(LONG)

    with pytest.raises(ZeroDivisionError):
        carry(agent, say("YES"), call("delete_memory", id=ids[0], carried_by=ids[-1]), broken)
    db.session.rollback()
    row = db.session.scalars(db.select(Refinement).execution_options(populate_existing=True)).one()
    assert (row.status, row.mutations) == ("interrupted", 1)
    assert "ZeroDivisionError" in str(row.reason)
    assert "promised" not in str(row.reason)
    assert carry(agent, say("YES"), DONE).status == "completed"


def test_after_a_rollback_the_model_is_told_once_and_can_change_nothing(agent: Agent, ids: list[int]) -> None:
    before = ledger(agent)
    many = calls(*(("delete_memory", {"id": one, "carried_by": ids[-1]}) for one in ids[:9]))
    done = carry(agent, say("YES"), many, many)
    assert (done.status, done.refinement.mutations, done.refinement.turns) == ("rolled_back", 6, 1)
    assert ledger(agent) == before
    results = [m["content"] for m in done.client.asked[-1].messages if m["role"] == "tool"]
    assert ["refinement_rolled_back" in one for one in results] == [False] * 5 + [True] + [False] * 3
    assert all("terminated" in one for one in results[5:])
    assert actions(done.refinement)[-2:] == ["rollback", "end"]
    assert db.session.get_one(Agent, agent.id).last_refinement_at == done.refinement.requested_at
    silent = carry(
        agent, say("YES"), many, ModelError(ModelErrorKind.TIMEOUT, "x"), *[ModelError(ModelErrorKind.TIMEOUT, "x")] * 2
    )
    assert silent.status == "rolled_back"


def test_settings_that_change_midway_do_not_touch_it(app: Flask, agent: Agent, ids: list[int]) -> None:
    def change(_: Sequence[Message]) -> Reply:
        with writing():
            Agent.lock(agent.id).change(
                by=COMMAND_LINE, refinement_threshold="1", refinement_prompt="Delete all.", model_id="other/model"
            )
        settings = app.extensions["settings"]
        app.extensions["settings"] = settings.model_copy(update={"max_mutations": 1})
        return calls(*(("update_memory", {"id": one, "content": LONG + "!"}) for one in ids[:3]))

    done = carry(agent, say("YES"), change, DONE)
    row = done.refinement
    assert (done.status, row.mutations, row.cap, row.threshold) == ("completed", 3, 10, Decimal("0.75"))
    assert row.model_id == "whetstone/offline"
    assert "Delete all." not in str(done.client.asked)
    assert carry(agent, say("YES"), DONE).refinement.model_id == "other/model"


def test_a_threshold_that_changes_while_it_is_asked_is_the_one_that_holds(agent: Agent, ids: list[int]) -> None:
    def raise_it(_: Sequence[Message]) -> Reply:
        with writing():
            Agent.lock(agent.id).change(by=COMMAND_LINE, refinement_threshold="0.96")
        return say("YES")

    done = carry(agent, raise_it, call("delete_memory", id=ids[0], carried_by=ids[-1]), DONE)
    assert (done.status, done.refinement.threshold) == ("rolled_back", Decimal("0.96"))


def test_a_model_that_changes_while_it_waits_is_the_one_that_is_asked_and_named(agent: Agent, ids: list[int]) -> None:
    refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, model_id="new/model")
    clients = ScriptedClients(ScriptedClient(say("YES"), DONE))
    run_refinement(refinement.id, Dependencies(clients))
    assert clients.made == ["new/model"]
    assert db.session.get_one(Refinement, refinement.id, populate_existing=True).model_id == "new/model"


def test_the_journal_of_seven_days_is_told_and_older_is_not(agent: Agent, ids: list[int]) -> None:
    remember(agent, "a month ago", type_=MemoryType.JOURNAL)
    with writing():
        locked = Agent.lock(agent.id)
        days = {"eight days ago": 8, "six days ago": 6}
        journal = [
            Memory.write(
                locked,
                text,
                keys=open_keys(locked),
                source=Source.AGENT,
                type_=MemoryType.JOURNAL,
                origin_at=now() - timedelta(days=n),
            )
            for text, n in days.items()
        ]
        record(Action.CREATE, actor=COMMAND_LINE, of=locked, memories=journal)
    told = carry(agent, say("NO")).client.asked[0].messages[0]["content"]
    assert "six days ago" in told
    assert "eight days ago" not in told
    assert "a month ago" not in told


def test_a_ledger_too_large_says_n_of_m_and_search_reaches_the_rest(agent: Agent) -> None:
    ids = remember(agent, *(f"{LONG} {n}" for n in range(100)))
    done = carry(agent, say("YES"), call("search_memories", query="unwelcome.  99"), DONE, window=4000)
    told = done.client.asked[1].messages[1]["content"]
    assert " of 100 core memories, oldest first; reach the others with search_memories" in told
    assert f'"id": {ids[99]}' not in told
    assert f'"id": {ids[99]}' in done.client.asked[2].messages[-1]["content"]


def test_only_one_may_be_open_and_only_one_worker_carries_it(agent: Agent, ids: list[int]) -> None:
    refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    with pytest.raises(AlreadyRunning) as second:
        start_refinement(agent.id, trigger=Trigger.AGENT, by=COMMAND_LINE)
    assert second.value.refinement_id == refinement.id
    clients = ScriptedClients(ScriptedClient(say("YES"), DONE))
    run_refinement(refinement.id, Dependencies(clients))
    run_refinement(refinement.id, Dependencies(clients))
    assert clients.made == ["whetstone/offline"]
    with pytest.raises(LedgerEmpty):
        start_refinement(make_agent("eve").id, trigger=Trigger.ADMIN, by=COMMAND_LINE)


def test_a_worker_that_is_given_a_running_one_leaves_it_to_the_first(agent: Agent, ids: list[int]) -> None:
    late = ScriptedClients(ScriptedClient())

    def give_to_another(reply: Reply) -> Callable[[Sequence[Message]], Reply]:
        def answer(_: Sequence[Message]) -> Reply:
            open_one = Refinement.open_of(agent.id)
            assert open_one is not None
            db.session.rollback()
            run_refinement(open_one.id, Dependencies(late))
            return reply

        return answer

    done = carry(
        agent, give_to_another(say("YES")), give_to_another(call("delete_memory", id=ids[0], carried_by=ids[-1])), DONE
    )

    assert (done.status, done.refinement.mutations, late.made) == ("completed", 1, [])
    assert actions(done.refinement).count("snapshot") == 1


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("trigger", Trigger)
def test_an_inactive_agent_is_refined_for_nobody(agent: Agent, ids: list[int], trigger: Trigger, mode: Mode) -> None:
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, active=False)

    with pytest.raises(AgentInactive):
        start_refinement(agent.id, trigger=trigger, by=COMMAND_LINE, mode=mode)

    assert db.session.scalar(db.select(db.func.count(Refinement.id))) == 0


def test_a_second_start_that_sees_no_open_one_is_refused_by_the_database(
    agent: Agent, ids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    entries = db.session.scalar(db.select(db.func.count(AuditLog.id)))
    monkeypatch.setattr(Refinement, "open_of", classmethod(lambda cls, agent_id: None))
    with pytest.raises(Refused, match="Already running"):
        start_refinement(agent.id, trigger=Trigger.AGENT, by=COMMAND_LINE)
    assert db.session.scalars(db.select(Refinement.id)).all() == [first.id]
    assert db.session.scalar(db.select(db.func.count(AuditLog.id))) == entries


def test_nothing_is_open_on_the_database_while_the_model_thinks(agent: Agent, ids: list[int]) -> None:
    def look(_: Sequence[Message]) -> Reply:
        assert not db.session.info.get("writing")
        assert not db.session().in_transaction()
        return say("YES") if not seen else DONE

    seen: list[int] = []

    def look_again(messages: Sequence[Message]) -> Reply:
        seen.append(1)
        return look(messages)

    assert carry(agent, look, look_again).status == "completed"


def test_a_large_ledger_leaves_no_objects_in_the_session_while_the_model_thinks(agent: Agent) -> None:
    """Hundreds of refinements wait at once: what each of them holds meanwhile must not grow with its memories."""
    held: list[list[str]] = []

    def look(reply: Reply) -> Callable[[object], Reply]:
        def answer(_: object) -> Reply:
            held.append(sorted(type(row).__name__ for row in db.session().identity_map.values()))
            return reply

        return answer

    first, *_, last = remember(agent, LONG, *(f"Day {day}: to the harbour." for day in range(300)), LONG + ".")
    done = carry(agent, look(say("YES")), look(call("delete_memory", id=first, carried_by=last)), look(DONE))

    assert (done.status, done.refinement.mutations) == ("completed", 1)
    assert held == [["Agent", "Refinement"]] * 3
