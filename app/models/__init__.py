"""Rich rows: they know their rules, change themselves and record what they did, in one transaction."""

from app.models.agent import Agent
from app.models.agent_settings import (
    DEFAULT_MEMORY_REFLECTION_PROMPT,
    DEFAULT_REFINEMENT_PROMPT,
    DEFAULT_REFINEMENT_THRESHOLD,
    DEFAULT_REFLECTION_PROMPT,
)
from app.models.asked_loss import AskedLoss, asked_losses
from app.models.attention import AttentionItem, AttentionKind, note_to_admins
from app.models.audit import Action, AuditLog, HumanAct, record
from app.models.event import Event, announce
from app.models.grant import OPEN_GRANTS, AccessGrant, AccessView, GrantCategory, GrantStatus
from app.models.idempotency import IdempotencyKey
from app.models.installation import InstallationMark
from app.models.intake import Intake, IntakeStatus
from app.models.key import AgentKey, AgentToken
from app.models.master_key import MasterKeyRow, master_key
from app.models.memory import Memory
from app.models.memory_text import ContentKey, MemoryText
from app.models.model_call import CallPurpose, ModelCall
from app.models.model_test import ModelTest
from app.models.notice import ChannelType, Notice, NoticeAttempt, NoticeChannel, NoticeKind, NoticeStatus
from app.models.one_time_link import LinkKind, LinkOver, OneTimeLink
from app.models.passkey import Passkey, PasskeyTaken
from app.models.proposal import OPEN_PROPOSALS, ProposalStatus, SettingProposal
from app.models.recall_probe import RecallProbe, reveal_probes
from app.models.refinement import Consent, Refinement
from app.models.rollback import Rollback, RollbackKind
from app.models.second_reading import SecondReadingWords, reveal_reader_words
from app.models.settings_request import SettingsRequest, SettingsRequestStatus
from app.models.state import STATE_FIELDS, MemoryState, MemoryType, Restoration, Source
from app.models.statement import LogLeaf, SignedRequest, StatementKind
from app.models.statement_log import master_public_key
from app.models.token_request import TokenRequest, TokenRequestStatus
from app.models.user import Account, Role, User
from app.models.user_session import AccountVisit, UserSession, drop_old_sessions
from app.values.actor import BEAT, COMMAND_LINE, SETUP, WORKER, Actor, ActorKind
from app.values.refinement_states import OPEN_STATES, Mode, Status, Trigger
