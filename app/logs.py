"""What our own processes log: one line a happening, with names, numbers and ids; never an exception's own text."""

from __future__ import annotations

import logging
import sys
import traceback

import structlog

from app.config import ROOT


def init(level: str) -> None:
    """Set up structlog: plain lines on standard error. No processor here shows tracebacks or local variables."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"], repr_native_str=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def place(error: BaseException) -> str:
    """The innermost line of our own code that an exception passed: enough to find it, and none of its words."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(f"{ROOT}/") and "/site-packages/" not in frame.filename:
            return f"{frame.filename.removeprefix(f'{ROOT}/')}:{frame.lineno}"
    return "an unknown place"
