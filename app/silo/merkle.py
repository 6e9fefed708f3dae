"""Merkle trees over a log's leaf hashes (RFC 6962): the root, and proofs that a leaf is in, or that a log only grew.

Leaf hashes are SHA-256, 32 bytes. The checks are those of RFC 9162, 2.1.3.2 and 2.1.4.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import count, islice

from app.errors import WhetstoneError

HASH = 32
"""Bytes of every hash."""

EMPTY = sha256().digest()
"""The root of no leaves."""


class ProofBroken(WhetstoneError):
    """A proof does not prove what it should."""

    code = "proof_broken"
    http_status = 500


def hash_leaf(leaf: bytes) -> bytes:
    """A leaf's own hash: no inner node can pass for it."""
    return sha256(b"\x00" + leaf).digest()


def hash_node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


class MerkleTree:
    """A tree that only grows, and knows every root and proof that it ever had: each takes a few dozen hashes.

    Level 0 holds the leaf hashes; each level above, the hashes of all pairs of the level below. 64 bytes a leaf.
    """

    def __init__(self, hashes: Iterable[bytes] = ()) -> None:
        self._levels = [bytearray()]
        self.extend(hashes)

    def __repr__(self) -> str:
        return f"<MerkleTree of {self.size}>"

    @property
    def size(self) -> int:
        """How many leaves."""
        return len(self._levels[0]) // HASH

    @property
    def root(self) -> bytes:
        return self.root_at(self.size)

    def append(self, leaf_hash: bytes) -> None:
        """Raises ValueError for what is no hash."""
        self.extend([leaf_hash])

    def extend(self, hashes: Iterable[bytes]) -> None:
        """Append leaf hashes. Raises ValueError for what is no hash, and then none is appended."""
        new = list(hashes)
        if any(len(each) != HASH for each in new):
            raise ValueError(f"a leaf hash has {HASH} bytes")
        self._levels[0] += b"".join(new)
        for height in count(1):
            below, pairs = self._levels[height - 1], self.size >> height
            if not pairs:
                return
            if height == len(self._levels):
                self._levels.append(bytearray())
            level = self._levels[height]
            starts = range(2 * len(level), 2 * HASH * pairs, 2 * HASH)
            level += b"".join([sha256(b"\x01" + below[start : start + 2 * HASH]).digest() for start in starts])

    def root_at(self, size: int) -> bytes:
        """The root when the tree had `size` leaves. Raises ValueError."""
        self._check_size(size)
        return self._hash_of(0, size) if size else EMPTY

    def inclusion_proof(self, index: int, size: int) -> list[bytes]:
        """That leaf `index` is in the tree of `size` leaves, its sibling's hash first. Raises ValueError."""
        self._check_size(size)
        if not 0 <= index < size:
            raise ValueError(f"no leaf {index} among {size}")
        proof, start, end = [], 0, size
        while end - start > 1:
            middle = start + _split(end - start)
            if index < middle:
                proof.append(self._hash_of(middle, end))
                end = middle
            else:
                proof.append(self._hash_of(start, middle))
                start = middle
        return proof[::-1]

    def consistency_proof(self, old: int, new: int) -> list[bytes]:
        """That the tree of `new` leaves begins with the tree of `old` leaves; empty where either says it all.

        Raises ValueError.
        """
        self._check_size(new)
        if not 0 <= old <= new:
            raise ValueError(f"{old} leaves are not the beginning of {new}")
        if old in {0, new}:
            return []
        proof, start, end = [], 0, new
        while old != end:
            middle = start + _split(end - start)
            if old <= middle:
                proof.append(self._hash_of(middle, end))
                end = middle
            else:
                proof.append(self._hash_of(start, middle))
                start = middle
        if start:
            proof.append(self._hash_of(start, end))
        return proof[::-1]

    def _check_size(self, size: int) -> None:
        if not 0 <= size <= self.size:
            raise ValueError(f"the tree has {self.size} leaves, not {size}")

    def _hash_of(self, start: int, end: int) -> bytes:
        """The hash of the leaves from `start` to `end`, where `start` is a multiple of their number's power of two."""
        width = end - start
        height = width.bit_length() - 1
        if width == 1 << height:
            place = (start >> height) * HASH
            return bytes(self._levels[height][place : place + HASH])
        middle = start + _split(width)
        return hash_node(self._hash_of(start, middle), self._hash_of(middle, end))


def root_of(hashes: Sequence[bytes], size: int | None = None) -> bytes:
    """The root over the first `size` of these leaf hashes, or all. Raises ValueError."""
    return _tree_of(hashes, len(hashes) if size is None else size).root


def inclusion_proof(hashes: Sequence[bytes], index: int, size: int) -> list[bytes]:
    """As `MerkleTree.inclusion_proof`, for who has no tree at hand."""
    return _tree_of(hashes, size).inclusion_proof(index, size)


def consistency_proof(hashes: Sequence[bytes], old: int, new: int) -> list[bytes]:
    """As `MerkleTree.consistency_proof`, for who has no tree at hand."""
    return _tree_of(hashes, new).consistency_proof(old, new)


def check_inclusion(leaf_hash: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> None:
    """That the leaf stands at `index` in the tree of `size` leaves with that root. Raises ProofBroken."""
    _check_hashes(leaf_hash, root, *proof)
    if not 0 <= index < size:
        raise ProofBroken(f"There is no leaf {index} among {size}.")
    place, last, found = index, size - 1, leaf_hash
    for sibling in proof:
        if last == 0:
            raise ProofBroken("A proof of inclusion is too long.")
        if place & 1 or place == last:
            found = hash_node(sibling, found)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            found = hash_node(found, sibling)
        place, last = place >> 1, last >> 1
    if last:
        raise ProofBroken("A proof of inclusion is too short.")
    if found != root:
        raise ProofBroken(f"Leaf {index} is not in the log of that root.")


def check_consistency(old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]) -> None:
    """That the log of `new` leaves begins with the log of `old` leaves. Raises ProofBroken."""
    _check_hashes(old_root, new_root, *proof)
    if not 0 <= old <= new:
        raise ProofBroken(f"A log of {new} leaves does not begin with {old}.")
    if old in {0, new}:
        _check_trivial(old, new, old_root, new_root, proof)
        return
    if not proof:
        raise ProofBroken("A proof of consistency is empty.")
    path = list(proof) if old & (old - 1) else [old_root, *proof]
    place, last = old - 1, new - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old_found = new_found = path[0]
    for sibling in islice(path, 1, None):
        if last == 0:
            raise ProofBroken("A proof of consistency is too long.")
        if place & 1 or place == last:
            old_found, new_found = hash_node(sibling, old_found), hash_node(sibling, new_found)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            new_found = hash_node(new_found, sibling)
        place, last = place >> 1, last >> 1
    if last:
        raise ProofBroken("A proof of consistency is too short.")
    if (old_found, new_found) != (old_root, new_root):
        raise ProofBroken(f"The log of {new} leaves does not begin with that of {old}: one of both was altered.")


def _check_trivial(old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]) -> None:
    if proof:
        raise ProofBroken("A proof of consistency is too long.")
    if old == new and old_root != new_root:
        raise ProofBroken(f"Two logs of {old} leaves have different roots.")
    if old == 0 and old_root != EMPTY:
        raise ProofBroken("A log without leaves has a root that is not its own.")


def _check_hashes(*hashes: bytes) -> None:
    if any(len(each) != HASH for each in hashes):
        raise ProofBroken(f"A hash in a proof does not have {HASH} bytes.")


def _split(width: int) -> int:
    """The largest power of two below `width`."""
    return 1 << (width - 1).bit_length() - 1


def _tree_of(hashes: Sequence[bytes], size: int) -> MerkleTree:
    if not 0 <= size <= len(hashes):
        raise ValueError(f"there are {len(hashes)} leaf hashes, not {size}")
    return MerkleTree(hashes[:size])
