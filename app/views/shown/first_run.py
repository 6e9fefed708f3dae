"""The first run: the way to an account's first refinement, each step checked off by what there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask import url_for
from sqlalchemy import exists, select

from app.config import OFFLINE_MODEL
from app.extensions import db
from app.models import Agent, ModelCall, Refinement
from app.models.model_call import ANSWERED
from app.views.addresses import agent_url, page_url, refinement_url
from app.views.shown.fleet import AccountFigures


@dataclass(frozen=True)
class FirstStep:
    name: str
    text: str
    url: str
    is_done: bool

    def as_json(self) -> dict[str, Any]:
        return {"step": self.name, "done": self.is_done}


class FirstRun:
    """`is_over` once a refinement has ended; then nothing is asked of the database."""

    def __init__(self, account_id: int, figures: AccountFigures, newest: Refinement | None, *, is_over: bool) -> None:
        self.is_over, self.is_empty = is_over, figures.agents == 0
        agent = None if is_over or self.is_empty else _first_agent(account_id)
        answered = exists().where(ModelCall.account_id == account_id, ModelCall.outcome == ANSWERED)
        tested = agent is not None and (agent.model_id == OFFLINE_MODEL or bool(db.session.scalar(select(answered))))
        watched = refinement_url(newest.id) if newest else _agent_url(agent)
        self.steps = (
            FirstStep("Create an agent", "a name and a model", page_url("agents.new"), is_over or agent is not None),
            FirstStep("Test its model", "one word from the model", _model_test_url(agent), is_over or tested),
            FirstStep(
                "Import memories",
                "a file, or let the agent save its own",
                url_for("imports.show", agent_id=agent.id) if agent else "",
                is_over or figures.memories > 0,
            ),
            FirstStep("Watch the first refinement", "press Refine, and see it live", watched, is_over),
        )

    @property
    def next_step(self) -> FirstStep | None:
        return next((step for step in self.steps if not step.is_done), None)

    def as_json(self) -> list[dict[str, Any]]:
        return [step.as_json() for step in self.steps]


def _first_agent(account_id: int) -> Agent | None:
    return db.session.scalar(select(Agent).where(Agent.account_id == account_id).order_by(Agent.id).limit(1))


def _model_test_url(agent: Agent | None) -> str:
    return url_for("settings.show", agent_id=agent.id, _anchor="model-test") if agent else ""


def _agent_url(agent: Agent | None) -> str:
    return agent_url(agent.id) if agent else ""
