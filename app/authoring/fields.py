"""The six settings that an agent authors itself: what each is, and how it becomes something else.

Where a safety model is set, a prompt that an agent writes waits for its reading first: see `reading`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.authoring.versions import CurrentVersion, current_versions
from app.errors import Invalid, NotFound, Refused
from app.extensions import writing
from app.models import (
    DEFAULT_MEMORY_REFLECTION_PROMPT,
    DEFAULT_REFINEMENT_PROMPT,
    DEFAULT_REFLECTION_PROMPT,
    Actor,
    ActorKind,
    Agent,
    SettingProposal,
)
from app.models.agent_settings import PROMPTS, clean_setting, operator_settings
from app.shapes.agent import Setting
from app.values.text import clean_name

FIELDS = ("name", *PROMPTS, "refinement_threshold")

DEFAULTS = {
    "reflection_prompt": DEFAULT_REFLECTION_PROMPT,
    "memory_reflection_prompt": DEFAULT_MEMORY_REFLECTION_PROMPT,
    "refinement_prompt": DEFAULT_REFINEMENT_PROMPT,
}
"""Of the prompts that have one."""


class NoDefault(Refused):
    """A name has no default: give another name instead."""

    code = "no_default"
    outcome = "Nothing was changed."


def read_setting(agent: Agent, field: str) -> Setting:
    """One of the six. Raises NotFound for any other word."""
    return read_settings(agent, [_check_field(field)])[0]


def read_settings(agent: Agent, fields: Sequence[str] = FIELDS) -> list[Setting]:
    """All six, in three queries."""
    versions, waiting = current_versions(agent, fields), SettingProposal.open_of(agent.id)
    return [_build_setting(agent, field, versions[field], waiting.get(field)) for field in fields]


def author_setting(agent_id: int, field: str, value: object, *, by: Actor) -> Setting:
    """Set a setting, or with None go back to its default. By an agent, a prompt may have to wait: see `pending`.

    The caller lets a worker read what is `unread` then. Raises NotFound, Invalid, Refused or AgentForgotten.
    """
    _check_field(field)
    with writing():
        agent = Agent.lock(agent_id)
        agent.check_not_forgotten()
        cleaned = _clean_value(field, value)
        if _must_wait(agent, field, cleaned, by):
            SettingProposal.make(agent, field, cleaned, by=by)
        else:
            SettingProposal.close(agent, [field], by=by, why="withdrawn")
            agent.change(by=by, **{field: cleaned})
    return read_setting(agent, field)


def check_setting(field: str, value: object) -> None:
    """Raises what `author_setting` would raise for such a value: NotFound, Invalid or Refused."""
    _clean_value(_check_field(field), value)


def _check_field(field: str) -> str:
    if field not in FIELDS:
        raise NotFound(f"There is no such setting. An agent's own are: {', '.join(FIELDS)}.")
    return field


def _clean_value(field: str, value: object) -> Any:
    """As it is stored; None only where None was given: what is blank by mistake is no reset."""
    if value is None:
        if field == "name":
            raise NoDefault
        return None
    cleaned = clean_name(value) if field == "name" else clean_setting(field, value)
    if cleaned is None:
        raise Invalid(f"The {field} is blank. Reset it to use the default again.", "Nothing was changed.")
    return cleaned


def _must_wait(agent: Agent, field: str, cleaned: object, by: Actor) -> bool:
    """A new prompt by the agent itself, where a safety model is set. Going back to a default never waits."""
    is_new = cleaned is not None and cleaned != getattr(agent, field)
    return bool(operator_settings().safety_model) and field in PROMPTS and by.kind == ActorKind.AGENT and is_new


def _build_setting(agent: Agent, field: str, last: CurrentVersion, proposal: SettingProposal | None) -> Setting:
    value, default = getattr(agent, field), DEFAULTS.get(field)
    used = {"value": value, "default": default, "effective": value or default}
    if field == "refinement_threshold":
        used["default"], used["effective"] = operator_settings().default_threshold, agent.effective_refinement_threshold
    return Setting.of(last, field=field, **used, is_default=value is None, pending=proposal)
