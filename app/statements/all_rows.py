"""All rows against the log, those that are over included: what `verify` compares beside what stops an agent at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select

from app.extensions import db
from app.models.agent import Agent
from app.models.current import Current
from app.models.grant import AccessGrant, GrantStatus
from app.models.key import AgentKey, AgentToken
from app.models.master_key import MasterKeyRow
from app.models.memory_text import ContentKey, MemoryText
from app.models.refinement import Consent, Refinement
from app.models.statement import Statement
from app.models.statement_errors import AgentStopped, LogBroken
from app.models.statement_log import statement_log
from app.models.token_request import TokenRequest, TokenRequestStatus
from app.statements.checks import compare_rows
from app.values.refinement_states import Trigger


def compare_all_rows(agent: Agent, current: Current) -> None:
    """Raises AgentStopped for the first row of an agent that the log does not explain, or that is missing."""
    compare_rows(agent, current)
    for problem in _find_problems(agent, current):
        raise AgentStopped(problem, agent.id)


def compare_master_keys() -> None:
    """Raises LogBroken unless the rows of master keys are those of the log, and the newest of it is the one in use."""
    log = statement_log()
    rows = {row.public.hex(): row for row in db.session.scalars(select(MasterKeyRow))}
    for public, fingerprint in log.keys.masters.items():
        if public not in rows or rows[public].fingerprint != fingerprint:
            raise LogBroken(f"the master key {fingerprint} was signed, and its row is gone or altered")
    for row in rows.values():
        if row.public.hex() not in log.keys.masters:
            raise LogBroken(f"the master key {row.fingerprint} stands in a row, and nobody signed it")
    in_use = MasterKeyRow.current()
    if in_use is None or in_use.public != log.keys.master_public_key:
        raise LogBroken(f"the master key in use is {log.keys.fingerprint}, and the rows say otherwise")


def _find_problems(agent: Agent, current: Current) -> Iterator[str]:
    yield from _ended_tokens(agent, current)
    yield from _wrapped_keys(agent, current)
    yield from _exceptions(agent, current)
    yield from _consents(agent, current)
    yield from _own_requests(agent, current)
    yield from _token_requests(agent, current)
    yield from _erasures(agent, current)


def _ended_tokens(agent: Agent, current: Current) -> Iterator[str]:
    rows = {row.public_id: row for row in db.session.scalars(select(AgentToken).where(AgentToken.agent_id == agent.id))}
    for public_id, made in current.ended_tokens.items():
        row = rows.get(public_id)
        if row is None:
            yield f"The token {public_id} of {agent.name}, which was ended, has no row any more"
        elif made is not None and dict(made.body) != row.stated():
            yield f"The token {public_id} of {agent.name}, which was ended, is not as it was signed"


def _wrapped_keys(agent: Agent, current: Current) -> Iterator[str]:
    """Each reader may read, and the newest master key that has the agent's keys has them still."""
    readers = set(db.session.scalars(select(AgentKey.reader).where(AgentKey.agent_id == agent.id).distinct()))
    masters = statement_log().keys.masters
    tokens = {str(token.body["public_key"]) for token in current.tokens.values()}
    for reader in sorted(readers - masters.keys() - tokens):
        yield f"A key of {agent.name} is sealed to {reader[:16]}…, who may not read"
    newest = next((master for master in masters if current.digests(master)), None)
    if agent.forgotten_at is None and newest is not None and newest not in readers:
        yield f"The keys of {agent.name} that were sealed to the master key are gone"


def _exceptions(agent: Agent, current: Current) -> Iterator[str]:
    """Each as it was decided, and ended if it was."""
    rows = {row.id: row for row in db.session.scalars(select(AccessGrant).where(AccessGrant.agent_id == agent.id))}
    for grant_id in sorted((current.exceptions.keys() | current.ended.keys()) - rows.keys()):
        yield f"The exception {grant_id} of {agent.name} has no row any more"
    for grant in sorted(rows.values(), key=lambda grant: (grant.requested_at, grant.id)):
        named = f"The exception {grant.id} of {agent.name}"
        said = _said_of_exception(grant.id, current)
        if grant.status != (said or GrantStatus.PENDING):
            yield f"{named} is {grant.status} in its row, and {said or 'undecided'} in what was signed"
        decided = current.exceptions.get(grant.id)
        if decided is None:
            continue
        if any(decided.body.get(name) != value for name, value in grant.stated().items()):
            yield f"{named} is not as it was decided"
        if grant.status == GrantStatus.GRANTED and not _has_its_minutes(grant, decided):
            yield f"{named} lasts longer or less long than the agent granted it"


def _said_of_exception(grant_id: str, current: Current) -> str | None:
    if grant_id in current.ended:
        return str(current.ended[grant_id].body.get("status"))
    decided = current.exceptions.get(grant_id)
    if decided is None:
        return None
    return GrantStatus.GRANTED if decided.body.get("granted") else GrantStatus.DENIED


def _has_its_minutes(grant: AccessGrant, decided: Statement) -> bool:
    begun = datetime.fromisoformat(str(decided.body["database_time"]))
    return (grant.decided_at, grant.expires_at) == (begun, begun + timedelta(minutes=grant.minutes))


def _consents(agent: Agent, current: Current) -> Iterator[str]:
    """Each recorded answer is the one that was signed, and none that was signed is missing."""
    query = select(Consent.refinement_id, Consent.grant_id, Consent.granted).where(Consent.agent_id == agent.id)
    refinements, answered = dict[str, bool](), set[str]()
    for refinement_id, grant_id, granted in db.session.execute(query.order_by(Consent.id)).tuples():
        if refinement_id is not None:
            refinements[refinement_id] = granted
        elif grant_id is not None:
            answered.add(grant_id)
            decided = current.exceptions.get(grant_id)
            if decided.body.get("granted") is not granted if decided else grant_id not in current.ended:
                yield f"What {agent.name} answered about the exception {grant_id} is not what was signed"
    for refinement_id, granted in refinements.items():
        signed = current.consents.get(f"refinement:{refinement_id}")
        if signed.body.get("granted") is not granted if signed else refinement_id not in current.requests:
            yield f"What {agent.name} answered about the refinement {refinement_id} is not what was signed"
    signed_for = {subject.removeprefix("refinement:") for subject in current.consents if "refinement:" in subject}
    for missing in sorted(signed_for - refinements.keys()):
        yield f"What {agent.name} answered about the refinement {missing} has no row any more"
    for missing in sorted(current.exceptions.keys() - answered):
        yield f"What {agent.name} answered about the exception {missing} has no row any more"


def _own_requests(agent: Agent, current: Current) -> Iterator[str]:
    own = (Refinement.agent_id == agent.id, Refinement.trigger == Trigger.AGENT)
    rows = db.session.execute(select(Refinement.id, Refinement.mode).where(*own)).tuples().all()
    for refinement_id, mode in sorted(rows):
        signed = current.requests.get(refinement_id)
        if signed is None or signed.body.get("mode") != mode:
            yield f"That {agent.name} itself asked for the refinement {refinement_id} was never signed so"
    for missing in sorted(current.requests.keys() - {refinement_id for refinement_id, _ in rows}):
        yield f"The refinement {missing}, for which {agent.name} asked itself, does not say so any more"


_AFTER = {
    True: {TokenRequestStatus.GRANTED, TokenRequestStatus.FAILED, TokenRequestStatus.WITHDRAWN},
    False: {TokenRequestStatus.DENIED, TokenRequestStatus.FAILED},
    None: {
        TokenRequestStatus.PENDING,
        TokenRequestStatus.UNANSWERED,
        TokenRequestStatus.FAILED,
        TokenRequestStatus.WITHDRAWN,
    },
}
"""What a request for a token may be after a YES, after a NO, and while there is no answer."""


def _token_requests(agent: Agent, current: Current) -> Iterator[str]:
    rows = {row.id: row for row in db.session.scalars(select(TokenRequest).where(TokenRequest.agent_id == agent.id))}
    for request in sorted(rows.values(), key=lambda request: (request.requested_at, request.id)):
        signed = current.consents.get(request.subject)
        answer = None if signed is None else bool(signed.body.get("granted"))
        if request.status not in _AFTER[answer]:
            said = {True: "YES", False: "NO", None: "no answer"}[answer]
            yield f"The request {request.id} for a token of {agent.name} is {request.status}, and {said} was signed"
        elif signed is not None and not _is_as_answered(request, signed.body):
            yield f"The request {request.id} for a token of {agent.name} is not the one that was answered"
    for subject in sorted(current.consents):
        if subject.startswith("token-request:") and subject.partition(":")[2] not in rows:
            yield f"The request {subject.partition(':')[2]} for a token of {agent.name} has no row any more"


def _is_as_answered(request: TokenRequest, body: Mapping[str, Any]) -> bool:
    return request.status == TokenRequestStatus.FAILED or body.get("about") == request.about()


def _erasures(agent: Agent, current: Current) -> Iterator[str]:
    erased = sorted(int(number) for number in current.erased if number.isdecimal())
    for owner in (MemoryText.memory_id, ContentKey.memory_id):
        for number in db.session.scalars(select(owner).where(owner.in_(erased)).order_by(owner).limit(1)):
            yield f"Memory {number} of {agent.name} was erased, and its text or its key is there again"
