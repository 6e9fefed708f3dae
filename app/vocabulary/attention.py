"""What waits for an admin's eyes, by kind."""

from __future__ import annotations

from collections.abc import Mapping

from app.models import AttentionKind
from app.vocabulary.term import Term

ATTENTION_KINDS: Mapping[str, Term] = {
    AttentionKind.NOTE: Term("chat", "Note to admins", "ask"),
    AttentionKind.UNFINISHED: Term("dashed", "Unfinished, with changes", "warn"),
    AttentionKind.PROTECTIONS: Term("shield", "Many protections", "warn"),
    AttentionKind.REFUSALS: Term("ban", "Refused calls", "bad"),
}
