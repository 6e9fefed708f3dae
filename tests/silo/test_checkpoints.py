"""Checkpoints and proofs for others: the standard's bytes both ways, and nothing that could be read otherwise."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.silo import (
    Checkpoint,
    InclusionProof,
    MerkleTree,
    NoteBroken,
    ProofBroken,
    SigningKey,
    check_proof,
    format_proof,
    hash_leaf,
    open_checkpoint,
    parse_checkpoint,
    parse_proof,
    sign_note,
)

EXAMPLE = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
"""The example of https://c2sp.org/tlog-checkpoint."""

ROOT = "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I="
LOG, KEY, STRANGER = "example.org/log", SigningKey("example.org/log", b"k" * 32), SigningKey("stranger", b"s" * 32)
HASHES = [hash_leaf(str(number).encode()) for number in range(13)]
TREE = MerkleTree(HASHES)


def test_the_standards_example_is_read_and_written() -> None:
    checkpoint = parse_checkpoint(EXAMPLE)
    assert checkpoint == Checkpoint("example.com/behind-the-sofa", 20_852_163, base64.b64decode(ROOT))
    assert checkpoint.text == EXAMPLE


@given(st.integers(0, (1 << 63) - 1), st.binary(min_size=32, max_size=32))
def test_every_checkpoint_comes_back(size: int, root: bytes) -> None:
    checkpoint = Checkpoint(LOG, size, root)
    assert parse_checkpoint(checkpoint.text) == checkpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        EXAMPLE[:-1],
        EXAMPLE + "extension\n",
        EXAMPLE + "\n",
        f"\n1\n{ROOT}\n",
        f"log\n01\n{ROOT}\n",
        f"log\n+1\n{ROOT}\n",
        f"log\n-1\n{ROOT}\n",
        f"log\n 1\n{ROOT}\n",
        f"log\n1 \n{ROOT}\n",
        f"log\n1_0\n{ROOT}\n",
        f"log\n١\n{ROOT}\n",
        f"log\n\n{ROOT}\n",
        f"log\n{1 << 63}\n{ROOT}\n",
        f"log\n{10**30}\n{ROOT}\n",
        f"log\n1\n{ROOT[:-4]}\n",
        f"log\n1\n{ROOT[:-1]}\n",
        f"log\n1\n{ROOT[:-2]}J=\n",
        f"log\n1\n{'AAAA' * 11}\n",
        f"log\n1\n{ROOT.replace('+', '-').replace('/', '_')}\n",
        f"log\r\n1\r\n{ROOT}\r\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(NoteBroken):
        parse_checkpoint(text)


def test_what_can_be_no_checkpoint_is_not_made() -> None:
    for origin, size, root in (
        ("", 1, bytes(32)),
        ("a\nb", 1, bytes(32)),
        ("a", -1, bytes(32)),
        ("a", 1, bytes(31)),
        ("a", 1 << 63, bytes(32)),
    ):
        with pytest.raises(NoteBroken):
            Checkpoint(origin, size, root)


def test_a_checkpoint_counts_for_its_own_log_and_signer() -> None:
    checkpoint = Checkpoint(LOG, 13, TREE.root)
    note = sign_note(checkpoint.text, KEY, STRANGER)
    assert open_checkpoint(note, LOG, KEY.verifier) == checkpoint
    with pytest.raises(NoteBroken, match=r"is of the log example\.org/log, not of example\.org/other"):
        open_checkpoint(note, "example.org/other", KEY.verifier)
    with pytest.raises(NoteBroken, match="not signed by"):
        open_checkpoint(sign_note(checkpoint.text, STRANGER), LOG, KEY.verifier)
    with pytest.raises(NoteBroken, match="not a checkpoint"):
        open_checkpoint(sign_note("Something else.\n", KEY), LOG, KEY.verifier)


def make_proof(index: int, size: int = 13, extra: bytes | None = None) -> bytes:
    note = sign_note(Checkpoint(LOG, size, TREE.root_at(size)).text, KEY)
    return format_proof(InclusionProof(index, tuple(TREE.inclusion_proof(index, size)), note, extra))


def test_a_proof_has_the_standards_lines() -> None:
    lines = make_proof(2, 3, b"extra\xff").decode().split("\n")
    assert lines[:6] == [
        "c2sp.org/tlog-proof@v1",
        "extra ZXh0cmH/",
        "index 2",
        base64.b64encode(TREE.root_at(2)).decode(),
        "",
        LOG,
    ]
    assert make_proof(0, 1).decode().split("\n")[:4] == ["c2sp.org/tlog-proof@v1", "index 0", "", LOG]


def test_every_leaf_is_proved_to_somebody_else() -> None:
    for size in range(1, 14):
        for index in range(size):
            body = make_proof(index, size, HASHES[index])
            assert check_proof(body, HASHES[index], LOG, KEY.verifier).size == size
            assert parse_proof(body).extra == HASHES[index]
            assert format_proof(parse_proof(body)) == body


def test_no_altered_byte_of_a_proof_passes() -> None:
    body = make_proof(5)
    for place in range(len(body)):
        other = bytearray(body)
        other[place] ^= 1
        with pytest.raises((ProofBroken, NoteBroken)):
            check_proof(bytes(other), HASHES[5], LOG, KEY.verifier)
    for end in range(len(body)):
        with pytest.raises((ProofBroken, NoteBroken)):
            check_proof(body[:end], HASHES[5], LOG, KEY.verifier)
    with pytest.raises(ProofBroken, match="Leaf 5 is not in the log"):
        check_proof(body, HASHES[6], LOG, KEY.verifier)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"@v1\n", b"@v2\n"),
        (b"@v1\n", b"@v1\r\n"),
        (b"@v1\n", b"@v1\n\n"),
        (b"@v1\n", b"@v1\nextra\n"),
        (b"@v1\n", b"@v1\nextra A\n"),
        (b"@v1\n", b"@v1\nextra AAAA\nextra AAAA\n"),
        (b"index 5\n", b""),
        (b"index 5\n", b"index 5\nindex 5\n"),
        (b"index 5\n", b"index 05\n"),
        (b"index 5\n", b"index -5\n"),
        (b"index 5\n", b"index  5\n"),
        (b"index 5\n", b"Index 5\n"),
        (b"index 5\n", b"index 5\nAAAA\n"),
        (b"index 5\n", b"index 5\n" + b"A" * 43 + b"=\n"),
        (b"index 5\n", b"index 5\n" + (b"A" * 43 + b"=\n") * 64),
        (b"index 5\n", "index 5\nü\n".encode()),
        (b"index 5\n", b"index 99999999999999999999\n"),
        (b"\n\n" + LOG.encode(), b"\n" + LOG.encode()),
        (b"index 5\n", b"index 5\n" + b"A" * 300_000),
    ],
)
def test_a_proof_is_read_strictly(old: bytes, new: bytes) -> None:
    body = make_proof(5)
    assert body.count(old) == 1
    with pytest.raises((ProofBroken, NoteBroken)):
        check_proof(body.replace(old, new), HASHES[5], LOG, KEY.verifier)
