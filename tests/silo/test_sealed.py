"""Sealed text: it opens only where it belongs, and shows only how much it holds."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import pickle
from collections.abc import Iterator

import pytest
import structlog
from flask import Flask, jsonify, render_template_string
from jinja2 import Environment

from app.silo import AgentKeys, SealBroken, Sealed, SealedMemory, make_agent_keys
from app.silo.keys import _memory_identity
from app.silo.sealed import seal, unseal, version_of_key

SECRET = "Ann promised to tell the truth. " * 5


@pytest.fixture
def keys() -> AgentKeys:
    return make_agent_keys("agent-1")


def test_it_opens_with_the_same_keys_for_the_same_row_only(keys: AgentKeys) -> None:
    sealed = keys.seal_memory(7, SECRET)
    assert keys.reveal_memory(7, sealed) == SECRET
    assert (sealed.tokens, version_of_key(sealed.content_key or b"")) == (40, 1)
    text, words = sealed.text or Sealed(b""), keys.seal(SECRET, purpose="summary", subject=7)
    for open_it in (
        lambda: keys.reveal(words, purpose="consent", subject=7),
        lambda: keys.reveal_memory(8, sealed),
        lambda: keys.reveal(text, purpose="consent", subject=7),
        lambda: keys.reveal(text, purpose="memory", subject=7),
        lambda: make_agent_keys("agent-1").reveal_memory(7, sealed),
        lambda: AgentKeys("agent-2", keys._data, keys._dedup).reveal_memory(7, sealed),
    ):
        with pytest.raises(SealBroken) as broken:
            open_it()
        assert "Ann" not in str(broken.value)


def test_the_row_is_named_by_type_too_not_only_by_how_it_is_written(keys: AgentKeys) -> None:
    sealed = keys.seal(SECRET, purpose="memory", subject="7|1")
    with pytest.raises(SealBroken):
        keys.reveal(sealed, purpose="memory", subject=7)


def test_no_bit_of_it_can_be_changed(keys: AgentKeys) -> None:
    """Whoever alters the text gives it the digest that fits: only the seal is left to find it."""
    sealed = keys.seal_memory(7, SECRET)
    blob, content_hash, content_key = sealed.check_whole()

    def refuses(text: bytes, content_hash: bytes, content_key: bytes) -> None:
        with pytest.raises(SealBroken):
            keys.reveal_memory(7, SealedMemory(Sealed(text), content_hash, content_key, hashlib.sha256(text).digest()))

    for bent in _bent(blob.at_rest):
        refuses(bent, content_hash, content_key)
    for bent in _bent(content_hash):
        refuses(blob.at_rest, bent, content_key)
    for bent in _bent(content_key):
        refuses(blob.at_rest, content_hash, bent)


def _bent(blob: bytes) -> Iterator[bytes]:
    """With one bit turned, cut off, or longer."""
    for place in range(len(blob)):
        yield blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]
    for length in (0, 1, 8, 21, 36, len(blob) - 1):
        if length < len(blob):
            yield blob[:length]
    yield blob + b"\x00"


def test_a_text_that_is_not_the_one_named_or_lacks_a_part_does_not_open(keys: AgentKeys) -> None:
    first = keys.seal_memory(7, SECRET)
    second = keys.seal_memory(7, "Ann lied.", first.content_key)
    parts = (first.text, first.content_hash, first.content_key)
    assert keys.reveal_memory(7, SealedMemory(*parts, first.digest)) == SECRET
    with pytest.raises(SealBroken):
        keys.reveal_memory(7, SealedMemory(*parts, second.digest))
    for missing in range(3):
        with pytest.raises(SealBroken, match="is not there"):
            keys.reveal_memory(
                7, SealedMemory(*[None if n == missing else p for n, p in enumerate(parts)], first.digest)
            )


def test_a_text_of_another_form_or_with_a_key_version_does_not_open_under_a_memory_s_own_key(keys: AgentKeys) -> None:
    own = keys.seal_memory(7, SECRET)
    opened, name = (
        keys._open_content_key(7, own.content_key or b""),
        _memory_identity("agent-1", 7, own.content_hash or b""),
    )
    versioned = seal(SECRET, key=opened, version=3, identity=name)
    assert unseal(versioned, key=opened, identity=name) == SECRET
    with pytest.raises(SealBroken, match="are not the sealed text of a memory"):
        keys.reveal_memory(
            7, SealedMemory(versioned, own.content_hash, own.content_key, hashlib.sha256(versioned.at_rest).digest())
        )


def test_all_texts_of_a_memory_have_one_key_of_its_own_and_no_other_memory_has_it(keys: AgentKeys) -> None:
    first, other = keys.seal_memory(7, SECRET), keys.seal_memory(8, SECRET)
    second = keys.seal_memory(7, "Ann lied.", first.content_key)
    assert second.content_key == first.content_key != other.content_key
    assert keys.reveal_memory(7, second) == "Ann lied."
    with pytest.raises(SealBroken):
        keys.seal_memory(8, SECRET, first.content_key)
    assert keys.reveal_memory(8, other) == SECRET
    with pytest.raises(SealBroken):
        keys.reveal_memory(8, SealedMemory(other.text, other.content_hash, first.content_key, other.digest))


def test_a_rewrapped_key_opens_with_the_new_version_alone_and_the_texts_stay_as_they_are(keys: AgentKeys) -> None:
    sealed = keys.seal_memory(7, SECRET)
    newer = keys.with_new_version()
    rewrapped = newer.rewrap_content_key(7, sealed.content_key or b"")
    only_new = AgentKeys(keys.agent_uuid, {2: newer._data[2]}, newer._dedup)
    assert version_of_key(rewrapped) == 2
    assert only_new.reveal_memory(7, SealedMemory(sealed.text, sealed.content_hash, rewrapped, sealed.digest)) == SECRET
    with pytest.raises(SealBroken, match="version 2 is not there"):
        keys.reveal_memory(7, SealedMemory(sealed.text, sealed.content_hash, rewrapped, sealed.digest))
    with pytest.raises(SealBroken, match="version 1 is not there"):
        only_new.reveal_memory(7, sealed)
    with pytest.raises(SealBroken):
        newer.rewrap_content_key(8, sealed.content_key or b"")


def test_damaged_bytes_can_be_loaded_and_shown_but_not_opened(keys: AgentKeys) -> None:
    for damaged in (b"", b"\x01", b"\x00" * 80, b"\x02" + b"\x00" * 80):
        sealed = Sealed(damaged)
        assert (str(sealed), sealed.at_rest, sealed.is_readable) == ("sealed (0 tokens)", damaged, False)
        with pytest.raises(SealBroken, match="not sealed text"):
            keys.reveal(sealed, purpose="consent", subject=7)


def test_versions_open_with_their_own_key_and_the_newest_seals() -> None:
    first = make_agent_keys("agent-1")
    both = AgentKeys("agent-1", {1: first._data[1], 2: b"2" * 32}, first._dedup)
    said = {"purpose": "consent", "subject": 7}
    old, new = first.seal(SECRET, **said), both.seal(SECRET, **said)
    assert (old.key_version, new.key_version) == (1, 2)
    assert both.reveal(old, **said) == both.reveal(new, **said) == SECRET
    with pytest.raises(SealBroken, match="version 2 is not there"):
        first.reveal(new, **said)
    relabelled = Sealed(new.at_rest[:1] + old.at_rest[1:5] + new.at_rest[5:])
    with pytest.raises(SealBroken):
        both.reveal(relabelled, **said)


def test_the_same_text_is_sealed_differently_each_time(keys: AgentKeys) -> None:
    assert len({keys.seal_memory(7, SECRET).digest for _ in range(50)}) == 50


def test_every_text_comes_back_as_it_was(keys: AgentKeys) -> None:
    for text in ("", "a", "😀" * 10_000, "e\u0301", "\x00", "a\r\n\u2028\u202e"):
        assert keys.reveal_memory(1, keys.seal_memory(1, text)) == text


@pytest.mark.parametrize("whole", [True, False], ids=["with its key", "alone"])
def test_printed_logged_rendered_or_serialised_it_shows_only_its_weight(
    keys: AgentKeys, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], whole: bool
) -> None:
    memory = keys.seal_memory(7, SECRET)
    sealed = memory if whole else memory.text
    shown = "sealed (40 tokens)"
    app = Flask("test")
    with app.test_request_context():
        body = jsonify(sealed=sealed).get_data(as_text=True)
        page = render_template_string("{{ sealed }}{{ sealed|e }}{{ sealed|tojson }}", sealed=sealed)
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").warning("here: %s %r", sealed, sealed)
    structlog.get_logger().info("here", sealed=sealed)
    print(sealed)  # noqa: T201
    for text in (
        *(str(sealed), repr(sealed), f"{sealed}", f"{sealed!r}", f"{sealed:>30}", "%s" % sealed, "{}".format(sealed)),  # noqa: UP031, UP032
        *(json.dumps(sealed, default=str), json.dumps([sealed], default=repr), body, page, caplog.text, repr([sealed])),
        *(
            Environment().from_string("{{ s }}").render(s=sealed),
            Environment(autoescape=True).from_string("{{ s }}").render(s=sealed),
        ),
        *(capsys.readouterr().out, repr({"a": (sealed,)}), str(ValueError(sealed))),
    ):
        assert shown in text
        assert "Ann" not in text
    assert pickle.loads(pickle.dumps(sealed)) == copy.deepcopy(sealed) == shown
    with pytest.raises(TypeError):
        json.dumps(sealed)
    with pytest.raises(TypeError):
        bytes(sealed)  # type: ignore[call-overload]
    assert not hasattr(sealed, "__dict__")


def test_keys_show_no_key_either(keys: AgentKeys) -> None:
    for text in (repr(keys), str(keys), f"{keys}", pickle.loads(pickle.dumps(keys))):
        assert keys._data[1].hex() not in text
        assert str(keys._data[1]) not in text
        assert "agent-1" in text


def test_sealed_texts_are_equal_when_their_bytes_are(keys: AgentKeys) -> None:
    sealed = keys.seal(SECRET, purpose="consent", subject=7)
    assert sealed == Sealed(sealed.at_rest)
    assert len({sealed, Sealed(sealed.at_rest)}) == 1
    assert sealed != keys.seal(SECRET, purpose="consent", subject=7)
    assert sealed != SECRET


def test_the_dedup_hash_ignores_composition_line_ends_and_spaces_around_and_nothing_else(keys: AgentKeys) -> None:
    same = ["Café au\nlait", " Café au\r\nlait \n", "Cafe\u0301 au\nlait", "Cafe\u0301 au\rlait\u3000"]
    assert len({keys.content_hash(text) for text in same}) == 1
    others = ["Cafe au\nlait", "Café  au\nlait", "Café au\nlait.", "Caféau\nlait", "Café au\nlai", "Ｃafé au\nlait"]
    others += [
        "café au\nlait",
        "CAFÉ AU\nLAIT",
        "Café au\n\nlait",
        "Café au lait",
        "Café au\tlait",
        "Café au\u2028lait",
    ]
    assert len({keys.content_hash(text) for text in [*same, *others]}) == 1 + len(others)
    assert len(keys.content_hash("x")) == 32
    assert make_agent_keys("agent-1").content_hash("x") != keys.content_hash("x")


def test_the_hash_of_a_request_is_never_the_hash_of_a_memory(keys: AgentKeys) -> None:
    """Else the table of requests would tell which memory one of them held."""
    for text in ("tea", "Café au lait", ""):
        assert keys.request_hash(text.encode()) not in (keys.content_hash(text), keys.content_hash(text.lower()))
    assert keys.request_hash(b"tea") == keys.request_hash(b"tea") != keys.request_hash(b"tea ")
    assert make_agent_keys("agent-1").request_hash(b"tea") != keys.request_hash(b"tea")


def test_a_new_version_leaves_all_earlier_ones_to_read_with(keys: AgentKeys) -> None:
    sealed = keys.seal_memory(7, SECRET)
    newer = keys.with_new_version().with_new_version()
    assert newer.versions == [*keys.versions, keys.current_version + 1, keys.current_version + 2]
    assert newer.reveal_memory(7, sealed) == SECRET
    assert newer.content_hash(SECRET) == keys.content_hash(SECRET)
