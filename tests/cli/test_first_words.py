"""The recovery words at first start: shown once to a person at a terminal, and nowhere else."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.config import ROOT
from app.silo import MasterKey
from app.silo.words import WORDS
from tests.support.workers import everything_in

Start = Callable[..., tuple[int, str, str]]

NUMBERED = re.compile(r"\b\d{1,2}\. ([a-z]+)")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("WHETSTONE_", "DATABASE", "REDIS"))
    }
    return kept | {"WHETSTONE_DATA_DIR": str(tmp_path / "data"), "TERM": "dumb"}


@pytest.fixture
def at_a_terminal(environment: dict[str, str]) -> Start:
    """Run a command whose stdout is a terminal until it has said `until`, or ends: status, stdout, stderr."""

    def go(*arguments: str, until: str = "") -> tuple[int, str, str]:
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "app", *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            os.close(theirs)
            said = _read(ours, until)
            if until:
                process.send_signal(signal.SIGINT)
            said += _read(ours, "")
            _, complained = process.communicate(timeout=60)
            os.close(ours)
        return process.returncode, said.replace("\r\n", "\n"), complained

    return go


def _read(terminal: int, until: str) -> str:
    said = b""
    while not until or until.encode() not in said:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # what Linux says when the other side has closed
            break
        if not more:
            break
        said += more
    return said.decode()


def key_of(folder: Path) -> MasterKey:
    return MasterKey.load(folder / "keys" / "master.key")


def test_db_upgrade_shows_them_once_at_a_terminal(at_a_terminal: Start, tmp_path: Path) -> None:
    status, out, err = at_a_terminal("db", "upgrade")

    assert (status, "Created the master key" in err) == (0, True), err
    words = NUMBERED.findall(out)
    assert MasterKey.from_words(" ".join(words)).fingerprint == key_of(tmp_path / "data").fingerprint
    assert "whoever has them can read every memory" in out
    assert not NUMBERED.findall(at_a_terminal("db", "upgrade")[1])


@pytest.mark.parametrize("as_json", [False, True])
def test_without_a_terminal_it_says_how_to_get_them(environment: dict[str, str], tmp_path: Path, as_json: bool) -> None:
    command = [sys.executable, "-m", "app", "db", "upgrade", *(["--json"] if as_json else [])]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert "whetstone keys backup --words" in done.stderr
    assert not set(key_of(tmp_path / "data").words[:6]) <= set(done.stdout.split() + done.stderr.split())
    assert not as_json or json.loads(done.stdout)["version_before"] is None


def test_programs_do_not_get_them_at_a_terminal_either(at_a_terminal: Start) -> None:
    status, out, err = at_a_terminal("db", "upgrade", "--json")
    assert status == 0
    assert list(json.loads(out)) == ["version", "version_before"]
    assert "keys backup --words" in err


@pytest.mark.slow
def test_up_shows_them_at_its_first_start_and_no_file_holds_them(at_a_terminal: Start, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])

    _, out, err = at_a_terminal("up", "--no-browser", "--port", port, until="Whetstone is ready")

    words = NUMBERED.findall(out)
    assert len(words) == WORDS, err
    assert MasterKey.from_words(" ".join(words)).fingerprint == key_of(tmp_path / "data").fingerprint
    assert not NUMBERED.findall(err)
    for path, body in everything_in(tmp_path / "data"):
        for three in zip(words, words[1:], words[2:], strict=False):
            assert not re.search(r"\W+(\d+\W+)?".join(three).encode(), body), path
