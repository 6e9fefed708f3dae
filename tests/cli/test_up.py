"""`whetstone up`: what it refuses before it starts anything."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.config import ROOT, load_settings
from app.processes.datadir import DataDirectoryInUse, check_data_dir, hold_data_dir

Refused = Callable[..., tuple[int, str, str]]


@pytest.fixture
def up() -> Refused:
    """Run `up` until it ends by itself: exit status, stdout, stderr."""

    def go(*arguments: str, **environment: str) -> tuple[int, str, str]:
        ended = subprocess.run(
            [sys.executable, "-m", "app", "up", "--no-browser", *arguments],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return ended.returncode, ended.stdout, ended.stderr

    return go


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_a_port_in_use_is_named_with_the_option_that_changes_it(up: Refused, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, out, err = up("--port", str(port), "--data-dir", str(tmp_path / "data"))
    assert (status, out) == (1, "")
    assert f"Port {port} of 127.0.0.1 can't be listened on (Address already in use). Nothing was started." in err
    assert "--port N" in err
    assert not (tmp_path / "data" / "whetstone.db").exists()


def test_a_data_dir_that_cannot_be_made_is_named(up: Refused, tmp_path: Path, free_port: int) -> None:
    (tmp_path / "file").write_text("")
    status, out, err = up("--port", str(free_port), "--data-dir", str(tmp_path / "file" / "data"))
    assert (status, out) == (1, "")
    assert f"The data directory {tmp_path / 'file' / 'data'} can't be written (Not a directory" in err
    assert "--data-dir" in err


def test_a_second_up_on_the_same_data_dir_is_refused(up: Refused, tmp_path: Path, free_port: int) -> None:
    settings = load_settings(data_dir=tmp_path, port=free_port)
    check_data_dir(settings)
    with hold_data_dir(settings, "http://127.0.0.1:4711"):
        status, out, err = up("--port", str(free_port), "--data-dir", str(tmp_path), "--json")
    assert (status, out) == (1, "")
    error = json.loads(err)["error"]
    assert error["code"] == "already_running"
    assert f"already runs on {tmp_path} (process {os.getpid()}, http://127.0.0.1:4711)" in error["message"]


def test_the_data_dir_is_free_again_after(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path)
    check_data_dir(settings)
    for _ in range(2):
        with hold_data_dir(settings, "here"), pytest.raises(DataDirectoryInUse), hold_data_dir(settings, "there"):
            raise AssertionError("both held it")


def test_a_wrong_setting_is_named_and_starts_nothing(up: Refused, tmp_path: Path) -> None:
    status, out, err = up("--data-dir", str(tmp_path / "data"), WHETSTONE_MIN_THRESHOLD="NaN")
    assert (status, out) == (1, "")
    assert "WHETSTONE_MIN_THRESHOLD" in err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("count", ["0", "65", "two"])
def test_a_wrong_number_of_workers_starts_nothing(up: Refused, tmp_path: Path, count: str) -> None:
    status, out, err = up("--data-dir", str(tmp_path / "data"), WHETSTONE_WORKERS=count)
    assert (status, out) == (1, "")
    assert "WHETSTONE_WORKERS" in err
    assert up("--workers", count)[0] == 2
    assert not (tmp_path / "data").exists()


def test_an_operators_broker_that_does_not_answer_is_named(up: Refused, tmp_path: Path, free_port: int) -> None:
    url = f"redis://:hunter2@127.0.0.1:{free_port}/0"
    status, out, err = up("--port", str(free_port), "--data-dir", str(tmp_path / "data"), REDIS_URL=url)
    assert (status, out) == (1, "")
    assert f"REDIS_URL is set, but the server at 127.0.0.1:{free_port} does not answer" in err
    assert "hunter2" not in err


def test_a_worker_refuses_a_queue_that_nobody_sends_to() -> None:
    command = [sys.executable, "-m", "app", "worker", "--queues", "refine,refin"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "there is no queue 'refin'; there are refine, upkeep, interactive" in ended.stderr


@pytest.mark.parametrize("part", ["web", "worker", "beat"])
def test_a_part_alone_refuses_without_a_broker(part: str, tmp_path: Path) -> None:
    environment = {**os.environ, "WHETSTONE_DATA_DIR": str(tmp_path), "REDIS_URL": ""}
    command = [sys.executable, "-m", "app", part]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "No broker is running. Start `./whetstone up`, or set REDIS_URL" in ended.stderr
