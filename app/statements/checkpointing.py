"""Checkpoints: what this installation says of its log at a moment, signed, so that anybody can hold it to that."""

from __future__ import annotations

from app.extensions import writing
from app.models.installation import InstallationMark
from app.models.statement_log import statement_log
from app.silo.checkpoints import Checkpoint
from app.silo.notes import sign_note

CHECKPOINT = "checkpoint"
"""The mark that holds the latest one's note, for processes that can't make one."""


def make_checkpoint() -> bytes:
    """Sign the log as it is now; returns the note. Raises LogBroken, or Unavailable without the master key."""
    log = statement_log()
    log.catch_up()
    size = log.copy.size
    checkpoint = Checkpoint(log.verifier.name, size, log.copy.root(size))
    note = sign_note(checkpoint.text, log.signing_key())
    with writing():
        InstallationMark.write(CHECKPOINT, note.decode())
    return note


def latest_checkpoint() -> bytes | None:
    """The newest note that was kept; None before the first. Whoever uses it checks it."""
    kept = InstallationMark.read(CHECKPOINT)
    return None if kept is None else kept.encode()
