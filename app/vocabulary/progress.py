"""What an open refinement waits for now, and why an attempt to ask a model failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.values.refinement_states import WaitsFor
from app.vocabulary.term import Term


@dataclass(frozen=True)
class WaitTerm(Term):
    """`stop` is what a Stop that was pressed waits for. `{turn}` is the turn that a reply ends."""

    stop: str = ""


WAITS: Mapping[str, WaitTerm] = {
    WaitsFor.WORKER: WaitTerm("clock", "Waiting for a worker"),
    WaitsFor.PLACE: WaitTerm("clock", "Waiting: this account has as many running as its operator allows at once"),
    WaitsFor.MONTH: WaitTerm("clock", "Waiting: this month's model cost has reached the account's limit", "warn"),
    WaitsFor.DUPLICATES: WaitTerm("copy", "The worker removes exact duplicates", "info", stop="the worker"),
    WaitsFor.CONSENT: WaitTerm("spinner", "Waiting for its answer", "ask", stop="the agent's answer"),
    WaitsFor.QUESTIONS: WaitTerm(
        "spinner", "The agent writes its recall questions", "info", stop="the agent's recall questions"
    ),
    WaitsFor.TURN: WaitTerm(
        "spinner", "Turn {turn}: the model is thinking", "info", stop="the model's reply of turn {turn}"
    ),
    WaitsFor.READER: WaitTerm("spinner", "The second reader compares the changes", "info"),
    WaitsFor.ANSWERS: WaitTerm("spinner", "The agent answers its recall questions", "info"),
}

_ATTEMPT_FAILURES: Mapping[str, str] = {
    "rate_limited": "the model's provider limits how often it may be asked",
    "overloaded": "the model is overloaded",
    "server_error": "the model's server failed",
    "timeout": "the model did not answer in time",
    "unreachable": "the model could not be reached",
}


def attempt_failure(why: str, http: int | None) -> str:
    """By the kind of the ModelError and its HTTP status. Plain for a kind that has no words of its own."""
    words = _ATTEMPT_FAILURES.get(why, why.replace("_", " "))
    return words if http is None else f"{words} (HTTP {http})"
