"""How an import stands."""

from __future__ import annotations

from collections.abc import Mapping

from app.models import IntakeStatus
from app.vocabulary.term import Term

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
