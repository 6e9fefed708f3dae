"""The log of statements as this process knows it: the database's, checked against the copy of its state outside of it.

Worker and command line append to it; the web process only reads. Each keeps a copy on its own disk and believes nothing
of a log that does not extend it.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import cast

from flask import current_app
from sqlalchemy import select

from app.extensions import after_commit, db, read_rows
from app.models.checked_leaves import CheckedLeaf, CheckedLeaves, chain_uuid
from app.models.current import Current
from app.models.installation_keys import InstallationKeys, claimed_signing_key
from app.models.log_leaves import (
    FIRST_LEAF,
    LEAVES,
    SIZE,
    FoundLeaf,
    check_positions,
    connect_apart,
    find_leaves,
    log_size,
    read_leaves,
)
from app.models.master_key import holds_master_key, master_key, seal_for_now
from app.models.pending_leaves import PendingLeaf, pending_leaves
from app.models.statement import LogLeaf, Statement
from app.models.statement_errors import AgentStopped, LogBroken
from app.silo import MasterPublicKey
from app.silo.merkle import hash_leaf
from app.silo.notes import NoteBroken
from app.silo.webkey import PinnedInstallation

_REPLAYS_KEPT = 10_000
"""Agents whose replayed state a process keeps at most."""


class StatementLog:
    """One process's view. Every thread uses the same one."""

    def __init__(self, folder: Path, known_key: bytes, installation: str | None = None) -> None:
        """`known_key`: the public half of an installation key that this process trusts."""
        self.keys = InstallationKeys(known_key, installation)
        self.installation = self.keys.installation
        self.checked = CheckedLeaves(folder, self.installation)
        self.copy = self.checked.copy
        self.keys.check_against(self.copy)
        self._replays: OrderedDict[str, Current] = OrderedDict()
        self._replaying = threading.Lock()

    def begun_at(self) -> datetime | None:
        """When its first leaf was written, if that is the one that was seen. Raises NoteBroken."""
        leaf = [FoundLeaf(*row) for row in read_rows(FIRST_LEAF)]
        if not leaf or not self.copy.size or hash_leaf(leaf[0].leaf) != self.copy.hash_at(0):
            return None
        return self.keys.read(leaf[0]).at

    def catch_up(self, size: int | None = None) -> None:
        """Check what the database has appended since this process last looked. Raises LogBroken.

        `size`: how long its log is, where the caller has just read that.
        """
        self.checked.write_ahead()
        if self.checked.are_all_of(read_rows(SIZE)[0][0] if size is None else size):
            return
        with self.checked.catching_up(), connect_apart() as connection:
            self._learn_from_copy()
            size = log_size(connection)
            if size < self.copy.size:
                raise LogBroken(f"it ends at leaf {size}, and {self.copy.size} were written")
            while self.copy.size < size:
                self._take_in(read_leaves(connection, self.copy.size))

    def keep_up(self, size: int) -> None:
        """The same within `writing()`, for who has just read there that the log has `size` leaves, none of its own.

        What is new is checked, and written to the copy behind the transaction: nobody waits for a disk, or for another
        who does, while the database waits for him. Raises LogBroken.
        """
        first = self.checked.end
        if not self.checked.go_on_as_usual(first, size):
            self.catch_up(size)
        elif first < size:
            found = [FoundLeaf(*row) for row in read_rows(LEAVES, {"first": first, "end": size})]
            self.checked.add(self._check_leaves(first, found))
            after_commit(self.checked.write_of_others)

    def extend(self, first: int, leaves: Sequence[PendingLeaf]) -> None:
        """Take note of what was committed from that position on."""
        checked = [
            CheckedLeaf.of(position, each.kind, each.leaf, each.said) for position, each in enumerate(leaves, first)
        ]
        for position, each in enumerate(leaves, first):
            self.keys.learn(position, each.said)
        if first <= self.checked.end:
            self.checked.add(checked)
        self.checked.write_ahead()
        if self.checked.must_write:  # also where another has just taken these along, and failed
            self.catch_up(first + len(leaves))

    def read(self, agent_id: int, agent: str, size: int | None = None) -> Current:
        """What the log says of an agent; `size` as for `catch_up`, or as for `keep_up` in `writing()`.

        Raises LogBroken, or AgentStopped where its leaves are not as they were.
        """
        seen = size if db.session().info.get("writing") and not pending_leaves() else None
        if seen is None:
            self.catch_up(size)
        else:
            self.keep_up(seen)
            if self.checked.has_ahead(agent):
                self.checked.write_ahead()
            if self.checked.must_write:  # another's writing has just failed, and nobody knows what was ahead any more
                self.catch_up(seen)
        positions = self.copy.indexes_of(agent)
        current = self._replays.get(agent, Current())
        if len(positions) == current.seen:
            return current
        current = current.copy()
        for leaf in find_leaves(agent_id, positions[current.seen :], seen or 0):
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
        check_positions(leaves, [position for position in self.copy.indexes_of(agent) if position < size], agent_id)
        current = Current(len(leaves))
        for leaf in leaves:
            current.apply(self.read_leaf(leaf, agent_id))
        return current

    def read_chain_head(self, chain: str, agent_id: int) -> tuple[int, str]:
        """Number and hash of the entry of an agent's audit chain that the log names last; (0, "") for none.

        It is found by the copy, so that nobody can hide it in the database. Raises LogBroken or AgentStopped.
        """
        self.catch_up()
        positions = self.copy.indexes_of(chain_uuid(chain))
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
        return self.keys.read(leaf)

    def _learn_from_copy(self) -> None:
        """What other processes of this machine have written to it. Raises LogBroken."""
        known = self.copy.size
        self.copy.load()
        if self.copy.is_another():  # a restored log was accepted on this machine
            self._forget()
            known = 0
        if self.copy.size > known:  # another process of this machine was first
            self.keys = InstallationKeys(self.keys.verifier.public, self.installation)
            self.keys.check_against(self.copy)

    def _forget(self) -> None:
        with self._replaying:
            self._replays.clear()
        self.checked.forget_ahead()

    def _take_in(self, leaves: Sequence[FoundLeaf]) -> None:
        """Check leaves that are new to this process, signatures included. Raises LogBroken."""
        first = self.copy.size
        if not leaves:
            raise LogBroken(f"leaf {first} is missing")
        self.checked.take_in(self._check_leaves(first, leaves))

    def _check_leaves(self, first: int, leaves: Sequence[FoundLeaf]) -> list[CheckedLeaf]:
        """Those from that position on, signatures included. Raises LogBroken."""
        checked = list[CheckedLeaf]()
        for position, leaf in enumerate(leaves, first):
            if leaf.position != position:
                raise LogBroken(f"leaf {position} is missing")
            try:
                said = self.keys.check_leaf(leaf)
            except NoteBroken as error:
                raise LogBroken(f"leaf {position} is none of this installation's ({error.sentence})") from None
            checked.append(CheckedLeaf.of(position, leaf.kind, leaf.leaf, said))
            self.keys.learn(position, said)
        return checked


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
    return StatementLog(current_app.extensions["settings"].statements_dir, claimed_signing_key()).keys.pin


def trust_claimed_installation() -> PinnedInstallation:
    """Trust it in this process only, where no file names the one to trust. Raises as `claimed_installation` does."""
    pin = claimed_installation()
    folder = current_app.extensions["settings"].statements_dir
    current_app.extensions["statement_log"] = StatementLog(folder, pin.signing_public, pin.installation)
    return pin


def master_public_key() -> MasterPublicKey:
    """The public half to seal to: the one that this machine knows, or its successor that the log proves.

    A rotation ends when nobody uses the old one. Raises LogBroken, or Unavailable before the first start.
    """
    seal_for_now()
    log = statement_log()
    log.catch_up()
    return MasterPublicKey(log.keys.master_public_key)


def current_of(agent_id: int, agent: str, size: int | None = None) -> Current:
    """What the log says of an agent, with what this transaction has stated of it; `size` as for `catch_up`.

    Raises LogBroken or AgentStopped.
    """
    current = statement_log().read(agent_id, agent, size)
    stated = [leaf.said for leaf in pending_leaves() if leaf.agent == agent and leaf.said is not None]
    if not stated:
        return current
    current = current.copy()
    for said in stated:
        current.apply(said)
    return current


def _open_log() -> StatementLog:
    settings = current_app.extensions["settings"]
    if holds_master_key():
        known = master_key().installation_key("unknown").verifier.public
        return StatementLog(settings.statements_dir, known)
    pinned = PinnedInstallation.load(settings.pinned_path)
    log = StatementLog(settings.statements_dir, pinned.signing_public, pinned.installation)
    if log.keys.pin != pinned:
        log.keys.pin.replace(settings.pinned_path)
    return log
