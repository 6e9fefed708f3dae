"""Term: what people see of one member of an enum."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """`icon` and `tone` as the pages draw them; `meaning` is a hint of one sentence, where the words need one."""

    icon: str = ""
    words: str = ""
    tone: str = "neutral"
    meaning: str = ""

    @property
    def capitalized(self) -> str:
        return f"{self.words[:1].upper()}{self.words[1:]}"
