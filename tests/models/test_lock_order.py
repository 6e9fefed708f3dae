"""One order of locks for all transactions: the watch that every test runs under does see another one."""

from __future__ import annotations

import pytest
from flask import Flask

from app.extensions import writing
from app.models import Account, Agent, Refinement
from tests.support.factories import begin, make_agent, remember


def test_a_lock_out_of_order_is_seen(app: Flask) -> None:
    agent = make_agent("ezra")
    remember(agent, "Ann likes tea.")
    running = begin(agent)
    with writing():
        Refinement.lock(running.claim.refinement_id)
        Agent.lock(running.agent.id)
        Refinement.lock(running.claim.refinement_id)  # held already: this one waits for nobody

    with pytest.raises(AssertionError, match="refinements is locked behind agents"), writing():
        Agent.lock(running.agent.id)
        Refinement.lock(running.claim.refinement_id)

    with writing():
        Account.lock(1)
        Agent.lock(running.agent.id)
