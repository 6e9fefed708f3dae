"""The two questions: what of this conversation to remember, and which journal entries to keep for good.

What was said, written or remembered stands in them as encoded data, one JSON object a line: none of it can end its
line, close the mark around it, or pass for a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.asking.calls import AskedAgent
from app.asking.prompt_memories import (
    CHARACTERS_A_TOKEN,
    DEFAULT_CONTEXT_WINDOW,
    memory_context,
    newest_that_fit,
    room_of,
    weigh_line,
)
from app.asking.rendering import encode_json, render_prompt
from app.reflection.replies import MAX_CORE, MAX_JOURNAL, MAX_PROMOTED
from app.reflection.transcript import Turn

LEAST_SHARE = 10
"""Memories keep at least a tenth of the window, however long the transcript is."""


def conversation_messages(
    agent: AskedAgent, instructions: str, turns: Sequence[Turn], window: int | None
) -> list[dict[str, Any]]:
    """The whole transcript, and as much of the memories as there is room for."""
    lines = [encode_json({"role": turn.role, "content": turn.content}) for turn in turns]
    question = render_prompt(
        "conversation_question.txt",
        instructions=instructions,
        transcript=lines,
        most_journal=MAX_JOURNAL,
        most_core=MAX_CORE,
    )
    return [agent.context(_tokens_left(window, lines)), {"role": "user", "content": question}]


def promotion_messages(
    agent: AskedAgent, instructions: str, window: int | None
) -> tuple[list[dict[str, Any]], list[int]]:
    """The newest journal entries that fit into half of the room, beside the core memories; and the ids of these."""
    journal = agent.read_recent_journal(own=True)
    lines = newest_that_fit(journal, room_of(window) // 2)
    shown = [entry.id for entry in journal[len(journal) - len(lines) :]]
    question = render_prompt(
        "promotion_question.txt", instructions=instructions, journal=lines, count=len(journal), most=MAX_PROMOTED
    )
    context = memory_context(agent.system_prompt, agent.read_core(), (), _tokens_left(window, lines))
    return [context, {"role": "user", "content": question}], shown


def _tokens_left(window: int | None, lines: Sequence[str]) -> int:
    """Tokens of the window that these lines leave to the memories."""
    whole = window or DEFAULT_CONTEXT_WINDOW
    return max(whole - sum(map(weigh_line, lines)) // CHARACTERS_A_TOKEN, whole // LEAST_SHARE)
