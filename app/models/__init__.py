"""Rich rows: they know their rules, change themselves and record what they did, in one transaction."""

from app.models.account import Account
from app.models.actor import BEAT, COMMAND_LINE, SETUP, WORKER, Actor, ActorKind
from app.models.agent import Agent
from app.models.agent_settings import DEFAULT_REFINEMENT_PROMPT, DEFAULT_REFINEMENT_THRESHOLD
from app.models.audit import Action, AuditLog, record
from app.models.event import Event, announce
from app.models.grant import AccessGrant, GrantCategory, GrantStatus
from app.models.installation import Mark
from app.models.intake import Intake, IntakeStatus
from app.models.key import AgentKey, AgentToken, MasterKeyRow, make_keys, master_key, master_public_key, open_keys
from app.models.memory import Memory, MemoryState, MemoryType
from app.models.refinement import OPEN_STATES, Consent, Mode, Refinement, Status, Trigger
from app.models.user import Role, User, WebAuthn

__all__ = [
    "BEAT",
    "COMMAND_LINE",
    "DEFAULT_REFINEMENT_PROMPT",
    "DEFAULT_REFINEMENT_THRESHOLD",
    "OPEN_STATES",
    "SETUP",
    "WORKER",
    "AccessGrant",
    "Account",
    "Action",
    "Actor",
    "ActorKind",
    "Agent",
    "AgentKey",
    "AgentToken",
    "AuditLog",
    "Consent",
    "Event",
    "GrantCategory",
    "GrantStatus",
    "Intake",
    "IntakeStatus",
    "Mark",
    "MasterKeyRow",
    "Memory",
    "MemoryState",
    "MemoryType",
    "Mode",
    "Refinement",
    "Role",
    "Status",
    "Trigger",
    "User",
    "WebAuthn",
    "announce",
    "make_keys",
    "master_key",
    "master_public_key",
    "open_keys",
    "record",
]
