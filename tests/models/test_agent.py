"""Agents: thresholds within range, totals that are true, settings that are recorded."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from flask import Flask

from app.errors import Invalid, Refused
from app.extensions import db, writing
from app.models import COMMAND_LINE, Action, Agent, AuditLog
from app.models.agent_settings import parse_threshold
from tests.support.factories import HOME, make_agent

NO_THRESHOLDS: list[Any] = [
    *("abc", "NaN", "nan", "sNaN", "-NaN", "Infinity", "-inf", "1e999", "0.4999", "1.0001", "1.5", "0", "-0.75", "75"),
    *(
        "75%",
        "0,75",
        "0_9",
        "0.7_5",
        "٠.٧٥",
        "０.７５",
        "0.75001",
        "1e-999999999",
        "9" * 5000,
        "0x1",
        "0.75 0.75",
        "\x00",
    ),
    *(
        True,
        False,
        0.1,
        1.5,
        float("nan"),
        float("inf"),
        0,
        2,
        -1,
        Decimal("NaN"),
        Decimal("0.50001"),
        [],
        {},
        [0.75],
        b"1",
    ),
]


def test_thresholds_are_exact_decimals_from_the_floor_to_one(app: Flask) -> None:
    for value, exact in {
        "0.75": "0.7500",
        " 0.5 ": "0.5000",
        "1": "1.0000",
        "1.0": "1.0000",
        ".7501": "0.7501",
    }.items():
        assert parse_threshold(value) == Decimal(exact)
    assert parse_threshold(0.75) == Decimal("0.75")
    assert parse_threshold(1) == Decimal(1)
    assert parse_threshold(None) is parse_threshold("") is None
    for bad in NO_THRESHOLDS:
        with pytest.raises(Invalid, match=r"from 0\.50 to 1\.00"):
            parse_threshold(bad)


def test_a_refused_setting_changes_nothing(app: Flask) -> None:
    agent = make_agent(refinement_threshold="0.8")
    entries = db.session.scalar(db.select(db.func.count(AuditLog.id)))
    for fields in (
        {"refinement_threshold": "NaN"},
        {"core_token_budget": "7"},
        {"core_token_budget": True},
        {"colour": 1},
    ):
        with pytest.raises(Invalid), writing():
            Agent.lock(agent.id).change(by=COMMAND_LINE, system_prompt="new", **fields)
    db.session.rollback()
    again = db.session.get_one(Agent, agent.id, populate_existing=True)
    assert (again.refinement_threshold, again.system_prompt) == (Decimal("0.8"), None)
    assert db.session.scalar(db.select(db.func.count(AuditLog.id))) == entries


def test_a_change_is_recorded_with_what_was_and_what_is(app: Flask) -> None:
    agent = make_agent()
    with writing():
        assert Agent.lock(agent.id).change(by=COMMAND_LINE, refinement_threshold="0.9", name=agent.name) == [
            "refinement_threshold"
        ]
    entry = db.session.scalars(db.select(AuditLog).where(AuditLog.action == Action.AGENT_SETTINGS_UPDATE)).one()
    assert entry.data == {"before": {"refinement_threshold": None}, "after": {"refinement_threshold": "0.9000"}}
    assert db.session.get_one(Agent, agent.id).effective_refinement_threshold == Decimal("0.9")


def test_of_two_renames_at_one_moment_the_second_is_refused(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both looked while the name was free: the database's own rule decides."""
    make_agent("wren")
    other = make_agent("crumb")
    monkeypatch.setattr("app.models.agent._free_name", lambda account_id, name: name)
    with pytest.raises(Refused, match="at the same moment"), writing():
        Agent.lock(other.id).change(by=COMMAND_LINE, name="wren")
    db.session.rollback()
    assert db.session.get_one(Agent, other.id, populate_existing=True).name == "crumb"


def test_a_name_that_is_taken_is_refused(app: Flask) -> None:
    make_agent("ezra")
    with pytest.raises(Refused, match="exists already"):
        make_agent("ezra")
    eve = make_agent("eve")
    with pytest.raises(Refused, match="exists already"), writing():
        Agent.lock(eve.id).change(by=COMMAND_LINE, name="ezra")
    assert Agent.named(HOME, "eve").id == eve.id
