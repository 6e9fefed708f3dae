"""Forgetting an agent: the page says what it does and what stays; who types the name does it, and nothing undoes it."""

from __future__ import annotations

from flask import render_template, request, url_for
from flask.typing import ResponseReturnValue

from app.keys.forgetting import forget_agent
from app.keys.shredding import shred_files
from app.models.user import OWNER
from app.views.access import my_agent, post_act, signed_in_pages, viewer
from app.views.answers import answer_act, page
from app.views.shown.agent import ForgetPage

blueprint = signed_in_pages("forget", __name__)


@page(blueprint, "/agents/<int:agent_id>/forget", "agents/forget.html")
def show(agent_id: int) -> ForgetPage:
    return ForgetPage(my_agent(agent_id), may_forget=viewer().may(OWNER))


@post_act(blueprint, "/agents/<int:agent_id>/forget", OWNER)
def forget(agent_id: int) -> ResponseReturnValue:
    """Raises AgentForgotten when it was done already."""
    agent = my_agent(agent_id)
    agent.check_not_forgotten()
    typed, name, actor = request.form.get("name", ""), agent.name, viewer().actor
    if typed != name:
        shown = ForgetPage(agent, may_forget=True, typed=typed[:200])
        return render_template("agents/forget.html", page=shown, json_url=f"{request.path}.json"), 422
    forget_agent(agent_id, by=actor)
    shred_files()
    return answer_act(f"{name} is forgotten: its keys are destroyed.", to=url_for("agents.show", agent_id=agent_id))
