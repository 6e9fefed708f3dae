"""The supervisor of `up`, over real processes that crash, hang, ignore signals and leave children behind."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from app.config import ROOT
from app.processes.child import MAX_LOG_BYTES, Child, Running
from app.processes.supervisor import FIRST_PAUSE_SECONDS, HEALTHY_SECONDS, _Part
from tests.support.processes import is_alive, read, wait_for

Start = Callable[..., subprocess.Popen[str]]

BEGIN = """
import os, signal, sys, time
word = sys.stdin.readline()
with open("NAME.pids", "a") as pids:
    pids.write(f"{os.getpid()}\\n")
"""
"""Every child writes its process id once it has the word."""

OBEDIENT = (
    BEGIN
    + """
def stop(*_):
    with open("stopped", "a") as order:
        order.write("NAME\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
open("NAME.ready", "w").close()
while True:
    signal.pause()
"""
)
STUBBORN = (
    BEGIN
    + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("NAME.ready", "w").close()
while True:
    signal.pause()
"""
)
IN_COMPANY = (
    BEGIN
    + """
def stop(*_):
    open("NAME.asked", "w").close()
    while not (os.path.exists("worker.asked") and os.path.exists("worker_2.asked")):
        time.sleep(0.01)
    with open("stopped", "a") as order:
        order.write("worker\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
open("NAME.ready", "w").close()
while True:
    signal.pause()
"""
)
"""Ends when the other worker was asked to end, too."""

CRASHING = (
    BEGIN
    + """
print("\\x1b[31mthe disk is on fire\\x07", flush=True)
sys.exit(7)
"""
)
CRASHING_LATER = (
    BEGIN
    + """
open("NAME.ready", "w").close()
while not os.path.exists("crash"):
    time.sleep(0.01)
sys.exit(7)
"""
)
PARENT = (
    BEGIN
    + """
import subprocess
code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
grandchild = subprocess.Popen([sys.executable, "-c", code])
with open("grandchild.pids", "w") as pids:
    pids.write(f"{grandchild.pid}\\n")
open("NAME.ready", "w").close()
signal.pause()
"""
)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a supervisor over the named codes; it is ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def go(
        graces: dict[str, float] | None = None, seconds: float = 20, pause: float = 0.02, **codes: str
    ) -> subprocess.Popen[str]:
        children: list[dict[str, Any]] = [
            {
                "name": name,
                "code": code.replace("NAME", name),
                "grace": (graces or {}).get(name, 10),
                "part": name.partition("_")[0],
            }
            for name, code in codes.items()
        ]
        plan = {
            "folder": str(tmp_path),
            "children": children,
            "ready": [f"{n}.ready" for n in codes],
            "seconds": seconds,
            "pause": pause,
        }
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.supervised", str(tmp_path / "plan.json")],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield go
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def pids(tmp_path: Path) -> Callable[[str], list[int]]:
    return lambda name: [int(line) for line in read(tmp_path / f"{name}.pids").split()]


Pids = Callable[[str], list[int]]


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_all_in_reverse_order(number: signal.Signals, start: Start, tmp_path: Path, pids: Pids) -> None:
    process = start(broker=OBEDIENT, web=OBEDIENT, worker=OBEDIENT)
    wait_until_ready(process)
    process.send_signal(number)
    assert process.wait(15) == 0
    assert read(tmp_path / "stopped").split() == ["worker", "web", "broker"]
    assert not any(is_alive(pid) for name in ("broker", "web", "worker") for pid in pids(name))


def test_several_workers_stop_at_the_same_time_and_before_what_they_need(
    start: Start, tmp_path: Path, pids: Pids
) -> None:
    process = start(web=OBEDIENT, worker=IN_COMPANY, web_2=OBEDIENT, worker_2=IN_COMPANY)
    wait_until_ready(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0
    stopped = read(tmp_path / "stopped").split()
    assert (stopped[:2], sorted(stopped[2:])) == (["worker", "worker"], ["web", "web_2"])
    assert not any(is_alive(pid) for name in ("web", "worker", "web_2", "worker_2") for pid in pids(name))


def test_a_signal_before_all_are_ready_stops_all(start: Start, pids: Pids) -> None:
    process = start(web=OBEDIENT, worker=BEGIN + "signal.pause()")
    wait_for(lambda: pids("web") and pids("worker"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0
    assert not is_alive(pids("web")[0])
    assert not is_alive(pids("worker")[0])


def test_who_ignores_sigterm_is_killed_after_its_grace(start: Start, pids: Pids) -> None:
    process = start(graces={"worker": 0.2}, web=OBEDIENT, worker=STUBBORN)
    wait_until_ready(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0
    assert not is_alive(pids("worker")[0])


def test_a_second_signal_does_not_wait_for_the_grace(start: Start, pids: Pids, tmp_path: Path) -> None:
    process = start(graces={"web": 100}, web=STUBBORN, worker=OBEDIENT)
    wait_until_ready(process)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: read(tmp_path / "stopped"))
    wait_for(lambda: not is_alive(pids("worker")[0]))
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(15) == 0
    assert time.monotonic() - began < 15
    assert not is_alive(pids("web")[0])


def test_who_ends_is_started_again_and_gets_the_word_again(start: Start, pids: Pids) -> None:
    process = start(web=OBEDIENT, worker=OBEDIENT)
    wait_until_ready(process)
    os.kill(pids("worker")[0], signal.SIGKILL)
    wait_for(lambda: len(pids("worker")) == 2)
    assert is_alive(pids("worker")[1])
    assert len(pids("web")) == 1
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=15)
    assert "The worker process ended (killed by SIGKILL) and was started again" in said


def test_who_ends_again_and_again_ends_nobody_else(start: Start, pids: Pids, tmp_path: Path) -> None:
    process = start(web=OBEDIENT, worker=CRASHING_LATER)
    wait_until_ready(process)
    (tmp_path / "crash").touch()
    wait_for(lambda: len(pids("worker")) == 5)
    assert process.poll() is None
    assert is_alive(pids("web")[0])
    (tmp_path / "crash").unlink()
    wait_for(lambda: len(pids("worker")) > 5 or is_alive(pids("worker")[-1]))

    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=15)

    assert process.returncode == 0
    assert len(pids("web")) == 1
    assert "The worker process stopped 4 times (status 7); next start in" in said
    assert ["worker", 3, True] in [
        each for line in read(tmp_path / "stopped.parts").splitlines() for each in json.loads(line)
    ]


def test_the_pauses_double_and_a_part_that_waits_is_left_alone_at_the_end(
    start: Start, pids: Pids, tmp_path: Path
) -> None:
    process = start(pause=0.2, web=OBEDIENT, worker=CRASHING_LATER)
    wait_until_ready(process)
    began = time.monotonic()
    (tmp_path / "crash").touch()
    wait_for(lambda: len(pids("worker")) == 4)
    assert time.monotonic() - began >= 0.2 + 0.4 + 0.8
    wait_for(lambda: '["worker", 4, true]' in read(tmp_path / "stopped.parts"))

    process.send_signal(signal.SIGTERM)

    assert process.wait(15) == 0
    assert len(pids("worker")) == 4
    assert read(tmp_path / "stopped").split() == ["web"]


def test_all_parts_may_end_at_once_and_all_come_back(start: Start, pids: Pids) -> None:
    process = start(broker=OBEDIENT, web=OBEDIENT, worker=OBEDIENT)
    wait_until_ready(process)
    for name in ("broker", "web", "worker"):
        os.kill(pids(name)[0], signal.SIGKILL)
    wait_for(lambda: all(len(pids(name)) == 2 for name in ("broker", "web", "worker")))
    assert process.poll() is None


def test_a_part_that_can_not_be_started_again_ends_nobody_else(start: Start, pids: Pids, tmp_path: Path) -> None:
    process = start(web=OBEDIENT, worker=OBEDIENT)
    wait_until_ready(process)
    (tmp_path / "worker.log").unlink()
    (tmp_path / "worker.log").mkdir()
    os.kill(pids("worker")[0], signal.SIGKILL)
    wait_for(lambda: '["worker", 3, true]' in read(tmp_path / "stopped.parts"))
    assert is_alive(pids("web")[0])
    (tmp_path / "worker.log").rmdir()
    wait_for(lambda: len(pids("worker")) == 2)
    assert process.poll() is None


def test_a_pause_is_never_longer_than_a_minute_and_good_health_begins_anew() -> None:
    part = _Part(cast(Running, None), started=time.monotonic())
    pauses = []
    for _ in range(9):
        part.ended("status 1", FIRST_PAUSE_SECONDS)
        pauses.append(round((part.next_start or 0) - time.monotonic()))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]

    part.next_start, part.started = None, time.monotonic()
    assert part.next_event() == part.started + HEALTHY_SECONDS
    part.stops = 0
    assert part.next_event() == float("inf")


def test_who_fails_before_all_are_ready_is_named_with_the_end_of_its_log(start: Start, pids: Pids) -> None:
    process = start(web=OBEDIENT, worker=CRASHING)
    _, said = process.communicate(timeout=15)
    assert process.returncode == 1
    assert "Error: The worker process ended (status 7)." in said
    assert "the disk is on fire" in said
    assert "\x1b" not in said
    assert "\x07" not in said
    assert not any(is_alive(pid) for pid in pids("web"))


def test_the_end_of_the_log_is_of_this_start_only(start: Start, tmp_path: Path) -> None:
    (tmp_path / "worker.log").write_text("an old complaint\n")
    _, said = start(worker=CRASHING).communicate(timeout=15)
    assert "the disk is on fire" in said
    assert "old complaint" not in said


def test_who_hangs_while_starting_is_given_up(start: Start, pids: Pids) -> None:
    process = start(seconds=0.5, web=OBEDIENT, worker=BEGIN + "signal.pause()")
    _, said = process.communicate(timeout=15)
    assert process.returncode == 1
    assert "Error: Not ready after 0.5 seconds, so all was stopped. Nobody answered." in said
    assert not any(is_alive(pid) for pid in [*pids("web"), *pids("worker")])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ends children with their parent")
def test_children_end_with_a_killed_supervisor(start: Start, pids: Pids) -> None:
    process = start(web=OBEDIENT, worker=STUBBORN)
    wait_until_ready(process)
    process.kill()
    wait_for(lambda: not is_alive(pids("web")[0]) and not is_alive(pids("worker")[0]))


def test_what_a_child_left_behind_ends_with_it(start: Start, pids: Pids) -> None:
    process = start(worker=PARENT)
    wait_until_ready(process)
    assert is_alive(pids("grandchild")[0])
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0
    wait_for(lambda: not is_alive(pids("grandchild")[0]))


def test_a_log_is_private_and_a_large_one_is_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "web.log"
    child = Child(name="web", command=(sys.executable, "-c", "print('new')"), log=log)
    for expected in ("new\n", "new\nnew\n"):
        running = child.start()
        wait_for(lambda running=running: running.status() is not None)
        running.kill()
        assert log.read_text() == expected
    log.write_bytes(b"x" * (MAX_LOG_BYTES + 1))
    running = child.start()
    wait_for(lambda: running.status() is not None)
    running.kill()
    assert log.read_text() == "new\n"
    assert (tmp_path / "logs" / "web.log.1").stat().st_size == MAX_LOG_BYTES + 1
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700
