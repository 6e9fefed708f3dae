"""The audit log's pages at any depth, and filtered, against its first page: a million entries, refinements interleaved.

`python -m benchmarks.audit_page [--entries N] [--depths] [--database-url URL]`. Every figure is the median of whole
loads of a page (queries, rows, folds), beside that of the whole log's first page, taken in turn; the last lines are
pages as they are sent, and exports of everything.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

ROUNDS = 15


def main() -> None:
    options = _options()
    if options.database_url:
        os.environ["WHETSTONE_TEST_DATABASE_URL"] = options.database_url
    from app import Part, create_app
    from app.extensions import SystemClock, db
    from benchmarks.audit_log import BEGAN, write_log
    from tests.support.clock import FakeClock
    from tests.support.databases import Template

    with tempfile.TemporaryDirectory() as folder:
        template = Template(Path(folder) / "template")
        copy = Path(folder) / "data"
        copy.mkdir()
        with template.copy(copy) as settings:
            app = create_app(settings, part=Part.WEB)
            with app.app_context():
                print(f"database: {db.engine.dialect.name}; {options.entries:,} entries are being written", flush=True)
                app.extensions["clock"] = FakeClock(BEGAN - timedelta(days=1))
                refinement = write_log(options.entries)
                app.extensions["clock"] = SystemClock()
                _report(options.entries, refinement, depths_alone=options.depths)
                if not options.depths:
                    _report_http(app)
                db.session.remove()
                db.engine.dispose()
        template.drop()


def _report(entries: int, refinement: str, *, depths_alone: bool) -> None:
    from app.extensions import db
    from app.history.log import Filters
    from app.models import Agent
    from app.views.filters import FilterForm

    whole = whole_log(Filters(1))
    depths = {share: places(int(entries * (1 - share))) for share in (0.10, 0.50, 0.99)}
    print(f"{'':<34}{'ms':>7}{'first page, ms':>16}{'ratio':>8}")
    for share, deep in depths.items():
        _compare(f"folded, {share:.0%} deep", whole, whole, deep)
    if depths_alone:
        return
    for name, typed in _filters(refinement).items():
        form = FilterForm.read(1, typed)
        assert not form.errors, form.errors
        _compare(f"{name}, first page", whole, form)
        _compare(f"{name}, 50% deep", whole, form, depths[0.50])
    agent = FilterForm.read(1, {}, db.session.get_one(Agent, 17))
    _compare("one agent's page", whole, agent)
    took = statistics.median(_timed(lambda: _count_newer(depths[0.50][0])) for _ in range(ROUNDS))
    print(f"{'newer entries counted':<32}{took * 1000:9.2f}")


def whole_log(filters: Any) -> Any:
    """The form of a page with these filters and no others."""
    from app.views.filters import FilterForm

    return FilterForm(filters)


def _compare(name: str, whole: Any, form: Any, places: Sequence[str] = ("",)) -> None:
    """Both sides in turn, so that whatever else the machine does meanwhile falls on both."""
    first, other = [], []
    for turn in range(ROUNDS):
        first.append(_timed(lambda: load(whole)))
        place = places[turn % len(places)]
        other.append(_timed(lambda place=place: load(form, place)))
    base, took = statistics.median(first), statistics.median(other)
    print(f"{name:<32}{took * 1000:9.2f}{base * 1000:16.2f}{took / base:8.2f}", flush=True)


def _filters(refinement: str) -> dict[str, dict[str, str]]:
    return {
        "agent": {"agent": "agent-17"},
        "days": {"from": "2026-02-01", "to": "2026-04-30"},
        "common action": {"action": "memory_refinement_update"},
        "rare action": {"action": "agent_token_revoke"},
        "people": {"actor": "user"},
        "one person": {"actor": "user:often@example.org"},
        "rare person": {"actor": "user:rare@example.org"},
        "agents themselves": {"actor": "agent"},
        "rare part": {"actor": "system:command line"},
        "refinement": {"refinement": refinement},
        "agent and rare action": {"agent": "agent-17", "action": "agent_token_revoke"},
        "nothing fits": {"action": "memory_refinement_update", "actor": "user:rare@example.org"},
    }


def places(number: int) -> list[str]:
    """Several around an entry: what has to be folded there differs a little."""
    return [_place(number - 700 * n) for n in range(ROUNDS)]


def _place(number: int) -> str:
    from sqlalchemy import select

    from app.extensions import db
    from app.models import AuditLog
    from app.models.keyset import TimeCursor

    found = db.session.execute(select(AuditLog.at, AuditLog.id).where(AuditLog.id >= max(number, 60)).limit(1)).one()
    return str(TimeCursor(*found))


def load(form: Any, before: str = "") -> None:
    from app.extensions import db
    from app.views.shown.log import Log

    with _request():
        Log(form, before=before).days  # noqa: B018 - the rows by day belong to it
    db.session.expunge_all()
    db.session.rollback()


def _count_newer(place: str) -> None:
    from app.extensions import end_reading
    from app.history.log import Filters
    from app.models.keyset import TimeCursor
    from app.views.shown.log import newer_entries

    than = TimeCursor.parse(place)
    assert than is not None
    newer_entries(Filters(1), than)
    end_reading()


def _request() -> Any:
    from flask import current_app

    return current_app.test_request_context("/audit")


def _report_http(app: Any) -> None:
    """What a person waits for, and what an export of everything costs."""
    from sqlalchemy import select

    from app.extensions import db
    from app.models import User
    from tests.support.factories import cookie_id

    user = db.session.scalars(select(User).order_by(User.id)).first()
    assert user is not None
    client = app.test_client()
    with client.session_transaction() as session:
        session.update(_user_id=cookie_id(user), _fresh=True, fs_cc="set")
    for path in ("/audit", f"/audit?before={_place(10_000).replace('+', '%2B')}", "/audit?action=agent_token_revoke"):
        answer = client.get(path)
        assert answer.status_code == 200, answer.status
        print(f"whole page {path[:40]:<40} {_median(lambda path=path: client.get(path)) * 1000:7.2f} ms", end="")
        print(f"   {len(answer.data) / 1024:.0f} KiB")
    for suffix in ("csv", "jsonl"):
        began, before = time.perf_counter(), _resident()
        head = size = grown = 0.0
        for chunk in client.get(f"/audit.{suffix}").response:
            size += len(chunk)
            head = head or (time.perf_counter() - began) * 1000
            grown = max(grown, _resident() - before)
        took = time.perf_counter() - began
        print(f"all as {suffix:<5}: first bytes after {head:.0f} ms, {size / 2**20:.0f} MiB in {took:.0f} s, ", end="")
        print(f"memory at most +{grown / 2**20:.0f} MiB")


def _resident() -> int:
    """Bytes of this process in memory, where the system says so."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * resource.getpagesize() if statm.exists() else 0


def _median(work: Callable[[], Any]) -> float:
    return statistics.median(_timed(work) for _ in range(ROUNDS))


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--depths", action="store_true", help="no filters, no whole pages, no exports")
    parser.add_argument("--database-url", default="", help="a PostgreSQL server; a scratch database is made there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
