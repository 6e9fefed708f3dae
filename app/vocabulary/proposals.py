"""How a setting stands that an agent wrote for itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.models import ProposalStatus
from app.vocabulary.term import Term


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
