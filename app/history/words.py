"""What the Time Machine would do or has done, in words for people: counts, ids and tokens, never content."""

from __future__ import annotations

from collections.abc import Sequence

from app.values.plural import count_nouns, noun_for

SHOWN_IDS = 100


def describe_moves(restored: int, removed: int, mass: tuple[int, int], *, past: bool = False) -> str:
    """`restores 5 memories, removes 2 memories, 640 → 812 tokens`. `mass` before and after, in tokens."""
    restores, removes = ("restored", "removed") if past else ("restores", "removes")
    parts = [
        f"{verb} {count_nouns(number, 'memory')}"
        for verb, number in ((restores, restored), (removes, removed))
        if number
    ]
    return ", ".join([*(parts or ["no memory changes"]), describe_tokens(*mass)])


def describe_memories(ids: Sequence[int]) -> str:
    """`memory 3`, or `memories 3, 4, … and 17 more`."""
    shown = ", ".join(map(str, ids[:SHOWN_IDS]))
    more = f" and {len(ids) - SHOWN_IDS:,} more" if len(ids) > SHOWN_IDS else ""
    return f"{noun_for(len(ids), 'memory')} {shown}{more}"


def describe_tokens(before: int, after: int) -> str:
    return f"{before:,} → {after:,} tokens"
