"""`whetstone refinements retry`, `seen` and `rollback`: many at once, by the filters of the list."""

from __future__ import annotations

import re

import pytest
from flask import Flask
from sqlalchemy import func, select

from app.extensions import db
from app.history.verify import verify
from app.models import AttentionItem, Refinement, Rollback, Status
from tests.cli.conftest import Whetstone
from tests.support.factories import ledger
from tests.views.test_refinement_list import agent_named, run
from tests.views.test_several_rollbacks import shortened

HTTP_500 = "The model openai/big failed (HTTP 500)"


@pytest.fixture
def failed(app: Flask) -> list[str]:
    """Ids of two that failed; a third agent's completed."""
    run(agent_named("otto"), Status.COMPLETED)
    return [run(agent_named(name), Status.FAILED, failure=HTTP_500) for name in ("ezra", "mina")]


def counted(*conditions: object) -> int:
    db.session.rollback()
    return db.session.scalar(select(func.count()).where(*conditions)) or 0  # type: ignore[arg-type]


def test_what_matches_is_started_anew_and_what_can_not_be_is_named(whetstone: Whetstone, failed: list[str]) -> None:
    said = whetstone("refinements", "retry", "--status", "failed,completed", "--json")

    assert (said.status, len(said.json["queued"]), said.json["refused"]) == (0, 2, {"completed": 1})
    assert counted(Refinement.status == Status.QUEUED) == 2
    again = whetstone("refinements", "retry", *failed)
    assert (again.status, again.out.splitlines()[0]) == (3, "0 queued; 2 not: already open.")


def test_what_matches_is_marked_as_seen_and_its_own_words_take_it_back(whetstone: Whetstone, failed: list[str]) -> None:
    said = whetstone("refinements", "seen", "--reason", HTTP_500)

    assert "2 refinements marked as seen." in said.out
    assert counted(AttentionItem.is_open()) == 0
    assert whetstone("refinements", "seen", *failed).out == "Nothing of these waits to be seen.\n"
    undo = re.search(r"refinements (seen --undo \S+)", said.out)
    assert undo
    assert whetstone("refinements", *undo[1].split()).out == "2 items marked as not seen.\n"
    assert counted(AttentionItem.is_open()) == 2
    assert verify().ok


def test_a_rollback_says_in_numbers_first_what_it_would_do(whetstone: Whetstone, app: Flask) -> None:
    ezra, mina = agent_named("ezra"), agent_named("mina")
    before = [[row[:4] for row in ledger(agent)] for agent in (ezra, mina)]
    ids = [shortened(ezra, 1, "Ann likes tea."), shortened(mina, 4, "Ann likes tea.")]

    preview = whetstone("refinements", "rollback", "--status", "completed")
    told = whetstone("refinements", "rollback", *ids, "--json").json

    assert preview.status == 0
    assert "Nothing is done yet." in preview.out
    assert "2 refinements of 2 agents" in preview.out
    assert "refinements rollback --status completed --yes" in preview.out
    assert (told["applied"], told["done"], told["restored"], told["left_out"]) == (False, 2, 2, {})
    assert counted(Rollback.id.is_not(None)) == 0
    assert whetstone("refinements", "rollback", "--status", "completed", "--yes").out.startswith(
        "2 refinements rolled back."
    )
    assert [[row[:4] for row in ledger(agent)] for agent in (ezra, mina)] == before
    again = whetstone("refinements", "rollback", "--status", "completed", "--json")
    assert (again.status, again.json["left_out"]) == (3, {"undone already": 2})


@pytest.mark.parametrize("act", ["retry", "seen", "rollback"])
@pytest.mark.parametrize(
    ("words", "status"),
    [
        ((), 2),
        (("--status", "nonsense"), 2),
        (("--status", "failed", "00000000"), 2),
        (("00000000-0000-4000-8000-000000000000",), 1),
        (("--agent", "nobody"), 1),
    ],
)
def test_without_a_choice_that_can_be_used_nothing_is_done(
    whetstone: Whetstone, failed: list[str], act: str, words: tuple[str, ...], status: int
) -> None:
    assert whetstone("refinements", act, *words).status == status
    assert counted(AttentionItem.is_open()) == 2
    assert counted(Refinement.status == Status.QUEUED) == 0


@pytest.mark.parametrize("undo", ["x", "2026-03-01", "a/b", "2026-03-01T00:00:00Z/2026-03-01T00:00:00Z/x"])
def test_an_undo_of_something_else_is_wrong_usage(whetstone: Whetstone, failed: list[str], undo: str) -> None:
    assert whetstone("refinements", "seen", "--undo", undo).status == 2
    assert whetstone("refinements", "seen", "--undo", undo, "--status", "failed").status == 2
