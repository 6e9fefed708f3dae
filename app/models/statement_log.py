"""The log of statements as this process knows it: the database's, checked against the copy of its state outside of it.

Worker and command line append to it; the web process only reads. Each keeps a copy on its own disk and believes nothing
of a log that does not extend it.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

from flask import current_app
from sqlalchemy import Connection, Engine, NullPool, Select, bindparam, create_engine, event, func, select, text
from sqlalchemy.orm import Session, scoped_session

from app.errors import Unavailable
from app.extensions import after_commit, before_commit, db, is_sqlite, now, read_rows
from app.models.base import insert_rows, iso
from app.models.current import Current
from app.models.leaves_ahead import KnownLeaf, LeavesAhead
from app.models.master_key import master_key, seal_for_now
from app.models.statement import LeafKind, LogLeaf, Statement, StatementKind
from app.prepared import NO_VALUES, Prepared
from app.silo import MasterKey, MasterPublicKey, SealBroken
from app.silo.keptnotes import KeptNotes
from app.silo.logcopy import LeafRecord, LogCopy, LogCopyUnwritable, LogForked
from app.silo.merkle import hash_leaf
from app.silo.notes import NoteBroken, NoteVerifier, SigningKey, installation_name, open_note, sign_note
from app.silo.statements import STATEMENT, compose_text, read_text
from app.silo.webkey import PinnedInstallation

_PENDING = "statements of this transaction"
_APPENDING = 0x57E9
_WHILE_APPENDING = text("SELECT pg_advisory_xact_lock(:number)").bindparams(number=_APPENDING)
KEPT = (StatementKind.TOKEN_ENDED, StatementKind.EXCEPTION_ENDED, StatementKind.ERASURE)
"""Statements that a restored backup must not undo: they are kept whole outside the database, too."""

_REPLAYS_KEPT = 10_000
"""Agents whose replayed state a process keeps at most."""

AFTER_A_RESTORE = (
    "Nothing is opened until that is settled. If you have just restored a backup, run `./whetstone restore accept`; "
    "if you have not, somebody changed the database: keep it as it is, and compare it with a backup."
)


class LogBroken(SealBroken):
    """The database's log of statements does not extend the copy outside of it."""

    code = "log_broken"
    http_status = 503

    def __init__(self, what: str) -> None:
        super().__init__(f"The log of statements is not the one that was seen before: {what}. {AFTER_A_RESTORE}")


class AgentStopped(SealBroken):
    """What the database says of an agent differs from the log of statements."""

    code = "agent_stopped"
    http_status = 503

    def __init__(self, what: str, agent_id: int | None = None) -> None:
        self.what, self.agent_id = what, agent_id
        super().__init__(f"{what}. Nothing of this agent is opened or asked until that is settled.")


@dataclass(frozen=True)
class PendingLeaf:
    """A leaf that is appended when its transaction commits. `said` is None for one that is no statement, `signed_by`
    where somebody else has signed it.
    """

    kind: str
    subject: str
    agent_id: int | None
    agent: str | None
    leaf: bytes
    signature: bytes | None
    said: Statement | None
    signed_by: NoteVerifier | None = None


class StatementLog:
    """One process's view. Every thread uses the same one."""

    def __init__(self, folder: Path, known_key: bytes, installation: str | None = None) -> None:
        """`known_key`: the public half of an installation key that this process trusts."""
        self._lock, self._replaying = threading.RLock(), threading.Lock()
        self._keys = _find_installation_keys(known_key, installation)
        self.installation = self._keys[0].installation
        self.copy = LogCopy(folder / "leaves", self.installation)
        self.copy.load()
        self._check_keys()
        self.kept = KeptNotes(folder / "kept")
        self._ahead = LeavesAhead()
        self._must_write = False
        self._replays: OrderedDict[str, Current] = OrderedDict()

    @property
    def fingerprint(self) -> str:
        """Of the master key in force."""
        return self._keys[-1].fingerprint

    @property
    def masters(self) -> dict[str, str]:
        """Every master key that there was: the public half in hex and the fingerprint, the newest first."""
        return {key.master.hex(): key.fingerprint for key in reversed(self._keys)}

    @property
    def master_public_key(self) -> bytes:
        """The public half of the master key in force: the one to seal to."""
        return self._keys[-1].master

    @property
    def pin(self) -> PinnedInstallation:
        """What a process without the master key has to know of this installation."""
        return PinnedInstallation(self.installation, self.master_public_key, self.verifier.public)

    @property
    def verifier(self) -> NoteVerifier:
        """The installation key in force."""
        return self._keys[-1].verifier

    @property
    def signing_keys(self) -> list[tuple[int, NoteVerifier]]:
        """Every installation key that there was, oldest first, with the place of the first leaf that it signs."""
        first, *later = self._keys
        return [(0, first.verifier), *((key.position + 1, key.verifier) for key in later)]

    def begun_at(self) -> datetime | None:
        """When its first leaf was written, if that is the one that was seen. Raises NoteBroken."""
        leaf = [FoundLeaf(*row) for row in read_rows(_FIRST_LEAF)]
        if not leaf or not self.copy.size or hash_leaf(leaf[0].leaf) != self.copy.hash_at(0):
            return None
        return self._read_statement(leaf[0]).at

    def verifier_at(self, position: int) -> NoteVerifier:
        """The installation key that was in force there."""
        return next(key.verifier for key in reversed(self._keys) if key.position < position or key is self._keys[0])

    def signing_key(self) -> SigningKey:
        """Raises Unavailable in a process that holds no master key."""
        return master_key(self.fingerprint).installation_key(self.installation)

    def catch_up(self, size: int | None = None) -> None:
        """Check what the database has appended since this process last looked. Raises LogBroken.

        `size`: how long its log is, where the caller has just read that.
        """
        if len(self._ahead):
            self.write_ahead()
        if self._has_seen(read_rows(_SIZE)[0][0] if size is None else size):
            return
        with self._lock, _apart() as connection:
            known = self.copy.size
            self.copy.load()
            if self.copy.is_another():  # a restored log was accepted on this machine
                self._forget()
                known = 0
            if self.copy.size > known:  # another process of this machine was first
                self._keys = _find_installation_keys(self.verifier.public, self.installation)
                self._check_keys()
            size = log_size(connection)
            if size < self.copy.size:
                raise LogBroken(f"it ends at leaf {size}, and {self.copy.size} were written")
            while self.copy.size < size:
                self._take_in(_read_leaves(connection, self.copy.size))
            self._must_write = False

    def keep_up(self, size: int) -> None:
        """The same within `writing()`, for who has just read there that the log has `size` leaves, none of its own.

        What is new is checked, and written to the copy behind the transaction: nobody waits for a disk, or for another
        who does, while the database waits for him. Raises LogBroken.
        """
        least, known = self.copy.size, self._ahead.end(self.copy.size)
        in_file = self.copy.size_in_file()
        is_usual = in_file is not None and least <= in_file <= size and known <= size <= known + _BATCH
        if self._must_write or not is_usual:
            self.catch_up(size)
        elif known < size:
            found = [FoundLeaf(*row) for row in read_rows(_LEAVES, {"first": known, "end": size})]
            self._ahead.add(self._check_leaves(known, found))
            after_commit(self._write_of_others)

    def _write_of_others(self) -> None:
        """What fails here is nothing of whoever has just committed: who comes next is refused for it."""
        with suppress(LogBroken, LogCopyUnwritable, OSError):
            self.write_ahead()

    def extend(self, first: int, leaves: Sequence[PendingLeaf]) -> None:
        """Take note of what was committed from that position on."""
        known = [
            KnownLeaf(position, _record_of(each.leaf, each.said), each.leaf if each.kind in KEPT else None)
            for position, each in enumerate(leaves, first)
        ]
        for position, each in enumerate(leaves, first):
            self._learn_key(position, each.said)
        if self._must_write:
            self.catch_up(first + len(leaves))
            return
        if first <= self._ahead.end(self.copy.size):
            self._ahead.add(known)
        self.write_ahead()

    def write_ahead(self) -> None:
        """Write to the copy, durably, what is known and not in it. Who waits for others finds that they wrote it all.

        Where that fails, nothing more is appended or opened before it is written. Raises LogBroken, LogCopyUnwritable.
        """
        with self._lock:
            leaves = self._ahead.all()
            if not leaves:
                return
            in_file = self.copy.size_in_file()
            if in_file is None:  # another copy took its place, and these may be none of its log
                self._must_write = True
                self._ahead.forget()
                return
            try:
                if in_file <= leaves[-1].position:
                    _make_durable()
                self._keep_notes(leaves)
                self._extend_copy(leaves[0].position, [leaf.record for leaf in leaves])
            except BaseException:
                self._must_write = True
                self._ahead.forget()
                raise
            self._ahead.drop(leaves[-1].position)

    def _forget(self) -> None:
        with self._replaying:
            self._replays.clear()
        self._ahead.forget()

    def _has_seen(self, size: int) -> bool:
        return size == self.copy.size and self.copy.is_whole()

    def read(self, agent_id: int, agent: str, size: int | None = None) -> Current:
        """What the log says of an agent; `size` as for `catch_up`, or as for `keep_up` in `writing()`.

        Raises LogBroken, or AgentStopped where its leaves are not as they were.
        """
        seen = size if db.session().info.get("writing") and not _pending() else None
        if seen is None:
            self.catch_up(size)
        else:
            self.keep_up(seen)
            if self._ahead.has_any_of(agent):
                self.write_ahead()
        positions = self.copy.indexes_of(agent)
        current = self._replays.get(agent, Current())
        if len(positions) == current.seen:
            return current
        current = current.copy()
        for leaf in _find_leaves(agent_id, positions[current.seen :], seen or 0):
            current.apply(self.read_leaf(leaf, agent_id))
        current.seen = len(positions)
        with self._replaying:
            self._replays[agent] = current
            self._replays.move_to_end(agent)
            while len(self._replays) > _REPLAYS_KEPT:
                self._replays.popitem(last=False)
        return current

    def replay(self, agent_id: int, agent: str, size: int) -> Current:
        """What the first `size` leaves say of an agent, read anew by the session: of the moment that it looks at.

        Raises AgentStopped.
        """
        mine = LogLeaf.agent_id == agent_id, LogLeaf.position < size
        leaves = FoundLeaf.read(db.session, select(LogLeaf).where(*mine))
        _check_positions(leaves, [position for position in self.copy.indexes_of(agent) if position < size], agent_id)
        current = Current(len(leaves))
        for leaf in leaves:
            current.apply(self.read_leaf(leaf, agent_id))
        return current

    def read_chain_head(self, chain: str, agent_id: int) -> tuple[int, str]:
        """Number and hash of the entry of an agent's audit chain that the log names last; (0, "") for none.

        It is found by the copy, so that nobody can hide it in the database. Raises LogBroken or AgentStopped.
        """
        self.catch_up()
        positions = self.copy.indexes_of(_chain_uuid(chain))
        if not positions:
            return 0, ""
        leaf = db.session.scalar(select(LogLeaf.leaf).where(LogLeaf.position == positions[-1]))
        if leaf is None or hash_leaf(leaf) != self.copy.hash_at(positions[-1]):
            raise AgentStopped(f"Leaf {positions[-1]} of the log of statements was removed or altered", agent_id)
        said = json.loads(leaf)
        return int(said["sequence"]), str(said["hash"])

    def read_leaf(self, leaf: FoundLeaf | LogLeaf, agent_id: int | None) -> Statement:
        """What one leaf says, for who has caught up. Raises AgentStopped where it is not as it was."""
        if hash_leaf(leaf.leaf) != self.copy.hash_at(leaf.position):
            raise AgentStopped(f"Leaf {leaf.position} of the log of statements was altered", agent_id)
        return self._read_statement(leaf)

    def _take_in(self, leaves: Sequence[FoundLeaf]) -> None:
        """Check leaves that are new to this process, signatures included. Raises LogBroken."""
        first = self.copy.size
        if not leaves:
            raise LogBroken(f"leaf {first} is missing")
        known = self._check_leaves(first, leaves)
        _make_durable()
        self._keep_notes(known)
        self._extend_copy(first, [leaf.record for leaf in known])

    def _check_leaves(self, first: int, leaves: Sequence[FoundLeaf]) -> list[KnownLeaf]:
        """Those from that position on, signatures included. Raises LogBroken."""
        known = list[KnownLeaf]()
        for position, leaf in enumerate(leaves, first):
            if leaf.position != position:
                raise LogBroken(f"leaf {position} is missing")
            try:
                said = self.check_leaf(leaf)
            except NoteBroken as error:
                raise LogBroken(f"leaf {position} is none of this installation's ({error.sentence})") from None
            note = leaf.leaf if leaf.kind in KEPT else None
            known.append(KnownLeaf(position, _record_of(leaf.leaf, said), note))
            self._learn_key(position, said)
        return known

    def _keep_notes(self, leaves: Sequence[KnownLeaf]) -> None:
        self.kept.add([(leaf.position, leaf.kept) for leaf in leaves if leaf.kept is not None])

    def check_leaf(self, leaf: FoundLeaf) -> Statement | None:
        """What a leaf says, if it is a statement, once its signature is checked. Raises NoteBroken."""
        if leaf.kind in list(LeafKind):
            if not self.verifier_at(leaf.position).verifies(_leaf_text(leaf.leaf), leaf.signature or b""):
                raise NoteBroken("Its signature is not of this leaf.")
            return None
        said = self._read_statement(leaf)
        if (said.kind, said.subject) != (leaf.kind, leaf.subject):
            raise NoteBroken("It says something else than the row that it stands in.")
        return said

    def _read_statement(self, leaf: FoundLeaf | LogLeaf) -> Statement:
        return read_statement(leaf.leaf, self.installation, self.verifier_at(leaf.position), leaf.position)

    def _check_keys(self) -> None:
        """Raises LogBroken where a statement about a master key is not the one that the copy knows: a key that was
        retired and leaked could name another successor.
        """
        for key in self._keys:
            if key.digest and key.position < self.copy.size and key.digest != self.copy.hash_at(key.position):
                raise LogBroken(f"leaf {key.position}, about the master key, is another one")

    def _learn_key(self, position: int, said: Statement | None) -> None:
        if said is not None and said.kind is StatementKind.MASTER_KEY and position > self._keys[-1].position:
            self._keys.append(_InstallationKey.of(self.installation, position, said))

    def _extend_copy(self, first: int, records: Sequence[LeafRecord]) -> None:
        try:
            self.copy.extend(first, records)
        except LogForked as error:
            raise LogBroken(error.sentence.rstrip(".")) from None


def statement_log() -> StatementLog:
    """The process's own, made when it is first asked for. Raises LogBroken, or Unavailable before the first start."""
    extensions = current_app.extensions
    with _MAKING:
        if "statement_log" not in extensions:
            extensions["statement_log"] = _open_log()
        return cast(StatementLog, extensions["statement_log"])


_MAKING = threading.RLock()


def claimed_installation() -> PinnedInstallation:
    """The installation as the database's log tells it, for a machine that knows nothing of it: nothing confirms it.

    Raises LogBroken where the log doesn't even agree with itself, or Unavailable before the first start.
    """
    _, first = _read_key_leaves()[0]
    try:
        known = bytes.fromhex(str(_claimed_statement(first).get("signing_key")))
    except (NoteBroken, ValueError):
        raise LogBroken("its first leaf is not the statement about a master key") from None
    return StatementLog(current_app.extensions["settings"].statements_dir, known).pin


def trust_claimed_installation() -> PinnedInstallation:
    """Trust it in this process only, where no file names the one to trust. Raises as `claimed_installation` does."""
    pin = claimed_installation()
    folder = current_app.extensions["settings"].statements_dir
    current_app.extensions["statement_log"] = StatementLog(folder, pin.signing_public, pin.installation)
    return pin


def begin_log(key: MasterKey) -> None:
    """The first leaf of a new installation: its UUID and its first keys, signed by them. Within `writing()`."""
    installation = str(uuid.uuid4())
    signing = key.installation_key(installation)
    subject = f"master:{key.fingerprint}"
    said = {"installation": installation, "kind": "master-key", "account": None, "agent": None, "time": iso(now())}
    said |= {"subject": subject, "previous": None} | key_body(key, signing)
    note = sign_note(compose_text(STATEMENT, said), signing)
    leaf = PendingLeaf(StatementKind.MASTER_KEY, subject, None, None, note, None, None)
    insert_rows([_row_of(0, leaf)])


def key_body(key: MasterKey, signing: SigningKey) -> dict[str, str]:
    """What a statement says of a master key: its own public half, and that of the installation key."""
    return {"public_key": key.public.hex, "signing_key": signing.verifier.public.hex()}


def state_next_key(new: MasterKey) -> None:
    """Append that another master key follows, signed by both. What is signed after this is signed by the new one."""
    log = statement_log()
    signing = new.installation_key(log.installation)
    body = key_body(new, signing) | {"previous": log.verifier.public.hex()}
    append_statement(StatementKind.MASTER_KEY, f"master:{new.fingerprint}", body, cosigners=(signing,))


def master_public_key() -> MasterPublicKey:
    """The public half to seal to: the one that this machine knows, or its successor that the log proves.

    A rotation ends when nobody uses the old one. Raises LogBroken, or Unavailable before the first start.
    """
    seal_for_now()
    log = statement_log()
    log.catch_up()
    return MasterPublicKey(log.master_public_key)


def holds_master_key() -> bool:
    """Whether this process may make statements: the worker and the command line."""
    return "master_key" in current_app.extensions


def read_statement(note: bytes, installation: str, signer: NoteVerifier, position: int | None = None) -> Statement:
    """What a note says that `signer` has signed, for this installation. Raises NoteBroken."""
    said = read_text(STATEMENT, open_note(note, signer).text)
    return statement_of(said, installation, position)


def statement_of(said: dict[str, Any], installation: str, position: int | None = None) -> Statement:
    """The object of a signed text. Raises NoteBroken where a field is missing or of another installation."""
    body = dict(said)
    try:
        if body.pop("installation") != installation:
            raise NoteBroken("A statement is of another installation.")
        kind, subject = StatementKind(body.pop("kind")), body.pop("subject")
        account, agent, at = body.pop("account"), body.pop("agent"), datetime.fromisoformat(body.pop("time"))
    except (KeyError, ValueError, TypeError):
        raise NoteBroken("A statement lacks what each has to say.") from None
    return Statement(position, kind, subject, account, agent, at.astimezone(UTC), body)


class Whose(NamedTuple):
    """The account and the agent that a statement is about, if any."""

    account: int | None
    agent_id: int | None
    agent: str | None


NOBODY = Whose(None, None, None)


def compose_statement(kind: StatementKind, subject: str, body: Mapping[str, Any], of: Whose) -> dict[str, Any]:
    """What a signed text says: the fields that each has, and those of its kind."""
    base = {"installation": statement_log().installation, "kind": str(kind), "account": of.account, "agent": of.agent}
    return dict(body) | base | {"subject": subject, "time": iso(now())}


def append_statement(
    kind: StatementKind,
    subject: str,
    body: Mapping[str, Any],
    of: Whose = NOBODY,
    *,
    cosigners: Sequence[SigningKey] = (),
) -> None:
    """Append a statement when the open transaction commits. Raises Unavailable without the master key."""
    log = statement_log()
    said = compose_statement(kind, subject, body, of)
    signer = log.signing_key()
    note = sign_note(compose_text(STATEMENT, said), signer, *cosigners)
    append_note(note, statement_of(said, log.installation), of.agent_id, signer.verifier)


def append_note(note: bytes, said: Statement, agent_id: int | None, signed_by: NoteVerifier | None = None) -> None:
    """The same for a note that is signed already; `signed_by` where that was by the installation's key, just now."""
    _append(PendingLeaf(said.kind, said.subject, agent_id, said.agent, note, None, said, signed_by))


def append_leaf(kind: LeafKind, subject: str, leaf: bytes) -> None:
    """Append a leaf that is no statement, signed beside it."""
    signer = statement_log().signing_key()
    _append(PendingLeaf(kind, subject, None, None, leaf, signer.sign(_leaf_text(leaf)), None, signer.verifier))


def current_of(agent_id: int, agent: str, size: int | None = None) -> Current:
    """What the log says of an agent, with what this transaction has stated of it; `size` as for `catch_up`.

    Raises LogBroken or AgentStopped.
    """
    current = statement_log().read(agent_id, agent, size)
    stated = [leaf.said for leaf in _pending() if leaf.agent == agent and leaf.said is not None]
    if not stated:
        return current
    current = current.copy()
    for said in stated:
        current.apply(said)
    return current


@dataclass(frozen=True)
class _InstallationKey:
    """One of the installation's keys, in force behind the leaf at `position` that states it."""

    installation: str
    position: int
    fingerprint: str
    master: bytes
    verifier: NoteVerifier
    previous: bytes | None
    digest: bytes

    @classmethod
    def of(cls, installation: str, position: int, said: Statement, digest: bytes = b"") -> _InstallationKey:
        try:
            key, master = bytes.fromhex(said.body["signing_key"]), bytes.fromhex(said.body["public_key"])
            previous = said.body["previous"] and bytes.fromhex(said.body["previous"])
        except (KeyError, ValueError, TypeError):
            raise NoteBroken("A statement about the master key lacks what it has to say.") from None
        verifier = NoteVerifier(installation_name(installation), key)
        return cls(installation, position, said.subject_id, master, verifier, previous, digest)


def _find_installation_keys(known: bytes, installation: str | None) -> list[_InstallationKey]:
    """All of them, oldest first, proved from the one that is known: each names the one before, and is signed by both.

    Raises LogBroken.
    """
    leaves = _read_key_leaves()
    try:
        return _prove_keys(leaves, known, installation)
    except NoteBroken as error:
        raise LogBroken(f"its statements about the master key do not hold ({error.sentence})") from None


def _read_key_leaves() -> Sequence[tuple[int, bytes]]:
    """Positions and notes of the statements about the master key, oldest first. Raises Unavailable for none."""
    query = select(LogLeaf.position, LogLeaf.leaf).where(LogLeaf.kind == StatementKind.MASTER_KEY)
    with _apart() as connection:
        leaves = connection.execute(query.order_by(LogLeaf.position)).tuples().all()
    if not leaves:
        raise Unavailable("The log of statements is empty: run `./whetstone up` or `./whetstone db upgrade` once.")
    return leaves


def _prove_keys(leaves: Sequence[tuple[int, bytes]], known: bytes, installation: str | None) -> list[_InstallationKey]:
    name = installation or str(_claimed_statement(leaves[0][1]).get("installation"))

    def open_by(place: int, key: bytes) -> _InstallationKey:
        position, note = leaves[place]
        said = read_statement(note, name, NoteVerifier(installation_name(name), key), position)
        return _InstallationKey.of(name, position, said, hash_leaf(note))

    place = _place_of_key(leaves, known, open_by)
    found = [open_by(place, known)]
    for earlier in range(place - 1, -1, -1):
        found.insert(0, open_by(earlier, found[0].previous or b""))
    for later in range(place + 1, len(leaves)):
        found.append(open_by(later, found[-1].verifier.public))
    if any(after.previous != before.verifier.public for before, after in pairwise(found)):
        raise NoteBroken("One does not name the key before it.")
    return found


def _place_of_key(
    leaves: Sequence[tuple[int, bytes]], known: bytes, open_by: Callable[[int, bytes], _InstallationKey]
) -> int:
    for place in range(len(leaves)):
        try:
            if open_by(place, known).verifier.public == known:
                return place
        except NoteBroken:
            continue
    raise NoteBroken("None of them is signed by the key that this machine knows.")


def _claimed_statement(note: bytes) -> dict[str, Any]:
    """What a machine without a copy takes the first leaf to say; a signature by a known key has to confirm it."""
    lines = note.decode("utf-8", "replace").split("\n")
    return read_text(STATEMENT, "\n".join([*lines[:2], ""]))


def _open_log() -> StatementLog:
    settings = current_app.extensions["settings"]
    if holds_master_key():
        known = master_key().installation_key("unknown").verifier.public
        return StatementLog(settings.statements_dir, known)
    pinned = PinnedInstallation.load(settings.pinned_path)
    log = StatementLog(settings.statements_dir, pinned.signing_public, pinned.installation)
    if log.pin != pinned:
        log.pin.replace(settings.pinned_path)
    return log


def _append(leaf: PendingLeaf) -> None:
    pending = _pending()
    if not pending:
        before_commit(_insert_pending, first=True)
    pending.append(leaf)


def _pending() -> list[PendingLeaf]:
    found: list[PendingLeaf] = db.session().info.setdefault(_PENDING, [])
    return found


def _insert_pending() -> None:
    """One of the last things of a transaction, so that the log is locked for a moment only."""
    session, log = db.session(), statement_log()
    pending = list(_pending())
    session.flush()
    if not is_sqlite(session):
        session.execute(_WHILE_APPENDING)
    first = log_size(db.session)
    log.keep_up(first)
    pending = [_signed_now(leaf, log) for leaf in pending]
    insert_rows([_row_of(position, leaf) for position, leaf in enumerate(pending, first)])
    after_commit(lambda: log.extend(first, pending))


def _signed_now(leaf: PendingLeaf, log: StatementLog) -> PendingLeaf:
    """The leaf as the key in force signs it: a rotation may have come between its signature and its place."""
    if leaf.kind == StatementKind.MASTER_KEY or not holds_master_key():
        return leaf
    if leaf.signed_by == log.verifier:
        return leaf
    if leaf.said is None:
        return replace(leaf, signature=log.signing_key().sign(_leaf_text(leaf.leaf)))
    text_, _, lines = leaf.leaf.decode().rpartition("\n\n")
    mine, others = sign_note(f"{text_}\n", log.signing_key()), lines.split("\n")[1:]
    return replace(leaf, leaf=mine + "\n".join(others).encode())


def _row_of(position: int, leaf: PendingLeaf) -> LogLeaf:
    return LogLeaf(
        position=position,
        kind=str(leaf.kind),
        agent_id=leaf.agent_id,
        subject=leaf.subject,
        leaf=leaf.leaf,
        hash=hash_leaf(leaf.leaf),
        signature=leaf.signature,
    )


@event.listens_for(Session, "after_commit")
@event.listens_for(Session, "after_rollback")
def _forget_pending(session: Session) -> None:
    session.info.pop(_PENDING, None)


def _record_of(leaf: bytes, said: Statement | None) -> LeafRecord:
    """What the copy keeps of a leaf: a chain's head is found by its chain, as a statement is by its agent."""
    if said is not None:
        return LeafRecord(hash_leaf(leaf), said.agent)
    chain = json.loads(leaf).get("chain")
    return LeafRecord(hash_leaf(leaf), _chain_uuid(chain) if chain else None)


def _chain_uuid(chain: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, chain))


def _leaf_text(leaf: bytes) -> str:
    return f"whetstone-leaf/1\n{leaf.decode('utf-8', 'surrogateescape')}\n"


SIZE_OF_LOG = select(func.coalesce(func.max(LogLeaf.position) + 1, 0))
"""How many leaves the database's log has."""

_SIZE = Prepared(SIZE_OF_LOG)


def log_size(connection: Connection | scoped_session[Any]) -> int:
    """How many leaves the database has, as this connection sees it."""
    ((size,),) = _SIZE.fetch(connection if isinstance(connection, Connection) else connection.connection(), NO_VALUES)
    return int(size)


@dataclass(frozen=True)
class FoundLeaf:
    """A leaf as it stands in the database: nothing of it is checked yet."""

    position: int
    kind: str
    subject: str
    leaf: bytes
    signature: bytes | None

    @classmethod
    def read(cls, connection: Connection | scoped_session[Any], query: Select[Any]) -> list[FoundLeaf]:
        """In the order of their positions."""
        columns = [getattr(LogLeaf, each.name) for each in fields(cls)]
        found = connection.execute(query.with_only_columns(*columns).order_by(LogLeaf.position))
        return [cls(*row) for row in found.tuples()]


_FIRST_LEAF = Prepared(
    select(*(getattr(LogLeaf, each.name) for each in fields(FoundLeaf))).where(LogLeaf.position == 0)
)
_IN_ORDER = select(*(getattr(LogLeaf, each.name) for each in fields(FoundLeaf))).order_by(LogLeaf.position)
_LEAVES = Prepared(_IN_ORDER.where(LogLeaf.position >= bindparam("first"), LogLeaf.position < bindparam("end")))
_LEAVES_OF = Prepared(
    _IN_ORDER.where(
        LogLeaf.agent_id == bindparam("agent"), LogLeaf.position.between(bindparam("first"), bindparam("last"))
    )
)
_BATCH = 1000


def _read_leaves(connection: Connection, first: int) -> list[FoundLeaf]:
    return FoundLeaf.read(connection, select(LogLeaf).where(LogLeaf.position >= first).limit(_BATCH))


def _find_leaves(agent_id: int, positions: Sequence[int], size: int = 0) -> list[FoundLeaf]:
    """Exactly these of an agent; `size` is how many leaves the session's own transaction sees.

    Raises AgentStopped where one is missing, or stands in another agent's name.
    """
    if positions[-1] < size:
        values = {"agent": agent_id, "first": positions[0], "last": positions[-1]}
        found = [FoundLeaf(*row) for row in read_rows(_LEAVES_OF, values)]
    else:
        within = LogLeaf.position.between(positions[0], positions[-1])
        with _apart() as connection:
            found = FoundLeaf.read(connection, select(LogLeaf).where(LogLeaf.agent_id == agent_id, within))
    _check_positions(found, positions, agent_id)
    return found


def _check_positions(found: Sequence[FoundLeaf], positions: Sequence[int], agent_id: int) -> None:
    if [leaf.position for leaf in found] != list(positions):
        other = min({leaf.position for leaf in found} ^ set(positions))
        raise AgentStopped(f"Leaf {other} of the log of statements was removed or moved", agent_id)


@contextmanager
def _apart() -> Iterator[Connection]:
    """A connection of its own: it sees what was committed, however old the session's snapshot is. None is kept."""
    extensions = current_app.extensions
    if _APART not in extensions:  # made once: what an engine learns of its database costs more than the connection
        extensions[_APART] = create_engine(db.engine.url, poolclass=NullPool, hide_parameters=True)
    with cast(Engine, extensions[_APART]).connect() as connection:
        yield connection


_APART = "statement_log_engine"


def _make_durable() -> None:
    """Let what was committed survive a loss of power before the copy names it: SQLite's WAL syncs later by itself."""
    path = db.engine.url.database
    if db.engine.dialect.name == "sqlite" and path and Path(f"{path}-wal").exists():
        descriptor = os.open(f"{path}-wal", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
