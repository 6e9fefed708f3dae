"""An agent's settings: the form, what the agent wrote that waits, what changed when and by whom, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from flask import render_template, request, url_for
from flask.typing import ResponseReturnValue

from app.authoring.asked_changes import (
    SavedSettings,
    let_proposal_through,
    revert_setting,
    save_settings,
    withdraw_settings_request,
)
from app.authoring.fields import list_versions
from app.errors import Invalid, NotFound, Refused
from app.models import Agent, ModelTest, SettingProposal, SettingsRequest, SettingsRequestStatus
from app.models.model_test import ModelTestOpen
from app.views.access import changing_agent, my_agent, my_row, post_act, row_id, signed_in_pages, signed_in_user, viewer
from app.views.answers import answer_act, page, redirect_to
from app.views.forms import SETTINGS_FIELDS, Form
from app.views.live import parts_of
from app.views.shown.settings import LABELS, SettingsPage, waiting_changes
from app.vocabulary import SETTINGS_REQUEST_STATUSES
from tasks import models
from tasks import settings_requests as queue

blueprint = signed_in_pages("settings", __name__)

NOT_QUEUED = "The broker does not answer, so that no worker hears of it. Settings, Health says more."


@page(blueprint, "/agents/<int:agent_id>/settings", "agents/settings.html")
def show(agent_id: int) -> SettingsPage:
    agent = my_agent(agent_id)
    return SettingsPage(agent, Form.of(SETTINGS_FIELDS, agent.configuration() | waiting_changes(agent)))


@post_act(blueprint, "/agents/<int:agent_id>/settings")
def change(agent_id: int) -> ResponseReturnValue:
    my_agent(agent_id)
    form = Form.read(SETTINGS_FIELDS, request.form)
    try:
        saved = save_settings(agent_id, form.checked_values(), user=signed_in_user())
    except (Invalid, Refused) as error:
        return _render_page(SettingsPage(my_agent(agent_id), form.blame(error)), 422)
    words = f"Saved: {', '.join(LABELS[name] for name in saved.changed)}." if saved.changed else ""
    return _answer_saved(agent_id, saved, words, form)


@post_act(blueprint, "/agents/<int:agent_id>/settings/revert")
def revert(agent_id: int) -> ResponseReturnValue:
    """What an entry changed goes back to what it was before; `entry` and `field` stand in the form or the address."""
    my_agent(agent_id)
    entry_id, field = row_id(request.values.get("entry", "")), request.values.get("field", "")[:40]
    saved = revert_setting(agent_id, entry_id, field, user=signed_in_user())
    words = f"The {LABELS[field]} is what it was before that." if saved.changed else ""
    return _answer_saved(agent_id, saved, words, undo=field)


@post_act(blueprint, "/agents/<int:agent_id>/model-test")
def test_model(agent_id: int) -> ResponseReturnValue:
    """A worker asks the agent's model, as it is saved, for one word: this process has no model's key."""
    my_agent(agent_id)
    tone = "info"
    try:
        with changing_agent(agent_id) as (agent, actor):
            test = ModelTest.request(agent, by=actor)
            words = f"A worker asks {agent.model_id} for one word."
    except ModelTestOpen as error:
        words = error.sentence
    else:
        if not models.enqueue(agent_id):
            test.end(NOT_QUEUED)
            words, tone = f"The model was not asked. {NOT_QUEUED}", "error"
    to = url_for("settings.show", agent_id=agent_id, _anchor="model-test")
    return answer_act(words, to=to, tone=tone, parts=lambda: parts_of("settings", my_agent(agent_id)))


@blueprint.get("/settings-requests/<uuid:change_id>")
def find_request(change_id: UUID) -> ResponseReturnValue:
    """Where a change that was asked for stands: on its agent's page."""
    asked = my_row(SettingsRequest, change_id)
    return redirect_to(url_for("settings.show", agent_id=asked.agent_id, _anchor="settings-asked"))


@post_act(blueprint, "/agents/<int:agent_id>/settings-requests/<uuid:change_id>/withdraw")
def withdraw(agent_id: int, change_id: UUID) -> ResponseReturnValue:
    """Take the question back; what applies already can be reverted in the history."""
    asked = my_row(SettingsRequest, change_id)
    if asked.agent_id != my_agent(agent_id).id:
        raise NotFound("There is no such change of settings.")
    withdrawn = withdraw_settings_request(asked.id, by=viewer().actor)
    if withdrawn.status == SettingsRequestStatus.WITHDRAWN:
        return _return_to_page(agent_id, "Taken back: the agent is not asked any more, and nothing changes.")
    words = SETTINGS_REQUEST_STATUSES[withdrawn.status].words
    return _return_to_page(agent_id, f"It was {words} already. Nothing was taken back.", tone="info")


@post_act(blueprint, "/agents/<int:agent_id>/proposals/<uuid:proposal_id>/apply")
def apply(agent_id: int, proposal_id: UUID) -> ResponseReturnValue:
    saved = let_proposal_through(my_agent(agent_id).id, str(proposal_id), user=signed_in_user())
    field = saved.changed[0] if saved.changed else ""
    words = f"The {LABELS[field]} that the agent wrote applies." if field else ""
    return _answer_saved(agent_id, saved, words, undo=field)


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


def _answer_saved(
    agent_id: int, saved: SavedSettings, words: str, form: Form | None = None, *, undo: str = ""
) -> ResponseReturnValue:
    """What became of it: applied, asked, or for the host alone, with the command. `undo` is the one to undo."""
    agent = my_agent(agent_id)
    if saved.host_only is not None:
        form = form or Form.of(SETTINGS_FIELDS, agent.configuration())
        return _render_page(SettingsPage(agent, form, host_only=saved.host_only, saved=words), 409)
    if saved.request is not None:
        queue.enqueue(saved.request.id)
        named = ", ".join(LABELS[name] for name in saved.request.changes)
        asked = f"Asked {agent.name} about its {named}. It applies on a YES, usually within seconds."
        take_back = url_for("settings.withdraw", agent_id=agent_id, change_id=saved.request.id)
        return _return_to_page(agent_id, f"{words} {asked}".strip(), undo=take_back)
    if not words:
        return _return_to_page(agent_id, "Nothing was different.", tone="info")
    return _return_to_page(agent_id, words, undo=_undo_url(agent, undo) if undo else "")


def _render_page(shown: SettingsPage, status: int) -> ResponseReturnValue:
    json_url = url_for("settings.show_json", agent_id=shown.state.agent.id)
    return render_template("agents/settings.html", page=shown, json_url=json_url), status


def _undo_url(agent: Agent, field: str) -> str:
    """To take back the newest change of a setting."""
    newest = list_versions(agent, field, limit=1)[0].entry
    return url_for("settings.revert", agent_id=agent.id, entry=newest, field=field)


def _return_to_page(agent_id: int, words: str, *, undo: str = "", tone: str = "success") -> ResponseReturnValue:
    """To the page as it is now: its form has to show it, too."""
    return answer_act(words, to=url_for("settings.show", agent_id=agent_id), undo=undo, tone=tone)
