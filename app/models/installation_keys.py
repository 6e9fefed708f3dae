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
from app.models.log_leaves import connect_apart
from app.models.statement import LogLeaf, Statement, StatementKind, read_statement
from app.models.statement_errors import LogBroken
from app.silo.merkle import hash_leaf
from app.silo.notes import NoteBroken, NoteVerifier, installation_name
from app.silo.statements import STATEMENT, read_text


@dataclass(frozen=True)
class InstallationKey:
    """One of the installation's keys, in force behind the leaf at `position` that states it."""

    installation: str
    position: int
    fingerprint: str
    master: bytes
    verifier: NoteVerifier
    previous: bytes | None
    digest: bytes

    @classmethod
    def of(cls, installation: str, position: int, said: Statement, digest: bytes = b"") -> InstallationKey:
        try:
            key, master = bytes.fromhex(said.body["signing_key"]), bytes.fromhex(said.body["public_key"])
            previous = said.body["previous"] and bytes.fromhex(said.body["previous"])
        except (KeyError, ValueError, TypeError):
            raise NoteBroken("A statement about the master key lacks what it has to say.") from None
        verifier = NoteVerifier(installation_name(installation), key)
        return cls(installation, position, said.subject_id, master, verifier, previous, digest)


def find_installation_keys(known: bytes, installation: str | None) -> list[InstallationKey]:
    """All of them, oldest first, proved from the one that is known: each names the one before, and is signed by both.

    Raises LogBroken.
    """
    leaves = read_key_leaves()
    try:
        return _prove_keys(leaves, known, installation)
    except NoteBroken as error:
        raise LogBroken(f"its statements about the master key do not hold ({error.sentence})") from None


def read_key_leaves() -> Sequence[tuple[int, bytes]]:
    """Positions and notes of the statements about the master key, oldest first. Raises Unavailable for none."""
    query = select(LogLeaf.position, LogLeaf.leaf).where(LogLeaf.kind == StatementKind.MASTER_KEY)
    with connect_apart() as connection:
        leaves = connection.execute(query.order_by(LogLeaf.position)).tuples().all()
    if not leaves:
        raise Unavailable("The log of statements is empty: run `./whetstone up` or `./whetstone db upgrade` once.")
    return leaves


def _prove_keys(leaves: Sequence[tuple[int, bytes]], known: bytes, installation: str | None) -> list[InstallationKey]:
    name = installation or str(claimed_statement(leaves[0][1]).get("installation"))

    def open_by(place: int, key: bytes) -> InstallationKey:
        position, note = leaves[place]
        said = read_statement(note, name, NoteVerifier(installation_name(name), key), position)
        return InstallationKey.of(name, position, said, hash_leaf(note))

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
    leaves: Sequence[tuple[int, bytes]], known: bytes, open_by: Callable[[int, bytes], InstallationKey]
) -> int:
    for place in range(len(leaves)):
        try:
            if open_by(place, known).verifier.public == known:
                return place
        except NoteBroken:
            continue
    raise NoteBroken("None of them is signed by the key that this machine knows.")


def claimed_statement(note: bytes) -> dict[str, Any]:
    """What a machine without a copy takes the first leaf to say; a signature by a known key has to confirm it."""
    lines = note.decode("utf-8", "replace").split("\n")
    return read_text(STATEMENT, "\n".join([*lines[:2], ""]))
