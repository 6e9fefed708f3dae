"""A transcript: chat messages that an agent hands in, checked strictly and brought into one form to be sealed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from app.errors import Invalid
from app.values.text import clean_text, is_blank

ROLES = ("user", "assistant", "system", "tool")
BESIDE_TEXT = frozenset({
    "name", "tool_calls", "tool_call_id", "function_call", "refusal", "annotations", "audio", "reasoning_content",
    "thinking_blocks", "provider_specific_fields",
})  # fmt: skip
"""What the messages of a tool loop carry besides; it is no text that was said, and left out."""

MAX_MESSAGES = 500
MAX_CHARACTERS = 200_000
"""Of all messages together."""

_NOT_KEPT = "Nothing was handed in."


@dataclass(frozen=True)
class Turn:
    """One message of a conversation."""

    role: str
    content: str = field(repr=False)


def read_messages(given: object) -> list[Turn]:
    """The text of messages in OpenAI's form, without tool calls. Raises Invalid, in a sentence that quotes nothing."""
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_MESSAGES:
        raise Invalid(f"A conversation is a list of 1 to {MAX_MESSAGES} messages.", _NOT_KEPT)
    turns = [_read_turn(number, message) for number, message in enumerate(given, start=1)]
    characters = sum(len(turn.content) for turn in turns)
    if characters > MAX_CHARACTERS:
        raise Invalid(
            f"The conversation has {characters:,} characters; at most {MAX_CHARACTERS:,} are allowed.", _NOT_KEPT
        )
    if all(is_blank(turn.content) for turn in turns):
        raise Invalid("The conversation is blank: not one message holds any text.", _NOT_KEPT)
    return turns


def as_text(turns: Sequence[Turn]) -> str:
    """The form in which a transcript is sealed."""
    return json.dumps([asdict(turn) for turn in turns], ensure_ascii=False)


def from_text(text: str) -> list[Turn]:
    """Raises Invalid for what `as_text` did not make."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise Invalid("What was handed in is no transcript.") from None
    return read_messages(given)


def _read_turn(number: int, message: object) -> Turn:
    if not isinstance(message, dict) or not {"role"} <= set(message) - BESIDE_TEXT <= {"role", "content"}:
        raise _message_error(number, "must be an object with role and content, as models' messages have them")
    if message["role"] not in ROLES:
        raise _message_error(number, f"has another role than {', '.join(ROLES)}")
    content = "" if _only_calls(message) else _read_text(number, message.get("content"))
    try:
        return Turn(message["role"], clean_text(content, what="content"))
    except Invalid as error:
        raise _message_error(number, f"can't be used: {error.sentence}") from None


def _only_calls(message: dict[str, Any]) -> bool:
    """An assistant that called tools said nothing meanwhile; its content is null then, or left out."""
    return bool(message.get("tool_calls") or message.get("function_call")) and message.get("content") is None


def _read_text(number: int, content: object) -> object:
    """The text itself, or the texts of OpenAI's list of parts, a line each."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _message_error(number, "has a content that is neither text nor a list of text parts")
    return "\n".join(_read_part(number, part) for part in content)


def _read_part(number: int, part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) and set(part) == {"type", "text"} else None
    if not isinstance(text, str) or part["type"] != "text":
        raise _message_error(number, 'has a part that is not {"type": "text", "text": "…"}')
    return text


def _message_error(number: int, what: str) -> Invalid:
    return Invalid(f"Message {number} {what.rstrip('.')}.", _NOT_KEPT)
