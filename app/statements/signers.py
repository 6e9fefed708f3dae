"""Who has signed what the worker is asked for: the agent's own token, a web process, or this installation itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.errors import Refused
from app.models.agent import Agent
from app.models.intake import INTAKE, Intake
from app.models.key import Scope
from app.models.statement_log import current_of, statement_log
from app.silo.notes import NoteBroken, NoteVerifier, claimed_signers, open_note, token_name
from app.silo.statements import read_text
from app.statements.web_keys import enrolled_web_keys


class IntakeUnsigned(Refused):
    """Neither a token of the agent that may write nor a web process here has signed what waits to be taken in."""

    code = "intake_unsigned"
    outcome = "Nothing of it was read or written."


def open_signed(intake: Intake, agent: Agent) -> str:
    """The text that was handed in, by whom its row says. Raises IntakeUnsigned, SealBroken or KeyFileError."""
    held = intake.open(agent)
    if not (
        is_signed_by_agent(INTAKE, held.note, intake.signed_fields(agent, held.text), agent, Scope.WRITE)
        or is_signed_by_web(INTAKE, held.note, intake.signed_fields(agent, held.text))
    ):
        raise IntakeUnsigned
    return held.text


def is_signed_by_web(heading: str, note: bytes, said: Mapping[str, Any]) -> bool:
    """Whether an enrolled web process, or this installation, has signed exactly this."""
    return _is_signed(heading, note, said, [*enrolled_web_keys(), statement_log().keys.verifier])


def is_signed_by_agent(
    heading: str, note: bytes, said: Mapping[str, Any], agent: Agent, scope: str | None = None
) -> bool:
    """Whether a live token of the agent, one with this scope, or this installation has signed exactly this."""
    return _is_signed(heading, note, said, [*_token_verifiers(note, agent, scope), statement_log().keys.verifier])


def _is_signed(heading: str, note: bytes, said: Mapping[str, Any], verifiers: list[NoteVerifier]) -> bool:
    try:
        return read_text(heading, open_note(note, *verifiers).text) == said
    except NoteBroken:
        return False


def _token_verifiers(note: bytes, agent: Agent, scope: str | None) -> list[NoteVerifier]:
    """Of the live tokens that the note names."""
    prefix, tokens = token_name(statement_log().installation, ""), current_of(agent.id, agent.uuid).tokens
    try:
        named = {name.removeprefix(prefix): name for name in claimed_signers(note) if name.startswith(prefix)}
    except NoteBroken:
        return []
    return [
        NoteVerifier(name, bytes.fromhex(tokens[public_id].body["signing_key"]))
        for public_id, name in named.items()
        if public_id in tokens and (scope is None or scope in tokens[public_id].body["scopes"])
    ]
