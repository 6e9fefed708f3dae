"""`whetstone/offline`: a rule-based de-duplicator that answers like a model. It is no language model, and says so.

It sees what any model sees, the chat so far, and keeps nothing between calls. It proposes only what is certain: a
memory of which every line or sentence stands, whole and in the same order, in one other memory. Never by similarity.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from app.config import IMMUTABLE_TAGS
from app.llm.client import Messages, Reply, ToolCall, Tools
from app.values.plural import count_nouns

PROVIDER = "whetstone"
MAX_CHANGES = 10
CONTEXT_WINDOW = 1_000_000_000
"""Tokens. It reads any ledger whole."""
DEFAULT_THRESHOLD = Decimal("0.75")

_WHO = "whetstone/offline is a rule-based de-duplicator and no language model"
_LEDGER = re.compile(r"^<ledger>$\n(.*?)^</ledger>$", re.DOTALL | re.MULTILINE)
_THRESHOLD = re.compile(r"\bthreshold (\d{1,3}(?:\.\d+)?)%")
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+")
_ABBREVIATION = re.compile(
    r"(?:\b\w|\b(?:mr|mrs|ms|dr|st|prof|vs|etc|approx|ca|jr|sr|nr|no|inc|fig|vol|dept|rev|al))\.$", re.I
)
_QUOTING = re.compile(r"[\"“”„«»()\[\]]")


@dataclass(frozen=True)
class LedgerMemory:
    """One memory of the ledger. `units` are its lines and sentences, spaces folded, in order."""

    id: int
    tokens: int
    units: tuple[str, ...] = field(repr=False)
    tags: frozenset[str] = frozenset()
    constitutional: bool = False

    @property
    def may_go(self) -> bool:
        return bool(self.units) and not self.constitutional and not self.tags & set(IMMUTABLE_TAGS)


def answer(messages: Messages, tools: Tools = ()) -> Reply:
    """Answer as a model would: a consent question in words, a refinement by its next call."""
    return _next_step(messages) if tools else Reply(_consent_answer(messages))


def read_ledger(messages: Messages) -> list[LedgerMemory]:
    """The ledger of the opening. Empty, so that nothing is done, unless it is there once and wholly readable."""
    said = [str(message.get("content") or "") for message in messages if message.get("role") == "user"]
    blocks = [block for text in said for block in _LEDGER.findall(text)]
    if len(blocks) != 1:
        return []
    try:
        entries = [_parse_entry(json.loads(line)) for line in blocks[0].split("\n") if line]
    except (ValueError, LookupError, TypeError, RecursionError):
        return []
    return entries if len({entry.id for entry in entries}) == len(entries) else []


def certain_deletions(entries: Sequence[LedgerMemory], threshold: Decimal = DEFAULT_THRESHOLD) -> dict[int, int]:
    """Which memory may go, and which one carries all of it: at most 10, and never so much that the latch would trip."""
    may_cut = (1 - threshold) * sum(entry.tokens for entry in entries)
    found: dict[int, int] = {}
    for entry, carrier in _find_contained(entries):
        if len(found) < MAX_CHANGES and entry.tokens <= may_cut:
            found[entry.id] = carrier.id
            may_cut -= entry.tokens
    return {number: _last_carrier(found, carrier) for number, carrier in found.items()}


def split_units(content: str) -> tuple[str, ...]:
    """Lines, and sentences within them. A line with quotes or brackets stays whole: who says a part may matter."""
    units: list[str] = []
    for line in content.splitlines():
        folded = " ".join(line.split())
        units += [folded] if _QUOTING.search(folded) else _split_sentences(folded)
    return tuple(unit for unit in units if unit)


def _consent_answer(messages: Messages) -> str:
    asked = [str(message.get("content") or "") for message in messages if message.get("role") == "user"]
    question = asked[-1].lstrip().partition("\n")[0].strip() if asked else ""
    if question == "Question: refinement":
        return f"YES. {_WHO}: it will remove only memories that stand word for word inside another one."
    if question.replace("’", "'") == "Question: mechanic's exception":
        return f"NO. {_WHO}, so I can't consent."
    return f"NO. {_WHO}, and can't answer this."


def _next_step(messages: Messages) -> Reply:
    calls, results = _read_calls(messages), _read_results(messages)
    outcomes = [results.get(call.id, {}) for call in calls]
    if any(call.name == "complete_refinement" for call in calls) or any(map(_is_final, outcomes)):
        return Reply("There is nothing left to do.")
    plan = certain_deletions(read_ledger(messages), _read_threshold(messages))
    tried = [_parse_object(call.arguments).get("id") for call in calls if call.name == "delete_memory"]
    left = [number for number in plan if number not in tried]
    refused = any(outcome.get("type") != "deleted" for outcome in outcomes)
    if left and not refused:
        return _make_call(len(calls), "delete_memory", id=left[0], carried_by=plan[left[0]])
    done = [number for number, outcome in zip(tried, outcomes, strict=False) if outcome.get("type") == "deleted"]
    return _make_call(len(calls), "complete_refinement", summary=_write_summary(done, plan))


def _write_summary(done: Sequence[object], plan: Mapping[int, int]) -> str:
    if not done:
        return f"{_WHO}. It changed nothing: there was no change that it could be certain of."
    pairs = ", ".join(f"{number} (in {plan[number]})" for number in done if isinstance(number, int) and number in plan)
    deleted = count_nouns(len(done), "memory")
    return f"{_WHO}. It deleted {deleted}, each of which stands whole inside another one: {pairs}."


def _last_carrier(found: Mapping[int, int], carrier: int) -> int:
    while carrier in found:
        carrier = found[carrier]
    return carrier


def _find_contained(entries: Sequence[LedgerMemory]) -> list[tuple[LedgerMemory, LedgerMemory]]:
    holders: dict[str, list[int]] = {}
    for place, entry in enumerate(entries):
        for unit in set(entry.units):
            holders.setdefault(unit, []).append(place)
    pairs: list[tuple[LedgerMemory, LedgerMemory]] = []
    for place, entry in enumerate(entries):
        if entry.may_go:
            rarest = min((holders[unit] for unit in entry.units), key=len)
            carriers = (other for other in rarest if other != place and _carries_memory(entries, other, place))
            pairs += [(entry, entries[other]) for other in list(carriers)[:1]]
    return pairs


def _carries_memory(entries: Sequence[LedgerMemory], other: int, place: int) -> bool:
    """Whether all of the memory at `place` stands in `other`, its tags too. Of equal ones the earliest stays."""
    whole, part = entries[other], entries[place]
    if not part.tags <= whole.tags:
        return False
    if whole.units == part.units:
        stays = not whole.may_go or part.tags != whole.tags
        return stays or other < place
    rest = iter(whole.units)
    return all(unit in rest for unit in part.units)


def _split_sentences(line: str) -> list[str]:
    sentences: list[str] = []
    for piece in _SENTENCE_END.split(line):
        goes_on = piece[:1].islower() or piece[:1].isdigit()
        if sentences and (goes_on or _ABBREVIATION.search(sentences[-1])):
            sentences[-1] += " " + piece
        else:
            sentences.append(piece)
    return sentences


def _parse_entry(found: Mapping[str, Any]) -> LedgerMemory:
    number, tokens, constitutional = found["id"], found["tokens"], found.get("constitutional", False)
    tags = found.get("tags", [])
    kinds = [type(each) for each in (number, tokens, constitutional, tags, found["content"])]
    if kinds != [int, int, bool, list, str]:
        raise TypeError("An entry of the ledger has an unexpected form.")
    lower = frozenset(str(tag).lower() for tag in tags)
    return LedgerMemory(number, tokens, split_units(found["content"]), lower, constitutional)


def _read_threshold(messages: Messages) -> Decimal:
    for message in messages:
        found = _THRESHOLD.search(str(message.get("content") or "").partition("<ledger>")[0])
        if found and message.get("role") == "user":
            return min(Decimal(1), Decimal(found[1]) / 100)
    return DEFAULT_THRESHOLD


def _read_calls(messages: Messages) -> list[ToolCall]:
    made = [call for message in messages for call in message.get("tool_calls") or ()]
    return [ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in made]


def _read_results(messages: Messages) -> dict[str, dict[str, Any]]:
    told = [message for message in messages if message.get("role") == "tool"]
    return {str(message.get("tool_call_id")): _parse_object(message.get("content")) for message in told}


def _is_final(outcome: Mapping[str, Any]) -> bool:
    over = outcome.get("type") in ("refinement_rolled_back", "refinement_complete")
    return over or "terminated" in str(outcome.get("error", "")).lower()


def _parse_object(text: object) -> dict[str, Any]:
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _make_call(number: int, name: str, **arguments: Any) -> Reply:
    return Reply(tool_calls=(ToolCall(f"offline_{number}", name, json.dumps(arguments)),), finish_reason="tool_calls")
