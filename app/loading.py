"""Memory of processes that run for long: what they load stays, and hundreds of threads share what is theirs."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

COLLECTED_AFTER = (10_000, 20, 50)
"""The collector's thresholds: Python's own let it run with almost every request, and twice in a refinement."""

_ARENA_MAX, _HEAPS = -8, 2
"""glibc's number for how many heaps there are, and how many are enough where one thread runs at a time."""


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Turn garbage collection off for large imports: it takes a fifth to a third of their time. What is made stays."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # nor is it looked through later
        if was_on:
            gc.enable()


def collect_rarely() -> None:
    """For a process that serves many at once: what it has loaded stays, and what is new is looked at now and then."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


def share_heaps() -> None:
    """Before a process starts hundreds of threads: glibc gives them eight heaps a core, each with gaps of its own.

    That takes 20 MB of a worker with 250 refinements in flight. Other C libraries have no such option.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_ARENA_MAX, _HEAPS)
