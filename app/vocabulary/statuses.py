"""How a refinement stands, who wanted it, and how much it may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.models import Mode, Status, Trigger
from app.vocabulary.term import Term

EARLIER_CHANGES_KEPT = "earlier changes are kept"
"""Of every end that is neither an agent's own nor a guard's."""


@dataclass(frozen=True)
class StatusTerm(Term):
    """An open one says in `nothing_yet` what it does while it has changed nothing.

    Of an end, `ending` is the last line of the timeline, `headline` the first words of what it means, `advice` what an
    admin can do, and `alert` what the overview says of agents whose newest refinement ended so, if anything.
    """

    nothing_yet: str = ""
    ending: str = ""
    headline: str = ""
    advice: str = ""
    alert: str = ""


def _end(icon: str, words: str, tone: str, meaning: str, *, ending: str = "", **more: str) -> StatusTerm:
    ending = ending or words.capitalize()
    return StatusTerm(icon, words, tone, meaning, **{"ending": ending, "headline": f"{ending}.", **more})


STATUSES: Mapping[str, StatusTerm] = {
    Status.QUEUED: StatusTerm("clock", "queued", "neutral", "Waiting for a worker", "Waiting for a worker."),
    Status.ASKING: StatusTerm(
        "chat", "asking", "ask", "The agent is being asked for its consent", "Asking the agent for its consent."
    ),
    Status.RUNNING: StatusTerm(
        *("spinner", "running", "info", "The agent is working on its ledger"),
        nothing_yet="The agent is reading its ledger; nothing has changed yet.",
    ),
    Status.COMPLETED: _end("check", "completed", "ok", "The agent finished"),
    Status.DECLINED: _end(
        *("ban", "declined", "ask", "The agent declined: a normal outcome"),
        headline="The agent said NO.",
        alert="The agent declined. You can ask again after 24 hours.",
    ),
    Status.ROLLED_BACK: _end(
        *("undo", "rolled back", "warn", "Not enough would have been kept: a guard reversed every change"),
        ending="Rolled back: every change was reversed",
        headline="Rolled back.",
        alert="Not enough would have been kept: a guard reversed every change.",
    ),
    Status.STOPPED: _end("stop", "stopped", "neutral", f"An admin stopped it; {EARLIER_CHANGES_KEPT}"),
    Status.UNFINISHED: _end(
        *("dashed", "unfinished", "warn", f"A limit was reached; {EARLIER_CHANGES_KEPT}"),
        ending="Ended unfinished",
        advice="Refine again if more is to be done.",
    ),
    Status.INTERRUPTED: _end(
        *("bolt", "interrupted", "broken", f"Its worker stopped unexpectedly; {EARLIER_CHANGES_KEPT}"),
        advice="Look at the worker's log, or run the doctor, then refine again.",
        alert="The worker stopped unexpectedly. Changes made before were kept.",
    ),
    Status.FAILED: _end(
        *("alert", "failed", "bad", "The model could not be used; its page says why"),
        advice="Fix the cause, then refine again.",
        alert="Changes made before it failed were kept.",
    ),
}

TRIGGERS: Mapping[str, Term] = {
    Trigger.WEEKLY: Term(words="by schedule", meaning="by schedule"),
    Trigger.OVER_BUDGET: Term(words="over budget", meaning="because the agent was over its budget"),
    Trigger.ADMIN: Term(words="manually", meaning="manually"),
    Trigger.AGENT: Term(words="by the agent", meaning="by the agent itself"),
}

MODES: Mapping[str, Term] = {Mode.FULL: Term("refine", "full"), Mode.DEDUP_ONLY: Term("copy", "exact duplicates only")}
