"""What the model is told: who it is, hard rules, its own instructions, numbers, the ledger, a closing line.

The ledger is one JSON object a line, in which line breaks, invisible characters and angle brackets are escaped: no
content can end its line, close the mark around the ledger, or forge another entry, a flag or a rule.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.config import ROOT
from app.values.dates import shown_days

DEFAULT_CONTEXT_WINDOW = 32_000
"""Tokens, for a model whose window nobody knows."""

LEDGER_SHARE = Decimal("0.6")
"""Of the window; the rest is for rules, calls and results."""

CHARACTERS_A_TOKEN = 3
"""Careful on purpose: real tokenizers give more tokens than the estimate of mass does."""

NO_IDENTITY = "You are an AI agent with long-term memories of your own."


@dataclass(frozen=True)
class PromptMemory:
    """One revealed memory on its way into a prompt. Never logged, never kept."""

    id: int
    date: datetime
    tokens: int
    content: str
    constitutional: bool = False
    tags: tuple[str, ...] = ()
    other_dates: tuple[datetime, ...] = ()

    def __repr__(self) -> str:
        return f"<Entry {self.id}, {self.tokens} tokens>"

    def as_dict(self) -> dict[str, Any]:
        """Its public form in the ledger and in search results."""
        shown = {"id": self.id, **shown_days(self.date, self.other_dates), "tokens": self.tokens}
        if self.constitutional:
            shown["constitutional"] = True
        if self.tags:
            shown["tags"] = list(self.tags)
        return shown | {"content": self.content}


@dataclass(frozen=True)
class PromptFigures:
    """The numbers that both prompts tell. Masses in tokens."""

    core_count: int
    constitutional_count: int
    mass: int
    budget: int
    cap: int
    threshold: Decimal
    deduplicated: int = 0
    protections: int = 10


def consent_messages(
    *,
    system_prompt: str | None,
    core: Sequence[PromptMemory],
    journal: Sequence[PromptMemory],
    figures: PromptFigures,
    window: int | None,
) -> list[dict[str, Any]]:
    """The question whether the agent wants a refinement: two messages, no tools."""
    question = render("consent_question.txt", **_numbers(figures))
    return [memory_context(system_prompt, core, journal, window), {"role": "user", "content": question}]


def exception_messages(
    *,
    system_prompt: str | None,
    core: Sequence[PromptMemory],
    journal: Sequence[PromptMemory],
    question: Mapping[str, Any],
    window: int | None,
) -> list[dict[str, Any]]:
    """The question whether a human may look. What humans wrote (`purpose`) stands in it as quoted data."""
    asked = render("exception_question.txt", **{**question, "purpose": encode(question["purpose"])})
    return [memory_context(system_prompt, core, journal, window), {"role": "user", "content": asked}]


def refinement_messages(
    *,
    system_prompt: str | None,
    instructions: str,
    core: Sequence[PromptMemory],
    figures: PromptFigures,
    window: int | None,
) -> list[dict[str, Any]]:
    """The opening of the loop."""
    shown, heading = fit_ledger(core, window)
    numbers = _numbers(figures)
    system = render(
        "refinement_system.txt",
        identity=system_prompt or NO_IDENTITY,
        instructions=instructions,
        **numbers,
    )
    ledger = render("refinement_ledger.txt", ledger=shown, ledger_heading=heading, **numbers)
    return [{"role": "system", "content": system}, {"role": "user", "content": ledger}]


def fit_ledger(entries: Sequence[PromptMemory], window: int | None) -> tuple[list[str], str]:
    """The oldest entries that fit into the ledger's share of the window, encoded; and the heading that counts them."""
    room, shown = room_of(window), list[str]()
    for entry in entries:
        line = encode(entry.as_dict())
        room -= weight(line)
        if room < 0 and shown:
            break
        shown.append(line)
    if len(shown) == len(entries):
        return shown, f"Your ledger: {len(entries)} core memories, oldest first."
    return shown, (
        f"Your ledger: {len(shown)} of {len(entries)} core memories, oldest first; "
        "reach the others with search_memories."
    )


def encode(value: Any) -> str:
    """JSON on one line that can hold no line break, no invisible character and no angle bracket."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).translate(_ESCAPES)


def memory_context(
    system_prompt: str | None, core: Sequence[PromptMemory], journal: Sequence[PromptMemory], window: int | None
) -> dict[str, Any]:
    """Who the agent is, and what it remembers."""
    shown, heading = fit_ledger(core, window)
    journal_room = room_of(window) - sum(map(weight, shown))
    system = render(
        "consent_system.txt",
        identity=system_prompt or NO_IDENTITY,
        ledger=shown,
        ledger_heading=heading,
        journal=newest_that_fit(journal, journal_room),
    )
    return {"role": "system", "content": system}


class _Escapes(dict[int, str]):
    """How each character stands in an encoded line; learnt as they come."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character in "<>\x7f":
            self[code] = f"\\u{code:04x}"
        else:
            hidden = unicodedata.category(character) in _HIDDEN
            self[code] = json.dumps(character)[1:-1] if hidden else character
        return self[code]


_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_ESCAPES = _Escapes()


def weight(line: str) -> int:
    """Characters, of which those of other scripts weigh a token each: tokenizers know them worse."""
    return len(line) + (CHARACTERS_A_TOKEN - 1) * (len(line) - len(line.encode("ascii", "ignore"))) + 1


def newest_that_fit(journal: Sequence[PromptMemory], room: int) -> list[str]:
    """The newest entries for which there is room, in characters; oldest first, encoded."""
    shown: list[str] = []
    for entry in reversed(journal):
        line = encode(entry.as_dict())
        room -= weight(line)
        if room < 0:
            break
        shown.insert(0, line)
    return shown


def room_of(window: int | None) -> int:
    """How many characters of memories a model's window has room for."""
    return int((window or DEFAULT_CONTEXT_WINDOW) * LEDGER_SHARE) * CHARACTERS_A_TOKEN


def _numbers(figures: PromptFigures) -> dict[str, Any]:
    return {
        "core_count": figures.core_count,
        "constitutional_count": figures.constitutional_count,
        "mass": figures.mass,
        "budget": figures.budget,
        "over_budget": max(figures.mass - figures.budget, 0),
        "cap": figures.cap,
        "threshold": f"{figures.threshold:.2%}",
        "deduplicated": figures.deduplicated,
        "protections": figures.protections,
    }


def render(name: str, **values: Any) -> str:
    """A template of `templates/prompts`. What may hold content is encoded by the caller."""
    return _environment().get_template(name).render(**values).strip()


@cache
def _environment() -> Environment:
    loader = FileSystemLoader(ROOT / "templates" / "prompts")
    return Environment(loader=loader, undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)  # noqa: S701 - prompts are text
