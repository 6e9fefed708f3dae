"""Settling: what web processes and tokens have signed becomes statements, where the rules allow it.

Only a process with the master key does it, under the agent's lock, before it opens or asks anything of the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy import exists, select

from app.extensions import db, now, reading
from app.models.agent import Agent
from app.models.agent_settings import PROMPTS, SECOND_READER
from app.models.appending import Whose, append_note, append_statement
from app.models.audit import Action, AuditLog
from app.models.base import iso
from app.models.current import Current, name_request
from app.models.grant import ACCESS_REQUEST, AccessGrant
from app.models.intake import Intake, IntakeStatus
from app.models.key import AgentToken, Scope
from app.models.memory import Memory
from app.models.statement import SignedRequest, Statement, StatementKind, statement_of
from app.models.statement_errors import AgentStopped
from app.models.statement_log import current_of, statement_log
from app.models.token_request import TOKEN_REQUEST, TokenRequest
from app.models.user import User
from app.silo.notes import NoteBroken, NoteVerifier, claimed_signers, open_note, sign_note, token_name
from app.silo.statements import REQUEST, STATEMENT, read_text
from app.statements.signers import is_signed_by_web
from app.statements.web_keys import enrolled_web_keys
from app.values.refinement_states import Mode

EARLY = timedelta(minutes=5)
"""By how much the clocks of web and worker may differ."""

LOST_AFTER = timedelta(seconds=60)

LATE = timedelta(hours=72)
"""How long a decision waits for a worker; after that it has to be made again."""

log = structlog.get_logger(__name__)


MALFORMED = (KeyError, TypeError, ValueError, AttributeError)
"""What reading raises of a body that was signed, and lacks something or holds other types than its kind has."""

_NO_FORM = "It is not of the form that its kind has."


class NotStated(Exception):
    """A signed request does not become a statement; says why."""


@dataclass(frozen=True)
class _Signed:
    """A request whose signature was checked: by the agent's token `token`, or by an enrolled web process."""

    said: Statement
    text: str
    token: Statement | None

    @property
    def by_token(self) -> str | None:
        return self.token.subject_id if self.token else None

    def has_scope(self, scope: str) -> bool:
        return self.token is not None and scope in self.token.body["scopes"]


def find_unsettled() -> list[int]:
    """Agents with something signed that no worker has looked at for over a minute."""
    late = SignedRequest.created_at < now() - LOST_AFTER
    query = select(SignedRequest.agent_id).where(SignedRequest.settled_at.is_(None), late).distinct()
    with reading():
        return list(db.session.scalars(query.order_by(SignedRequest.agent_id).limit(1000)))


def settle_requests(agent: Agent) -> None:
    """Make statements of what waits for an agent that the caller has locked, in `writing()`. Does each once."""
    waiting = select(SignedRequest).where(SignedRequest.agent_id == agent.id, SignedRequest.settled_at.is_(None))
    for request in db.session.scalars(waiting.order_by(SignedRequest.id)).all():
        request.settled_at = now()
        try:
            _settle(request, agent)
        except (NotStated, NoteBroken, *MALFORMED) as error:
            request.refused = _NO_FORM if isinstance(error, MALFORMED) else str(error)[:300]
            log.warning("a signed request was refused", agent=agent.uuid, kind=str(request.kind), why=request.refused)


def foresee(agent: Agent, current: Current) -> Current:
    """What the log will say of an agent once what waits is settled. Writes nothing.

    Raises AgentStopped where something waits that nobody has signed who may.
    """
    current = current.copy()
    waiting = select(SignedRequest).where(SignedRequest.agent_id == agent.id, SignedRequest.settled_at.is_(None))
    for request in db.session.scalars(waiting.order_by(SignedRequest.id)).all():
        try:
            signed = _open_request(request, agent, current)
            _check_time(signed.said)
            _RULES[signed.said.kind](agent, current, signed)
        except NoteBroken as error:
            what = f"The signed request {request.id} of {agent.name}, {request.kind}, is none ({error.sentence})"
            raise AgentStopped(what.replace(".)", ")"), agent.id) from None
        except (NotStated, *MALFORMED):
            continue
        current.apply(signed.said)
    return current


def _settle(request: SignedRequest, agent: Agent) -> None:
    current = current_of(agent.id, agent.uuid)
    signed = _open_request(request, agent, current)
    _check_time(signed.said)
    _RULES[signed.said.kind](agent, current, signed)
    if signed.token is not None:
        _countersign(request.note, signed, agent)
    else:
        said = signed.said
        body = {**said.body, "asked_at": iso(said.at)} if said.kind is StatementKind.MODEL else said.body
        append_statement(said.kind, said.subject, body, Whose(agent.account_id, agent.id, agent.uuid))


def _open_request(request: SignedRequest, agent: Agent, current: Current) -> _Signed:
    """Whose it is and what it says. Raises NotStated or NoteBroken."""
    installation = statement_log().installation
    signers = claimed_signers(request.note)
    if len(signers) != 1:
        raise NotStated("It is not signed by exactly one.")
    token = _token_of(signers[0], installation, current)
    if token is not None:
        verifiers = [NoteVerifier(signers[0], bytes.fromhex(token.body["signing_key"]))]
    else:
        verifiers = enrolled_web_keys()
    heading = REQUEST if token is None else STATEMENT
    text = open_note(request.note, *verifiers).text
    said = statement_of(read_text(heading, text), installation)
    if (said.account, said.agent) != (agent.account_id, agent.uuid):
        raise NotStated("It is about another agent.")
    if (said.kind, said.subject) != (request.kind, request.subject):
        raise NotStated("It says something else than the row that it stands in.")
    return _Signed(said, text, token)


def _token_of(signer: str, installation: str, current: Current) -> Statement | None:
    """The live token that signed, or None where a web process did."""
    prefix = token_name(installation, "")
    if not signer.startswith(prefix):
        return None
    token = current.tokens.get(signer.removeprefix(prefix))
    if token is None:
        raise NotStated("The token that signed it is not live, or none of this agent.")
    return token


def _check_time(said: Statement) -> None:
    if not now() - LATE <= said.at <= now() + EARLY:
        raise NotStated("It is from another time.")


def _countersign(note: bytes, signed: _Signed, agent: Agent) -> None:
    """The installation's line comes first, the token's second."""
    mine = sign_note(signed.text, statement_log().keys.signing_key())
    append_note(mine + note[len(signed.text.encode()) + 1 :], signed.said, agent.id)


def _require(condition: bool, why: str) -> None:
    if not condition:
        raise NotStated(why)


def _settle_token_made(agent: Agent, current: Current, signed: _Signed) -> None:
    row = _find_token(agent, signed.said)
    _require(row.stated() == signed.said.body, "The token's row says something else.")
    public_id = signed.said.subject_id
    _require(public_id not in current.tokens and public_id not in current.ended_tokens, "The token was stated before.")
    if signed.token is None:
        _require(row.how == "first", "Only a first token needs no decision of the agent's.")
        _require(is_untouched(agent, current), "The agent has had a token, memories or something to take in before.")
        return
    _require(signed.has_scope(Scope.DECIDE), "The token that signed it may not decide.")
    _require({*row.scopes} <= {*signed.token.body["scopes"]}, "The token that signed it lacks a scope of the new one.")
    _require((row.how, row.by_token) == ("agent", signed.by_token), "The row names another decision.")
    _require(row.request_id is None or _is_as_asked(row), "It is not what a web process signed for who asked.")


def _is_as_asked(row: AgentToken) -> bool:
    """Whether a web process signed the question that led to a token, and the token is that one."""
    request = _find_signed_request(row.request_id)
    if request is None:
        return False
    asked = [*request.kept.values(), request.agent_id, request.name, request.scopes]
    made = [*(getattr(row, name) for name in request.kept), row.agent_id, row.name, row.scopes]
    return asked == made and row.shown_to == db.session.get_one(User, request.user_id).email


def _find_signed_request(request_id: str | None) -> TokenRequest | None:
    """What a human asked for, if a web process signed it as it stands there."""
    request = db.session.get(TokenRequest, request_id, populate_existing=True)
    return request if request and is_signed_by_web(TOKEN_REQUEST, request.note, request.about()) else None


def _settle_token_ended(agent: Agent, current: Current, signed: _Signed) -> None:
    row = _find_token(agent, signed.said)
    _require(signed.said.subject_id in current.tokens, "The token is not live.")
    _require(row.revoked_at is not None, "The token's row is not revoked.")
    _require_decider(signed)


def _settle_exception_decided(agent: Agent, current: Current, signed: _Signed) -> None:
    grant = _find_grant(agent, signed.said)
    _require(signed.has_scope(Scope.DECIDE), "Only the agent decides on an exception.")
    _require(signed.said.subject_id not in current.exceptions, "The exception was decided before.")
    begins = datetime.fromisoformat(signed.said.body["database_time"])
    _require(isinstance(signed.said.body["granted"], bool) and begins.tzinfo is not None, _NO_FORM)
    _require(signed.said.body.get("by_token") == signed.by_token, "It names another token.")
    _require(_holds(signed.said.body, grant.stated()), "The exception's row says something else.")
    _require(
        is_signed_by_web(ACCESS_REQUEST, grant.note, grant.requested()), "What was asked for was signed by nobody."
    )


def _settle_exception_ended(agent: Agent, current: Current, signed: _Signed) -> None:
    _find_grant(agent, signed.said)
    _require(signed.said.subject_id not in current.ended, "The exception was ended before.")
    _require_decider(signed)


def _settle_own_request(agent: Agent, current: Current, signed: _Signed) -> None:
    _require(signed.has_scope(Scope.DECIDE), "Only the agent asks for a refinement of its own.")
    _require(signed.said.subject_id not in current.requests, "It was asked for before.")
    _require(signed.said.body["mode"] in list(Mode), _NO_FORM)


def _settle_consent(agent: Agent, current: Current, signed: _Signed) -> None:
    _require(not signed.said.subject.startswith("refinement:"), "A refinement's consent is the model's.")
    _require(signed.has_scope(Scope.DECIDE), "Only the agent decides.")
    _require(signed.said.subject not in current.consents, "It was decided before.")
    if signed.said.subject.startswith("token-request:"):
        request = _find_signed_request(signed.said.subject_id)
        asked = request is not None and request.agent_id == agent.id and request.about() == signed.said.body["about"]
        _require(asked, "It answers what no web process has signed.")


def _settle_model(agent: Agent, current: Current, signed: _Signed) -> None:
    _require(name_request(signed.said) not in current.model_requests, "It was stated before.")
    if signed.token is None:
        _require(not has_had_memories(agent), "The agent has had memories: its own model is asked.")
        return
    _require(signed.has_scope(Scope.AUTHOR), "The token that signed it may not write settings.")
    body = signed.said.body
    reader, prompts = {name: body[name] for name in SECOND_READER if name in body}, body.get("prompts", {})
    beyond = body.keys() - {"prompts", "by", *SECOND_READER}
    _require(not beyond, "A token changes prompts and the second reader, and nothing else of what is asked and where.")
    _require(not reader or signed.has_scope(Scope.DECIDE), "The token that signed it may not decide who reads.")
    said = [*reader.values(), *prompts.values()]
    _require(("prompts" in body or bool(reader)) and prompts.keys() <= {*PROMPTS}, _NO_FORM)
    _require(all(isinstance(each, str | None) for each in said), _NO_FORM)


def _settle_erasure(agent: Agent, current: Current, signed: _Signed) -> None:
    _require(signed.said.subject_id not in current.erased, "It was erased before.")
    this = (Memory.id == int(signed.said.subject_id), Memory.agent_id == agent.id, Memory.erased_at.is_not(None))
    _require(db.session.scalar(select(Memory.id).where(*this)) is not None, "No such memory was erased.")
    _require_decider(signed)


def _refuse_kind(agent: Agent, current: Current, signed: _Signed) -> None:
    raise NotStated("Only the worker states that.")


_RULES: Mapping[StatementKind, Callable[[Agent, Current, _Signed], None]] = {
    StatementKind.MASTER_KEY: _refuse_kind,
    StatementKind.WRAPPED_KEYS: _refuse_kind,
    StatementKind.TOKEN_MADE: _settle_token_made,
    StatementKind.TOKEN_ENDED: _settle_token_ended,
    StatementKind.EXCEPTION_DECIDED: _settle_exception_decided,
    StatementKind.EXCEPTION_ENDED: _settle_exception_ended,
    StatementKind.CONSENT: _settle_consent,
    StatementKind.OWN_REQUEST: _settle_own_request,
    StatementKind.MODEL: _settle_model,
    StatementKind.ERASURE: _settle_erasure,
}


def is_untouched(agent: Agent, current: Current) -> bool:
    """Whether nothing of the agent's is there that a first token could open: no token, memory or intake ever."""
    waits = select(Intake.id).where(Intake.agent_id == agent.id, Intake.status == IntakeStatus.WAITING)
    return not current.had_token and not has_had_memories(agent) and db.session.scalar(waits.limit(1)) is None


def has_had_memories(agent: Agent) -> bool:
    """Whether a memory of the agent was ever written, by its rows or by its log.

    Raises AgentStopped where its log lacks what the log of statements holds of it.
    """
    memory = exists().where(Memory.agent_id == agent.id)
    wrote = exists().where(AuditLog.agent_id == agent.id, AuditLog.action.in_(_WRITE_MEMORIES))
    if db.session.scalar(select(memory | wrote)):
        return True
    _check_none_is_hidden(agent)
    return False


def _check_none_is_hidden(agent: Agent) -> None:
    """No entry up to the one that the log of statements names wrote a memory: their hashes say so. Raises AgentStopped.

    Else somebody who has the database could hide all memories for the moment in which another model is signed.
    """
    sequence, digest = statement_log().read_chain_head(agent.chain, agent.id)
    mine = (AuditLog.chain == agent.chain, AuditLog.sequence <= sequence)
    entries = db.session.scalars(select(AuditLog).where(*mine).order_by(AuditLog.sequence)).all()
    previous = b""
    for entry in entries:
        if (entry.previous_hash, entry.hash) != (previous, entry.digest(())):
            break
        previous = entry.hash
    if previous.hex() != digest:
        raise AgentStopped(f"The audit log of {agent.name} is not the one that was signed", agent.id)


_WRITE_MEMORIES = (Action.CREATE, Action.IMPORT)


def _require_decider(signed: _Signed) -> None:
    """A web process may end things for an admin; a token needs the right to decide."""
    _require(signed.token is None or signed.has_scope(Scope.DECIDE), "The token that signed it may not decide.")


def _find_token(agent: Agent, said: Statement) -> AgentToken:
    query = select(AgentToken).where(AgentToken.agent_id == agent.id, AgentToken.public_id == said.subject_id)
    row = db.session.scalar(query.execution_options(populate_existing=True))
    if row is None:
        raise NotStated("There is no such token.")
    return row


def _find_grant(agent: Agent, said: Statement) -> AccessGrant:
    query = select(AccessGrant).where(AccessGrant.agent_id == agent.id, AccessGrant.id == said.subject_id)
    row = db.session.scalar(query.execution_options(populate_existing=True))
    if row is None:
        raise NotStated("There is no such exception.")
    return row


def _holds(body: Mapping[str, object], stated: Mapping[str, object]) -> bool:
    """Whether a statement says all that a row does."""
    return all(body.get(name) == value for name, value in stated.items())
