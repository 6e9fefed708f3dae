"""What a process that runs for long sets for its memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _run(code: str) -> str:
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_what_is_loaded_is_looked_through_no_more_and_what_is_new_rarely() -> None:
    code = """
import gc
from app.loading import COLLECTED_AFTER, collect_rarely
collect_rarely()
print(gc.isenabled(), gc.get_threshold() == COLLECTED_AFTER, gc.get_freeze_count() > 1000)
"""
    assert _run(code) == "True True True"


def test_what_goes_round_in_a_circle_is_still_collected() -> None:
    code = """
import weakref
from app.loading import collect_rarely
collect_rarely()
class Ring: pass
def ring():
    one = Ring()
    one.self = one
    return weakref.ref(one)
gone = [ring() for _ in range(50_000)]
print(sum(each() is not None for each in gone) < 25_000)
"""
    assert _run(code) == "True"


def test_threads_share_heaps_where_the_c_library_can_be_told_and_nothing_breaks_where_not() -> None:
    code = """
import ctypes, threading
from unittest.mock import patch
from app.loading import share_heaps
told = []
class Library: mallopt = staticmethod(lambda *option: told.append(option))
with patch("ctypes.CDLL", lambda _: Library):
    share_heaps()
with patch("ctypes.CDLL", lambda _: object()):
    share_heaps()
share_heaps()
print(told)
"""
    assert _run(code) == "[(-8, 2)]"
