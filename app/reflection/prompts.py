"""The two questions: what of this conversation to remember, and which journal entries to keep for good.

What was said, written or remembered stands in them as encoded data, one JSON object a line: none of it can end its
line, close the mark around it, or pass for a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.asking.memory_context import (
    CHARACTERS_A_TOKEN,
    DEFAULT_CONTEXT_WINDOW,
    memory_context,
    newest_that_fit,
    room_of,
    weight,
)
from app.asking.prompt_memories import PromptMemory
from app.asking.rendering import encode, render
from app.reflection.asking import AskedAgent
from app.reflection.replies import MAX_CORE, MAX_JOURNAL, MAX_PROMOTED
from app.reflection.transcript import Turn

LEAST_SHARE = 10
"""Memories keep at least a tenth of the window, however long the transcript is."""


def conversation_messages(
    speaker: AskedAgent,
    turns: Sequence[Turn],
    *,
    core: Sequence[PromptMemory],
    journal: Sequence[PromptMemory],
    window: int | None,
) -> list[dict[str, Any]]:
    """The whole transcript, and as much of the memories as there is room for."""
    lines = [encode({"role": turn.role, "content": turn.content}) for turn in turns]
    question = render(
        "conversation_question.txt",
        instructions=speaker.instructions,
        transcript=lines,
        most_journal=MAX_JOURNAL,
        most_core=MAX_CORE,
    )
    context = memory_context(speaker.system_prompt, core, journal, _left(window, lines))
    return [context, {"role": "user", "content": question}]


def promotion_messages(
    speaker: AskedAgent, *, core: Sequence[PromptMemory], journal: Sequence[PromptMemory], window: int | None
) -> tuple[list[dict[str, Any]], list[int]]:
    """The newest journal entries that fit into half of the room, beside the core memories; and the ids of these."""
    lines = newest_that_fit(journal, room_of(window) // 2)
    shown = [entry.id for entry in journal[len(journal) - len(lines) :]]
    question = render(
        "promotion_question.txt",
        instructions=speaker.instructions,
        journal=lines,
        count=len(journal),
        most=MAX_PROMOTED,
    )
    context = memory_context(speaker.system_prompt, core, (), _left(window, lines))
    return [context, {"role": "user", "content": question}], shown


def _left(window: int | None, lines: Sequence[str]) -> int:
    """Tokens of the window that these lines leave to the memories."""
    whole = window or DEFAULT_CONTEXT_WINDOW
    return max(whole - sum(map(weight, lines)) // CHARACTERS_A_TOKEN, whole // LEAST_SHARE)
