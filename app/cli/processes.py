"""The processes that `up` starts, each also to be run alone: web, worker and beat; and the preparation before them."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict

import click

from app.cli import json_option
from app.cli.printing import print_json
from app.config import Settings, load_settings
from app.errors import Unavailable
from app.loading import nothing_collected
from app.processes.broker import require_broker

QUEUES = ("refine", "upkeep", "interactive")


def known_queues(context: click.Context, option: click.Parameter, value: str) -> str:
    """Raises BadParameter for a queue that nobody sends to: its worker would wait for ever."""
    if strange := set(value.split(",")) - set(QUEUES):
        raise click.BadParameter(f"there is no queue {', '.join(sorted(strange))!r}; there are {', '.join(QUEUES)}")
    return value


on_word = click.option("--on-word", is_flag=True, hidden=True)
"""Hidden, for `up`: load everything, then wait for the word on standard input."""


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="WHETSTONE_PORT, else 8000.")
@on_word
@json_option
def web(port: int | None, on_word: bool, as_json: bool) -> None:
    """Serve the pages, the event stream and the agents' API. It never reads the private master key."""
    settings = _begin_process(port=port)
    with nothing_collected():
        from app.processes import asgi

    _wait_for_start(settings, on_word)
    asgi.serve(settings)


@click.command()
@click.option("--queues", default=",".join(QUEUES), show_default=True, callback=known_queues, help="Comma-separated.")
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Refinements in flight (WHETSTONE_CONCURRENCY).")
@on_word
@json_option
def worker(queues: str, concurrency: int | None, on_word: bool, as_json: bool) -> None:
    """Do the work: refinements, sweeps, upkeep. It needs the private master key."""
    settings = _begin_process()
    with nothing_collected():
        from tasks.celery import app, flask_app

        app.loader.import_default_modules()
    _wait_for_start(settings, on_word)
    flask_app()  # looks at database and master key here, where a person reads why not
    app.worker_main(
        [
            *("worker", "--without-gossip", "--without-mingle", "--pool=threads", f"--queues={queues}"),
            f"--concurrency={concurrency or settings.concurrency}",
            f"--hostname=whetstone-{os.getpid()}@%h",
            f"--loglevel={settings.log_level}",
        ]
    )


@click.command()
@on_word
@json_option
def beat(on_word: bool, as_json: bool) -> None:
    """Say, at its times, "start what is due". Run one; a second one does no harm."""
    settings = _begin_process()
    with nothing_collected():
        from tasks.celery import app

    _wait_for_start(settings, on_word)
    settings.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    schedule = settings.run_dir / "beat-schedule"
    app.start(["beat", f"--schedule={schedule}", "--pidfile=", f"--loglevel={settings.log_level}"])


@click.command()
@click.option("--words", is_flag=True, help="Also answer with the recovery words of a key that is made now.")
@json_option
def prepare(words: bool, as_json: bool) -> None:
    """Bring the database up to date, make the master key pair and the first admin where they are missing."""
    settings = _begin_process()
    with nothing_collected():
        from app.setup import prepare_installation

    print_json(asdict(prepare_installation(settings, with_words=words)))


def _begin_process(**overrides: object) -> Settings:
    os.umask(0o077)
    return load_settings(**{name: value for name, value in overrides.items() if value is not None})


def _wait_for_start(settings: Settings, on_word: bool) -> None:
    """Until the supervisor gives the word and the broker answers. Raises Unavailable, also when the supervisor ends."""
    if on_word and not sys.stdin.readline():
        raise Unavailable("The supervisor ended before it gave the word. Nothing was started.")
    require_broker(settings)
