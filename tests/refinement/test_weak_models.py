"""A weak model repeats itself, invents ids and deletes with carriers that it picks at random: nothing distinct goes."""

from __future__ import annotations

import random

import pytest

from app.asking.calls import Dependencies
from app.models import COMMAND_LINE, Agent, Trigger
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from benchmarks.weak_models import WeakModel
from tests.support.factories import ledger, remember

pytestmark = pytest.mark.once

PEOPLE = ("Ann", "Bob", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal", "Ida", "Jon")
PLACES = ("Oslo", "Bergen", "Lund", "Turku")


def test_of_deletions_with_random_carriers_none_passes(agent: Agent) -> None:
    """Sentences that differ in one name, number or word: near-duplicates that must not be taken for one another."""
    like = [f"{who} moved to {where} in {2000 + at}." for at, who in enumerate(PEOPLE) for where in PLACES]
    ids = remember(
        agent, *like, *(f"{who} does not like rum." for who in PEOPLE), *(f"{who} likes rum." for who in PEOPLE)
    )
    before = ledger(agent)
    model = WeakModel(ids, random.Random(7))

    for _ in range(20):
        refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
        run_refinement(refinement.id, Dependencies(model, pause=lambda _: None))

    assert len(model.asked) > 60
    assert ledger(agent) == before
