"""Planted faults: how many small mistakes in the guards, the history and the keys the tests notice.

Each fault of `planted_faults.toml` breaks a promise by a change of a line or a few, one at a time, in a copy of the
checkout; then the tests that are named with it run there. A fault is found when one of them fails. One that survives is
a missing test, and one whose old text does not stand in its file exactly once any more is stale.

    python -m benchmarks.planted_faults [--only ID ...] [--seconds 180]

The same tests run first in the copy without a fault: where one of them fails, nothing is measured.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent
FAULTS = Path(__file__).with_name("planted_faults.toml")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+)", re.MULTILINE)


class Stale(Exception):
    """The file does not hold the fault's old text exactly once: the list has to follow the code."""


@dataclass(frozen=True)
class Fault:
    """`breaks` is the promise that `new` in the place of `old` breaks; `tests` are those that should notice."""

    id: str
    file: str
    breaks: str
    old: str
    new: str
    tests: list[str]

    @contextmanager
    def planted(self, copy: Path) -> Iterator[None]:
        """Raises Stale."""
        path = copy / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise Stale
        path.write_text(text.replace(self.old, self.new))
        try:
            yield
        finally:
            path.write_text(text)


@dataclass(frozen=True)
class Run:
    """How the tests ended. `failed` is the first that did."""

    passed: bool
    failed: str
    output: str


def main() -> int:
    options = _options()
    faults = [fault for fault in _read() if not options.only or fault.id in options.only]
    ends = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        _copy_checkout(copy)
        named = sorted({test for fault in faults for test in fault.tests})
        if not (clean := _test(copy, named, options.seconds * 20)).passed:
            print(clean.output, "The tests fail without a fault: nothing was measured.", sep="\n")
            return 1
        for fault in faults:
            began = time.perf_counter()
            end, test = _end(fault, copy, options.seconds)
            ends[end] += 1
            print(f"{fault.id}  {end:<8}  {time.perf_counter() - began:5.1f} s  {fault.breaks}  {test}", flush=True)
    print(
        f"{ends['found']} of {ends.total()} found", *(f"{ends[end]} {end}" for end in ends if end != "found"), sep=", "
    )
    return 0 if ends["found"] == ends.total() else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted_faults", description="Plant faults, and count.")
    parser.add_argument("--only", nargs="+", metavar="ID", help="these faults, not all")
    parser.add_argument("--seconds", type=float, default=180, help="for the tests of one fault (default 180)")
    return parser.parse_args()


def _read() -> list[Fault]:
    return [Fault(**fault) for fault in tomllib.loads(FAULTS.read_text())["fault"]]


def _copy_checkout(copy: Path) -> None:
    """The files that git knows, as they stand in the checkout."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (CHECKOUT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, copy / name)


def _end(fault: Fault, copy: Path, seconds: float) -> tuple[str, str]:
    """Found, survived, slow or stale; and the test that found it."""
    try:
        with fault.planted(copy):
            run = _test(copy, fault.tests, seconds)
    except Stale:
        return "stale", ""
    except subprocess.TimeoutExpired:
        return "slow", ""
    return ("survived", "") if run.passed else ("found", run.failed)


def _test(copy: Path, tests: Sequence[str], seconds: float) -> Run:
    """Up to the first failure. Raises TimeoutExpired; RuntimeError where the tests could not be run at all."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    ended = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=seconds, check=False)
    failed = _FAILED.search(ended.stdout)
    if ended.returncode not in (0, 1) and failed is None:
        raise RuntimeError(f"pytest ended with {ended.returncode}:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return Run(ended.returncode == 0, failed[1] if failed else "", ended.stdout[-4000:])


if __name__ == "__main__":
    sys.exit(main())
