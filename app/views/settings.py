"""An agent's settings: the form, what changed when and by whom."""

from __future__ import annotations

from flask import render_template, request, url_for
from flask.typing import ResponseReturnValue

from app.errors import Invalid, Refused
from app.extensions import writing
from app.models import Agent
from app.models.user import ADMIN
from app.views.access import my_agent, needs, pages, viewer
from app.views.answers import done, page
from app.views.forms import SETTINGS_FIELDS, Form
from app.views.shown.agent import SettingsPage

blueprint = pages("settings", __name__)


@page(blueprint, "/agents/<int:agent_id>/settings", "agents/settings.html")
def show(agent_id: int) -> SettingsPage:
    agent = my_agent(agent_id)
    return SettingsPage.load(agent, Form.of(SETTINGS_FIELDS, agent.configuration()))


@blueprint.post("/agents/<int:agent_id>/settings")
@needs(ADMIN)
def change(agent_id: int) -> ResponseReturnValue:
    agent = my_agent(agent_id)
    form = Form.read(SETTINGS_FIELDS, request.form)
    actor = viewer().actor
    try:
        form.check()
        with writing():
            locked = Agent.lock(agent_id)
            changed = locked.change(by=actor, **form.values)
    except (Invalid, Refused) as error:
        shown = SettingsPage.load(my_agent(agent.id), form.blame(error))
        return render_template("agents/settings.html", page=shown, json_url=f"{request.path}.json"), 422
    words = f"Saved: {', '.join(LABELS[name] for name in changed)}." if changed else "Nothing was different."
    return done(words, to=url_for("settings.show", agent_id=agent_id), tone="success" if changed else "info")


LABELS = {
    "name": "name",
    "model_id": "model",
    "api_base": "API base",
    "api_key_env": "API key variable",
    "core_token_budget": "budget",
    "refinement_threshold": "threshold",
    "system_prompt": "system prompt",
    "refinement_prompt": "refinement prompt",
    "reflection_prompt": "reflection prompt",
    "memory_reflection_prompt": "memory reflection prompt",
    "active": "active",
}
