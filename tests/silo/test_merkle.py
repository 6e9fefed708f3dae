"""Merkle trees: the roots and proofs of RFC 6962, whichever way the tree grew, and no proof of what is not so."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.silo import MerkleTree, ProofBroken, check_consistency, check_inclusion, hash_leaf, root_of
from app.silo.merkle import consistency_proof, hash_node, inclusion_proof

LEAVES = [
    bytes.fromhex(leaf)
    for leaf in (*("", "00", "10", "2021", "3031", "40414243", "5051525354555657"), "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
"""The reference leaves of Certificate Transparency, and the root over none, the first, the first two and so on."""

INCLUDED = {
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
    (1, 5): [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
CONSISTENT = {
    (1, 1): [],
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
"""The reference proofs of Certificate Transparency."""

HASHES = [hash_leaf(leaf) for leaf in LEAVES]


def test_roots_are_the_standards() -> None:
    for size, root in enumerate(ROOTS):
        assert root_of(HASHES, size).hex() == root
        assert MerkleTree(HASHES).root_at(size).hex() == root
        assert MerkleTree(HASHES[:size]).root.hex() == root


def test_proofs_are_the_standards() -> None:
    for (index, size), proof in INCLUDED.items():
        assert [each.hex() for each in inclusion_proof(HASHES, index, size)] == proof
    for (old, new), proof in CONSISTENT.items():
        assert [each.hex() for each in consistency_proof(HASHES, old, new)] == proof


def naive_root(hashes: Sequence[bytes]) -> bytes:
    """RFC 6962, 2.1, as it is written there."""
    if len(hashes) <= 1:
        return hashes[0] if hashes else sha256(b"").digest()
    half = 1
    while half * 2 < len(hashes):
        half *= 2
    return hash_node(naive_root(hashes[:half]), naive_root(hashes[half:]))


def naive_path(index: int, hashes: Sequence[bytes]) -> list[bytes]:
    """2.1.1."""
    if len(hashes) == 1:
        return []
    half = 1
    while half * 2 < len(hashes):
        half *= 2
    left, right = hashes[:half], hashes[half:]
    if index < half:
        return [*naive_path(index, left), naive_root(right)]
    return [*naive_path(index - half, right), naive_root(left)]


def naive_subproof(old: int, hashes: Sequence[bytes], *, whole: bool) -> list[bytes]:
    """2.1.2."""
    if old == len(hashes):
        return [] if whole else [naive_root(hashes)]
    half = 1
    while half * 2 < len(hashes):
        half *= 2
    left, right = hashes[:half], hashes[half:]
    if old <= half:
        return [*naive_subproof(old, left, whole=whole), naive_root(right)]
    return [*naive_subproof(old - half, right, whole=False), naive_root(left)]


def some_hashes(size: int) -> list[bytes]:
    return [hash_leaf(number.to_bytes(4, "big")) for number in range(size)]


@given(st.data())
def test_every_tree_is_the_standards_however_it_grew(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 70))
    hashes, tree = some_hashes(size), MerkleTree()
    while tree.size < size:
        step = data.draw(st.integers(0, size - tree.size))
        tree.extend(hashes[tree.size : tree.size + step])
        if tree.size < size:
            tree.append(hashes[tree.size])
    assert tree.root == naive_root(hashes)
    new = data.draw(st.integers(1, size))
    index, old = data.draw(st.integers(0, new - 1)), data.draw(st.integers(1, new))
    assert tree.root_at(new) == root_of(hashes, new) == naive_root(hashes[:new])
    assert tree.inclusion_proof(index, new) == naive_path(index, hashes[:new])
    assert tree.consistency_proof(old, new) == naive_subproof(old, hashes[:new], whole=True)


def test_each_leaf_and_each_beginning_of_small_trees_can_be_proved() -> None:
    hashes = some_hashes(40)
    tree = MerkleTree(hashes)
    for new in range(1, 41):
        for index in range(new):
            check_inclusion(hashes[index], index, new, tree.inclusion_proof(index, new), tree.root_at(new))
        for old in range(new + 1):
            check_consistency(old, new, tree.root_at(old), tree.root_at(new), tree.consistency_proof(old, new))


def altered(proof: Sequence[bytes]) -> list[list[bytes]]:
    """Everything near a proof that is none."""
    flipped = [
        [*proof[:place], bytes([each[0] ^ 1]) + each[1:], *proof[place + 1 :]] for place, each in enumerate(proof)
    ]
    short = [list(proof[:-1]), list(proof[1:])] if proof else []
    long = [[*proof, bytes(32)], [bytes(32), *proof], [*proof, *proof[-1:]]] if proof else [[bytes(32)]]
    turned = [list(proof[::-1])] if list(proof[::-1]) != list(proof) else []
    cut = [[each[:-1] for each in proof], [each + b"\x00" for each in proof]] if proof else []
    return [*flipped, *short, *long, *turned, *cut]


def test_no_altered_proof_of_inclusion_passes() -> None:
    hashes = some_hashes(20)
    tree, refused = MerkleTree(hashes), 0
    for size in range(1, 21):
        root = tree.root_at(size)
        for index in range(size):
            proof = tree.inclusion_proof(index, size)
            others = [
                *((hashes[index], index, size, wrong, root) for wrong in altered(proof)),
                (hashes[index], index, size, proof, bytes(32)),
                (hashes[index], index, size, proof, root[:-1]),
                (hashes[index - 1] if size > 1 else bytes(32), index, size, proof, root),
                (hashes[index], -1, size, proof, root),
                (hashes[index], size, size, proof, root),
                (hashes[index], index, 0, proof, root),
                *((hashes[index], other, size, proof, root) for other in range(size) if other != index),
            ]
            for other in others:
                with pytest.raises(ProofBroken):
                    check_inclusion(*other)
                refused += 1
    assert refused > 2_000


def test_no_altered_proof_of_consistency_passes() -> None:
    hashes = some_hashes(20)
    tree, refused = MerkleTree(hashes), 0
    for new in range(1, 21):
        for old in range(1, new + 1):
            proof = tree.consistency_proof(old, new)
            old_root, new_root = tree.root_at(old), tree.root_at(new)
            others = [
                *((old, new, old_root, new_root, wrong) for wrong in altered(proof)),
                (old, new, bytes(32), new_root, proof),
                (old, new, old_root, bytes(32), proof),
                (old, new, old_root[:-1], new_root, proof),
                (new, old, new_root, old_root, proof) if old != new else (new, new, new_root, bytes(32), []),
                (-1, new, old_root, new_root, proof),
            ]
            for other in others:
                with pytest.raises(ProofBroken):
                    check_consistency(*other)
                refused += 1
    assert refused > 1_000


def test_a_log_begins_with_the_empty_one_and_with_no_other_root_of_it() -> None:
    check_consistency(0, 8, root_of([]), root_of(HASHES), [])
    for root, proof in ((bytes(32), []), (root_of([]), [bytes(32)])):
        with pytest.raises(ProofBroken):
            check_consistency(0, 8, root, root_of(HASHES), proof)


def test_what_is_not_in_the_tree_has_neither_root_nor_proof() -> None:
    tree = MerkleTree(HASHES)
    for asked in (
        lambda: tree.root_at(9),
        lambda: tree.root_at(-1),
        lambda: tree.inclusion_proof(8, 8),
        lambda: tree.inclusion_proof(-1, 8),
        lambda: tree.inclusion_proof(0, 9),
        lambda: tree.consistency_proof(5, 4),
        lambda: tree.consistency_proof(1, 9),
        lambda: root_of(HASHES, 9),
        lambda: inclusion_proof(HASHES, 0, -1),
        lambda: tree.extend([bytes(32), bytes(31)]),
    ):
        with pytest.raises(ValueError, match="lea"):
            asked()
    assert (tree.size, tree.root.hex()) == (8, ROOTS[8])


def test_a_leaf_is_no_node() -> None:
    one, two = HASHES[:2]
    assert hash_leaf(one + two) != hash_node(one, two)
    assert root_of([hash_leaf(one + two)]) != root_of([one, two])


def test_a_hundred_thousand_leaves_are_quick() -> None:
    hashes = some_hashes(100_000)
    began = process_time()
    root = root_of(hashes)
    assert process_time() - began < 1, "0.2 seconds on a quiet machine"
    tree = MerkleTree(hashes)
    began = process_time()
    for index in range(0, 100_000, 1_000):
        check_inclusion(hashes[index], index, 100_000, tree.inclusion_proof(index, 100_000), root)
    assert process_time() - began < 0.5, "a proof takes a few dozen hashes, not all"
