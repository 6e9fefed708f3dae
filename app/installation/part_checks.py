"""What is looked at of the processes: broker, workers, beat, the event stream, and what waits for them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from flask import current_app
from sqlalchemy import func, select

from app.extensions import db, now
from app.installation.findings import FAIL, WARN, CheckScope, Trouble
from app.models import Refinement
from app.models.presence import AWAY_AFTER, WorkerPresence, beat_heard_at
from app.processes.broker import require_broker
from app.processes.datadir import PartsFile
from app.refinement.sweep import lost_starts
from app.values.plural import count_nouns
from app.version import app_version
from tasks.echo import worker_answers

BEAT_SLACK = timedelta(minutes=10)
"""Beat writes its timetable down every three minutes, and asks for its note each minute."""


def check_broker(scope: CheckScope) -> str:
    require_broker(scope.settings, scope.wait)
    return "the one of REDIS_URL answers" if scope.settings.redis_url else "the embedded one answers"


def check_worker(scope: CheckScope) -> str:
    began = time.monotonic()
    if not worker_answers(scope.wait):
        raise Trouble("No worker answers.", "Start `./whetstone up`, or `./whetstone worker`; see its log.")
    answered = f"answers after {(time.monotonic() - began) * 1000:,.0f} ms"
    workers, here = WorkerPresence.all(), app_version()
    if other := next((worker.version for worker in workers if worker.version != here), None):
        said = f"A worker runs version {other}, and this is {here}."
        raise Trouble(said, "Stop all parts, run `./whetstone db upgrade`, and start them from one version.", WARN)
    away = sum(worker.is_away(now()) for worker in workers)
    if away:
        said = f"{count_nouns(away, 'worker')} of {len(workers)} not seen for {AWAY_AFTER.seconds // 60} minutes"
        raise Trouble(f"One {answered}; {said}.", "Start it again, or forget it: it is named for an hour.", WARN)
    return f"{answered}; {count_nouns(len(workers), 'worker')} seen" if workers else answered


def check_beat(scope: CheckScope) -> str:
    """By its timetable, where it runs on this data dir, and by what a worker heard of it, wherever it runs."""
    signs = [path.stat().st_mtime for path in scope.settings.run_dir.glob("beat-schedule*")]
    ages = [timedelta(seconds=time.time() - max(signs))] if signs else []
    heard = beat_heard_at()
    ages += [now() - heard] if heard else []
    if not ages:
        fix = "Start `./whetstone up`, or `./whetstone beat` on one machine."
        raise Trouble("No beat has run yet.", fix, state=WARN)
    if min(ages) > BEAT_SLACK:
        said = f"Its last sign of life is {timedelta(seconds=round(min(ages).total_seconds()))} old."
        raise Trouble(said, "Start `./whetstone up`, or `./whetstone beat`.")
    return f"last sign of life {max(min(ages).total_seconds(), 0):,.0f} seconds ago"


def check_stopped_parts(scope: CheckScope) -> str:
    """As the supervisor of `up` wrote them down."""
    stopped = PartsFile(scope.settings).read()
    if not stopped:
        return "none of those that `up` started has stopped in the last minutes"
    said = " ".join(part.sentence(datetime.now(UTC)) for part in stopped)
    state = FAIL if any(part.next_start for part in stopped) else WARN
    logs = ", ".join(part.log for part in stopped) if scope.account_id is None else "its log on the host"
    raise Trouble(said, f"Read the end of {logs}.", state)


def check_event_stream(scope: CheckScope) -> str:
    """Of this web process."""
    hub = current_app.extensions.get("stream_hub")
    if hub is None:
        raise Trouble(
            "This process sends no events: pages change when they are loaded again.",
            "Start the web process by `./whetstone up` or `./whetstone web`.",
            state=WARN,
        )
    return "runs" if scope.account_id is not None else f"{count_nouns(hub.open_streams, 'open page')}"


def check_waiting_refinements(scope: CheckScope) -> str:
    query = lost_starts()
    if scope.account_id is not None:
        query = query.where(Refinement.account_id == scope.account_id)
    waiting = db.session.scalar(select(func.count()).select_from(query.limit(1000).subquery())) or 0
    if waiting:
        raise Trouble(
            f"{waiting:,} refinements have waited for a worker for more than a minute.",
            "Start a worker, or more of them; `./whetstone refinements list --open` names them.",
            state=WARN,
        )
    return "no refinement waits for long"
