"""Loading many modules at once: garbage collection is off meanwhile, because all of what they make stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
