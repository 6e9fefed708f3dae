"""What is looked at in the database: that it answers, its version and guards, the record, and the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from app.extensions import db, is_sqlite, now
from app.history.proof import Proof
from app.installation.findings import WARN, CheckScope, Trouble
from app.models import AuditLog
from app.models.statement_log import statement_log
from app.setup import check_version
from app.statements.checkpointing import overdue_words, signed_checkpoint, unsent_words
from migrations.triggers import missing_triggers

CLOCK_SLACK = 5.0


def check_database(scope: CheckScope) -> str:
    settings = scope.settings
    url = make_url(settings.sqlalchemy_url)
    file = Path(url.database or "") if url.get_backend_name() == "sqlite" else None
    if file and not file.exists():
        raise Trouble(f"{url.database} is not there.", "Run `./whetstone up` or `./whetstone db upgrade`.")
    try:
        with db.engine.connect() as connection:
            connection.execute(select(1))
    except SQLAlchemyError as error:
        where = url.database if file else f"{url.host}:{url.port or 5432}"
        fix = "See that the server runs and that DATABASE_URL is right." if settings.database_url else None
        raise Trouble(f"{where} can't be opened ({type(error).__name__}).", fix) from None
    if scope.account_id is not None:
        return "answers"
    return f"SQLite, {file.stat().st_size / 1e6:,.1f} MB" if file else f"PostgreSQL on {url.host or 'a local socket'}"


def check_database_version(_: CheckScope) -> str:
    check_version()
    return "of this version"


def check_triggers(_: CheckScope) -> str:
    with db.engine.connect() as connection:
        missing = sorted(missing_triggers(connection))
    if missing:
        raise Trouble(
            f"The database lacks {len(missing)} of its triggers, first {missing[0]}.",
            "Somebody removed them: find out who, restore the backup, and run `./whetstone verify`.",
        )
    return "all triggers are there"


def check_proof(scope: CheckScope) -> str:
    """The last verdict of the nightly proof: of every account, or of one and of what belongs to none."""
    kept = _last_proofs(scope)
    if not kept:
        return "not made yet: a worker makes the first one within the hour"
    for proof in kept:
        if not proof.verdict.ok:
            raise Trouble(
                f"{proof.verdict.first_problem} Found {proof.at:%Y-%m-%d %H:%M} UTC.",
                "Stop changing things, keep a copy of the database, and run `./whetstone verify`.",
            )
    oldest = min(proof.at for proof in kept)
    if any(proof.is_stale(now()) for proof in kept):
        raise Trouble(
            f"The last one was made {oldest:%Y-%m-%d %H:%M} UTC.",
            "See that a worker and beat run, and what the worker's log says.",
            state=WARN,
        )
    entries = sum(proof.verdict.entries for proof in kept)
    return f"{entries:,} entries were as written, on {oldest:%Y-%m-%d %H:%M} UTC or later"


def _last_proofs(scope: CheckScope) -> list[Proof]:
    if scope.account_id is None:
        return Proof.all()
    rest = Proof.of(None)
    if rest is not None and not rest.verdict.ok:
        raise Trouble(
            f"Something that belongs to no account is not as it was written. Found {rest.at:%Y-%m-%d %H:%M} UTC.",
            "Stop changing things, keep a copy of the database, and run `./whetstone verify`.",
        )
    mine = Proof.of(scope.account_id)
    return [] if mine is None else [mine]


def check_checkpoints(_: CheckScope) -> str:
    """That the log of statements was signed lately."""
    if (overdue := overdue_words()) is not None:
        raise Trouble(overdue, "Start `./whetstone up`, or a worker; `./whetstone audit checkpoint` makes one now.")
    if (unsent := unsent_words()) is not None:
        raise Trouble(unsent, "It is sent again with the next one.", state=WARN)
    latest = signed_checkpoint()
    when = f"{latest.at:%Y-%m-%d %H:%M} UTC" if latest and latest.at else "not yet"
    return f"the last is of {when}" if latest else "none yet; the log is young"


def check_statement_log(scope: CheckScope) -> str:
    """That it extends what this host has seen of it, as its installation key has signed it."""
    if not scope.settings.pinned_path.exists():
        raise Trouble("This host does not know the installation yet.", "Run `./whetstone db upgrade`.", state=WARN)
    log = statement_log()
    log.catch_up()
    if scope.account_id is not None:
        return "all of it is as it was signed"
    key = log.keys.verifier.fingerprint
    return f"all {log.copy.size:,} leaves are as they were signed, by the installation key {key}"


def check_clock(_: CheckScope) -> str:
    with db.engine.connect() as connection:
        here = datetime.now(UTC)
        there = here if is_sqlite(db.session()) else connection.scalar(select(func.clock_timestamp()))
    apart = abs((there - here).total_seconds()) if there else 0.0
    if apart > CLOCK_SLACK:
        said = f"This machine and the database are {apart:,.0f} seconds apart."
        raise Trouble(said, "Set the clocks by NTP on both.")
    newest = db.session.scalar(select(AuditLog.at).order_by(AuditLog.id.desc()).limit(1))
    if newest and newest > here + timedelta(seconds=CLOCK_SLACK):
        said = f"The audit log's newest entry is from the future ({newest:%Y-%m-%d %H:%M} UTC)."
        raise Trouble(said, "Set the clock.")
    return f"{here:%Y-%m-%d %H:%M:%S} UTC"
