"""The product's words: for each member of an enum what people see of it. Pages, commands and notes print them."""

from __future__ import annotations

from app.vocabulary.actions import ACTIONS
from app.vocabulary.attention import ATTENTION_KINDS
from app.vocabulary.exceptions import GRANT_CATEGORIES, GRANT_STATUSES
from app.vocabulary.intakes import INTAKE_STATUSES
from app.vocabulary.proposals import PROPOSAL_STATUSES
from app.vocabulary.rollbacks import ROLLBACKS
from app.vocabulary.statuses import MODES, STATUSES, TRIGGERS

FOR_TEMPLATES = {
    "exceptions": GRANT_STATUSES,
    "imports": INTAKE_STATUSES,
    "modes": MODES,
    "proposals": PROPOSAL_STATUSES,
    "rollbacks": ROLLBACKS,
    "statuses": STATUSES,
    "triggers": TRIGGERS,
}
"""What templates know as `vocabulary`."""
