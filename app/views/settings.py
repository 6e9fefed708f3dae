"""An agent's settings: the form, what the agent wrote that waits, what changed when and by whom, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from flask import render_template, request, url_for
from flask.typing import ResponseReturnValue

from app.authoring.fields import list_versions
from app.authoring.fields import revert_setting as take_back
from app.errors import Invalid, Refused
from app.models import SettingProposal
from app.models.agent_settings import CONFIGURATION
from app.views.access import changing_agent, my_agent, post_act, row_id, signed_in_pages, viewer
from app.views.answers import answer_act, page
from app.views.forms import SETTINGS_FIELDS, Form
from app.views.shown.settings import SettingsPage

blueprint = signed_in_pages("settings", __name__)


@page(blueprint, "/agents/<int:agent_id>/settings", "agents/settings.html")
def show(agent_id: int) -> SettingsPage:
    agent = my_agent(agent_id)
    return SettingsPage(agent, Form.of(SETTINGS_FIELDS, agent.configuration()))


@post_act(blueprint, "/agents/<int:agent_id>/settings")
def change(agent_id: int) -> ResponseReturnValue:
    my_agent(agent_id)
    form = Form.read(SETTINGS_FIELDS, request.form)
    try:
        values = form.checked_values()
        with changing_agent(agent_id) as (agent, actor):
            changed = agent.change(by=actor, **values)
    except (Invalid, Refused) as error:
        shown = SettingsPage(my_agent(agent_id), form.blame(error))
        return render_template("agents/settings.html", page=shown, json_url=f"{request.path}.json"), 422
    words = f"Saved: {', '.join(LABELS[name] for name in changed)}." if changed else "Nothing was different."
    return _return_to_page(agent_id, words, tone="success" if changed else "info")


@post_act(blueprint, "/agents/<int:agent_id>/settings/revert")
def revert(agent_id: int) -> ResponseReturnValue:
    """What an entry changed goes back to what it was before; `entry` and `field` stand in the form or the address."""
    my_agent(agent_id)
    entry_id, field = row_id(request.values.get("entry", "")), request.values.get("field", "")[:40]
    made = take_back(agent_id, entry_id, field, by=viewer().actor)
    return _return_to_page(
        agent_id, f"The {LABELS[field]} is what it was before that.", undo=_undo_url(agent_id, made, field)
    )


@post_act(blueprint, "/agents/<int:agent_id>/proposals/<uuid:proposal_id>/apply")
def apply(agent_id: int, proposal_id: UUID) -> ResponseReturnValue:
    field = _decide_proposal(agent_id, proposal_id, SettingProposal.apply)
    undo = _undo_url(agent_id, list_versions(my_agent(agent_id), field, limit=1)[0].entry, field)
    return _return_to_page(agent_id, f"The {LABELS[field]} that the agent wrote applies.", undo=undo)


@post_act(blueprint, "/agents/<int:agent_id>/proposals/<uuid:proposal_id>/dismiss")
def dismiss(agent_id: int, proposal_id: UUID) -> ResponseReturnValue:
    field = _decide_proposal(agent_id, proposal_id, SettingProposal.dismiss)
    undo = url_for("settings.hold", agent_id=agent_id, proposal_id=proposal_id)
    return _return_to_page(agent_id, f"The {LABELS[field]} that the agent wrote is dismissed.", undo=undo)


@post_act(blueprint, "/agents/<int:agent_id>/proposals/<uuid:proposal_id>/hold")
def hold(agent_id: int, proposal_id: UUID) -> ResponseReturnValue:
    """A dismissal taken back: it waits again."""
    field = _decide_proposal(agent_id, proposal_id, SettingProposal.reopen)
    return _return_to_page(agent_id, f"The {LABELS[field]} that the agent wrote waits again.", tone="info")


def _decide_proposal(agent_id: int, proposal_id: UUID, decide: Callable[..., None]) -> str:
    """The setting that it is about. Raises NotFound or Refused."""
    with changing_agent(my_agent(agent_id).id) as (agent, actor):
        proposal = SettingProposal.lock(agent, str(proposal_id))
        decide(proposal, agent, by=actor)
    return proposal.field


def _undo_url(agent_id: int, entry_id: int, field: str) -> str:
    return url_for("settings.revert", agent_id=agent_id, entry=entry_id, field=field)


def _return_to_page(agent_id: int, words: str, *, undo: str = "", tone: str = "success") -> ResponseReturnValue:
    """To the page as it is now: its form has to show it, too."""
    return answer_act(words, to=url_for("settings.show", agent_id=agent_id), undo=undo, tone=tone)


LABELS = {name: name.replace("_", " ") for name in CONFIGURATION} | {
    "model_id": "model",
    "api_base": "API base",
    "api_key_env": "API key variable",
    "core_token_budget": "budget",
    "refinement_threshold": "threshold",
}
