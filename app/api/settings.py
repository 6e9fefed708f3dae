"""Self-authoring: an agent reads and writes its own name, prompts and threshold, and goes back to the defaults."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from app.api.caller import Caller
from app.api.operation import NoParameters, Operation, PathParameter, RequestBody, RequestResult
from app.authoring.fields import FIELDS, author_setting, read_setting, read_settings
from app.authoring.versions import versions
from app.errors import Invalid
from app.models.key import Scope
from app.shapes.response import ResponseModel
from app.shapes.setting import Setting, Version
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


def list_(caller: Caller, _: NoParameters) -> AgentSettings:
    return AgentSettings(settings=read_settings(caller.agent()))


def show(caller: Caller, field: str, _: NoParameters) -> Setting:
    return read_setting(caller.agent(), field)


def list_versions(caller: Caller, field: str, _: NoParameters) -> Versions:
    agent = caller.agent()
    known = read_setting(agent, field).field
    return Versions(versions=versions(agent, known))


def change(caller: Caller, field: str, given: NewValue) -> RequestResult:
    if given.value is None:
        raise Invalid(f"null is no {field}. Reset it to use the default again.", "Nothing was changed.")
    return _author_setting(caller, field, given.value)


def reset(caller: Caller, field: str, _: NoParameters) -> RequestResult:
    return _author_setting(caller, field, None)


def _author_setting(caller: Caller, field: str, value: object) -> RequestResult:
    """202 where a safety model reads it first."""
    authored = author_setting(caller.agent_id, field, value, by=caller.actor())
    if authored.unread:
        queue.enqueue(authored.unread)
    waits = value is not None and authored.pending is not None
    return RequestResult(authored, 202 if waits else 200)


OPERATIONS = (
    Operation(
        "list_settings", "GET", "/settings", Scope.READ,
        "The six settings that are yours to write: name, the four prompts, and your retention threshold.",
        list_, AgentSettings,
    ),
    Operation(
        "get_setting", "GET", "/settings/{field}", Scope.READ,
        "One of your settings: as set, its default, and what is used.",
        show, Setting, at=FIELD,
    ),
    Operation(
        "get_setting_versions", "GET", "/settings/{field}/versions", Scope.READ,
        "What one of your settings has been, when, and by whom.",
        list_versions, Versions, at=FIELD,
    ),
    Operation(
        "update_setting", "PUT", "/settings/{field}", Scope.AUTHOR,
        "Write one of your settings. Admins see it as authored by you and can revert it; a refinement that runs keeps "
        "what it began with. Where `pending` is set, a prompt waits for a safety reading and does not apply yet. "
        "Guards stay as they are, whatever a prompt says.",
        change, Setting, NewValue, at=FIELD, statuses=(200, 202),
    ),
    Operation(
        "reset_setting", "DELETE", "/settings/{field}", Scope.AUTHOR,
        "Go back to the default of one of your settings. A name has none.",
        reset, Setting, at=FIELD,
    ),
)  # fmt: skip
