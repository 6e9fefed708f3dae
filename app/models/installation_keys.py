"""The installation's signing keys, as its log of statements proves them: who knows one of them knows all.

Each is stated by a leaf that names the key before it, and that both have signed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlalchemy import select

from app.errors import Unavailable
from app.models.log_leaves import FoundLeaf, connect_apart
from app.models.master_key import master_key
from app.models.statement import LeafKind, LogLeaf, Statement, StatementKind, read_statement, signed_text_of
from app.models.statement_errors import LogBroken
from app.silo.logcopy import LogCopy
from app.silo.merkle import hash_leaf
from app.silo.notes import NoteBroken, NoteVerifier, SigningKey, installation_name
from app.silo.statements import STATEMENT, read_text
from app.silo.webkey import PinnedInstallation


class InstallationKeys:
    """Every key that there was: the newest is in force. What they have signed is read by them."""

    def __init__(self, known: bytes, installation: str | None = None) -> None:
        """`known`: the public half of one that this process trusts.

        Raises LogBroken, or Unavailable before the first start.
        """
        self._keys = _find_keys(known, installation)
        self.installation = self._keys[0].installation

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
        """The one in force."""
        return self._keys[-1].verifier

    @property
    def verifiers(self) -> list[tuple[int, NoteVerifier]]:
        """All of them, oldest first, with the place of the first leaf that each signs."""
        first, *later = self._keys
        return [(0, first.verifier), *((key.position + 1, key.verifier) for key in later)]

    def verifier_at(self, position: int) -> NoteVerifier:
        """The one that was in force there."""
        return next(key.verifier for key in reversed(self._keys) if key.position < position or key is self._keys[0])

    def signing_key(self) -> SigningKey:
        """The one in force, to sign with. Raises Unavailable in a process that holds no master key."""
        return master_key(self.fingerprint).installation_key(self.installation)

    def read(self, leaf: FoundLeaf | LogLeaf) -> Statement:
        """The statement that a leaf is. Raises NoteBroken."""
        return read_statement(leaf.leaf, self.installation, self.verifier_at(leaf.position), leaf.position)

    def check_leaf(self, leaf: FoundLeaf) -> Statement | None:
        """What a leaf says, if it is a statement, once its signature is checked. Raises NoteBroken."""
        if leaf.kind in list(LeafKind):
            if not self.verifier_at(leaf.position).verifies(signed_text_of(leaf.leaf), leaf.signature or b""):
                raise NoteBroken("Its signature is not of this leaf.")
            return None
        said = self.read(leaf)
        if (said.kind, said.subject) != (leaf.kind, leaf.subject):
            raise NoteBroken("It says something else than the row that it stands in.")
        return said

    def check_against(self, copy: LogCopy) -> None:
        """Raises LogBroken where a statement about a master key is not the one that the copy knows: a key that was
        retired and leaked could name another successor.
        """
        for key in self._keys:
            if key.digest and key.position < copy.size and key.digest != copy.hash_at(key.position):
                raise LogBroken(f"leaf {key.position}, about the master key, is another one")

    def learn(self, position: int, said: Statement | None) -> None:
        """Of a leaf that is new, and may state the next one."""
        if said is not None and said.kind is StatementKind.MASTER_KEY and position > self._keys[-1].position:
            self._keys.append(_InstallationKey.of(self.installation, position, said))


def claimed_signing_key() -> bytes:
    """The public half of the first key, by what the first leaf says: nothing confirms it.

    Raises LogBroken where that leaf says no such thing, or Unavailable before the first start.
    """
    _, first = _read_key_leaves()[0]
    try:
        return bytes.fromhex(str(_claimed_statement(first).get("signing_key")))
    except (NoteBroken, ValueError):
        raise LogBroken("its first leaf is not the statement about a master key") from None


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


def _find_keys(known: bytes, installation: str | None) -> list[_InstallationKey]:
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
    with connect_apart() as connection:
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
