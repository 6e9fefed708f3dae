"""Reading what a caller gave into what an operation takes; the refusal is a sentence that repeats nothing of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from werkzeug.datastructures import MultiDict

from app.errors import Invalid
from app.strictjson import no_duplicates

M = TypeVar("M", bound=BaseModel)


class MalformedRequest(Invalid):
    """The request can't be read."""

    code = "malformed"
    http_status = 400


def read_json(model: type[M], body: bytes) -> M:
    """Raises MalformedRequest for what is no JSON object, Invalid for what is none that the operation takes."""
    try:
        found = json.loads(body.decode() or "{}", object_pairs_hook=no_duplicates)
    except UnicodeDecodeError:
        raise MalformedRequest("The body is not UTF-8 text.") from None
    except (ValueError, RecursionError):
        raise MalformedRequest("The body is no well-formed JSON, is nested too deeply, or names a key twice.") from None
    if not isinstance(found, dict):
        raise MalformedRequest("The body must be a JSON object.")
    return validate_input(model, found)


def read_query(model: type[M], found: MultiDict[str, str]) -> M:
    """What stands in an address. Raises Invalid, also for an argument that stands there twice."""
    twice = sorted(name for name in found if len(found.getlist(name)) > 1)
    if twice:
        raise Invalid(f"{_field_path((twice[0],))}: it stands twice.")
    return validate_input(model, found.to_dict())


def read_arguments(model: type[M], found: Mapping[str, Any]) -> M:
    """What a model gave to a tool. Its null leaves an argument out, and a list may stand within a text, as some send
    both; nothing else stands for anything. Raises Invalid."""
    fields = model.model_fields
    optional = {name for name, field in fields.items() if not field.is_required()}
    said = {name: value for name, value in found.items() if value is not None or name not in optional}
    return validate_input(model, {name: _parse_json_list(value, fields.get(name)) for name, value in said.items()})


def validate_input(model: type[M], found: Mapping[str, Any]) -> M:
    """Raises Invalid."""
    try:
        return model.model_validate(found)
    except ValidationError as error:
        said = [_describe_problem(each, model) for each in error.errors(include_url=False, include_input=False)]
        raise Invalid(f"{'; '.join(said[:5])}.") from None


def _parse_json_list(value: object, field: FieldInfo | None) -> object:
    if not isinstance(value, str) or field is None or get_origin(field.annotation) is not list:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _describe_problem(problem: ErrorDetails, model: type[BaseModel]) -> str:
    """What is wrong and what is allowed, in words of ours where pydantic's are none for that."""
    where, kind = _field_path(problem["loc"]), problem["type"]
    if kind == "missing":
        return f"{where}: it is missing"
    if kind == "extra_forbidden":
        return f"{where}: unknown; there may be {', '.join(model.model_fields) or 'nothing'}"
    if kind.startswith("int_"):
        return f"{where}: it must be a whole number"
    message = problem["msg"].removeprefix("Value error, ").replace("Input should", "It must")
    message = message.replace("must be a valid string", "must be text").replace("must be a valid", "must be a")
    return f"{where}: {message[:1].lower()}{message[1:]}"


def _field_path(place: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:40] for part in place if isinstance(part, int) or part.isidentifier()) or "the request"
