"""What our own processes log: one line a happening, with names, numbers and ids; never an exception's own text."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

import structlog

from app.config import ROOT
from app.errors import has_no_room


def init(level: str) -> None:
    """Set up structlog: plain lines on standard error. No processor here shows tracebacks or local variables."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"], repr_native_str=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, LossyStream(sys.stderr))),
    )


class LossyStream:
    """A stream for lines that may get lost: a full disk must not stop the work that they speak of."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = 0

    def write(self, text: str) -> int:
        with self._counting_losses():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._counting_losses():
            self._stream.flush()
            if self._lost:
                lost, self._lost = self._lost, 0
                self._stream.write(f"{lost} writes to this log failed: its disk was full\n")
                self._stream.flush()

    @contextmanager
    def _counting_losses(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not has_no_room(error):
                raise
            self._lost += 1


class _Hushed(logging.Handler):
    """What a library says of a failure, less its words: they quote what was sent."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        super().__init__(logging.ERROR)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        kind = type(error).__name__ if error else "none"
        self._log.error("library failed", library=f"{record.name}:{record.lineno}", error=kind)


def silence_library(library: str, log: structlog.stdlib.BoundLogger) -> None:
    """From now on, a library's log tells only where it failed and by what kind of error. Safe to repeat."""
    logger = logging.getLogger(library)
    logger.setLevel(logging.ERROR)
    logger.handlers, logger.propagate = [_Hushed(log)], False


class WithoutWords(logging.Formatter):
    """Lines of libraries: an exception's kind and place in them, never its own text."""

    def formatException(self, ei: Any) -> str:
        return f"{type(ei[1]).__name__} at {error_place(ei[1])}"


def error_place(error: BaseException) -> str:
    """The innermost line of our own code that an exception passed: enough to find it, and none of its words."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(f"{ROOT}/") and "/site-packages/" not in frame.filename:
            return f"{frame.filename.removeprefix(f'{ROOT}/')}:{frame.lineno}"
    return "an unknown place"
