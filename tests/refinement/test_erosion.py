"""The erosion guard: no series of allowed passes takes more of an agent than the operator's floor, over 30 days."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest
from flask import Flask

from app.config import load_settings
from app.errors import Misconfigured
from app.extensions import db, writing
from app.history.plan import GuardFinal, Target
from app.history.undo import roll_back
from app.history.verify import verify
from app.models import COMMAND_LINE, Action, Agent, AuditLog, Memory, MemoryType, Refinement, Rollback, Status
from app.refinement.erosion import Erosion, erosion_of
from app.views.shown.agent import AgentState
from tests.support.clock import FakeClock
from tests.support.factories import Running, begin, ledger, make_agent, promote, remember

pytestmark = pytest.mark.usefixtures("nothing_missing")
"""Exact masses are what counts here, whatever the texts say."""

THRESHOLD = "0.60"


@pytest.fixture
def agent(app: Flask) -> Agent:
    """A mass of 1,000 tokens in ten memories, and a threshold that lets each pass take 40 %."""
    made = make_agent(refinement_threshold=THRESHOLD)
    remember(made, *(letter * 400 for letter in "abcdefghij"))
    return made


def weights(agent: Agent) -> dict[int, int]:
    db.session.rollback()
    return {memory.id: memory.token_estimate for memory in db.session.scalars(Memory.active(agent.id, MemoryType.CORE))}


def mass(agent: Agent) -> int:
    return sum(weights(agent).values())


def shorten(run: Running, tokens: int) -> dict[str, object]:
    """Take so many tokens from the heaviest memories; returns the last result."""
    result: dict[str, object] = {}
    for number, weight in sorted(weights(run.agent).items(), key=lambda each: (-each[1], each[0])):
        if tokens <= 0 or run.tool.is_over:
            break
        keep = max(weight - tokens, 1)
        result = run.tool.execute("update", id=number, content="x" * (4 * keep))
        tokens -= weight - keep
    return result


def take(agent: Agent, tokens: int) -> str:
    """One refinement that shortens memories by so many tokens, unless it is ended before; returns its id."""
    run = begin(agent, braced=True)
    shorten(run, tokens)
    if not run.tool.is_over:
        run.tool.execute("complete", summary="Shorter.")
    return run.refinement.id


def status(refinement_id: str) -> Status:
    db.session.rollback()
    return Status(db.session.get_one(Refinement, refinement_id, populate_existing=True).status)


def standing(agent: Agent) -> Erosion:
    db.session.rollback()
    return erosion_of(db.session.get_one(Agent, agent.id, populate_existing=True))


def test_four_allowed_passes_can_not_hollow_an_agent_out(app: Flask, clock: FakeClock) -> None:
    agent = make_agent(refinement_threshold=THRESHOLD)
    remember(agent, *(letter * 3160 for letter in "abcdefghij"))
    assert mass(agent) == 7900
    ends = []
    for _ in range(4):
        ends.append(status(take(agent, mass(agent) * 39 // 100)))
        clock.advance(days=1)
    assert ends == [Status.COMPLETED, Status.ROLLED_BACK, Status.ROLLED_BACK, Status.ROLLED_BACK]
    assert mass(agent) == 7900 - 3081
    assert verify().ok


def test_without_the_guard_the_same_four_passes_take_almost_all(app: Flask, clock: FakeClock) -> None:
    agent = make_agent(refinement_threshold=THRESHOLD)
    remember(agent, *(letter * 3160 for letter in "abcdefghij"))
    for _ in range(4):
        run = begin(agent)
        shorten(run, mass(agent) * 39 // 100)
        assert run.tool.execute("complete", summary="Shorter.")["type"] == "refinement_complete"
    assert mass(agent) < 1_200


def test_exactly_at_the_floor_passes_and_one_token_more_is_reversed(agent: Agent, clock: FakeClock) -> None:
    take(agent, 300)
    clock.advance(days=1)
    run = begin(agent, braced=True)
    before = ledger(agent)
    shorten(run, 200)
    assert mass(agent) == 500
    assert run.reload().is_open
    result = shorten(run, 1)

    assert result["type"] == "refinement_rolled_back"
    assert "501 of 1,000 tokens" in str(result["reason"])
    assert "below the erosion floor of 50%" in str(result["reason"])
    assert (ledger(agent), status(run.refinement.id)) == (before, Status.ROLLED_BACK)
    entry = db.session.scalars(db.select(AuditLog).where(AuditLog.action == Action.REFINEMENT_ROLLBACK)).one()
    assert entry.data["erosion"] == {"cut": 501, "base": 1000, "floor": "0.5000"}
    journal = db.session.scalars(Memory.active(agent.id, MemoryType.JOURNAL)).all()[-1]
    assert "501 of 1,000 tokens" in run.tool._keys.reveal_memory(journal.id, journal.content)
    assert standing(agent) == Erosion(300, 1000)


def test_what_was_saved_or_imported_since_is_part_of_what_may_be_cut_from(agent: Agent) -> None:
    take(agent, 300)
    remember(agent, "new " * 200)
    remember(agent, "a thought of today", type_=MemoryType.JOURNAL)

    assert standing(agent) == Erosion(300, 1200)
    assert status(take(agent, 300)) == Status.COMPLETED
    assert status(take(agent, 1)) == Status.ROLLED_BACK


def test_what_was_saved_during_the_run_counts_before_it_trips(agent: Agent) -> None:
    take(agent, 300)
    run = begin(agent, braced=True)
    shorten(run, 200)
    remember(agent, "new " * 200)
    assert shorten(run, 1)["type"] == "updated"


def test_an_import_that_was_undone_does_not_count(agent: Agent) -> None:
    take(agent, 300)
    (number,) = remember(agent, "new " * 200)
    entry = db.session.get_one(Memory, number).entry_id or 0
    undo = roll_back(Target.entry(entry), by=COMMAND_LINE).rollback
    assert undo is not None
    assert standing(agent) == Erosion(300, 1000)
    roll_back(Target.rollback(undo.id), by=COMMAND_LINE)
    assert standing(agent) == Erosion(300, 1200)


def test_an_undone_refinement_gives_its_share_back(agent: Agent, clock: FakeClock) -> None:
    first = take(agent, 400)
    assert status(take(agent, 200)) == Status.ROLLED_BACK
    clock.advance(days=1)

    undo = roll_back(Target.refinement(first), by=COMMAND_LINE).rollback
    assert undo is not None
    assert (mass(agent), standing(agent)) == (1000, Erosion(0, 1000))
    roll_back(Target.rollback(undo.id), by=COMMAND_LINE)
    assert (mass(agent), standing(agent)) == (600, Erosion(400, 1000))
    roll_back(Target.rewind(first), by=COMMAND_LINE)
    assert (mass(agent), standing(agent)) == (1000, Erosion(0, 1000))
    assert status(take(agent, 400)) == Status.COMPLETED


def undo(entry: AuditLog | Rollback) -> Rollback:
    target = Target.entry(entry.id) if isinstance(entry, AuditLog) else Target.rollback(entry.id)
    made = roll_back(target, by=COMMAND_LINE).rollback
    assert made is not None
    return made


def operations(refinement_id: str) -> list[AuditLog]:
    """Its changes, oldest first."""
    changes = (Action.REFINEMENT_CONSOLIDATE, Action.REFINEMENT_UPDATE, Action.REFINEMENT_DELETE)
    query = db.select(AuditLog).where(AuditLog.refinement_id == refinement_id, AuditLog.action.in_(changes))
    return list(db.session.scalars(query.order_by(AuditLog.id)))


def test_one_undone_change_gives_back_just_what_it_had_cut(agent: Agent) -> None:
    run = begin(agent, braced=True)
    one, two, three, four, five = list(weights(agent))[:5]
    run.tool.execute("delete", id=one, carried_by=five)
    run.tool.execute("update", id=two, content="x" * 200)
    run.tool.execute("consolidate", ids=[three, four], content="y" * 480)
    run.tool.execute("complete", summary="Shorter.")
    deleted, updated, consolidated = operations(run.refinement.id)
    assert standing(agent) == Erosion(100 + 50 + 80, 1000)

    undone = undo(deleted)
    assert standing(agent) == Erosion(50 + 80, 1000)
    undo(consolidated)
    undo(updated)
    assert (mass(agent), standing(agent)) == (1000, Erosion(0, 1000))
    undo(undone)
    assert (mass(agent), standing(agent)) == (900, Erosion(100, 1000))
    assert verify().ok


def test_changes_of_one_memory_give_back_each_its_own_share(agent: Agent) -> None:
    run = begin(agent, braced=True)
    number = next(iter(weights(agent)))
    for letters in (320, 120, 280):
        run.tool.execute("update", id=number, content="x" * letters)
    run.tool.execute("complete", summary="Shorter.")
    first, second, third = operations(run.refinement.id)
    assert standing(agent) == Erosion(70, 1000)

    shares = []
    for entry in (third, second, first):
        undo(entry)
        shares.append(standing(agent).cut)
    assert shares == [70, 20, 0]


def test_what_was_saved_during_the_run_gives_nothing_back_when_its_removal_is_undone(agent: Agent) -> None:
    run = begin(agent, braced=True)
    number, carrier = remember(agent, "new " * 100, "new! " * 80)
    run.tool.execute("delete", id=number, carried_by=carrier)
    run.tool.execute("complete", summary="Shorter.")
    (deleted,) = operations(run.refinement.id)
    undo(deleted)
    assert standing(agent) == Erosion(0, 1200)


def test_the_share_that_came_back_may_be_cut_again_and_not_more(agent: Agent, clock: FakeClock) -> None:
    first = take(agent, 400)
    undo(operations(first)[0])
    clock.advance(days=1)
    assert standing(agent) == Erosion(301, 1000)
    assert status(take(agent, 199)) == Status.COMPLETED
    assert status(take(agent, 1)) == Status.ROLLED_BACK
    said = AgentState.load(db.session.get_one(Agent, agent.id, populate_existing=True))
    assert said.erosion_words == "50% of 1,000 tokens kept, limit 50%"


def test_a_refinement_undone_as_a_whole_after_a_part_of_it_gives_its_share_back_once(agent: Agent) -> None:
    first = take(agent, 400)
    undo(operations(first)[0])
    whole = roll_back(Target.refinement(first), by=COMMAND_LINE).rollback
    assert standing(agent) == Erosion(0, 1000)
    assert whole is not None
    undo(whole)
    assert standing(agent) == Erosion(301, 1000)


def test_what_the_latch_reversed_stays_reversed_and_never_counts(agent: Agent) -> None:
    assert status(take(agent, 401)) == Status.ROLLED_BACK
    reversal = db.session.scalars(db.select(AuditLog).where(AuditLog.action == Action.REFINEMENT_ROLLBACK)).one()
    with pytest.raises(GuardFinal):
        undo(reversal)
    assert (mass(agent), standing(agent)) == (1000, Erosion(0, 1000))


def test_what_other_agents_cut_is_their_own_matter(agent: Agent) -> None:
    other = make_agent("mina", refinement_threshold=THRESHOLD)
    remember(other, *(letter * 400 for letter in "abcdefghij"))
    take(agent, 400)
    undone = operations(take(other, 400))[0]
    remember(other, "new " * 200)
    undo(undone)

    assert standing(agent) == Erosion(400, 1000)
    assert standing(other) == Erosion(301, 1200)
    assert status(take(agent, 100)) == Status.COMPLETED
    assert status(take(other, 200)) == Status.COMPLETED


def test_a_floor_of_one_lets_nothing_go_at_all(agent: Agent, app: Flask) -> None:
    strict = {"erosion_floor": Decimal("1")}
    app.extensions["settings"] = app.extensions["settings"].model_copy(update=strict)
    assert Erosion(0, 1000).is_below(Decimal("1")) is False
    assert Erosion(1, 1000).is_below(Decimal("1")) is True
    assert status(take(agent, 0)) == Status.COMPLETED
    assert status(take(agent, 1)) == Status.ROLLED_BACK
    assert mass(agent) == 1000


def test_what_was_promoted_or_saved_during_the_run_and_cut_gives_nothing_back_when_that_is_undone(agent: Agent) -> None:
    """Neither weighed anything at the snapshot, so that its cut took nothing and its undo returns nothing."""
    (note,) = remember(agent, "x" * 400, type_=MemoryType.JOURNAL)
    first = next(iter(weights(agent)))
    run = begin(agent, braced=True)
    promote(agent, note)
    (saved,) = remember(agent, "y" * 400)
    run.tool.execute("update", id=first, content="x" * 280)
    run.tool.execute("update", id=note, content="x" * 200)
    run.tool.execute("delete", id=saved, carried_by=first)
    run.tool.execute("complete", summary="Shorter.")
    assert standing(agent) == Erosion(30, 1200)

    for cut in operations(run.refinement.id)[1:]:
        undo(cut)
        assert standing(agent) == Erosion(30, 1200)


def test_after_thirty_days_a_refinement_counts_no_more(agent: Agent, clock: FakeClock) -> None:
    take(agent, 400)
    clock.advance(days=30)
    assert standing(agent) == Erosion(400, 1000)
    clock.advance(seconds=1)
    assert standing(agent) == Erosion(0, 600)
    assert status(take(agent, 200)) == Status.COMPLETED
    assert standing(agent) == Erosion(200, 600)


def test_exact_duplicates_and_reversed_runs_do_not_count(agent: Agent) -> None:
    assert status(take(agent, 401)) == Status.ROLLED_BACK
    assert standing(agent) == Erosion(0, 1000)


def test_a_protect_alone_never_trips_and_complete_looks_again(agent: Agent) -> None:
    take(agent, 400)
    run = begin(agent, braced=True)
    shorten(run, 100)
    with writing():
        Refinement.lock(run.refinement.id).erosion_floor = Decimal("0.6")
    assert run.tool.execute("complete", summary="Fine.")["type"] == "refinement_rolled_back"


def test_the_agent_page_says_how_much_was_kept(agent: Agent) -> None:
    said = AgentState.load(agent)
    assert said.erosion_words == "100% kept, limit 50%"
    take(agent, 300)
    said = AgentState.load(db.session.get_one(Agent, agent.id, populate_existing=True))
    assert said.erosion_words == "70% of 1,000 tokens kept, limit 50%"
    assert said.as_json()["erosion"] == {"cut": 300, "base": 1000, "kept": 0.7, "floor": 0.5}


@pytest.fixture
def floor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Decimal | None]]:
    def read(value: str) -> Decimal | None:
        monkeypatch.setenv("WHETSTONE_EROSION_FLOOR", value)
        return load_settings().erosion_floor

    yield read


def test_the_operator_sets_the_floor_or_switches_the_guard_off(floor: Callable[[str], Decimal | None]) -> None:
    assert floor("0.8") == Decimal("0.8")
    assert [floor(off) for off in ("off", "", "null")] == [None, None, None]
    for wrong in ("2", "-1", "NaN", "half", "0.12345"):
        with pytest.raises(Misconfigured, match="WHETSTONE_EROSION_FLOOR"):
            floor(wrong)


def test_switched_off_it_stops_nothing(agent: Agent, app: Flask) -> None:
    settings = app.extensions["settings"]
    app.extensions["settings"] = settings.model_copy(update={"erosion_floor": None})
    assert [status(take(agent, mass(agent) * 39 // 100)) for _ in range(4)] == [Status.COMPLETED] * 4


def test_the_share_that_is_kept_is_rounded_down_and_never_negative() -> None:
    assert Erosion(1, 3).kept == Decimal("0.6666")
    assert Erosion(0, 0).kept == Decimal(1)
    assert Erosion(5, 4).kept == Decimal(0)
    assert Erosion(5, 10).is_below(Decimal("0.5")) is False
    assert Erosion(0, 0).is_below(Decimal(1)) is False
