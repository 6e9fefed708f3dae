"""What waits, and what became of it: for an admin's eyes, for a worker to import it, for an admin to let it through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.models import AttentionKind, IntakeStatus, ProposalStatus, SettingsRequestStatus
from app.vocabulary.term import Term

ATTENTION_KINDS: Mapping[str, Term] = {
    AttentionKind.NOTE: Term("chat", "Note to admins", "ask"),
    AttentionKind.UNFINISHED: Term("dashed", "Unfinished, with changes", "warn"),
    AttentionKind.PROTECTIONS: Term("shield", "Many protections", "warn"),
    AttentionKind.REFUSALS: Term("ban", "Refused calls", "bad"),
    AttentionKind.READING: Term("eye", "Not called kept by the second reader", "warn"),
    AttentionKind.FAILED: Term("alert", "Failed or interrupted", "bad"),
    AttentionKind.ROLLED_BACK: Term("undo", "Reversed by a guard", "warn"),
}

INTAKE_STATUSES: Mapping[str, Term] = {
    IntakeStatus.WAITING: Term(
        "spinner",
        "An import waits for a worker.",
        "info",
        "It is encrypted. A worker imports it, and this page updates by itself.",
    ),
    IntakeStatus.TAKEN: Term("check", "imported", "ok"),
    IntakeStatus.FAILED: Term("alert", "An import was refused; nothing of it was written.", "bad"),
}


@dataclass(frozen=True)
class ProposalTerm(Term):
    """`told` is what the agent's journal says of an end that somebody else decided; `{name}` is the setting's."""

    told: str = ""


PROPOSAL_STATUSES: Mapping[str, ProposalTerm] = {
    ProposalStatus.READING: ProposalTerm("spinner", "being read", "info", "The safety model is asked"),
    ProposalStatus.HELD: ProposalTerm("lock", "held", "warn"),
    ProposalStatus.APPLIED: ProposalTerm(
        "check", "applied", "ok", told="applies now: a human who runs this system let it through."
    ),
    ProposalStatus.DISMISSED: ProposalTerm(
        "ban",
        "dismissed",
        "warn",
        told="was dismissed by a human who runs this system, and does not apply. My {name} is what it was without it. "
        "I can write another one.",
    ),
    ProposalStatus.SUPERSEDED: ProposalTerm(
        "history", "superseded", told="does not apply: my {name} was changed by somebody else meanwhile."
    ),
}


SETTINGS_REQUEST_STATUSES: Mapping[str, Term] = {
    SettingsRequestStatus.PENDING: Term("spinner", "asked", "ask", "It applies once the agent says YES: in seconds"),
    SettingsRequestStatus.AGREED: Term("check", "agreed", "ok", "The agent said YES; a worker applies it"),
    SettingsRequestStatus.APPLIED: Term("check", "applied", "ok", "The agent said YES"),
    SettingsRequestStatus.DENIED: Term("ban", "declined", "ask", "The agent said NO: a normal outcome"),
    SettingsRequestStatus.FAILED: Term("alert", "not asked", "bad", "The agent's model could not be asked"),
    SettingsRequestStatus.SUPERSEDED: Term("history", "overtaken", "neutral", "Something newer was said about it"),
    SettingsRequestStatus.WITHDRAWN: Term("undo", "taken back", "neutral", "Nobody wants it any more"),
}
