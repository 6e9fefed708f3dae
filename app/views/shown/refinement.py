"""What the page of one refinement shows: how it stands, its timeline, and what its end means."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from app.events.topics import newest_event
from app.extensions import db, now
from app.history.plan import Target
from app.history.progress import Progress
from app.history.steps import steps_of
from app.history.timeline import timeline_of
from app.models import Agent, Consent, Mode, Refinement, Status
from app.models.base import iso
from app.models.schedule import ATTEMPT_PAUSE
from app.refinement.failures import AGENT_STOPPED
from app.refinement.heartbeat import STALE_SECONDS
from app.refinement.timetable import Timetable
from app.shapes.refinement import NamedRefinement
from app.values.plural import count_nouns
from app.values.refinement_states import CHANGELESS_STATES
from app.views.shown.entry import receipt_url
from app.views.shown.rollback import RollbackOffer
from app.vocabulary import STATUSES
from app.vocabulary.statuses import EARLIER_CHANGES_KEPT


class RefinementPage:
    """`story` is what became of the mass, with the agent's present one while it is open."""

    def __init__(self, refinement: Refinement) -> None:
        self.last_event = newest_event(refinement.account_id)
        db.session.refresh(refinement)
        self.refinement = refinement
        self.is_closing = refinement.is_open and refinement.ending is not None
        self.is_stopping = refinement.is_open and refinement.stop_requested_at is not None and not self.is_closing
        self.agent = db.session.get_one(Agent, refinement.agent_id)
        self.consent = db.session.scalar(select(Consent).where(Consent.refinement_id == refinement.id))
        self.due = Timetable().outlooks([self.agent])[self.agent.id].due
        after = refinement.mass_after
        self.mass_now = self.agent.core_token_usage if after is None else after
        self.story = refinement.mass_story(self.mass_now)
        steps = steps_of(refinement)
        self.rows = timeline_of(refinement, steps)
        self.progress = Progress.of(refinement, self.agent, steps)
        self.offer = _rollback_offer(refinement)

    @property
    def line(self) -> str:
        """The machine's own line; while it runs, what has been done until now."""
        if self.refinement.is_open and not self.refinement.has_done_something:
            return STATUSES[self.refinement.status].nothing_yet
        return self.refinement.machine_line

    @property
    def is_silent(self) -> bool:
        """Whether its worker was not heard of for so long that it counts as dead."""
        silent = None if self.progress is None else self.progress.silent
        return silent is not None and silent > STALE_SECONDS

    @property
    def consent_words(self) -> str:
        """The answer, never its words."""
        if self.refinement.mode == Mode.DEDUP_ONLY:
            return "Not asked: exact duplicates need no consent"
        if self.consent is None:
            asking = self.refinement.status == Status.ASKING
            return "Being asked now" if asking else "Not asked yet" if self.refinement.is_open else "Never answered"
        if self.is_own:
            return "YES: it asked for this refinement itself"
        return "YES" if self.consent.granted else "NO"

    @property
    def has_receipt(self) -> bool:
        """Whether an answer, or the agent's own request, was stated."""
        return self.consent is not None or self.is_own

    @property
    def is_own(self) -> bool:
        return self.refinement.trigger == "agent"

    @property
    def headline(self) -> str:
        """The end in two or three words; empty while it is open."""
        if self.refinement.undone_by is not None:
            return "Undone."
        return STATUSES[self.refinement.status].headline

    @property
    def outcome(self) -> str:
        """What the end means, in a sentence or two; empty while it is open."""
        if self.refinement.undone_by is not None:
            return f"It had ended as {STATUSES[self.refinement.status].words}; all that it did was taken back since."
        return _outcome_words(self.refinement)

    @property
    def next_step(self) -> str:
        """What happens next, or what an admin can do."""
        if self.refinement.status == Status.DECLINED:
            until = (self.consent.answered_at if self.consent else self.refinement.requested_at) + ATTEMPT_PAUSE
            if until > now():
                rest = f"{self.agent.name} is not asked again before {until:%A %H:%M} UTC; it may start one itself."
                return f"{rest} {self.due.words}"
        return " ".join(part for part in (self._advice, self.due.words) if part)

    @property
    def _advice(self) -> str:
        if self.refinement.undone_by is not None:
            return ""
        if self.refinement.failure == AGENT_STOPPED:
            return "The agent's page says what to do."
        if self.refinement.model_seems_unable:
            return f"{self.refinement.refusal_line}. Choose another one in its settings, then refine again."
        return STATUSES[self.refinement.status].advice

    @property
    def is_of_the_model(self) -> bool:
        """Whether the agent's settings are where to mend what went wrong: its model, the address or the key."""
        is_unable = self.refinement.model_seems_unable and self.refinement.undone_by is None
        return is_unable or self.refinement.status == Status.FAILED

    @property
    def keeps_only_duplicates_out(self) -> bool:
        """Whether nothing of it stands but the removal of exact duplicates, so that a rollback restores just those."""
        return self.refinement.status in CHANGELESS_STATES

    @property
    def nothing_to_undo(self) -> str:
        """Why no roll back is offered; empty where one is."""
        if self.offer:
            return ""
        if self.refinement.is_open:
            return "Possible once it has ended, for all of it or for one change."
        if self.refinement.status == Status.ROLLED_BACK:
            return (
                "Nothing to roll back: the guard reversed every change itself. That is final; only the agent can "
                "do that work again."
            )
        return "Nothing to roll back: it changed no core memory."

    def as_json(self) -> dict[str, Any]:
        return NamedRefinement.of(self.refinement, agent=self.agent.name).as_json() | {
            "agent_id": self.agent.id,
            "line": self.refinement.machine_line,
            "receipt": receipt_url(self.refinement.id) if self.has_receipt else None,
            "consent": None if self.consent is None else ("YES" if self.consent.granted else "NO"),
            "now": self.progress.as_json() if self.progress else None,
            "stop_requested_at": iso(self.refinement.stop_requested_at),
            "rollback": self.offer.as_json() if self.offer else None,
            "timeline": [row.as_json() for row in self.rows],
        }


def _rollback_offer(refinement: Refinement) -> RollbackOffer | None:
    """To roll it back, once it has ended and if it changed memories. A latch left only what the dedup changed."""
    if refinement.is_open:
        return None
    changed = refinement.status != Status.ROLLED_BACK and (refinement.mutations or refinement.protected)
    worth = changed or refinement.deduplicated or refinement.undone_by
    return RollbackOffer(Target.refinement(refinement.id)) if worth else None


def _outcome_words(refinement: Refinement) -> str:
    kept = ""
    if refinement.deduplicated:
        verb = "stays" if refinement.deduplicated == 1 else "stay"
        kept = f" {count_nouns(refinement.deduplicated, 'exact duplicate')} that went first {verb} removed."
    match refinement.status:
        case Status.COMPLETED if refinement.mode == Mode.DEDUP_ONLY and refinement.deduplicated:
            return f"{count_nouns(refinement.deduplicated, 'exact duplicate')} removed; nothing else was touched."
        case Status.COMPLETED if refinement.mode == Mode.DEDUP_ONLY:
            return "There were no exact duplicates; nothing was touched."
        case Status.COMPLETED if not refinement.mutations and not refinement.protected:
            return f"The agent looked through its ledger and changed nothing: a valid and good outcome.{kept}"
        case Status.COMPLETED:
            lost = refinement.specifics_confirmed
            gave_up = f" It gave up {count_nouns(lost, 'specific')} that the system had named to it." if lost else ""
            read = " A second reader did not call all of it kept." if refinement.flagged_groups else ""
            return f"The agent finished, and every change passed the guards.{gave_up}{read}{kept}"
        case Status.DECLINED:
            return f"That is a normal outcome: no model changed a memory.{kept}"
        case Status.ROLLED_BACK:
            reason = refinement.reason or "A guard tripped."
            return f"{reason} Every change was reversed; the ledger is as it was before them.{kept}"
        case _ if refinement.is_open:
            return ""
        case _:
            return refinement.reason or f"{EARLIER_CHANGES_KEPT.capitalize()}."
