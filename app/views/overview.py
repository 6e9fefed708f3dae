"""The overview: what needs attention first; and the demo, two agents with believable ledgers in an empty account."""

from __future__ import annotations

from flask import url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import select

from app.demo import find_waiting, make_demo_agents
from app.errors import Refused
from app.extensions import db
from app.models import Agent
from app.views.access import post_act, signed_in_pages, viewer
from app.views.agents import start_by_hand
from app.views.answers import answer_act, page
from app.views.shown.overview import Overview
from tasks import intake

blueprint = signed_in_pages("overview", __name__)


class NotEmpty(Refused):
    """This account has agents already; the demo is for empty ones."""

    code = "not_empty"
    outcome = "Nothing was made."


@page(blueprint, "/", "overview/index.html", twin="/overview.json")
def index() -> Overview:
    return Overview(viewer().account_id)


@post_act(blueprint, "/demo")
def make_demo() -> ResponseReturnValue:
    user = viewer()
    if db.session.scalar(select(Agent.id).where(Agent.account_id == user.account_id).limit(1)) is not None:
        raise NotEmpty
    actor, to = user.actor, url_for("overview.index")
    agents = make_demo_agents(user.account_id, actor)
    taken = [intake.wait_until_taken(intake_id) for intake_id in find_waiting(agents)]
    if not all(taken):
        words = (
            "Two agents are made. No worker has taken their memories in yet; that follows by itself. Then refine them."
        )
        return answer_act(words, to=to, tone="info")
    for agent in agents:
        start_by_hand(agent.id, actor)
    return answer_act("Two agents are made, and asked whether they want to refine.", to=to)
