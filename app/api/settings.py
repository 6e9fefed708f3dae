"""Self-authoring: an agent reads and writes its own name, prompts and limits, and goes back to the defaults."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from app.api.caller import Caller
from app.api.operation import PathParameter, RequestBody, operation
from app.authoring.fields import FIELDS, author_setting, list_versions, read_setting, read_settings
from app.errors import Invalid
from app.models.agent_settings import SECOND_READER
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
            "refinement_threshold: a number from 0.50 (or the operator's floor) to 1.00. "
            "recall_probes: a whole number from 0 to 10. max_confirmed_losses: one from 0 to 3 (or the operator's). "
            "second_reader_model: a LiteLLM name; second_reader_api_base: its address; second_reader_api_key_env: the "
            "name of the variable on the server that holds its key. second_reader_action: flag, or reverse.",
            json_schema_extra={"anyOf": [{"type": "string", "minLength": 1}, {"type": "number"}]},
        ),
    ]


class AgentSettings(ResponseModel):
    settings: list[Setting]


class Versions(ResponseModel):
    versions: list[Version] = Field(description="Newest first.")


@operation("GET", "/settings", Scope.READ)
def list_settings(caller: Caller) -> AgentSettings:
    """The settings that are yours to write: name, the four prompts, your retention threshold, how many recall probes
    and confirmed losses a refinement has, and the second reader of its changes.
    """
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
    it began with. A second reader is sent memories of yours: to change who that is or where, the token needs the scope
    decide too. Where `pending` is set, a prompt waits for a safety reading and does not apply yet. Guards stay as
    they are, whatever a prompt says.
    """
    if given.value is None:
        raise Invalid(f"null is no {field}. Reset it to use the default again.", "Nothing was changed.")
    authored = write_setting(caller, field, given.value)
    return authored, 200 if authored.pending is None else 202


@operation("DELETE", "/settings/{field}", Scope.AUTHOR, at=FIELD)
def reset_setting(caller: Caller, field: str) -> Setting:
    """Go back to the default of one of your settings. A name has none. Of a second reader it needs the scope decide."""
    return write_setting(caller, field, None)


def write_setting(caller: Caller, field: str, value: object) -> Setting:
    """It is pending where a safety model reads it first: a worker asks that. Raises ScopeMissing, too."""
    if field in SECOND_READER:
        caller.check(Scope.DECIDE)
    authored = author_setting(caller.agent_id, field, value, by=caller.actor(), signer=caller.signer)
    if authored.unread:
        queue.enqueue(authored.unread)
    return authored
