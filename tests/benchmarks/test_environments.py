"""Peers are measured in environments of their own, from locks that pin every version and name no address."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.peers import environments
from benchmarks.peers.environments import LOCKS, PEERS, Peer, PeerUnavailable, environment_python


def test_every_peer_has_a_lock_and_no_lock_is_left_over() -> None:
    assert {path.stem for path in LOCKS.glob("*.txt")} == set(PEERS)


@pytest.mark.parametrize("name", PEERS)
def test_a_lock_pins_what_is_wanted_and_all_that_it_needs_with_hashes(name: str) -> None:
    text = (LOCKS / f"{name}.txt").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(re.match(r"[a-z0-9._-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line) for line in lines)
    pinned = {line.split()[0] for line in lines}
    assert {re.sub(r"\[.*\]", "", wanted) for wanted in PEERS[name]} <= pinned


@pytest.mark.parametrize("name", PEERS)
def test_a_lock_names_no_address(name: str) -> None:
    assert re.search(r"://|index-url|find-links", (LOCKS / f"{name}.txt").read_text()) is None


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "whetstone" / "peers"


def test_an_environment_is_made_once_and_a_half_made_one_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(environments, "_uv", lambda *words: _pretend(asked, words))
    python = environment_python("flask-admin")
    assert environment_python("flask-admin") == python
    assert [words[:2] for words in asked] == [("venv", "--python"), ("pip", "sync")]
    assert "--require-hashes" in asked[1]
    (python.parent.parent / environments.STAMP).unlink()
    environment_python("flask-admin")
    assert len(asked) == 4


def _pretend(asked: list[tuple[str, ...]], words: tuple[str, ...]) -> None:
    asked.append(words)
    if words[0] == "venv":
        (Path(words[-1]) / "bin").mkdir(parents=True)


def test_a_peer_that_can_not_be_installed_says_why(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = cache.parent.parent / "uv"
    broken.write_text("#!/bin/sh\necho 'error: no such package' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(environments, "_find_uv", lambda: str(broken))
    with pytest.raises(PeerUnavailable, match="no such package"):
        environment_python("mem0")


def test_a_peer_answers_lines_and_its_end_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "environment_python", lambda _: Path(environments.sys.executable))
    monkeypatch.setattr(environments, "HERE", tmp_path)
    (tmp_path / "echo.py").write_text("import sys\nprint(input(), flush=True)\nsys.exit('out of ideas')\n")
    with Peer("mem0", "echo.py") as peer:
        assert peer.ask(do="echo") == {"do": "echo"}
        with pytest.raises(PeerUnavailable, match="out of ideas"):
            peer.ask(do="again")
