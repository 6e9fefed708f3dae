"""`./whetstone doctor`: looks at every part, in the order in which faults are mended, and says what to do."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from sqlalchemy import func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from app import Part, create_app, logs
from app.cli import json_option
from app.cli.printing import print_json, say
from app.config import Settings, load_settings
from app.errors import WhetstoneError
from app.extensions import db, is_sqlite, now
from app.history.proof import Proof
from app.keys.escrow import last_backup
from app.keys.rotation import unfinished_rotation
from app.keys.shredding import is_due
from app.models import AuditLog
from app.models.statement_log import statement_log
from app.processes.broker import require_broker
from app.processes.datadir import PartsFile
from app.refinement.sweep import find_lost_starts
from app.setup import check_version, load_master_key
from app.silo.notes import NoteVerifier
from app.silo.webkey import WebKey
from app.statements.checkpointing import overdue_words, signed_checkpoint, unsent_words
from app.statements.web_keys import enrolled_web_keys
from app.values.plural import count_nouns
from migrations.triggers import missing_triggers
from tasks.echo import worker_answers

LITTLE_SPACE = 1_000_000_000
NO_SPACE = 100_000_000
"""Bytes free where the data is."""

CLOCK_SLACK = 5.0
BEAT_SLACK = 600.0
"""Beat writes its timetable down every three minutes; seconds."""


MARKS = {"ok": ("ok", "green"), "warn": ("look", "yellow"), "fail": ("FAIL", "red"), "skipped": ("–", "white")}


@dataclass(frozen=True)
class Finding:
    """`state` is ok, warn, fail or skipped; `fix` is what to do."""

    name: str
    state: str
    detail: str
    fix: str | None = None


@dataclass(eq=False)
class _Trouble(Exception):
    """An examination found something, and what to do about it."""

    detail: str
    fix: str | None = None
    state: str = "fail"


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Check database, version, keys, log, broker, worker, beat, disk and clock: a line each, with what to do.

    Exit status: 0 when nothing fails, 1 otherwise.
    """
    os.umask(0o077)
    settings = load_settings()
    if not as_json:
        say(f"Whetstone in {settings.data}")
    found: list[Finding] = []
    for finding in _examine_installation(settings):
        found.append(finding)
        if not as_json:
            _tell_finding(finding)
    ok = all(finding.state != "fail" for finding in found)
    if as_json:
        print_json({"ok": ok, "checks": [asdict(finding) for finding in found]})
    else:
        say("Nothing is wrong." if ok else "Mend what FAILs, from the top down.")
    return 0 if ok else 1


def _tell_finding(finding: Finding) -> None:
    word, color = MARKS[finding.state]
    say(f"  {click.style(word.ljust(4), fg=color)}  {finding.name:<9}  {finding.detail}")
    if finding.fix:
        say(f"  {'':<4}  {'':<9}  → {finding.fix}")


def _examine_installation(settings: Settings) -> Iterator[Finding]:
    """Every finding as it is made. What needs another part is skipped where that is not well."""
    found: dict[str, Finding] = {}

    def examine(name: str, examination: Callable[[Settings], str], *needed: str) -> Finding:
        if any(found[each].state != "ok" for each in needed):
            found[name] = Finding(name, "skipped", "skipped: fix the problem above first")
        else:
            found[name] = _examine_one(name, examination, settings)
        return found[name]

    logs.init("ERROR")
    with create_app(settings, part=Part.COMMAND_LINE).app_context():
        yield examine("apart", _check_separation)
        yield examine("web", _check_web_keys)
        yield examine("data", _check_data_dir)
        yield examine("disk", _check_disk_space)
        yield examine("database", _check_database)
        yield examine("version", _check_database_version, "database")
        yield examine("guards", _check_triggers, "version")
        yield examine("proof", _check_proof, "version")
        yield examine("key", _check_master_key, "version")
        yield examine("log", _check_statement_log, "version")
        yield examine("checkpoint", _check_checkpoints, "log")
        yield examine("clock", _check_clock, "database")
        yield examine("broker", _check_broker)
        yield examine("worker", _check_worker, "version", "broker")
        yield examine("beat", _check_beat)
        yield examine("parts", _check_stopped_parts)
        yield examine("waiting", _check_waiting_refinements, "version")
        db.session.remove()
        db.engine.dispose()


def _examine_one(name: str, examination: Callable[[Settings], str], settings: Settings) -> Finding:
    try:
        return Finding(name, "ok", examination(settings))
    except _Trouble as trouble:
        return Finding(name, trouble.state, trouble.detail, trouble.fix)
    except WhetstoneError as error:
        return Finding(name, "fail", error.sentence)
    except (SQLAlchemyError, OSError) as error:
        return Finding(name, "fail", f"It does not answer ({type(error).__name__}).")


def _check_separation(settings: Settings) -> str:
    """What a web process that was taken over could read. Web and worker share a data dir where they are one user."""
    if not settings.master_key_path.exists():
        return "no master key is on this host: a web process here can't read it"
    here, enrolled = _public_web_key(settings), enrolled_web_keys()
    if here is None or (here not in enrolled and enrolled):
        return "the web processes that the worker listens to have another data dir than the master key"
    raise _Trouble(
        "Web and worker run as one user here: processes of one user can read one another's files, so whoever takes "
        "over the web process can read every memory.",
        "Fine on a machine of your own. Else run `./whetstone web` as another user or on another host, with a data dir "
        "of its own: docs/operations.md, Several machines.",
        state="warn",
    )


def _check_web_keys(settings: Settings) -> str:
    if not settings.master_key_path.exists():
        here = _public_web_key(settings)
        if here is None:
            return "none has run here"
        return f"on the worker's host `./whetstone keys enroll --list` has to name {here.public.hex()}"
    enrolled = enrolled_web_keys()
    if not enrolled:
        fix = "Run `./whetstone keys web` on its host, then `./whetstone keys enroll KEY` here."
        raise _Trouble("No web process is enrolled: what any of them signs is refused.", fix)
    return f"{count_nouns(len(enrolled), 'web process', 'web processes')} enrolled"


def _public_web_key(settings: Settings) -> NoteVerifier | None:
    """Of the web process of this data dir; None where there was none."""
    return WebKey.load_or_make(settings.web_key_path).verifier if settings.web_key_path.exists() else None


def _check_data_dir(settings: Settings) -> str:
    if not settings.data.is_dir():
        raise _Trouble(
            f"{settings.data} is not there.",
            "Run `./whetstone up` or `./whetstone db upgrade`, or set WHETSTONE_DATA_DIR.",
        )
    mode = stat.S_IMODE(settings.data.stat().st_mode)
    probe = settings.data / f".probe-{time.monotonic_ns()}"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        said = f"{settings.data} can't be written ({error.strerror})."
        raise _Trouble(said, "Give its owner the right to.") from None
    if mode & 0o077:
        raise _Trouble(f"Others may look into it (mode {mode:03o}).", f"chmod 700 {settings.data}", state="warn")
    return "private and writable"


def _check_disk_space(settings: Settings) -> str:
    folder = next(each for each in (settings.data, *settings.data.parents) if each.is_dir())
    free = shutil.disk_usage(folder).free
    said = f"{free / 1e9:,.1f} GB free"
    if free < NO_SPACE:
        raise _Trouble(said, "Free some space now: a full disk stops every change.")
    if free < LITTLE_SPACE:
        raise _Trouble(said, "Free some space soon.", state="warn")
    return said


def _check_database(settings: Settings) -> str:
    url = make_url(settings.sqlalchemy_url)
    file = Path(url.database or "") if url.get_backend_name() == "sqlite" else None
    if file and not file.exists():
        raise _Trouble(f"{url.database} is not there.", "Run `./whetstone up` or `./whetstone db upgrade`.")
    try:
        with db.engine.connect() as connection:
            connection.execute(select(1))
    except SQLAlchemyError as error:
        where = url.database if file else f"{url.host}:{url.port or 5432}"
        fix = "See that the server runs and that DATABASE_URL is right." if settings.database_url else None
        raise _Trouble(f"{where} can't be opened ({type(error).__name__}).", fix) from None
    return f"SQLite, {file.stat().st_size / 1e6:,.1f} MB" if file else f"PostgreSQL on {url.host or 'a local socket'}"


def _check_database_version(_: Settings) -> str:
    check_version()
    return "of this version"


def _check_triggers(_: Settings) -> str:
    with db.engine.connect() as connection:
        missing = sorted(missing_triggers(connection))
    if missing:
        raise _Trouble(
            f"The database lacks {len(missing)} of its triggers, first {missing[0]}.",
            "Somebody removed them: find out who, restore the backup, and run `./whetstone verify`.",
        )
    return "all triggers are there"


def _check_proof(_: Settings) -> str:
    """The last verdict of the nightly proof on every account; `./whetstone verify` makes one of its own."""
    kept = Proof.all()
    if not kept:
        return "not made yet: a worker makes the first one within the hour"
    for proof in kept:
        if not proof.verdict.ok:
            raise _Trouble(
                f"{proof.verdict.first_problem} Found {proof.at:%Y-%m-%d %H:%M} UTC.",
                "Stop changing things, keep a copy of the database, and run `./whetstone verify`.",
            )
    oldest = min(proof.at for proof in kept)
    if any(proof.is_stale(now()) for proof in kept):
        raise _Trouble(
            f"The last one was made {oldest:%Y-%m-%d %H:%M} UTC.",
            "See that a worker and beat run, and what the worker's log says.",
            state="warn",
        )
    entries = sum(proof.verdict.entries for proof in kept)
    return f"{entries:,} entries were as written, on {oldest:%Y-%m-%d %H:%M} UTC or later"


def _check_checkpoints(_: Settings) -> str:
    """That the log of statements was signed lately."""
    if (overdue := overdue_words()) is not None:
        raise _Trouble(overdue, "Start `./whetstone up`, or a worker; `./whetstone audit checkpoint` makes one now.")
    if (unsent := unsent_words()) is not None:
        raise _Trouble(unsent, "It is sent again with the next one.", state="warn")
    latest = signed_checkpoint()
    when = f"{latest.at:%Y-%m-%d %H:%M} UTC" if latest and latest.at else "not yet"
    return f"the last is of {when}" if latest else "none yet; the log is young"


def _check_master_key(settings: Settings) -> str:
    key, path = load_master_key(settings), settings.master_key_path
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    if mode & 0o077:
        raise _Trouble(f"Others may read it (mode {mode:03o}).", f"chmod 600 {path}", state="warn")
    if unfinished_rotation():
        fix = "Run `./whetstone keys rotate` again: it goes on where it was."
        raise _Trouble("A rotation of the master key was cut off.", fix, state="warn")
    if is_due():
        fix = "A worker's upkeep cleans them each minute; `./whetstone keys check` says what it may lack."
        raise _Trouble("Removed keys may still be found in the database's files.", fix, state="warn")
    backup = last_backup(key.fingerprint)
    kept = f"backed up on {backup:%Y-%m-%d}" if backup else "no backup is recorded: ./whetstone keys backup FILE"
    return f"{key.fingerprint} belongs to this database; {kept}"


def _check_statement_log(settings: Settings) -> str:
    """That it extends what this host has seen of it, as its installation key has signed it."""
    if not settings.pinned_path.exists():
        raise _Trouble("This host does not know the installation yet.", "Run `./whetstone db upgrade`.", state="warn")
    log = statement_log()
    log.catch_up()
    return f"all {log.copy.size:,} leaves are as they were signed, by the installation key {log.verifier.fingerprint}"


def _check_clock(_: Settings) -> str:
    with db.engine.connect() as connection:
        here = datetime.now(UTC)
        there = here if is_sqlite(db.session()) else connection.scalar(select(func.clock_timestamp()))
    apart = abs((there - here).total_seconds()) if there else 0.0
    if apart > CLOCK_SLACK:
        said = f"This machine and the database are {apart:,.0f} seconds apart."
        raise _Trouble(said, "Set the clocks by NTP on both.")
    newest = db.session.scalar(select(AuditLog.at).order_by(AuditLog.id.desc()).limit(1))
    if newest and newest > here + timedelta(seconds=CLOCK_SLACK):
        said = f"The audit log's newest entry is from the future ({newest:%Y-%m-%d %H:%M} UTC)."
        raise _Trouble(said, "Set the clock.")
    return f"{here:%Y-%m-%d %H:%M:%S} UTC"


def _check_broker(settings: Settings) -> str:
    require_broker(settings)
    return "the one of REDIS_URL answers" if settings.redis_url else "the embedded one answers"


def _check_worker(_: Settings) -> str:
    began = time.monotonic()
    if not worker_answers():
        raise _Trouble("No worker answers.", "Start `./whetstone up`, or `./whetstone worker`; see its log.")
    return f"answers after {(time.monotonic() - began) * 1000:,.0f} ms"


def _check_beat(settings: Settings) -> str:
    """By the timetable that beat keeps in the data dir: one on another machine can't be seen from here."""
    signs = [path.stat().st_mtime for path in settings.run_dir.glob("beat-schedule*")]
    if not signs:
        fix = "Start `./whetstone up`, or `./whetstone beat` on one machine."
        raise _Trouble("No beat has run on this data dir.", fix, state="warn")
    age = time.time() - max(signs)
    if age > BEAT_SLACK:
        said = f"Its last sign of life is {timedelta(seconds=round(age))} old."
        raise _Trouble(said, "Start `./whetstone up`, or `./whetstone beat`.")
    return f"last sign of life {age:,.0f} seconds ago"


def _check_stopped_parts(settings: Settings) -> str:
    """As the supervisor of `up` wrote them down."""
    stopped = PartsFile(settings).read()
    if not stopped:
        return "none of those that `up` started has stopped in the last minutes"
    said = " ".join(part.sentence(datetime.now(UTC)) for part in stopped)
    state = "fail" if any(part.next_start for part in stopped) else "warn"
    raise _Trouble(said, f"Read the end of {', '.join(part.log for part in stopped)}.", state)


def _check_waiting_refinements(_: Settings) -> str:
    waiting = len(find_lost_starts())
    if waiting:
        raise _Trouble(
            f"{waiting:,} refinements have waited for a worker for more than a minute.",
            "Start a worker, or more of them; `./whetstone refinements list --open` names them.",
            state="warn",
        )
    return "no refinement waits for long"
