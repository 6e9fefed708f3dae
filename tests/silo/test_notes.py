"""Signed notes: the standard's own examples open, what others sign too; and nothing that was altered does."""

from __future__ import annotations

import base64
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from app.silo import (
    MasterKey,
    NoteBroken,
    NoteVerifier,
    SigningKey,
    TokenKey,
    add_signature,
    claimed_signers,
    new_token,
    open_note,
    parse_token,
    sign_note,
)

C2SP_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
C2SP_NOTE = (
    "This is an example message.\n\n— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYj"
    "OBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
)
"""The example of https://c2sp.org/signed-note."""

GO_SEED = bytes.fromhex("810a1402d5146c8d84f2443330f54080ebf98ee17d9c74f6252fc5d5c7283173")
GO_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
GO_LINE = (
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
"""The example of Go's golang.org/x/mod/sumdb/note."""

INSTALLATION = "3b1f0a52-6c1e-4c5e-9b0a-2f6d8f1f7a11"

ONE, TWO, STRANGER = (SigningKey(name, name[:1].encode() * 32) for name in ("one", "two", "stranger"))
TEXT = "A line.\n\nAnother line, ünd more.\n"


def test_the_standards_examples_open() -> None:
    verifier = NoteVerifier.parse(C2SP_KEY)
    opened = open_note(C2SP_NOTE.encode(), verifier)
    assert (opened.text, opened.signed_by) == ("This is an example message.\n", (verifier,))
    assert verifier.vkey == C2SP_KEY
    assert open_note(f"{GO_TEXT}\n{GO_LINE}".encode(), NoteVerifier.parse(GO_KEY)).text == GO_TEXT


def test_what_is_signed_here_is_what_others_sign() -> None:
    key = SigningKey("PeterNeumann", GO_SEED)
    assert key.verifier.vkey == GO_KEY
    assert sign_note(GO_TEXT, key).decode() == f"{GO_TEXT}\n{GO_LINE}"


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n")))
def test_every_text_comes_back_with_those_who_signed_it(text: str) -> None:
    note = sign_note(f"{text}\n", ONE, TWO)
    assert open_note(note, TWO.verifier, STRANGER.verifier, ONE.verifier).signed_by == (ONE.verifier, TWO.verifier)
    assert open_note(note, TWO.verifier).signed_by == (TWO.verifier,)
    assert open_note(note, ONE.verifier).text == f"{text}\n"
    assert claimed_signers(note) == ("one", "two")


def test_a_signature_can_be_added_once() -> None:
    note = sign_note(TEXT, ONE)
    assert add_signature(note, TWO) == sign_note(TEXT, ONE, TWO)
    with pytest.raises(NoteBroken, match="signed this note already"):
        add_signature(note, ONE)
    full = sign_note(TEXT, *(SigningKey(f"key{number}", bytes([number]) * 32) for number in range(16)))
    assert len(claimed_signers(full)) == 16
    with pytest.raises(NoteBroken, match="17 lines"):
        add_signature(full, ONE)


def test_no_altered_byte_passes() -> None:
    note = sign_note(TEXT, ONE)
    for place in range(len(note)):
        for bit in (1, 32, 128):
            other = bytearray(note)
            other[place] ^= bit
            with pytest.raises(NoteBroken):
                open_note(bytes(other), ONE.verifier)
    for end in range(len(note)):
        with pytest.raises(NoteBroken):
            open_note(note[:end], ONE.verifier)


LINE = sign_note(TEXT, ONE).decode().removeprefix(f"{TEXT}\n")
OTHER_LINE = sign_note(TEXT, TWO).decode().removeprefix(f"{TEXT}\n")
FOREIGN_LINE = sign_note("Something else.\n", ONE).decode().rpartition("\n\n")[2]
BARE = base64.b64encode(ONE.verifier.key_id).decode()


@pytest.mark.parametrize(
    ("note", "words"),
    [
        (f"{TEXT}\n{LINE}".encode("utf-16-le"), "control characters"),
        (f"{TEXT}\n{LINE}".encode("latin-1", "replace"), "not UTF-8"),
        (f"{TEXT}\n{LINE}".replace("line", "line\r").encode(), "control characters"),
        (f"{TEXT}\n{LINE}".replace("line", "line\x00").encode(), "control characters"),
        (f"{TEXT}\n{LINE}".replace("line", "line\t").encode(), "control characters"),
        (f"{TEXT}\n{LINE}"[:-1].encode(), "does not end with a newline"),
        (f"{TEXT}\n{LINE}\n".encode(), "no signatures"),
        (TEXT.encode(), "is none"),
        (b"One line.\n", "no signatures"),
        (b"", "does not end with a newline"),
        (f"{TEXT}\n{LINE}no line\n".encode(), "is none"),
        (f"{TEXT}\n{LINE}".replace("— ", "- ").encode(), "is none"),
        (f"{TEXT}\n{LINE}".replace("— one ", "— one  ").encode(), "is none"),
        (f"{TEXT}\n{LINE}".replace("— one ", "— on+e ").encode(), "name of a key"),
        (f"{TEXT}\n{LINE}".replace("— one ", "— on\u00a0e ").encode(), "name of a key"),
        (f"{TEXT}\n{LINE}— two {BARE}\n".encode(), "too short"),
        (f"{TEXT}\n{LINE}— two AAAA+\n".encode(), "not Base64"),
        (f"{TEXT}\n{LINE}— two AAAAAAB=\n".encode(), "could be written otherwise"),
        (f"{TEXT}\n{OTHER_LINE}".encode(), "not signed by one"),
        (f"{TEXT}\n{FOREIGN_LINE}".encode(), "not of this note"),
        (f"{TEXT}\n{OTHER_LINE}{FOREIGN_LINE}".encode(), "not of this note"),
        (f"{TEXT}\n{LINE}{FOREIGN_LINE}".encode(), "signed a note twice"),
        (f"{TEXT}\n{LINE}{LINE}".encode(), "same signature twice"),
        (f"{TEXT}\n{OTHER_LINE}{LINE}{OTHER_LINE}".encode(), "same signature twice"),
        (f"{TEXT}\n{LINE}{''.join(f'— k{n} AAAAAAA=' + chr(10) for n in range(16))}".encode(), "17 lines"),
        (b"x" * 65_536 + f"\n\n{LINE}".encode(), "are the most"),
    ],
)
def test_what_is_no_note_of_that_key_is_refused(note: bytes, words: str) -> None:
    with pytest.raises(NoteBroken, match=words):
        open_note(note, ONE.verifier)


def test_lines_of_unknown_keys_are_ignored_whatever_they_hold() -> None:
    strangers = "— one AAAAAAAA\n— two AAAAAAAA\n— c2sp.org/other " + base64.b64encode(bytes(3_000)).decode() + "\n"
    note = f"{TEXT}\n{strangers}{LINE}".encode()
    assert open_note(note, ONE.verifier, TWO.verifier).signed_by == (ONE.verifier,)
    for nobody in ((), (STRANGER.verifier,), (SigningKey("one", bytes(32)).verifier,)):
        with pytest.raises(NoteBroken, match="not signed by"):
            open_note(note, *nobody)


def test_a_signature_counts_under_its_own_name_only() -> None:
    """The id binds the name: the same key under another name is another key."""
    note = sign_note(TEXT, SigningKey("another", b"o" * 32))
    assert note.decode().replace("another", "one") != sign_note(TEXT, ONE).decode()
    with pytest.raises(NoteBroken, match="not signed by one"):
        open_note(note.replace(b"another", b"one"), ONE.verifier)


def test_a_text_that_can_be_no_note_is_not_signed() -> None:
    for text in ("", "no end", "tab\t\n", "a\r\n", "\ud800\n", "x" * 65_536 + "\n"):
        with pytest.raises(NoteBroken):
            sign_note(text, ONE)
    with pytest.raises(NoteBroken, match="must be signed by a key"):
        sign_note(TEXT)
    with pytest.raises(NoteBroken, match="same signature twice"):
        sign_note(TEXT, ONE, ONE)


def test_a_public_key_is_read_strictly() -> None:
    for vkey in (
        "",
        "example.com/foo",
        C2SP_KEY + "\n",
        C2SP_KEY.replace("530d903a", "530d903b"),
        C2SP_KEY.replace("530d903a", "530D903A"),
        C2SP_KEY.replace("+Aeky", "+Beky"),
        C2SP_KEY.replace("foo", "fo o"),
        C2SP_KEY[:-4],
        "a+b+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
    ):
        with pytest.raises(NoteBroken):
            NoteVerifier.parse(vkey)
    for name, public in (("", bytes(32)), ("a b", bytes(32)), ("a+b", bytes(32)), ("a", bytes(31)), ("a\n", bytes(32))):
        with pytest.raises(NoteBroken):
            NoteVerifier(name, public)
    assert not NoteVerifier("any", b"\xff" * 32).verifies(TEXT, bytes(64))
    assert not ONE.verifier.verifies(TEXT, b"")


def test_private_halves_are_never_shown() -> None:
    token = _token(new_token())
    secrets = [(ONE, b"o" * 32), (token.signing_key(INSTALLATION), token._seed), (token, token._seed)]
    for key, secret in secrets:
        for shown in (repr(key), str(key), f"{key}", pickle.dumps(key).decode("latin-1")):
            assert secret.hex() not in shown
            assert secret.decode("latin-1") not in shown
            assert base64.b64encode(secret).decode() not in shown
        assert isinstance(pickle.loads(pickle.dumps(key)), str)


def _token(text: str) -> TokenKey:
    parsed = parse_token(text)
    assert parsed is not None
    return parsed[1]


def test_the_installations_key_comes_with_the_master_key_and_is_no_key_of_its() -> None:
    master = MasterKey.generate()
    again = MasterKey.from_words(" ".join(master.words))
    key = master.installation_key(INSTALLATION)
    assert key.verifier == again.installation_key(INSTALLATION).verifier
    assert key.name == f"whetstone/{INSTALLATION}"
    assert key.verifier.public != master.public.raw
    assert key.verifier != MasterKey.generate().installation_key(INSTALLATION).verifier
    fixed = MasterKey.from_words("abandon " * 23 + "art").installation_key(INSTALLATION)
    assert fixed.verifier.public.hex() == "d41c3ff3526c75730ffe6e955b6d7fb5b6b7c4c23949d58c073b1fbad1c021e4", (
        "a signature from before an update must still be verified"
    )


def test_a_tokens_signing_key_comes_of_its_secret_and_is_its_own() -> None:
    text = new_token()
    token, again, other = _token(text), _token(text), _token(new_token())
    key = token.signing_key(INSTALLATION)
    assert key.name == f"whetstone/{INSTALLATION}/token/{text[5:21]}"
    assert key.verifier.public == token.signing_public == again.signing_public
    assert len({token.signing_public, other.signing_public, token.public.raw}) == 3
    with pytest.raises(NoteBroken):
        open_note(sign_note(TEXT, other.signing_key(INSTALLATION)), key.verifier)
    fixed = TokenKey("0" * 16, "s" * 43)
    assert fixed.public_id == "0" * 16
    assert fixed.signing_public.hex() == "68f664140400a066545373c4e3e08f30cb1ce8f141eae51f60b053a6a848625d"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_openssl_verifies_what_was_signed(tmp_path: Path) -> None:
    pem = Ed25519PublicKey.from_public_bytes(ONE.verifier.public).public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )
    (tmp_path / "key").write_bytes(pem)
    (tmp_path / "signature").write_bytes(ONE.sign(TEXT))
    for text, status in ((TEXT, 0), (TEXT + "\n", 1)):
        (tmp_path / "text").write_text(text)
        command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "key", "-rawin", "-in", "text"]
        asked = subprocess.run([*command, "-sigfile", "signature"], cwd=tmp_path, capture_output=True, check=False)
        assert asked.returncode == status, asked.stderr
