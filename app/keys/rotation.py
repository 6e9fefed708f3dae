"""Rotation: a new master key pair for the keys of all agents, or a new data key for one agent's new writes.

Only the table of wrapped keys and what waits in the intake are sealed anew; nothing that is sealed with data keys is
rewritten. A rotation of the master key may be cut off anywhere: run again, it goes on where it was. At every moment
each key that something is sealed to lies whole in a file: the new one is on the disk before the database knows of it,
and the old one stays beside it (`silo/keyring.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, delete, distinct, func, select
from sqlalchemy.orm import InstrumentedAttribute

from app.errors import Refused
from app.extensions import db, now, reading, writing
from app.keys.agent_keys import open_keys, rewrap_content_keys, share_keys, share_with_tokens, state_wrapped
from app.models.agent import Agent
from app.models.audit import Action, record
from app.models.installation import note_what_to_shred
from app.models.intake import Intake, IntakeStatus
from app.models.key import AgentKey, AgentToken, live_tokens
from app.models.key_statements import state_next_key
from app.models.master_key import MasterKeyRow, key_ring, master_key, wait_until_nobody_seals
from app.models.notice import NoticeChannel
from app.models.statement_log import current_of, master_public_key, statement_log
from app.models.user import Account
from app.silo import AgentKeys, KeyFileError, MasterKey, MasterPublicKey, SealBroken
from app.values.actor import Actor

Told = Callable[[str], object]
"""Is told of every step when it is done and durable."""


@dataclass
class MasterRotation:
    """What a rotation did in this run. `problems` are sentences on what does not open: it stays as it was."""

    fingerprint: str
    resumed: bool
    keys: int = 0
    intakes: int = 0
    channels: int = 0
    finished: bool = False
    problems: dict[str, str] = field(default_factory=dict)


def prepare_master_rotation() -> MasterKey:
    """Make the next master key's file and nothing else, so that it can be copied to the other machines first."""
    ring = key_ring()
    with ring.held():
        return ring.make_next()


def unfinished_rotation() -> list[str]:
    """Fingerprints of the earlier master keys of a rotation that was cut off; none when there is no such rotation."""
    return [row.fingerprint for row in _in_use()[1:]]


def rotate_master_key(*, by: Actor, told: Told = lambda _: None) -> MasterRotation:
    """Rotate the master key, or finish a rotation that was cut off. Raises KeyFileError or Refused.

    Not in a transaction; it makes its own, one an agent.
    """
    ring = key_ring()
    with ring.held():
        done = _begin_rotation(by, told)
        new = master_key(done.fingerprint)
        ring.take(new)
        told("taken")
        while not done.finished and _rewrap_all(done, new.public, by, told):
            done.finished = _retire_old_keys(new.public, by)
            told("looked for what is left")
    return done


def rotate_agent_key(agent_id: int, *, by: Actor) -> int:
    """A new version of the agent's data key, for new writes, for its readers of now; returns the version.

    Who holds its keys already goes on with them. Raises AgentForgotten, or SealBroken.
    """
    with writing():
        return make_new_data_key(Agent.lock(agent_id), by=by).current_version


def make_new_data_key(agent: Agent, *, by: Actor) -> AgentKeys:
    """The same, for an agent that the caller has locked; tokens that were revoked until now wait for none any more.

    The keys of all memories' own are sealed by it anew, so that who has a copy of an older one opens no memory with it.
    """
    keys = open_keys(agent).with_new_version()
    share_keys(agent, keys, [master_public_key()])
    share_with_tokens(agent, keys)
    revoked = list(db.session.scalars(select(AgentToken).where(*not_rekeyed(agent.id))))
    for token in revoked:
        token.rekeyed_at = now()
    data: dict[str, Any] = {"version": keys.current_version, "readers": 1 + len(live_tokens(agent.id))}
    data["rewrapped"] = rewrap_content_keys(agent, keys)
    data |= {"revoked": [token.public_id for token in revoked]} if revoked else {}
    record(Action.AGENT_KEY_ROTATE, actor=by, of=agent, subject=agent.subject, data=data)
    agent.announce("keys", version=keys.current_version)
    return keys


def rekey_after_revocation(agent: Agent, *, by: Actor) -> None:
    """A new data key, if a token was revoked that could still open what is sealed with the one of now.

    The caller holds the agent's lock, the agent has keys, and the master key is here.
    """
    if db.session.scalar(select(AgentToken.id).where(*not_rekeyed(agent.id)).limit(1)) is not None:
        make_new_data_key(agent, by=by)


def not_rekeyed(agent_id: int) -> tuple[ColumnElement[bool], ...]:
    """The condition on tokens of an agent that were revoked, while its data key is still the one that they opened."""
    return AgentToken.agent_id == agent_id, AgentToken.revoked_at.is_not(None), AgentToken.rekeyed_at.is_(None)


def record_in_all_accounts(action: Action, by: Actor, told: Callable[[int], dict[str, Any]]) -> None:
    """What is done to the master key concerns every account: each one's chain gets its own entry."""
    for number in db.session.scalars(select(Account.id).order_by(Account.id)).all():
        account = Account.lock(number)
        record(action, actor=by, of=account, subject="master_key", data=told(account.id))


def _begin_rotation(by: Actor, told: Told) -> MasterRotation:
    """Register the new public half: from its commit on, new writes are sealed to it. An open rotation is taken up."""
    with reading():
        rows = _in_use()
    if len(rows) > 1:
        return MasterRotation(rows[0].fingerprint, resumed=True)
    old, new = rows[0], _new_key()
    told("made")
    with writing():
        record_in_all_accounts(
            Action.MASTER_KEY_ROTATE, by, lambda _: {"step": "begun", "from": old.fingerprint, "to": new.fingerprint}
        )
        if [row.fingerprint for row in _in_use()] != [old.fingerprint]:
            raise Refused("Another machine rotates this database's master key now.", "Nothing was changed here.")
        MasterKeyRow.register(new.public)
        state_next_key(new)
    told("registered")
    return MasterRotation(new.fingerprint, resumed=False)


def _new_key() -> MasterKey:
    """The next key, in its file. Raises KeyFileError when that file holds one that was in use already."""
    ring = key_ring()
    new = ring.make_next()
    if db.session.scalar(select(MasterKeyRow.id).where(MasterKeyRow.fingerprint == new.fingerprint)) is not None:
        raise KeyFileError(
            f"{ring.next_path} is a key that this database knows already, not a new one: move it away.",
            "Nothing was changed.",
        )
    return new


def _in_use() -> Sequence[MasterKeyRow]:
    """The master keys that are not retired, the newest first: more than one while a rotation is not finished."""
    rows = db.session.scalars(
        select(MasterKeyRow).where(MasterKeyRow.retired_at.is_(None)).order_by(MasterKeyRow.id.desc())
    ).all()
    if not rows:
        raise KeyFileError("There is no master key yet: run `./whetstone db upgrade` first (or `./whetstone up`).")
    return rows


def _rewrap_all(done: MasterRotation, new: MasterPublicKey, by: Actor, told: Told) -> bool:
    """Seal everything anew that an earlier master key opens. Returns whether all that is left could be."""
    for agent_id in _agents_left(new):
        with _note_problems(done, f"agent {agent_id}"), writing():
            done.keys += _rewrap_agent(Agent.lock(agent_id), new)
        told(f"agent {agent_id}")
    for intake_id in _intakes_left(new):
        with _note_problems(done, f"intake {intake_id}"), writing():
            done.intakes += _reseal_intake(Intake.lock(intake_id), new)
        told(f"intake {intake_id}")
    for account_id in _accounts_left(new):
        with _note_problems(done, f"notice channels of account {account_id}"), writing():
            done.channels += _reseal_channels(Account.lock(account_id), new, by)
        told(f"channels of account {account_id}")
    return not done.problems


@contextmanager
def _note_problems(done: MasterRotation, what: str) -> Iterator[None]:
    """What does not open is no reason to leave the others behind."""
    try:
        yield
    except (SealBroken, KeyFileError) as error:
        done.problems[what] = error.sentence


def _rewrap_agent(agent: Agent, new: MasterPublicKey) -> int:
    """All keys of one agent that an earlier master key opens; returns how many.

    What its tokens open is stated anew, because from now on only the new key's signature counts.
    """
    share_keys(agent, open_keys(agent), [new])
    current = current_of(agent.id, agent.uuid)
    for token in current.tokens.values():
        reader = str(token.body["public_key"])
        state_wrapped(agent, reader, current.digests(reader))
    earlier = AgentKey.reader.in_(_earlier_readers(new))
    removed = db.session.scalars(delete(AgentKey).where(AgentKey.agent_id == agent.id, earlier).returning(AgentKey.id))
    return len(removed.all())


def _earlier_readers(new: MasterPublicKey) -> list[str]:
    return [reader for reader in statement_log().keys.masters if reader != new.hex]


def _reseal_intake(intake: Intake, new: MasterPublicKey) -> int:
    if intake.sealed is None or intake.reader == new.fingerprint:
        return 0
    intake.reseal(db.session.get_one(Agent, intake.agent_id), new)
    return 1


def _reseal_channels(account: Account, new: MasterPublicKey, by: Actor) -> int:
    """Where webhooks of the account lead; recorded, because the rows are."""
    mine = (NoticeChannel.account_id == account.id, _opens_earlier(NoticeChannel.reader, new))
    channels = db.session.scalars(select(NoticeChannel).where(*mine).order_by(NoticeChannel.id)).all()
    for channel in channels:
        channel.reseal(new)
    data = {"step": "channels", "to": new.fingerprint, "channels": len(channels)}
    record(Action.MASTER_KEY_ROTATE, actor=by, of=account, subject="master_key", data=data)
    return len(channels)


def _retire_old_keys(new: MasterPublicKey, by: Actor) -> bool:
    """End the rotation, unless somebody sealed to the old key while it went on. Returns whether it is ended."""
    earlier = [row.fingerprint for row in _in_use() if row.fingerprint != new.fingerprint]
    said = {"step": "done", "from": earlier, "to": new.fingerprint}
    with suppress(_NotYet), writing():
        record_in_all_accounts(Action.MASTER_KEY_ROTATE, by, lambda account_id: said | _agents_of(account_id, new))
        wait_until_nobody_seals()
        if _agents_left(new) or _intakes_left(new) or _accounts_left(new):
            raise _NotYet
        for row in db.session.scalars(select(MasterKeyRow).where(MasterKeyRow.fingerprint.in_(earlier))):
            row.retired_at = now()
        note_what_to_shred()
        return True
    return False


class _NotYet(Exception):
    """Something is still sealed to the old key."""


def _agents_of(account_id: int, new: MasterPublicKey) -> dict[str, int]:
    """How many agents of the account have keys that are sealed to the new master key."""
    query = select(func.count(distinct(AgentKey.agent_id))).join(Agent, Agent.id == AgentKey.agent_id)
    sealed = query.where(Agent.account_id == account_id, AgentKey.reader == new.hex)
    return {"agents": db.session.scalar(sealed) or 0}


def _agents_left(new: MasterPublicKey) -> Sequence[int]:
    query = select(AgentKey.agent_id).where(AgentKey.reader.in_(_earlier_readers(new))).distinct()
    return sorted(db.session.scalars(query))


def _intakes_left(new: MasterPublicKey) -> Sequence[str]:
    query = select(Intake.id).where(Intake.status == IntakeStatus.WAITING, _opens_earlier(Intake.reader, new))
    return db.session.scalars(query.order_by(Intake.created_at)).all()


def _accounts_left(new: MasterPublicKey) -> Sequence[int]:
    query = select(NoticeChannel.account_id).where(_opens_earlier(NoticeChannel.reader, new)).distinct()
    return sorted(db.session.scalars(query))


def _opens_earlier(reader: InstrumentedAttribute[Any], new: MasterPublicKey) -> ColumnElement[bool]:
    """Whether it is sealed to a master key of before the new one."""
    return reader.in_(select(MasterKeyRow.fingerprint).where(MasterKeyRow.fingerprint != new.fingerprint))
