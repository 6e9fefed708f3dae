"""What a log says of itself in one signed note, and what proves to somebody else that a leaf is in it.

The formats' sources: https://c2sp.org/tlog-checkpoint and https://c2sp.org/tlog-proof.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.silo.merkle import HASH, ProofBroken, check_inclusion
from app.silo.notes import LONGEST_NOTE, NoteBroken, NoteVerifier, decode_base64, open_note

LONGEST_PROOF = 4 * LONGEST_NOTE
"""Bytes of a whole proof: a leaf may stand in it, and the checkpoint's note does."""

MOST_HASHES = 63
"""A log of 2^63 leaves needs no more."""

_PROOF_HEADER = "c2sp.org/tlog-proof@v1"
_NUMBER = r"(0|[1-9][0-9]{0,18})"
_CHECKPOINT = re.compile(rf"([^\n]+)\n{_NUMBER}\n([A-Za-z0-9+/=]+)\n")
_INDEX = re.compile(rf"index {_NUMBER}")


@dataclass(frozen=True)
class Checkpoint:
    """The root over the first `size` leaves of the log named `origin`. Raises NoteBroken for what can't be one."""

    origin: str
    size: int
    root: bytes

    def __post_init__(self) -> None:
        if not self.origin or "\n" in self.origin:
            raise NoteBroken("A checkpoint's first line must name its log.")
        if not 0 <= self.size < 1 << 63:
            raise NoteBroken(f"No log has {self.size} leaves.")
        if len(self.root) != HASH:
            raise NoteBroken(f"A checkpoint's root has {len(self.root)} bytes; it must have {HASH}.")

    @property
    def text(self) -> str:
        """What its note says."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


def parse_checkpoint(text: str) -> Checkpoint:
    """The checkpoint that a note's text says; lines of extensions are refused. Raises NoteBroken."""
    match = _CHECKPOINT.fullmatch(text)
    if match is None:
        raise NoteBroken("A note is not a checkpoint of a log: name, number of leaves and root, a line each.")
    return Checkpoint(match[1], int(match[2]), decode_base64(match[3]))


def open_checkpoint(note: bytes, origin: str, *verifiers: NoteVerifier) -> Checkpoint:
    """What the log `origin` says of itself, signed by at least one of `verifiers`. Raises NoteBroken."""
    checkpoint = parse_checkpoint(open_note(note, *verifiers).text)
    if checkpoint.origin != origin:
        raise NoteBroken(f"A checkpoint is of the log {checkpoint.origin}, not of {origin}.")
    return checkpoint


@dataclass(frozen=True)
class InclusionProof:
    """That a leaf stands at `index` in the log of a checkpoint. Parsed only: `check_proof` checks it.

    `checkpoint` is the signed note. `extra` is whatever a reader may need, a leaf for instance; nothing signs it. Up to
    48 KB of it other readers take as well: many read no longer lines than 64 KiB.
    """

    index: int
    hashes: tuple[bytes, ...]
    checkpoint: bytes
    extra: bytes | None = None


def format_proof(proof: InclusionProof) -> bytes:
    """As a file, `.tlog-proof` by custom."""
    extra = [] if proof.extra is None else [f"extra {base64.b64encode(proof.extra).decode()}"]
    hashes = [base64.b64encode(each).decode() for each in proof.hashes]
    lines = [_PROOF_HEADER, *extra, f"index {proof.index}", *hashes, ""]
    return "".join(f"{line}\n" for line in lines).encode() + proof.checkpoint


def parse_proof(body: bytes) -> InclusionProof:
    """What a proof says; neither its hashes nor its checkpoint are checked here. Raises ProofBroken or NoteBroken."""
    if len(body) > LONGEST_PROOF:
        raise ProofBroken(f"A proof has {len(body):,} bytes; {LONGEST_PROOF:,} are the most.")
    head, separator, checkpoint = body.partition(b"\n\n")
    if not separator or not head.isascii():
        raise ProofBroken(f"This is not a proof of {_PROOF_HEADER}.")
    header, *lines = head.decode().split("\n")
    if header != _PROOF_HEADER:
        raise ProofBroken(f"This is not a proof of {_PROOF_HEADER}.")
    extra = None
    if lines and lines[0].startswith("extra "):
        extra = decode_base64(lines.pop(0).removeprefix("extra "))
    match = _INDEX.fullmatch(lines[0]) if lines else None
    if match is None:
        raise ProofBroken("A proof does not say which leaf it is about.")
    return InclusionProof(int(match[1]), _read_hashes(lines[1:]), checkpoint, extra)


def check_proof(body: bytes, leaf_hash: bytes, origin: str, *verifiers: NoteVerifier) -> Checkpoint:
    """The checkpoint, signed by one of `verifiers`, of the log that has the leaf, as the proof proves.

    Raises ProofBroken or NoteBroken.
    """
    proof = parse_proof(body)
    checkpoint = open_checkpoint(proof.checkpoint, origin, *verifiers)
    check_inclusion(leaf_hash, proof.index, checkpoint.size, proof.hashes, checkpoint.root)
    return checkpoint


def _read_hashes(lines: Sequence[str]) -> tuple[bytes, ...]:
    if len(lines) > MOST_HASHES:
        raise ProofBroken(f"A proof has {len(lines)} hashes; {MOST_HASHES} are the most.")
    hashes = tuple(decode_base64(line) for line in lines)
    if any(len(each) != HASH for each in hashes):
        raise ProofBroken(f"A hash in a proof does not have {HASH} bytes.")
    return hashes
