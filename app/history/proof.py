"""The nightly proof: every account is verified by itself, and its verdict kept for those who look at its pages.

The kept verdicts decide what is due: last night's, made up as soon as a worker runs again; and each hour while a
difference stands, so that an alarm is gone soon after its cause is. One run goes on at a time, in one thread, however
often it is asked for: nothing else waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta

import structlog
from sqlalchemy import select

from app.extensions import db, end_reading, now, reading, writing
from app.history.stops import find_stopped, review_stop
from app.history.verify import Verdict, verify_account, verify_rest
from app.models import Account, Agent, InstallationMark, announce

NIGHT = timedelta(hours=3, minutes=17)
"""When a day's proof is due, UTC."""

AGAIN = timedelta(minutes=50)
"""How soon what differed is looked at again."""

LAPSE = timedelta(hours=6)
"""A run that proved no further account for so long counts as dead."""

STALE = timedelta(days=3)

RUNNING = "proving"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Proof:
    """The last verdict on an account; or, for the account None, on what belongs to none. `at` is when it was begun."""

    verdict: Verdict
    at: datetime

    @classmethod
    def of(cls, account_id: int | None) -> Proof | None:
        """None when there never was one."""
        return cls.of_each([account_id])[0]

    @classmethod
    def of_each(cls, account_ids: Sequence[int | None]) -> list[Proof | None]:
        """The same for several, in one statement."""
        names = [_mark_name(account_id) for account_id in account_ids]
        found = InstallationMark.read_many(names)
        return [cls._read(found.get(name)) for name in names]

    @classmethod
    def _read(cls, said: str | None) -> Proof | None:
        if said is None:
            return None
        kept = json.loads(said)
        verdict = Verdict(**{each.name: kept[each.name] for each in fields(Verdict) if each.name in kept})
        return cls(verdict, datetime.fromisoformat(kept["at"]))

    @classmethod
    def all(cls) -> list[Proof]:
        """Those that there are, of every account and of the rest."""
        return [proof for account_id in _account_ids() if (proof := cls.of(account_id)) is not None]

    def is_stale(self, at: datetime) -> bool:
        return self.at < at - STALE

    def is_due_again(self, at: datetime) -> bool:
        if not self.verdict.ok:
            return self.at <= at - AGAIN
        midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
        night = midnight + NIGHT
        return self.at < (night if night <= at else night - timedelta(days=1))


def prove_due(at: datetime) -> list[int | None]:
    """Verify what is due, one account after the other; returns which. Does nothing while another run goes on.

    What goes wrong with one account is raised when all others are done.
    """
    if not _find_due(at):
        return []
    with writing():
        if not InstallationMark.write(RUNNING, unless_since=at - LAPSE):
            return []
    due, failures = _find_due(at), []
    for account_id in due:
        try:
            _prove_account(account_id)
        except Exception as error:  # noqa: BLE001 - raised below: one account's trouble is no other's
            end_reading()
            failures.append(error)
    with writing():
        InstallationMark.drop(RUNNING)
    if failures:
        raise failures[0]
    return due


def prove_at_once(agent_id: int | None) -> None:
    """A worker met something that differs from the log of statements: it is proved and told now, not at night.

    Of the agent's account, or without an agent of what belongs to none. Does nothing while the last proof says already
    that something differs: that is looked at again by itself.
    """
    if agent_id is not None:
        review_stop(agent_id)
    with reading() as session:
        account_id = None
        if agent_id is not None:
            account_id = session.scalar(select(Agent.account_id).where(Agent.id == agent_id))
        known = Proof.of(account_id)
    if known is None or known.verdict.ok:
        _prove_account(account_id)


def review_stopped() -> None:
    """Each minute: whether those that are stopped still are. Of one that is not, the account is proved again."""
    accounts = {account_id for agent_id, account_id in find_stopped() if not review_stop(agent_id)}
    for account_id in sorted(accounts):
        _prove_account(account_id)


def _account_ids() -> list[int | None]:
    with reading() as session:
        return [*session.scalars(select(Account.id).order_by(Account.id)), None]


def _find_due(at: datetime) -> list[int | None]:
    accounts = _account_ids()
    with reading():
        proofs = {account_id: Proof.of(account_id) for account_id in accounts}
    return [account_id for account_id, proof in proofs.items() if proof is None or proof.is_due_again(at)]


def _prove_account(account_id: int | None) -> None:
    proof = Proof(at=now(), verdict=verify_rest() if account_id is None else verify_account(account_id))
    if account_id is not None:
        _review_account(account_id, proof.verdict)
    with writing():
        InstallationMark.write(RUNNING, "")
        before = Proof.of(account_id)
        if before is not None and before.at > proof.at:
            return
        kept = asdict(proof.verdict) | {"at": proof.at.isoformat()}
        InstallationMark.write(_mark_name(account_id), json.dumps(kept))
        known = before.verdict.first_problem if before else None
        if proof.verdict.first_problem != known:  # an alarm, another one, or its end: the pages have to show it
            everybody = select(Account.id).order_by(Account.id)  # hears of what belongs to none
            for told in db.session.scalars(everybody).all() if account_id is None else [account_id]:
                announce("proof.passed" if proof.verdict.ok else "proof.failed", told)
    if not proof.verdict.ok:
        where = {"account": account_id, "agent": proof.verdict.agent_id, "entry": proof.verdict.entry_id}
        log.error("the record is not as it was written", **where)


def _review_account(account_id: int, verdict: Verdict) -> None:
    """A verdict names the first difference only: which agents are stopped is looked at one by one."""
    mine = Agent.stopped_at.is_not(None) if verdict.ok else Agent.forgotten_at.is_(None)
    query = select(Agent.id).where(Agent.account_id == account_id, mine).order_by(Agent.id)
    with reading() as session:
        agents = session.scalars(query).all()
    for agent_id in agents:
        review_stop(agent_id)


def _mark_name(account_id: int | None) -> str:
    return "proof of the rest" if account_id is None else f"proof of account {account_id}"
