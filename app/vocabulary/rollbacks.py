"""What a use of the Time Machine undoes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.models import RollbackKind
from app.values.plural import count_nouns, noun_for
from app.vocabulary.term import Term


@dataclass(frozen=True)
class RollbackTerm(Term):
    """`title`, `button` and `lead` are of the page that says beforehand what it would do, `done` of the answer to it,
    where `{noun}` is that of the rollback that was undone.

    `noun` names one that was made, `taken_back` stands in the timeline of the refinement that it touched, and `told`
    in the journal of the agent. In a title stand `{agent}`, `{id}` and its beginning, `{short}`; in what is told, the
    open data of its audit entry.
    """

    icon: str = "undo"
    tone: str = "warn"
    title: str = ""
    button: str = ""
    lead: str = ""
    done: str = ""
    noun: str = "rollback"
    taken_back: str = "Rolled back"
    told: str = ""


ROLLBACKS: Mapping[str, RollbackTerm] = {
    RollbackKind.REFINEMENT: RollbackTerm(
        words="rollback of a refinement",
        title="Roll back refinement {short}",
        button="Roll back",
        lead="All that it did is taken back, the exact duplicates that it removed and its note in the journal "
        "included. What others did stays.",
        done="Rolled back",
        told="undid refinement {refinement}",
    ),
    RollbackKind.ENTRY: RollbackTerm(
        words="undo of one entry",
        title="Undo entry {id}",
        button="Undo it",
        lead="What this one entry of the audit log did to memories is taken back, and nothing else.",
        done="Undone",
        taken_back="One of its changes was undone",
        told="undid entry {entry} of the audit log",
    ),
    RollbackKind.ROLLBACK: RollbackTerm(
        words="undo of a rollback",
        title="Undo rollback {short}",
        button="Undo this rollback",
        lead="The memories that it changed become what they were before it, byte for byte.",
        done="The {noun} is undone",
        told="undid an earlier rollback",
    ),
    RollbackKind.REWIND: RollbackTerm(
        words="rewind",
        title="Rewind {agent} to before refinement {short}",
        button="Rewind",
        lead="Every refinement, removal of duplicates and promotion since then is reversed, as if none had run. What "
        "the agent or an import saved since stays, and so do settings.",
        done="Rewound",
        noun="rewind",
        taken_back="Taken back by a rewind",
        told="rewound me to before refinement {refinement}",
    ),
}


SHOWN_IDS = 100


def describe_moves(restored: int, removed: int, mass: tuple[int, int], *, notes: int = 0, past: bool = False) -> str:
    """`restores 5 memories, removes 1 journal note, 640 → 812 tokens`. `mass` before and after, in tokens; `notes` is
    how many of the removed are notes in the journal.
    """
    restores, removes = ("restored", "removed") if past else ("restores", "removes")
    parts = [f"{restores} {count_nouns(restored, 'memory')}"] if restored else []
    parts += [f"{removes} {describe_removed(removed, notes)}"] if removed else []
    return ", ".join([*(parts or ["no memory changes"]), f"{mass[0]:,} → {mass[1]:,} tokens"])


def describe_removed(removed: int, notes: int) -> str:
    """`2 memories and 1 journal note`."""
    memories = [count_nouns(removed - notes, "memory")] if removed > notes or not notes else []
    return " and ".join([*memories, *([count_nouns(notes, "journal note")] if notes else [])])


def describe_memories(ids: Sequence[int]) -> str:
    """`memory 3`, or `memories 3, 4, … and 17 more`."""
    shown = ", ".join(map(str, ids[:SHOWN_IDS]))
    more = f" and {len(ids) - SHOWN_IDS:,} more" if len(ids) > SHOWN_IDS else ""
    return f"{noun_for(len(ids), 'memory')} {shown}{more}"
