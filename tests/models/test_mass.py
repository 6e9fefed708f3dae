"""The mass of a refinement as one story: the same sentence and figures for pages, the command line and programs."""

from __future__ import annotations

from decimal import Decimal

import pytest
from flask import Flask

from app.extensions import writing
from app.history.plan import Target
from app.history.undo import roll_back
from app.models import COMMAND_LINE, Agent, Mode, Refinement, Status
from app.shapes.refinement import RefinementShape
from app.values.mass_story import MassStory, exact_percent, percent
from tests.support.factories import begin, make_agent, remember

pytestmark = pytest.mark.usefixtures("nothing_missing")


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent()


def words(tokens: int, letter: str) -> str:
    return letter * (4 * tokens)


def story(refinement: Refinement) -> MassStory:
    told = refinement.mass_story()
    assert told is not None
    return told


@pytest.mark.parametrize(
    ("ratio", "limit", "said"),
    [
        ("0.6666", "0.75", "66.7%"),
        ("0.9891", "0.75", "98.9%"),
        ("0.7496", "0.75", "74.9%"),
        ("0.7499", "0.75", "74.9%"),
        ("0.75", "0.75", "75%"),
        ("0.7501", "0.75", "75%"),
        ("0.7525", "0.7525", "75.3%"),
        ("0.7524", "0.7525", "75.2%"),
        ("0.7504", "0.7504", "75.1%"),
        ("0.7503", "0.7504", "75%"),
        ("0.9999", "0.75", "99.9%"),
        ("0.9999", "1", "99.9%"),
        ("1", "0.75", "100%"),
        ("0", "0.75", "0%"),
    ],
)
def test_a_percentage_is_rounded_but_never_to_the_other_side_of_its_limit(ratio: str, limit: str, said: str) -> None:
    assert percent(Decimal(ratio), Decimal(limit)) == said


def test_no_ratio_of_four_digits_is_told_on_the_wrong_side() -> None:
    limit = Decimal("0.75")
    for number in range(10_001):
        ratio = Decimal(number) / 10_000
        told = Decimal(percent(ratio, limit).removesuffix("%"))
        assert (told >= 75) == (ratio >= limit)
        assert (told == 100) == (ratio == 1)


def test_a_limit_is_told_as_it_was_set() -> None:
    assert [exact_percent(each) for each in ("0.7500", "0.5", "1.0000", "0.7225")] == ["75%", "50%", "100%", "72.25%"]


def test_it_tells_start_duplicates_end_and_what_was_kept_of_what(agent: Agent) -> None:
    ids = remember(agent, words(1_000, "a"), words(30, "b"), words(165, "d"), words(165, "d"))
    run = begin(agent, deduplicate=True)
    assert (
        story(run.refinement).line
        == "1,360 → 1,195 after 1 exact duplicate (not counted): 100% of 1,195 kept, limit 75%"
    )
    run.tool.execute("delete", id=ids[1], carried_by=ids[0])
    run.tool.execute("complete", summary="done")
    ended = run.reload()

    assert story(ended).line == (
        "1,360 → 1,195 after 1 exact duplicate (not counted) → 1,165: 97.5% of 1,195 kept, limit 75%"
    )
    assert RefinementShape.of(ended).as_json()["mass"] == {
        "start": 1360,
        "after_dedup": 1195,
        "after": 1165,
        "retention": 0.9748,
        "limit": 0.75,
        "line": story(ended).line,
    }
    assert not story(ended).is_reversed


def test_what_a_guard_reversed_is_told_as_reversed_and_not_as_a_mass_that_never_moved(agent: Agent) -> None:
    ids = remember(agent, *(words(100, letter) for letter in "abcdefghijkl"))
    run = begin(agent)
    for number in ids[:4]:
        run.tool.execute("delete", id=number, carried_by=ids[4])
    ended = run.reload()

    assert ended.status == Status.ROLLED_BACK
    assert ended.machine_line == "4 deletions reversed"
    assert story(ended).line == "1,200: 4 deletions reversed; 66.7% of 1,200 would have been kept, limit 75%"
    assert story(ended).is_reversed


def test_the_duplicates_before_a_trip_stay_told_as_removed(agent: Agent) -> None:
    ids = remember(agent, words(100, "a"), words(100, "b"), words(50, "d"), words(50, "d"))
    run = begin(agent, deduplicate=True)
    run.tool.execute("delete", id=ids[0], carried_by=ids[1])
    ended = run.reload()

    assert ended.machine_line == "1 deduplicated, 1 deletion reversed, 4 → 3 memories, 300 → 250 tokens"
    assert story(ended).line == (
        "300 → 250 after 1 exact duplicate (not counted): "
        "1 deletion reversed; 60% of 250 would have been kept, limit 75%"
    )


def test_after_a_rollback_everything_is_told_as_reversed_and_after_its_undo_no_more(agent: Agent) -> None:
    ids = remember(agent, words(1_000, "a"), words(30, "b"), words(165, "d"), words(165, "d"))
    run = begin(agent, deduplicate=True)
    run.tool.execute("delete", id=ids[1], carried_by=ids[0])
    run.tool.execute("complete", summary="done")
    done = roll_back(Target.refinement(run.refinement.id), by=COMMAND_LINE)
    undone = run.reload()

    assert story(undone).is_reversed
    assert "1 deletion, 1 exact duplicate reversed; 97.5% of 1,195 was kept, limit 75%" in story(undone).line
    assert done.rollback is not None
    roll_back(Target.rollback(done.rollback.id), by=COMMAND_LINE)
    assert not story(run.reload()).is_reversed


def test_a_run_for_exact_duplicates_only_measures_no_retention(agent: Agent) -> None:
    remember(agent, words(100, "a"), words(50, "d"), words(50, "d"))
    run = begin(agent, mode=Mode.DEDUP_ONLY)
    with writing():
        row, locked = Refinement.lock(run.refinement.id), Agent.lock(agent.id)
        row.deduplicated, row.deduplicated_tokens = 1, 50
        row.end(locked, Status.COMPLETED)

    assert story(run.reload()).limit is None
    assert "200 → 150 after 1 exact duplicate" in story(run.reload()).line
    assert "kept" not in story(run.reload()).line


def test_before_there_is_a_mass_there_is_no_story(agent: Agent) -> None:
    from app.models import Trigger
    from app.refinement.start import start_refinement

    remember(agent, words(100, "a"))
    refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)

    assert refinement.mass_story() is None
    assert RefinementShape.of(refinement).mass is None
