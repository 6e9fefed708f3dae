"""One event of a refinement as one line for people: ids, counts and tokens, never content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import click

from app.history.steps import Step
from app.values.mass_story import exact_percent, percent
from app.values.plural import count_nouns
from app.vocabulary import STATUSES
from app.vocabulary.actions import action_term

Data = Mapping[str, Any]


def line(step: Step, limit: Decimal) -> str:
    """What happened, after the time of day (UTC). `limit` is the threshold: what is kept never rounds across it."""
    words = _WORDS.get(step.name)
    text = words({"limit": limit, **step.data}) if words else step.name.replace("_", " ")
    return f"  {step.at:%H:%M:%S}  {click.style(text, dim=True) if step.name in _QUIET else text}"


def _queued(data: Data) -> str:
    return "waits for a worker"


def _begun(data: Data) -> str:
    return "begins"


def _deduplicated(data: Data) -> str:
    copies = count_nouns(data["removed"], "exact duplicate")
    return f"removed {copies}, {data['tokens']:,} tokens: matched by hash, content not read"


def _asked(data: Data) -> str:
    return "the agent is asked whether it wants to"


def _answered(data: Data) -> str:
    own = "" if data.get("asked", True) else ", by asking for this refinement itself"
    return f"the agent says {'YES' if data['granted'] else 'NO'}{own}"


def _noted(data: Data) -> str:
    return "the agent writes to the admins"


def _running(data: Data) -> str:
    return f"starts from {data['mass']:,} tokens; limit {exact_percent(data['threshold'])}"


def _turn(data: Data) -> str:
    calls = count_nouns(data["calls"], "call")
    return f"turn {data['turn']}: {calls}, {data['tokens']:,} model tokens"


def _operation(data: Data) -> str:
    verb = _verb(data["action"])
    sources = ", ".join(map(str, data.get("sources", ())))
    ids = f"{sources} → {data['id']}" if sources else str(data["id"])
    before, after = data["tokens"]
    change = f"{before:,} tokens" if before == after else f"{before:,} → {after:,} tokens"
    return f"{verb:<12}  {ids:<16}  {change:<18}  {percent(data['retention'], data['limit'])} kept"


def _verb(action: str) -> str:
    term = action_term(action)
    return term.verb or term.step.lower() or action


def _refused(data: Data) -> str:
    times = f"{data['count']:,} × " if data.get("count", 1) > 1 else ""
    action, code = str(data.get("action", "unknown")), str(data.get("code", "error")).replace("_", " ")
    return f"refused: {times}{code}" if action == "unknown" else f"refused: {times}{action} ({code})"


def _stop_requested(data: Data) -> str:
    return "an admin asks to stop"


def _ended(data: Data) -> str:
    return STATUSES[data["status"]].words


def _rolled_back(data: Data) -> str:
    what = "taken back by a rewind" if data.get("kind") == "rewind" else "rolled back"
    return f"{what}: rollback {str(data['rollback'])[:8]}"


_WORDS: dict[str, Callable[[Data], str]] = {
    "queued": _queued,
    "begun": _begun,
    "deduplicated": _deduplicated,
    "asked": _asked,
    "answered": _answered,
    "noted": _noted,
    "running": _running,
    "turn": _turn,
    "operation": _operation,
    "refused": _refused,
    "stop_requested": _stop_requested,
    "ended": _ended,
    "agent.rolled_back": _rolled_back,
}

_QUIET = {"queued", "begun", "turn"}
