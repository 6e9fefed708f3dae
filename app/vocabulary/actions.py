"""What can stand in the audit log, and why the Knife refused a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.models import Action
from app.vocabulary.term import Term


@dataclass(frozen=True)
class ActionTerm(Term):
    """`history` is its title among the changes of an agent's settings: without one it is none of them.

    `step` is its title in the timeline of a refinement.
    """

    history: str = ""
    step: str = ""


ACTIONS: Mapping[str, ActionTerm] = {
    Action.REFINEMENT_START: ActionTerm("clock", "Asked for a refinement"),
    Action.REFINEMENT_CONSENT: ActionTerm("chat", "Answered the question for consent", "ask"),
    Action.REFINEMENT_SNAPSHOT: ActionTerm("flag", "Took the snapshot that the latch compares with"),
    Action.REFINEMENT_CONSOLIDATE: ActionTerm("merge", "Consolidated memories", "info", step="Consolidated"),
    Action.REFINEMENT_UPDATE: ActionTerm("pencil", "Shortened a memory", "info", step="Shortened"),
    Action.REFINEMENT_DELETE: ActionTerm("trash", "Deleted a memory", "warn", step="Deleted"),
    Action.REFINEMENT_PROTECT: ActionTerm(
        "shield", "Made a memory constitutional in a refinement", "ok", step="Made constitutional"
    ),
    Action.REFINEMENT_COMPLETE: ActionTerm("check", "Completed the refinement", "ok"),
    Action.REFINEMENT_ROLLBACK: ActionTerm(
        "undo", "A guard reversed every change: not enough would have been kept", "warn"
    ),
    Action.SECOND_READING: ActionTerm("eye", "A second reader compared what was changed"),
    Action.REFINEMENT_STOP_REQUESTED: ActionTerm("stop", "Pressed Stop", "warn"),
    Action.REFINEMENT_END: ActionTerm("flag", "The refinement ended"),
    Action.NOTE_TO_ADMINS: ActionTerm("chat", "Wrote to the admins", "ask"),
    Action.ATTENTION_SEEN: ActionTerm("eye", "Marked as seen"),
    Action.ATTENTION_UNSEEN: ActionTerm("eye", "Marked as not seen"),
    Action.AGENT_TOLD: ActionTerm("chat", "Told the agent what a human did"),
    Action.DEDUP: ActionTerm("copy", "Removed exact duplicates", "info"),
    Action.CREATE: ActionTerm("plus", "Saved memories"),
    Action.IMPORT: ActionTerm("upload", "Imported memories"),
    Action.PROMOTE: ActionTerm("arrow-right", "Promoted journal entries to core memories", "info"),
    Action.REFLECTION_ASK: ActionTerm("chat", "Was asked what to keep of its journal", "ask"),
    Action.REFLECTION: ActionTerm("chat", "Answered what to keep of its journal", "ask"),
    Action.ROLLBACK: ActionTerm("history", "Rolled back by the Time Machine", "warn"),
    Action.CONSTITUTIONAL_TOGGLE: ActionTerm("shield", "Changed a memory's constitutional flag", "ok"),
    Action.ERASE: ActionTerm("trash", "Erased a memory for good", "bad"),
    Action.AGENT_CREATE: ActionTerm("agent", "Created the agent", history="Created"),
    Action.AGENT_SETTINGS_UPDATE: ActionTerm("settings", "Changed the agent's settings", history="Changed"),
    Action.AGENT_SETTING_HELD: ActionTerm(
        "lock", "A prompt of its own is held for an admin to read", "warn", history="Held for an admin"
    ),
    Action.AGENT_SETTING_DISMISSED: ActionTerm(
        "ban", "Dismissed a prompt that the agent wrote", "warn", history="Not applied"
    ),
    Action.AGENT_CHANGE_ASKED: ActionTerm("chat", "Asked the agent for a change of its settings", "ask"),
    Action.AGENT_CHANGE_AGREED: ActionTerm("check", "Agreed to a change of its settings by its own token", "ok"),
    Action.AGENT_CHANGE_APPLIED: ActionTerm("check", "Agreed to a change of its settings", "ok"),
    Action.AGENT_CHANGE_DENIED: ActionTerm(
        "ban", "Declined a change of its settings", "ask", history="Declined a change"
    ),
    Action.AGENT_CHANGE_FAILED: ActionTerm(
        "alert", "Could not be asked for a change of its settings", "bad", history="A change could not be asked for"
    ),
    Action.AGENT_CHANGE_SUPERSEDED: ActionTerm(
        "history", "A change that was asked for was overtaken", history="A change was overtaken"
    ),
    Action.AGENT_CHANGE_WITHDRAWN: ActionTerm(
        "undo", "Took back a change that was asked for", history="A change was taken back"
    ),
    Action.AGENT_PAUSE: ActionTerm("pause", "Paused the agent", history="Paused"),
    Action.AGENT_RESUME: ActionTerm("play", "Resumed the agent", history="Resumed"),
    Action.TOKEN_CREATE: ActionTerm("key", "Created an API token"),
    Action.TOKEN_REVOKE: ActionTerm("key", "Revoked an API token", "warn"),
    Action.TOKEN_REQUESTED: ActionTerm("key", "Asked for an API token", "ask"),
    Action.TOKEN_GRANTED: ActionTerm("key", "Agreed to an API token", "ok"),
    Action.TOKEN_DENIED: ActionTerm("ban", "Denied an API token", "ask"),
    Action.TOKEN_UNANSWERED: ActionTerm("clock", "Gave no answer to a request for an API token", "ask"),
    Action.TOKEN_FAILED: ActionTerm("alert", "Could not be asked for an API token", "bad"),
    Action.TOKEN_WITHDRAWN: ActionTerm("stop", "Took a request for an API token back"),
    Action.ACCESS_REQUESTED: ActionTerm("lock", "Asked for an exception", "ask"),
    Action.ACCESS_GRANTED: ActionTerm("lock", "Granted an exception", "broken"),
    Action.ACCESS_DENIED: ActionTerm("ban", "Denied an exception", "ask"),
    Action.ACCESS_VIEWED: ActionTerm("info", "Looked at content under an exception", "broken"),
    Action.ACCESS_EXPIRED: ActionTerm("clock", "An exception expired"),
    Action.ACCESS_REVOKED: ActionTerm("ban", "Revoked an exception", "warn"),
    Action.ACCESS_UNANSWERED: ActionTerm("clock", "Gave no answer to a request for an exception", "ask"),
    Action.ACCESS_FAILED: ActionTerm("alert", "Could not be asked for an exception", "bad"),
    Action.AGENT_FORGET: ActionTerm("trash", "Forgot the agent", "bad", history="Forgotten"),
    Action.AGENT_KEY_ROTATE: ActionTerm("key", "Created a new data key for the agent"),
    Action.MASTER_KEY_ROTATE: ActionTerm("key", "Created a new master key"),
    Action.MASTER_KEY_BACKUP: ActionTerm("key", "Copied the master key", "warn"),
    Action.ACCOUNT_CREATE: ActionTerm("users", "Created the account"),
    Action.USER_CREATE: ActionTerm("user", "Created a user"),
    Action.USER_INVITE: ActionTerm("user", "Invited a user"),
    Action.USER_ROLE: ActionTerm("user", "Changed a user's role"),
    Action.USER_DEACTIVATE: ActionTerm("user", "Deactivated a user", "warn"),
    Action.USER_REACTIVATE: ActionTerm("user", "Reactivated a user"),
    Action.USER_PASSWORD: ActionTerm("key", "Set a new password"),
    Action.PASSWORD_LINK: ActionTerm("key", "Made a link for a new password", "warn"),
    Action.LINK_REVOKE: ActionTerm("ban", "Revoked a one-time link"),
    Action.SECOND_FACTOR_ON: ActionTerm("lock", "Set up a second factor", "ok"),
    Action.SECOND_FACTOR_OFF: ActionTerm("lock", "Turned a second factor off", "warn"),
    Action.SECOND_FACTOR_RESET: ActionTerm("lock", "Took off a user's second factor", "warn"),
    Action.PASSKEY_ADD: ActionTerm("key", "Added a passkey", "ok"),
    Action.PASSKEY_REMOVE: ActionTerm("key", "Removed a passkey", "warn"),
    Action.RECOVERY_CODES_RENEW: ActionTerm("key", "Made new recovery codes"),
    Action.RECOVERY_CODE_USE: ActionTerm("key", "Used a recovery code", "warn"),
    Action.USER_TIME_ZONE: ActionTerm("clock", "Chose a time zone"),
    Action.SESSIONS_END: ActionTerm("sign-out", "Ended sessions"),
    Action.ACCOUNT_RENAME: ActionTerm("pencil", "Renamed the account"),
    Action.ACCOUNT_LIMITS: ActionTerm("settings", "Changed the account's limits"),
    Action.ACCOUNT_ENTER: ActionTerm("eye", "Entered the account as its admin", "warn"),
    Action.ACCOUNT_LEAVE: ActionTerm("sign-out", "Left the account"),
    Action.NOTICE_CHANNEL_CREATE: ActionTerm("bell", "Added a channel for notices"),
    Action.NOTICE_CHANNEL_UPDATE: ActionTerm("bell", "Changed what a channel tells of"),
    Action.NOTICE_CHANNEL_PAUSE: ActionTerm("bell", "Paused a channel for notices", "warn"),
    Action.NOTICE_CHANNEL_RESUME: ActionTerm("bell", "Resumed a channel for notices"),
    Action.NOTICE_CHANNEL_REMOVE: ActionTerm("bell", "Removed a channel for notices", "warn"),
    Action.NOTICE_CHANNEL_RESTORE: ActionTerm("bell", "Restored a channel for notices"),
    Action.SIGN_IN: ActionTerm("user", "Signed in"),
    Action.SIGN_IN_FAILED: ActionTerm("alert", "Sign-in failed", "bad"),
    Action.SIGN_OUT: ActionTerm("sign-out", "Signed out"),
}

_REFUSALS: Mapping[str, str] = {
    "constitutional": "the memory is constitutional",
    "immutable": "the memory carries an immutable tag",
    "unknown_memory": "no such memory of this agent",
    "cap_reached": "the hard cap was reached",
    "terminated": "the refinement was over already",
    "protections_used": "all 10 protections were used",
    "invalid": "the arguments were not valid",
    "malformed_arguments": "the arguments were no JSON object",
    "unknown_function": "not an available function",
}


def action_term(action: str) -> ActionTerm:
    """Plain for an action that a later version wrote."""
    return ACTIONS.get(action) or ActionTerm("info", action.replace("_", " "))


def refusal_reason(code: str) -> str:
    """Plain for a code that has no words of its own."""
    return _REFUSALS.get(code, code.replace("_", " "))
