"""Planted faults: how many small mistakes in the guards, the history and the keys the tests notice.

Each fault of `planted_faults.toml` breaks a promise by a change of a line or a few, one at a time, in a copy of the
checkout; then the tests that are named with it run there, up to the first that fails.

    python -m benchmarks.planted_faults [ID ...] [--seconds 180]

An id may be the beginning of several: `R36 M` are R36 and all whose ids begin with M. Each fault ends as one of these:

- found: a test failed.
- survived: all passed. A test is missing.
- stale: the old text does not stand in its file exactly once any more. The list has to follow the code.
- invalid: nothing was measured. A named test fails without a fault too, or is not there; the faulty code can't be run
  at all, which any test would notice; or the tests took too long.

A fault with a `why` changes nothing that anybody was promised. It is not planted, and not counted.
"""

from __future__ import annotations

import argparse
import compileall
import os
import py_compile
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent
FAULTS = Path(__file__).with_name("planted_faults.toml")
_PYTEST = [sys.executable, "-B", "-m", "pytest", "-q", "-rfE", "-n", "0", "-p", "no:cacheprovider"]
_NOT_NEEDED = [f"-pno:{plugin}" for plugin in ("schemathesis", "llmock", "anyio")]
"""Plugins that no named test uses, and that take most of a short run's time to import."""

_FAILED = re.compile(r"^(FAILED|ERROR) (tests/.*?)(?: - (.*))?$", re.MULTILINE)
_MISSING = re.compile(r"^ERROR: (?:not found|file or directory not found): (\S+)", re.MULTILINE)
_CAN_NOT_RUN = re.compile(r"(?:NameError|UnboundLocalError|ImportError|SyntaxError|IndentationError)\b")


class End(StrEnum):
    FOUND = "found"
    SURVIVED = "survived"
    STALE = "stale"
    INVALID = "invalid"


class Stale(Exception):
    """The file does not hold the fault's old text exactly once."""


@dataclass(frozen=True)
class Fault:
    """`breaks` is the promise that `new` in the place of `old` breaks; `tests` are those that should notice."""

    id: str
    file: str
    breaks: str
    old: str
    new: str
    tests: list[str]
    why: str = ""

    @property
    def folder(self) -> str:
        room, folder, *_ = Path(self.file).parts
        return folder if room == "app" else room

    @contextmanager
    def planted(self, copy: Path) -> Iterator[None]:
        """Raises Stale."""
        path = copy / self.file
        text = path.read_text() if path.is_file() else ""
        if text.count(self.old) != 1:
            raise Stale
        path.write_text(text.replace(self.old, self.new))
        try:
            yield
        finally:
            path.write_text(text)


@dataclass(frozen=True)
class Failure:
    """`test` may be a whole file that could not be collected."""

    kind: str
    test: str
    says: str

    @property
    def is_of_the_code(self) -> bool:
        """Whether the code could not be run at all."""
        return "::" not in self.test or _CAN_NOT_RUN.match(self.says) is not None


@dataclass(frozen=True)
class Run:
    """How the tests ended. `missing` are those named that are not there: pytest runs nothing then."""

    code: int
    failures: list[Failure]
    missing: list[str]
    output: str


def main() -> int:
    options = _options()
    faults = [fault for fault in _read() if not options.ids or fault.id.startswith(tuple(options.ids))]
    counted = [fault for fault in faults if not fault.why]
    ends: Counter[tuple[str, End]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        _copy_checkout(copy)
        broken = _broken_without_a_fault(copy, counted, options.seconds * 20)
        for fault in counted:
            began = time.perf_counter()
            end, word = _end(fault, copy, broken, options.seconds)
            ends[fault.folder, end] += 1
            print(f"{fault.id}  {end:<8}  {time.perf_counter() - began:5.1f} s  {fault.breaks}  {word}", flush=True)
    print(_summary(ends, len(faults) - len(counted)))
    return 0 if {end for _, end in ends} <= {End.FOUND} else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted_faults", description="Plant faults, and count.")
    parser.add_argument("ids", nargs="*", metavar="ID", help="these faults, or all whose ids begin so; else every one")
    parser.add_argument("--seconds", type=float, default=180, help="for the tests of one fault (default 180)")
    return parser.parse_args()


def _read() -> list[Fault]:
    faults = [Fault(**fault) for fault in tomllib.loads(FAULTS.read_text())["fault"]]
    twice = [fault_id for fault_id, times in Counter(fault.id for fault in faults).items() if times > 1]
    if twice:
        raise ValueError(f"Two faults have one id: {', '.join(twice)}.")
    return faults


def _copy_checkout(copy: Path) -> None:
    """The files that git knows, as they stand in the checkout.

    They are compiled once. A compiled file is taken only while its source has the same hash, so a fault is always read.
    """
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (CHECKOUT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, copy / name)
    compileall.compile_dir(copy, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)


def _broken_without_a_fault(copy: Path, faults: Sequence[Fault], seconds: float) -> list[str]:
    """The named tests that fail in the copy as it is, or are not there."""
    named = {test for fault in faults for test in fault.tests}
    missing: list[str] = []
    while run := _test(copy, sorted(named.difference(missing)), seconds):
        if not run.missing:
            break
        missing += [test for test in named if any(name.endswith(test) for name in run.missing)]
    if run.code not in (0, 1):
        raise RuntimeError(f"pytest ended with {run.code}:\n{run.output[-4000:]}")
    return missing + [failure.test for failure in run.failures]


def _end(fault: Fault, copy: Path, broken: Sequence[str], seconds: float) -> tuple[End, str]:
    """How it ended; and the test that found it, or why nothing was measured."""
    for test in fault.tests:
        if any(name == test or name.startswith(f"{test}::") or name.startswith(f"{test}[") for name in broken):
            return End.INVALID, f"{test} fails without the fault, or is not there"
    try:
        with fault.planted(copy):
            run = _test(copy, fault.tests, seconds, "-x")
    except Stale:
        return End.STALE, f"its old text is not in {fault.file} exactly once"
    except subprocess.TimeoutExpired:
        return End.INVALID, f"the tests took more than {seconds:.0f} s"
    if run.code == 0:
        return End.SURVIVED, ""
    if not run.failures or run.failures[0].is_of_the_code:
        said = run.failures[0].says if run.failures else run.output[-400:]
        return End.INVALID, f"the faulty code can't be run: {said}"
    return End.FOUND, run.failures[0].test


def _test(copy: Path, tests: Sequence[str], seconds: float, *options: str) -> Run:
    """Raises TimeoutExpired; what the tests started is ended then too."""
    command = [*_PYTEST, *_NOT_NEEDED, *options, *tests]
    with subprocess.Popen(
        command, cwd=copy, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    failures = [Failure(kind, test, says) for kind, test, says in _FAILED.findall(output)]
    return Run(process.returncode, failures, _MISSING.findall(output), output)


def _summary(ends: Counter[tuple[str, End]], not_counted: int) -> str:
    """One line: all, by folder of `app` and `tasks`, and what was not found."""
    of: Counter[End] = Counter()
    for (_, end), times in ends.items():
        of[end] += times
    folders = sorted({folder for folder, _ in ends})
    by_folder = ", ".join(
        f"{folder} {ends[folder, End.FOUND]} of {sum(ends[folder, end] for end in End)}" for folder in folders
    )
    others = ", ".join(f"{of[end]} {end}" for end in End if end is not End.FOUND)
    share = 100 * of[End.FOUND] / max(of.total(), 1)
    return f"{of[End.FOUND]} of {of.total()} found ({share:.1f} %): {by_folder}; {others}; {not_counted} not counted"


if __name__ == "__main__":
    sys.exit(main())
