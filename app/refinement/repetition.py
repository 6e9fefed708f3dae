"""When a model is not paid to go on: it repeats refused calls instead of reading why they were refused.

Measured with a small model: three quarters of its calls were refused, most of them word for word the call before, and
no good change came after three identical ones or six in a row.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from app.llm.client import ToolCall
from app.values.mass_story import MUTATIONS

REPLIES = 3
"""Replies with the same refused call that end a refinement, and the fewest that have to hold `REFUSALS`."""

REFUSALS = 6

CHANGES = frozenset(MUTATIONS)
"""Types of results that start the count anew. Searches do not, nor protections, which are no mutations."""


class RefusedCalls:
    """Those since the last change. Replies in between that hold none of them do not start the count anew.

    The same call is the same function with the same arguments: the same JSON value, however spaced and ordered, or the
    same text where it is no JSON.
    """

    def __init__(self) -> None:
        self._replies_of: dict[str, set[int]] = defaultdict(set)
        self._refusals_in: Counter[int] = Counter()

    def take(self, reply: int, call: ToolCall, result: Mapping[str, Any]) -> None:
        """The next call, in the reply of this number, and what it was answered."""
        if result["type"] in CHANGES:
            self._replies_of.clear()
            self._refusals_in.clear()
        elif result["type"] == "error":
            self._replies_of[_canonical_call(call)].add(reply)
            self._refusals_in[reply] += 1

    @property
    def are_too_many(self) -> bool:
        """The same call refused in three replies, or six refusals over at least three replies."""
        if any(len(replies) >= REPLIES for replies in self._replies_of.values()):
            return True
        return len(self._refusals_in) >= REPLIES and self._refusals_in.total() >= REFUSALS


def _canonical_call(call: ToolCall) -> str:
    try:
        arguments = json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        arguments = call.arguments.strip()
    return f"{call.name} {arguments}"
