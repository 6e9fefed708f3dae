"""Reading what a caller gave into what an operation takes; the refusal is a sentence that repeats nothing of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from werkzeug.datastructures import MultiDict

from app.errors import Invalid
from app.strictjson import no_duplicates

M = TypeVar("M", bound=BaseModel)


class Malformed(Invalid):
    """The request can't be read. Nothing was written."""

    code = "malformed"
    http_status = 400


def read_json(model: type[M], body: bytes) -> M:
    """Raises Malformed for what is no JSON object, Invalid for what is none that the operation takes."""
    try:
        found = json.loads(body.decode() or "{}", object_pairs_hook=no_duplicates)
    except UnicodeDecodeError:
        raise Malformed("The body is not UTF-8 text. Nothing was written.") from None
    except (ValueError, RecursionError):
        raise Malformed(
            "The body is no well-formed JSON, is nested too deeply, or names a key twice. Nothing was written."
        ) from None
    if not isinstance(found, dict):
        raise Malformed("The body must be a JSON object. Nothing was written.")
    return fit(model, found)


def read_query(model: type[M], found: MultiDict[str, str]) -> M:
    """What stands in an address. Raises Invalid, also for an argument that stands there twice."""
    twice = sorted(name for name in found if len(found.getlist(name)) > 1)
    if twice:
        raise Invalid(f"{_reason((twice[0],), 'it stands twice')}. Nothing was written.")
    return fit(model, found.to_dict())


def fit(model: type[M], found: Mapping[str, Any]) -> M:
    """Raises Invalid."""
    try:
        return model.model_validate(found)
    except ValidationError as error:
        said = [_reason(each["loc"], each["msg"]) for each in error.errors(include_url=False, include_input=False)]
        raise Invalid(f"{'; '.join(said[:5])}. Nothing was written.") from None


def _reason(place: tuple[int | str, ...], message: str) -> str:
    where = ".".join(str(part)[:40] for part in place if isinstance(part, int) or part.isidentifier()) or "the request"
    return f"{where}: {message[:1].lower()}{message[1:]}"
