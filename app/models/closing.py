"""Closing: what follows the last change of a refinement, before its end: a second reading, and recall probes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import JSON, String
from sqlalchemy.orm import Mapped, mapped_column

from app.config import ReaderAction
from app.models.second_reading import GroupVerdict, ReadingOutcome, change_groups
from app.values.plural import count_nouns
from app.values.refinement_states import Status

READ_ENDS = (Status.COMPLETED, Status.UNFINISHED, Status.STOPPED, Status.FAILED)
"""Ends before which a worker is there to ask the second reader."""

PROBED_ENDS = (Status.COMPLETED, Status.UNFINISHED)
"""Ends before which the agent's model is asked once more; not after a Stop, nor where it can't be reached."""


class Closing:
    """`reader_model` and `reader_action` are the second reader's as of the snapshot; null where none is to read.

    `ending` is the end that a refinement has reached while that is not over: from then on it takes no call, and it
    stays open until the reading and the probes are done. `second_reading` says what came of it: `groups` of changes,
    how many of them the reader called `kept`, and the memory ids of each that it did not, `flagged`. `probes_asked`
    counts the questions that the agent wrote for itself, `probes_kept` those that it answered from the new ledger.
    `missing_named` counts, where there are probes, the different specifics that the Knife had asked about as missing,
    `missing_held` those of them that stand in the new ledger.
    """

    reader_model: Mapped[str | None] = mapped_column(String(200))
    reader_action: Mapped[ReaderAction | None] = mapped_column(String(16))
    ending: Mapped[Status | None] = mapped_column(String(16))
    second_reading: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    probes_asked: Mapped[int | None]
    probes_kept: Mapped[int | None]
    missing_named: Mapped[int | None]
    missing_held: Mapped[int | None]

    if TYPE_CHECKING:
        id: Mapped[str]
        mutations: Mapped[int]

    @property
    def awaits_reading(self) -> bool:
        """Whether there are changes that a second reader is to read, and has not."""
        return self.reader_action is not None and self.mutations > 0 and self.second_reading is None

    @property
    def reverses(self) -> bool:
        """Whether all is reversed if not everything is called kept."""
        return self.reader_action == ReaderAction.REVERSE

    def awaits_answers(self, status: Status) -> bool:
        """Whether the probes are still to be answered before such an end: not where nothing has changed."""
        return bool(self.probes_asked) and self.probes_kept is None and self.mutations > 0 and status in PROBED_ENDS

    def is_held_before(self, status: Status) -> bool:
        """Whether something comes before such an end that only a worker can do."""
        return (self.awaits_reading and status in READ_ENDS) or self.awaits_answers(status)

    def note_verdicts(self, outcome: ReadingOutcome, verdicts: Sequence[GroupVerdict] = ()) -> dict[str, Any]:
        """Take down what the reader said of each group; without verdicts, nothing is called kept."""
        groups = change_groups(self.id)
        kept = [verdict.is_kept for verdict in verdicts] or [False] * len(groups)
        flagged = [list(group) for group, is_kept in zip(groups, kept, strict=True) if not is_kept]
        self.second_reading = {
            "groups": len(groups),
            "kept": len(groups) - len(flagged),
            "flagged": flagged,
            "action": str(self.reader_action),
            "outcome": str(outcome),
        }
        return self.second_reading

    @property
    def flagged_groups(self) -> list[list[int]]:
        """Memory ids of each group that the second reader did not call kept."""
        return self.second_reading["flagged"] if self.second_reading else []

    @property
    def reading_line(self) -> str:
        """What the second reader said, in the machine's words; empty where nothing was to be read."""
        if self.second_reading is None:
            return ""
        groups, kept, outcome = (self.second_reading[name] for name in ("groups", "kept", "outcome"))
        line = f"{kept} of {count_nouns(groups, 'group')} of changes called kept"
        return line if outcome == ReadingOutcome.READ else f"{line}: {READING_OUTCOMES[outcome]}"

    @property
    def probes(self) -> dict[str, int | None] | None:
        """The recall probes; None where none were wanted. What is None in it was not looked at."""
        if self.probes_asked is None:
            return None
        missing = {"missing": self.missing_named, "missing_in_ledger": self.missing_held}
        return {"asked": self.probes_asked, "kept": self.probes_kept} | missing

    @property
    def probes_line(self) -> str:
        """The score in words; empty where there were no probes."""
        if self.probes_asked is None:
            return ""
        if not self.probes_asked:
            return "no question came of it"
        asked = count_nouns(self.probes_asked, "question")
        if self.probes_kept is None:
            return f"{asked} written, not answered: nothing changed" if not self.mutations else f"{asked} not answered"
        line = f"{self.probes_kept}/{self.probes_asked} answered from the new ledger"
        if not self.missing_named:
            return line
        named = count_nouns(self.missing_named, "specific")
        return f"{line}; of {named} asked about it holds {self.missing_held:,}"


READING_OUTCOMES = {
    ReadingOutcome.UNUSABLE: "the reader's answer could not be used",
    ReadingOutcome.UNREACHABLE: "the reader gave no answer",
    ReadingOutcome.NOT_READ: "nobody was there to ask the reader",
}
"""Why nothing was called kept."""
