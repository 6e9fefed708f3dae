"""From what went wrong on the way to a model to one ModelError: a kind, and a sentence without any content in it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from app.llm.client import RETRIED, ModelError, ModelErrorKind

_BY_STATUS = {
    401: ModelErrorKind.UNAUTHORIZED,
    402: ModelErrorKind.UNAUTHORIZED,
    403: ModelErrorKind.UNAUTHORIZED,
    404: ModelErrorKind.NOT_FOUND,
    408: ModelErrorKind.TIMEOUT,
    413: ModelErrorKind.CONTEXT_TOO_LONG,
    429: ModelErrorKind.RATE_LIMITED,
    503: ModelErrorKind.OVERLOADED,
    504: ModelErrorKind.TIMEOUT,
    529: ModelErrorKind.OVERLOADED,
}

_SENTENCES = {
    ModelErrorKind.RATE_LIMITED: "limits how often it may be asked{told}",
    ModelErrorKind.OVERLOADED: "is overloaded{told}",
    ModelErrorKind.SERVER_ERROR: "failed{told}",
    ModelErrorKind.TIMEOUT: "did not answer in time{told}",
    ModelErrorKind.UNREACHABLE: "could not be reached, or the connection broke off{told}",
    ModelErrorKind.UNAUTHORIZED: "refused the key{told}",
    ModelErrorKind.NOT_FOUND: "is not known under this name or address{told}",
    ModelErrorKind.CONTEXT_TOO_LONG: "can't read that much at once{told}",
    ModelErrorKind.BAD_REQUEST: "does not take this request{told}",
    ModelErrorKind.NO_KEY: "has no key",
    ModelErrorKind.NOT_LISTED: "is none that the operator allows",
}

_NO_CHAT_REPLY = "answered{told}, but not with a chat reply{because}"

_CHECK_ADDRESS = " Check its address (api base)."

_ADVICE = {
    ModelErrorKind.UNREACHABLE: _CHECK_ADDRESS,
    ModelErrorKind.UNAUTHORIZED: " Check that it is right, paid for, and may use this model.",
    ModelErrorKind.NOT_FOUND: " Check the model's name and the api base.",
    ModelErrorKind.BAD_REQUEST: " A refinement needs a model that can call functions.",
    ModelErrorKind.NO_KEY: " Set \"API key variable\" in this agent's settings, or its provider's usual variable "
    "where the worker runs.",
}


@dataclass
class CallOutcome:
    """How a call ended on the network: a status and Retry-After, or the fault that left it without an answer.

    `problem`: why what came was not taken for a reply, in words of ours.
    """

    status: int | None = None
    retry_after: str | None = None
    fault: ModelErrorKind | None = None
    problem: str = ""


def as_model_error(model_id: str, error: Exception, answer: CallOutcome) -> ModelError:
    """The error to raise for what LiteLLM raised. What is known of the network goes before what LiteLLM made of it."""
    if answer.status is None and answer.fault is None:
        answer = _answer_by(error)
    kind = _error_kind(error, answer)
    return sentence_for(model_id, kind, answer.status, seconds_to_wait(answer.retry_after), answer.problem)


def sentence_for(
    model_id: str, kind: ModelErrorKind, status: int | None = None, retry_after: float | None = None, problem: str = ""
) -> ModelError:
    """A ModelError in words that name the model, the status and the pause asked for, and nothing else."""
    no_chat_reply = kind is ModelErrorKind.SERVER_ERROR and status is not None and status < 400
    told = f" (HTTP {status})" if status is not None else ""
    pause = f" and asks for a pause of {retry_after:g} seconds" if retry_after is not None and kind in RETRIED else ""
    because = f": {problem}" if problem else ""
    words, advice = (_NO_CHAT_REPLY, _CHECK_ADDRESS) if no_chat_reply else (_SENTENCES[kind], _ADVICE.get(kind, ""))
    summary, sentence = (f"The model {model_id} {words.format(told=t, because=because)}" for t in (told, told + pause))
    return ModelError(kind, f"{sentence}.{advice}", summary=summary, status=status, retry_after=retry_after)


def kind_of(status: int) -> ModelErrorKind:
    """The kind for an HTTP status. A success or a redirect here means that the body was no chat reply."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return ModelErrorKind.BAD_REQUEST if 400 <= status < 500 else ModelErrorKind.SERVER_ERROR


def seconds_to_wait(retry_after: object, now: datetime | None = None) -> float | None:
    """Read a Retry-After header, seconds or an HTTP date; None for anything else, never negative."""
    if not isinstance(retry_after, str):
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        seconds = _seconds_until(retry_after, now or datetime.now(UTC))
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _error_kind(error: Exception, answer: CallOutcome) -> ModelErrorKind:
    names = set(_class_names(error))
    if answer.fault is not None:
        return answer.fault
    if "ContextWindowExceededError" in names:
        return ModelErrorKind.CONTEXT_TOO_LONG
    if answer.status is None and "AuthenticationError" in names:
        return ModelErrorKind.NO_KEY
    made_up = _status_of(error)
    if answer.status is not None and (answer.status >= 400 or made_up is None):
        return kind_of(answer.status)
    return kind_of(made_up or 500)


def _answer_by(error: Exception) -> CallOutcome:
    """What LiteLLM's exception tells, where the connection was its own: a status counts only beside real headers."""
    headers = getattr(error, "litellm_response_headers", None)
    if headers:
        return CallOutcome(_status_of(error), headers.get("retry-after"))
    names = set(_class_names(error))
    if {"Timeout", "TimeoutException", "APITimeoutError"} & names:
        return CallOutcome(fault=ModelErrorKind.TIMEOUT)
    return CallOutcome(fault=ModelErrorKind.UNREACHABLE) if "TransportError" in names else CallOutcome()


def _class_names(error: BaseException) -> Iterator[str]:
    """The names of the classes of an exception and of all that it came from."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield from (kind.__name__ for kind in type(at).__mro__)
        at = at.__cause__ or at.__context__


def _status_of(error: Exception) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and 100 <= status < 1000 else None


def _seconds_until(date: str, now: datetime) -> float:
    try:
        return (parsedate_to_datetime(date).astimezone(UTC) - now).total_seconds()
    except (ValueError, OverflowError):
        return math.nan
