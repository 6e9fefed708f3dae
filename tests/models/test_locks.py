"""What is to be changed is looked up for change: an id that names nothing is refused in words, whatever asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from app.errors import NotFound
from app.extensions import writing
from app.grants.request import revoke_grant
from app.models import COMMAND_LINE, AccessGrant, Account, Agent, AgentToken, Intake, Memory, Refinement
from app.models.proposal import SettingProposal
from app.refinement.start import request_stop
from tests.support.factories import make_agent

NOBODY = "00000000-0000-4000-8000-000000000000"

LOCKS: dict[str, Callable[[Agent], Any]] = {
    "account": lambda _: Account.lock(404),
    "agent": lambda _: Agent.lock(404),
    "refinement": lambda _: Refinement.lock(NOBODY),
    "exception": lambda _: AccessGrant.lock(NOBODY),
    "intake": lambda _: Intake.lock(NOBODY),
    "core memory": lambda agent: Memory.lock_core(agent, 404),
    "token": lambda agent: AgentToken.lock(agent, "0123456789abcdef"),
    "proposed such change": lambda agent: SettingProposal.lock(agent, NOBODY),
}


@pytest.mark.parametrize("noun", LOCKS)
def test_it_finds_nothing_to_change_under_an_id_that_names_nothing(app: Flask, noun: str) -> None:
    agent = make_agent()
    with pytest.raises(NotFound, match=noun.split()[-1]), writing():
        LOCKS[noun](agent)


def test_a_refinement_that_is_not_there_is_not_stopped(app: Flask) -> None:
    with pytest.raises(NotFound, match="There is no such refinement"):
        request_stop(NOBODY, by=COMMAND_LINE)


def test_an_exception_that_is_not_there_is_not_taken_back(app: Flask) -> None:
    with pytest.raises(NotFound, match="There is no such exception"):
        revoke_grant(NOBODY, by=COMMAND_LINE)
