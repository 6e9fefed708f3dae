"""What the command line keeps of an exception that nobody expected: where it happened, never what it said."""

from __future__ import annotations

import platform
import traceback
from datetime import UTC, datetime

from app.config import load_settings
from app.processes.datadir import append_to


def record_crash(error: BaseException) -> str:
    """Append the places of `error` and its causes to `<data>/logs/errors.log`; answer with a sentence on where that is.

    Exception texts can hold values, and values can be content: types, files, lines and function names only.
    """
    heading = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} Python {platform.python_version()}"
    try:
        path = load_settings().data / "logs" / "errors.log"
        with append_to(path) as log:
            log.write("\n".join([heading, *_traceback_lines(error, set()), "", ""]).encode())
    except Exception as trouble:  # noqa: BLE001 - the log is second to the error that is being told
        return f"Its details could not be kept ({type(trouble).__name__})."
    return f"Details, without any values, are in {path}."


def _traceback_lines(error: BaseException, seen: set[int]) -> list[str]:
    """The traceback without exception texts, causes first."""
    seen.add(id(error))
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    lines = [*_traceback_lines(earlier, seen), "which led to"] if earlier and id(earlier) not in seen else []
    frames = [f"  {f.filename}:{f.lineno} in {f.name}" for f in traceback.extract_tb(error.__traceback__)]
    return [*lines, *frames, f"{type(error).__module__}.{type(error).__qualname__}"]
