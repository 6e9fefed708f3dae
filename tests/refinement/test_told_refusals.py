"""Refusals are told in the timeline, folded: a model that does not listen fills no table."""

from __future__ import annotations

from flask import Flask
from sqlalchemy import select

from app.asking.calls import Dependencies
from app.extensions import db
from app.models import COMMAND_LINE, Event, Trigger
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from tests.support.factories import make_agent, remember
from tests.support.scripted import ScriptedClient, ScriptedClients, call, calls, say


def test_a_hundred_refusals_of_a_kind_are_one_event_with_their_count(app: Flask) -> None:
    agent = make_agent()
    ids = remember(agent, "Ann likes tea.", "Bob moved to Oslo.")
    nonsense = calls(*[("delete_memory", {"id": 999, "carried_by": ids[0]})] * 100)
    clients = ScriptedClients(ScriptedClient(say("YES"), nonsense, call("complete_refinement", summary="Nothing.")))
    refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)

    run_refinement(refinement.id, Dependencies(clients))

    told = db.session.scalars(select(Event).where(Event.kind == "refinement.refused")).all()
    assert [event.data for event in told] == [
        {"action": "delete", "code": "unknown_memory", "count": 100, "ids": [999]}
    ]
