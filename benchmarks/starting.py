"""Starting `up`: a second start with what waits for what, beside importing Flask-SQLAlchemy; and a cold one.

    python -m benchmarks.starting [--rounds N] [--cold 1] [--json]

Each start is on the same data dir, on SQLite with the embedded broker, and ended after it said that it is ready.
Bytecode is there, as the launcher leaves it: the first start, which may write it, does not count. The moments are
medians of seconds since the command began, looked for every 5 ms; processor time is what each process had used when all
were ready.

`--cold 1`: also a clean clone with no environment and no downloads kept, by its launcher. It needs a package registry.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.config import ROOT
from benchmarks.figures import Figure
from benchmarks.launched import IMPORT, launched_environment, time_process, whetstone
from benchmarks.scratch import run

MOST_SECONDS, MOST_COLD_SECONDS = 2.5, 15.0
GIVEN_UP_SECONDS = 120
TICKS = os.sysconf("SC_CLK_TCK")
PARTS = ("web", "worker")


@dataclass
class Start:
    """One start: when each thing was first seen, and processor seconds by process."""

    moments: dict[str, float] = field(default_factory=dict)
    processor: dict[str, float] = field(default_factory=dict)


def measure(rounds: int = 5, cold: int = 0) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        environment = launched_environment(data)
        first, *starts = [_start(whetstone("up"), environment, data) for _ in range(rounds + 1)]
        imports = [time_process(IMPORT, environment) for _ in range(rounds)]
    base = statistics.median(each.seconds for each in imports)
    processor = statistics.median(each.processor for each in imports)
    ready = statistics.median(start.moments["ready"] for start in starts)
    return [
        Figure("second start, ready", ready, "s", beside="importing Flask-SQLAlchemy", base=base, most=MOST_SECONDS),
        *_medians("second start, {}", [start.moments for start in starts]),
        *_medians("processor time of {}", [start.processor for start in starts], processor),
        Figure("first start on an empty data dir, ready", first.moments["ready"], "s"),
        *([Figure("cold start, ready", _cold_start(), "s", most=MOST_COLD_SECONDS)] if cold else []),
    ]


def _medians(name: str, found: Sequence[Mapping[str, float]], base: float | None = None) -> list[Figure]:
    medians = {key: statistics.median(each[key] for each in found if key in each) for key in found[0] if key != "ready"}
    beside = "importing Flask-SQLAlchemy" if base else ""
    return [
        Figure(name.format(key), value, "s", beside=beside, base=base)
        for key, value in sorted(medians.items(), key=lambda each: each[1])
    ]


def _start(command: Sequence[str], environment: Mapping[str, str], data: Path) -> Start:
    """From the command to its word that all is ready. Raises RuntimeError where that does not come."""
    for log in (data / "logs").glob("*.log"):
        log.unlink()
    began, port, start = time.time(), _free_port(), Start()
    with tempfile.NamedTemporaryFile() as said, subprocess.Popen(
        [*command, "--port", str(port), "--no-browser"], env=environment, stdin=subprocess.DEVNULL,
        stdout=said, stderr=subprocess.DEVNULL,
    ) as up:  # fmt: skip
        try:
            _watch(up, Path(said.name), start, _signs(up.pid, data, port, began), began)
        finally:
            up.terminate()
    return start


def _watch(
    up: subprocess.Popen[bytes], said: Path, start: Start, signs: Mapping[str, Callable[[], bool]], began: float
) -> None:
    while "ready" not in start.moments:
        if up.poll() is not None or time.time() > began + GIVEN_UP_SECONDS:
            raise RuntimeError("up did not become ready")
        for what, is_there in signs.items():
            if what not in start.moments and is_there():
                start.moments[what] = time.time() - began
        if "Whetstone is ready" in said.read_text():
            start.processor = {"up": _processor(up.pid)} | {name: _processor(pid) for name, pid in _children(up.pid)}
            start.moments["ready"] = time.time() - began
        time.sleep(0.005)


def _signs(up: int, data: Path, port: int, began: float) -> Mapping[str, Callable[[], bool]]:
    """What can be seen from outside of how far a start is."""
    address = data / "run" / "broker.url"
    return {
        "web and worker began to load": lambda: {name for name, _ in _children(up)} >= {*PARTS},
        "broker answers": lambda: address.exists() and address.stat().st_mtime >= began,
        "worker takes tasks": lambda: " ready." in _log(data, "worker"),
        "web listens": lambda: _is_open(port),
    }


def _children(up: int) -> Sequence[tuple[str, int]]:
    """Names and ids of the parts that `up` runs now."""
    found = []
    for child in Path(f"/proc/{up}/task/{up}/children").read_text().split():
        try:
            words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        except OSError:
            continue
        found += [(name, int(child)) for name in PARTS if name in words and "-I" not in words]
    return found


def _processor(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _log(data: Path, part: str) -> str:
    path = data / "logs" / f"{part}.log"
    return path.read_text(errors="replace") if path.exists() else ""


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _cold_start() -> float:
    """On a clean clone of what is committed; the environment and all downloads go to a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        clone, data = Path(folder) / "clone", Path(folder) / "data"
        subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(clone)], check=True)
        caches = {name: str(Path(folder) / name) for name in ("UV_CACHE_DIR", "PIP_CACHE_DIR", "XDG_CACHE_HOME")}
        environment = launched_environment(data) | caches
        del environment["PYTHONPATH"]
        return _start([str(clone / "whetstone"), "up"], environment, data).moments["ready"]


if __name__ == "__main__":
    if not sys.platform.startswith("linux"):
        sys.exit("It reads /proc: Linux only.")
    run(measure, __doc__, rounds=5, cold=0)
