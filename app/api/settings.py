"""Self-authoring: an agent reads and writes its own name, prompts and threshold, and goes back to the defaults."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from app.api.caller import Caller
from app.api.operation import PathParameter, RequestBody, operation
from app.authoring.fields import FIELDS, author_setting, list_versions, read_setting, read_settings
from app.errors import Invalid
from app.models.key import Scope
from app.shapes.agent import Setting, Version
from app.shapes.response import ResponseModel
from tasks import authoring as queue

FIELD = PathParameter("field", str, f"One of {', '.join(FIELDS)}.", {"enum": list(FIELDS)})


class NewValue(RequestBody):
    value: Annotated[
        str | float | int | bool | list[Any] | dict[str, Any] | None,
        Field(
            description="Prompts and the name: text, prompts up to 10,000 characters. "
            "refinement_threshold: a number from 0.50 (or the operator's floor) to 1.00.",
            json_schema_extra={"anyOf": [{"type": "string", "minLength": 1}, {"type": "number"}]},
        ),
    ]


class AgentSettings(ResponseModel):
    settings: list[Setting]


class Versions(ResponseModel):
    versions: list[Version] = Field(description="Newest first.")


@operation("GET", "/settings", Scope.READ)
def list_settings(caller: Caller) -> AgentSettings:
    """The six settings that are yours to write: name, the four prompts, and your retention threshold."""
    return AgentSettings(settings=read_settings(caller.agent()))


@operation("GET", "/settings/{field}", Scope.READ, at=FIELD)
def get_setting(caller: Caller, field: str) -> Setting:
    """One of your settings: as set, its default, and what is used."""
    return read_setting(caller.agent(), field)


@operation("GET", "/settings/{field}/versions", Scope.READ, at=FIELD)
def get_setting_versions(caller: Caller, field: str) -> Versions:
    """What one of your settings has been, when, and by whom."""
    agent = caller.agent()
    return Versions(versions=list_versions(agent, read_setting(agent, field).field))


@operation("PUT", "/settings/{field}", Scope.AUTHOR, at=FIELD, statuses=(200, 202))
def update_setting(caller: Caller, field: str, given: NewValue) -> tuple[Setting, int]:
    """Write one of your settings. Admins see it as authored by you and can revert it; a refinement that runs keeps what
    it began with. Where `pending` is set, a prompt waits for a safety reading and does not apply yet. Guards stay as
    they are, whatever a prompt says.
    """
    if given.value is None:
        raise Invalid(f"null is no {field}. Reset it to use the default again.", "Nothing was changed.")
    authored = write_setting(caller, field, given.value)
    return authored, 200 if authored.pending is None else 202


@operation("DELETE", "/settings/{field}", Scope.AUTHOR, at=FIELD)
def reset_setting(caller: Caller, field: str) -> Setting:
    """Go back to the default of one of your settings. A name has none."""
    return write_setting(caller, field, None)


def write_setting(caller: Caller, field: str, value: object) -> Setting:
    """It is pending where a safety model reads it first: a worker asks that."""
    authored = author_setting(caller.agent_id, field, value, by=caller.actor(), signer=caller.signer)
    if authored.unread:
        queue.enqueue(authored.unread)
    return authored
