"""Refused calls of one reply until they are booked: with the reason, and the memories that they named.

Pages are told of them by events, so nothing of a call's text is kept. The name of a function that does not exist is
text of a model, too, and may hold what a memory says: it is kept where words that tools are often named by make it up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from app.models import Refinement

MOST_IDS = 20
"""Of one kind of refusal and one reply. The calls are counted all the same."""

MOST_NAMES = 5
"""Names of functions that do not exist, of one reply; those beyond have none."""

LONGEST_NAME = 40

UNKNOWN = "unknown"
"""What is called an action where a model named none of ours."""

Kind = tuple[str, str, str]
"""The action, the code of its refusal, and the name of a function that does not exist."""


class RefusedByKind:
    """By kind, with their number and the memories that they named."""

    def __init__(self) -> None:
        self._refused: dict[Kind, dict[int, None]] = {}
        self._counts = Counter[Kind]()

    def refuse(self, action: str, code: str, *, ids: Iterable[int] = (), name: str = "") -> None:
        kind = (action, code, self._kept_name(name) if action == UNKNOWN else "")
        self._counts[kind] += 1
        named = self._refused.setdefault(kind, {})
        named.update(dict.fromkeys(list(ids)[: MOST_IDS - len(named)]))

    def codes(self) -> Counter[str]:
        """How many were refused, by the code of the reason."""
        found = Counter[str]()
        for (_, code, _), count in self._counts.items():
            found[code] += count
        return found

    def announce(self, refinement: Refinement) -> None:
        """One event a kind, in the caller's transaction; then it begins anew."""
        for kind, count in self._counts.items():
            action, code, name = kind
            more = {"ids": list(self._refused[kind]), "name": name}
            told = {key: value for key, value in more.items() if value}
            refinement.announce("refused", action=action, code=code, count=count, **told)
        self._refused.clear()
        self._counts.clear()

    def _kept_name(self, name: str) -> str:
        names = {kind[2] for kind in self._counts if kind[2]}
        return name if is_common_name(name) and (len(names) < MOST_NAMES or name in names) else ""


def is_common_name(name: str) -> bool:
    """Whether it is made of words that tools are commonly named by: `merge_memories`, `deleteMemory`."""
    words = _WORD.findall(name)
    is_plain = len(name) <= LONGEST_NAME and "".join(words) == name.replace("_", "").replace("-", "")
    return is_plain and bool(words) and all(word.lower() in _COMMON for word in words)


_WORD = re.compile(r"[A-Z]?[a-z]+", re.ASCII)

_COMMON_WORDS = (
    "add admin admins all append apply archive ask bulk burn call cancel change check clean clear close combine "
    "compact complete compress consolidate constitutional context copy core count create dedupe deduplicate "
    "delete detail details discard done duplicate duplicates edit end entries entry erase execute exit export "
    "fetch finalize find finish forget frobnicate function functions get help id ids import info insert item "
    "items journal keep ledger list load lock lookup make mark memories memory merge modify move multi new next "
    "noop note notes open parallel pin protect prune purge put query quit read recall record refine refinement "
    "remember remove replace report reset restore retrieve review revise rewrite run save scan search select set "
    "shorten show skip split start status stop store submit summarise summarize summary tag test text think tidy "
    "tool tools trim undo unify unlock unprotect update upsert use view wait write"
)
_COMMON = frozenset(_COMMON_WORDS.split())
