"""A night of 2,000 agents, of which 50 fail: how long the tick, its refinements, the message and the retry take.

`python -m benchmarks.night [--agents N] [--failing N]`. One worker of two threads, on SQLite; its threads wait for
each other. Exit status 1 when any agent is left undone, or there is not exactly one message.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import func, select

from app import create_app
from app.extensions import db
from app.models import COMMAND_LINE, Refinement, Status
from app.refinement.bulk import find_chosen, retry_refinements
from tests.support.clock import FakeClock
from tests.support.databases import Template
from tests.support.factories import HOME
from tests.support.model_server import ModelServer
from tests.support.night import BROKEN, Night, agree
from tests.support.receivers import MailReceiver


def main() -> None:
    options = _options()
    with _installation() as night, MailReceiver() as mail:
        night.make_agents(options.agents, failing=options.failing)
        night.add_channel(mail, "ann@example.org")
        with _timed("the tick, all started"):
            started = night.begin()
        with _timed("carried to their ends"):
            night.carry(started)
        night.tell()
        print(f"{'messages':<28}{len(mail.mails):>10}")
        night.model.always(agree)
        with _timed("retry of all that failed"):
            failed = find_chosen(HOME, Refinement.status == Status.FAILED)
            retried = retry_refinements(failed, by=COMMAND_LINE, started=lambda _: None)
        with _timed("carried to their ends"):
            night.carry(retried.queued)
        completed = _count(Status.COMPLETED)
    print(f"{'failed, then completed':<28}{len(failed):>10,}{completed:>10,}")
    sys.exit(0 if completed == options.agents and len(failed) == options.failing and len(mail.mails) == 1 else 1)


def _count(status: Status) -> int:
    db.session.rollback()
    return db.session.scalar(select(func.count()).where(Refinement.status == status)) or 0


@contextmanager
def _timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"{what:<28}{time.monotonic() - began:>9.1f} s", flush=True)


@contextmanager
def _installation() -> Iterator[Night]:
    with tempfile.TemporaryDirectory() as folder, ModelServer().always(BROKEN) as model:
        template = Template(Path(folder) / "template")
        copy = Path(folder) / "data"
        copy.mkdir()
        with template.copy(copy) as settings:
            app, clock = create_app(settings.model_copy(update={"log_level": "WARNING"})), FakeClock()
            app.extensions.update(clock=clock, master_key=template.master_key)
            with app.app_context():
                yield Night(app, clock, model)
        template.drop()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=2000)
    parser.add_argument("--failing", type=int, default=50)
    return parser.parse_args()


if __name__ == "__main__":
    main()
