"""The product's words: for each member of an enum what people see of it. Pages, commands and notes print them."""

from __future__ import annotations

from app.vocabulary.actions import ACTIONS
from app.vocabulary.exceptions import GRANT_CATEGORIES, GRANT_STATUSES
from app.vocabulary.hints import HINTS
from app.vocabulary.notices import CHANNEL_TYPES, NOTICE_KINDS, NOTICE_STATUSES
from app.vocabulary.progress import WAITS
from app.vocabulary.rollbacks import ROLLBACKS
from app.vocabulary.statuses import MODES, STATUSES, TRIGGERS
from app.vocabulary.tokens import TOKEN_REQUEST_STATUSES
from app.vocabulary.waiting import ATTENTION_KINDS, INTAKE_STATUSES, PROPOSAL_STATUSES, SETTINGS_REQUEST_STATUSES

FOR_TEMPLATES = {
    "exceptions": GRANT_STATUSES,
    "hints": HINTS,
    "imports": INTAKE_STATUSES,
    "channel_types": CHANNEL_TYPES,
    "modes": MODES,
    "notice_kinds": NOTICE_KINDS,
    "notice_statuses": NOTICE_STATUSES,
    "proposals": PROPOSAL_STATUSES,
    "rollbacks": ROLLBACKS,
    "settings_requests": SETTINGS_REQUEST_STATUSES,
    "statuses": STATUSES,
    "token_requests": TOKEN_REQUEST_STATUSES,
    "triggers": TRIGGERS,
    "waits": WAITS,
}
"""What templates know as `vocabulary`."""
