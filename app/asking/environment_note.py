"""The operator's note on where this runs (a copy, a staging system): told with every question to every model.

It is added where the clients are made, so that no question can go without it. It stands at the end of the system
message, quoted as data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.asking.rendering import encode_json, render_prompt
from app.llm.client import Message, ModelClient, Reply


@dataclass(frozen=True)
class NotedClient:
    """A client whose model is told the note first, whatever it is asked."""

    client: ModelClient
    note: str

    def complete(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), *, timeout: float
    ) -> Reply:
        return self.client.complete(with_note(messages, self.note), tools, timeout=timeout)

    def context_window(self) -> int | None:
        return self.client.context_window()

    def close(self) -> None:
        self.client.close()


def with_note(messages: Sequence[Message], note: str) -> list[Message]:
    """The same messages, the note at the end of the system message, which is made where there is none."""
    said = render_prompt("environment_note.txt", note=encode_json(note))
    first = dict(messages[0]) if messages else {}
    if first.get("role") != "system":
        return [{"role": "system", "content": said}, *messages]
    return [first | {"content": f"{first['content']}\n\n{said}"}, *messages[1:]]
