"""Memories into a prompt: one JSON object a line, as many as a model's window has room for."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from app.asking.prompt_memories import PromptMemory
from app.asking.rendering import encode_json, render_prompt

DEFAULT_CONTEXT_WINDOW = 32_000
"""Tokens, for a model whose window nobody knows."""

LEDGER_SHARE = Decimal("0.6")
"""Of the window; the rest is for rules, calls and results."""

CHARACTERS_A_TOKEN = 3
"""Careful on purpose: real tokenizers give more tokens than the estimate of mass does."""

NO_IDENTITY = "You are an AI agent with long-term memories of your own."


def memory_context(
    system_prompt: str | None, core: Sequence[PromptMemory], journal: Sequence[PromptMemory], window: int | None
) -> dict[str, Any]:
    """Who the agent is, and what it remembers."""
    shown, heading = fit_ledger(core, window)
    journal_room = room_of(window) - sum(map(weigh_line, shown))
    system = render_prompt(
        "consent_system.txt",
        identity=system_prompt or NO_IDENTITY,
        ledger=shown,
        ledger_heading=heading,
        journal=newest_that_fit(journal, journal_room),
    )
    return {"role": "system", "content": system}


def fit_ledger(entries: Sequence[PromptMemory], window: int | None) -> tuple[list[str], str]:
    """The oldest entries that fit into the ledger's share of the window, encoded; and the heading that counts them."""
    room, shown = room_of(window), list[str]()
    for entry in entries:
        line = encode_json(entry.as_dict())
        room -= weigh_line(line)
        if room < 0 and shown:
            break
        shown.append(line)
    if len(shown) == len(entries):
        return shown, f"Your ledger: {len(entries)} core memories, oldest first."
    return shown, (
        f"Your ledger: {len(shown)} of {len(entries)} core memories, oldest first; "
        "reach the others with search_memories."
    )


def weigh_line(line: str) -> int:
    """Characters, of which those of other scripts weigh a token each: tokenizers know them worse."""
    return len(line) + (CHARACTERS_A_TOKEN - 1) * (len(line) - len(line.encode("ascii", "ignore"))) + 1


def newest_that_fit(journal: Sequence[PromptMemory], room: int) -> list[str]:
    """The newest entries for which there is room, in characters; oldest first, encoded."""
    shown: list[str] = []
    for entry in reversed(journal):
        line = encode_json(entry.as_dict())
        room -= weigh_line(line)
        if room < 0:
            break
        shown.insert(0, line)
    return shown


def room_of(window: int | None) -> int:
    """How many characters of memories a model's window has room for."""
    return int((window or DEFAULT_CONTEXT_WINDOW) * LEDGER_SHARE) * CHARACTERS_A_TOKEN
