"""How an import stands."""

from __future__ import annotations

from collections.abc import Mapping

from app.models import IntakeStatus
from app.vocabulary.term import Term

INTAKE_STATUSES: Mapping[str, Term] = {
    IntakeStatus.WAITING: Term(
        "spinner",
        "An import is on its way in.",
        "info",
        "It is sealed; a worker takes it in and this page will know.",
    ),
    IntakeStatus.TAKEN: Term("check", "taken in", "ok"),
    IntakeStatus.FAILED: Term("alert", "An import was refused; nothing of it was written.", "bad"),
}
