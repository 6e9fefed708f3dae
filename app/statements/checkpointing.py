"""Checkpoints: what this installation signs of the whole log of statements, every hour and before what matters.

A checkpoint that somebody keeps elsewhere proves later that nothing before it was changed. Beside it stands in the log
where every audit chain ends, so that a checkpoint holds those too.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import Message
from pathlib import Path
from typing import IO

import structlog
from flask import Flask, current_app
from sqlalchemy import select, update
from sqlalchemy.exc import SQLAlchemyError

from app.errors import WhetstoneError
from app.extensions import db, end_reading, now, writing
from app.models.agent import Agent
from app.models.appending import append_leaf
from app.models.audit import Chained
from app.models.base import iso
from app.models.installation import InstallationMark
from app.models.statement import LeafKind, LogLeaf
from app.models.statement_errors import LogBroken
from app.models.statement_log import statement_log
from app.models.user import Account
from app.silo import keyfile
from app.silo.checkpoints import Checkpoint, open_checkpoint
from app.silo.merkle import ProofBroken, check_consistency, hash_leaf
from app.silo.notefile import NoteFile
from app.silo.notes import NoteBroken, installation_name, sign_note

EVERY = timedelta(hours=1)

OVERDUE = timedelta(hours=2)
"""Without a checkpoint for so long, something is wrong."""

TICK_SECONDS = 60.0
"""How often the timer looks whether a checkpoint is due."""

SEND_SECONDS = 10.0

TIME = "time"
"""The subject of leaves that say when."""

CHECKPOINT, UNSENT = "checkpoint", "checkpoint not sent"
"""Marks: the newest one's note, for processes that can't make one; and why the last could not be sent."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class SignedCheckpoint:
    """A checkpoint whose signature was checked. `at` is the last moment that the log states before its end."""

    note: bytes
    checkpoint: Checkpoint
    at: datetime | None

    @property
    def size(self) -> int:
        """How many leaves it covers."""
        return self.checkpoint.size

    def is_over(self, at: datetime) -> bool:
        """Whether none was made for two hours, or it is from a clock that was ahead by as much."""
        return self.at is None or abs(at - self.at) > OVERDUE

    def is_due(self, at: datetime) -> bool:
        """Whether it is time for the next one."""
        return self.at is None or not at - EVERY < self.at <= at + EVERY


def make_checkpoint() -> bytes:
    """State the time and where every audit chain ends, sign the log as it is then, and send that where it is wanted.

    Returns the note. Not in a transaction. Raises LogBroken, NoteFileError, or Unavailable without the master key.
    """
    with writing():
        for model in (Account, Agent):
            _append_heads(model)
        append_leaf(LeafKind.TIME, TIME, _line({"time": iso(now())}))
    note = _sign_log()
    with writing():
        InstallationMark.write(CHECKPOINT, note.decode())
    send_checkpoints()
    return note


def checkpoint_if_due() -> bool:
    """Make one if the last is an hour old; returns whether it was made."""
    latest = signed_checkpoint()
    end_reading()
    if latest is not None and not latest.is_due(now()):
        return False
    make_checkpoint()
    return True


def is_covered(position: int | None) -> bool:
    """Whether the leaf at that position is in a checkpoint of this machine's file."""
    last = checkpoint_file().last()
    return position is not None and last is not None and _open(last).size > position


def cover_leaf(position: int) -> None:
    """Make a checkpoint where the leaf at that position is in none; not for one that the log does not have.

    Raises as `make_checkpoint` does.
    """
    statement_log().catch_up()
    is_there = 0 <= position < statement_log().copy.size
    end_reading()
    if is_there and not is_covered(position):
        make_checkpoint()


def latest_checkpoint() -> bytes | None:
    """The newest note of this machine's file; where there is none, the one that the database names. Whoever uses it
    checks it."""
    note = checkpoint_file().last()
    if note is None:
        said = InstallationMark.read(CHECKPOINT)
        note = None if said is None else said.encode()
    return note


def signed_checkpoint() -> SignedCheckpoint | None:
    """The same, if it is signed and the log extends it. Raises LogBroken where the log is not the one of the copy."""
    note = latest_checkpoint()
    statement_log().catch_up()
    if note is None:
        return None
    try:
        found = _open(note)
        check_extends(found)
    except (NoteBroken, LogBroken):
        return None
    return SignedCheckpoint(note, found, _time_before(found.size))


def overdue_words() -> str | None:
    """That no checkpoint was made for two hours, as a sentence; None while all is well."""
    latest, begun = signed_checkpoint(), statement_log().begun_at()
    if latest is not None and latest.at is not None:
        if not latest.is_over(now()):
            return None
        since = f"since {latest.at:%Y-%m-%d %H:%M} UTC"
    elif begun is None or now() - begun <= OVERDUE:
        return None
    else:
        since = "yet"
    return f"No checkpoint of the log of statements was made {since}: see that a worker runs, and what its log says."


def read_checkpoints() -> list[Checkpoint]:
    """All of this machine's file, each checked against the copy of the log and the one before.

    Raises LogBroken for the first that does not hold.
    """
    found: list[Checkpoint] = []
    for number, note in enumerate(checkpoint_file().read(), 1):
        try:
            checkpoint = _open(note)
        except NoteBroken as error:
            raise LogBroken(f"checkpoint {number} of its file does not hold ({error.sentence})") from None
        if found and checkpoint.size < found[-1].size:
            raise LogBroken(f"checkpoint {number} of its file is of fewer leaves than the one before")
        check_extends(checkpoint)
        found.append(checkpoint)
    return found


def open_kept(note: bytes) -> Checkpoint:
    """A checkpoint that somebody kept: signed by a key that is or was this installation's. Raises NoteBroken."""
    return _open(note)


def check_extends(checkpoint: Checkpoint) -> None:
    """Raises LogBroken unless the log begins with what the checkpoint says, by this machine's copy of it."""
    copy = statement_log().copy
    if checkpoint.size > copy.size:
        raise LogBroken(f"it ends at leaf {copy.size}, and a checkpoint of {checkpoint.size} leaves was signed")
    proof = copy.tree.consistency_proof(checkpoint.size, copy.size)
    try:
        check_consistency(checkpoint.size, copy.size, checkpoint.root, copy.root(), proof)
    except ProofBroken:
        raise LogBroken(f"it does not begin with the {checkpoint.size} leaves of a checkpoint") from None


def checkpoint_file() -> NoteFile:
    """This machine's checkpoints, oldest first."""
    return NoteFile(current_app.extensions["settings"].statements_dir / "checkpoints")


def send_checkpoints() -> None:
    """Send what was not sent yet to the address of the settings, in order; what fails waits for the next time."""
    url = current_app.extensions["settings"].checkpoint_url
    if not url:
        return
    notes, sent = checkpoint_file().read(), _read_sent()
    waiting = notes[-1:] if sent is None else [note for note in notes if _open(note).size > sent]
    for note in waiting:
        failure = _post(url, note)
        if failure is not None:
            log.warning("a checkpoint was not sent", error=failure, waiting=len(waiting))
            with writing():
                InstallationMark.write(UNSENT, failure)
            return
        keyfile.replace_file(_sent_path(), str(_open(note).size).encode())
    if waiting:
        with writing():
            InstallationMark.drop(UNSENT)


def unsent_words() -> str | None:
    """Why the last checkpoint could not be sent, as a sentence; None where it was, or where nobody wants it."""
    if not current_app.extensions["settings"].checkpoint_url:
        return None
    why = InstallationMark.read(UNSENT)
    return None if why is None else f"The last checkpoint was not sent to WHETSTONE_CHECKPOINT_URL: {why}."


class CheckpointTimer:
    """A worker process's own timer, in a thread of its own: beat, the broker and busy models don't hold it up."""

    def __init__(self, app: Flask, *, interval: float = TICK_SECONDS) -> None:
        self._app = app
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run_timer, name="checkpoints", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the timer, at the end of the process or of a test."""
        self._stop.set()
        self._thread.join()

    def _run_timer(self) -> None:
        while True:
            with self._app.app_context():
                try:
                    checkpoint_if_due()
                except (SQLAlchemyError, WhetstoneError, OSError) as error:
                    log.error("no checkpoint was made", error=type(error).__name__)  # noqa: TRY400 - no values
            if self._stop.wait(self._interval):
                return


def _append_heads(model: type[Chained]) -> None:
    """A leaf for every chain of these that moved since its last one. A chain that is just being added to comes next
    time."""
    table = model.__table__
    key = table.c[model.LOG_KEY]
    moved = select(table.c.id).where(table.c.audit_sequence != table.c.logged_sequence).order_by(table.c.id)
    changed = (
        update(table)
        .where(table.c.id.in_(moved.with_for_update(skip_locked=True, key_share=True)))
        .values(logged_sequence=table.c.audit_sequence)
        .returning(key, table.c.audit_sequence, table.c.audit_head)
    )
    for name, sequence, head in sorted(db.session.execute(changed).tuples()):
        chain = f"{model.NOUN}:{name}"
        append_leaf(LeafKind.CHAIN, chain, _line({"chain": chain, "sequence": sequence, "hash": bytes(head).hex()}))


def _sign_log() -> bytes:
    """One that extends the last of the file, at its end."""
    statements, file = statement_log(), checkpoint_file()
    with file.held():
        statements.catch_up()
        end_reading()
        last = file.last()
        if last is not None:
            check_extends(_open(last))
        size = statements.copy.size
        checkpoint = Checkpoint(_origin(), size, statements.copy.root(size))
        note = sign_note(checkpoint.text, statements.keys.signing_key())
        if note != last:
            file.append([note])
    return note


def _open(note: bytes) -> Checkpoint:
    return open_checkpoint(note, _origin(), *(key for _, key in statement_log().keys.verifiers))


def _origin() -> str:
    return installation_name(statement_log().installation)


def _time_before(size: int) -> datetime | None:
    """The last moment that the log states among its first `size` leaves, if that leaf is the one that was seen."""
    times = (LogLeaf.subject == TIME, LogLeaf.kind == LeafKind.TIME, LogLeaf.position < size)
    query = select(LogLeaf.position, LogLeaf.leaf).where(*times).order_by(LogLeaf.position.desc()).limit(1)
    found = db.session.execute(query).tuples().first()
    if found is None or hash_leaf(found[1]) != statement_log().copy.hash_at(found[0]):
        return None
    return datetime.fromisoformat(json.loads(found[1])["time"]).astimezone(UTC)


def _line(said: dict[str, object]) -> bytes:
    return json.dumps(said, sort_keys=True, separators=(",", ":")).encode()


def _read_sent() -> int | None:
    try:
        return int(_sent_path().read_text())
    except (FileNotFoundError, ValueError):
        return None


def _sent_path() -> Path:
    path: Path = current_app.extensions["settings"].statements_dir / "sent"
    return path


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Who is sent elsewhere has not sent it."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


def _post(url: str, note: bytes) -> str | None:
    """None when it was taken, else why not, in words."""
    request = urllib.request.Request(url, note, {"Content-Type": "text/plain; charset=utf-8"})  # noqa: S310 - http(s)
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=SEND_SECONDS):
            return None
    except urllib.error.HTTPError as error:
        error.close()
        return f"it answered with status {error.code}"
    except (OSError, ValueError) as error:
        return f"it does not answer ({type(error).__name__})"
