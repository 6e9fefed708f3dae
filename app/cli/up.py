"""`./whetstone up`: everything on one machine, from an empty data dir to a page that answers, and down again."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import webbrowser
from functools import partial
from pathlib import Path

import click

from app.cli import json_option
from app.cli.printing import print_json, say, say_on_stderr, tell_of_new_key
from app.config import Settings, load_settings
from app.errors import WhetstoneError, has_no_room
from app.processes.broker import EmbeddedBroker, require_broker
from app.processes.datadir import PartsFile, check_data_dir, hold_data_dir
from app.processes.quickcheck import PreparedInstallation
from app.processes.startup import local_address, start_beat, start_more_processes, start_parts, wait_until_ready
from app.processes.supervisor import StopRequested, Supervisor


class PortTaken(WhetstoneError):
    """The port is in use."""

    code = "port_taken"


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the pages (WHETSTONE_PORT, else 8000).")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Database, keys and logs (WHETSTONE_DATA_DIR).")
@click.option("--workers", type=click.IntRange(1, 64), help="Worker processes (WHETSTONE_WORKERS, else 1).")
@click.option("--no-browser", is_flag=True, help="Do not open the page in a browser.")
@json_option
def up(port: int | None, data_dir: Path | None, workers: int | None, no_browser: bool, as_json: bool) -> None:
    """Start broker, database, web, worker and beat, and print the address. Ctrl-C stops everything."""
    if port is not None:  # the options stand above the environment
        os.environ["WHETSTONE_PORT"] = str(port)
    if data_dir is not None:
        os.environ["WHETSTONE_DATA_DIR"] = str(data_dir.expanduser().absolute())
    if workers is not None:
        os.environ["WHETSTONE_WORKERS"] = str(workers)
    settings = load_settings()
    os.umask(0o077)
    check_data_dir(settings)
    with contextlib.suppress(StopRequested), hold_data_dir(settings, local_address(settings)):
        check_port(settings)
        _run_parts(settings, as_json, browser=not no_browser)


def check_port(settings: Settings) -> None:
    """Raises PortTaken where the web process could not listen."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, settings.port))
    except OSError as error:
        raise PortTaken(
            f"Port {settings.port} of {settings.host} can't be listened on ({error.strerror}). Nothing was started. "
            "Choose another one with --port N or WHETSTONE_PORT."
        ) from None


def _run_parts(settings: Settings, as_json: bool, *, browser: bool) -> None:
    if settings.redis_url:
        require_broker(settings)
    broker = None if settings.redis_url else EmbeddedBroker(settings)
    parts, place = PartsFile(settings), local_address(settings)
    parts.remove()
    try:
        with Supervisor(say_aside, partial(parts.write, os.getpid())) as supervisor:
            has_reader = sys.stdout.isatty() and not as_json
            _tell_prepared(start_parts(supervisor, settings, broker, with_words=has_reader), as_json)
            wait_until_ready(supervisor, settings)
            start_more_processes(supervisor, settings)
            start_beat(supervisor, settings)
            print_json({"ready": place}) if as_json else say(f"Whetstone is ready: {place}")
            if browser and _somebody_watches():
                webbrowser.open(place)
            supervisor.watch()
    finally:
        parts.remove()
        if broker:
            broker.withdraw()


def say_aside(sentence: str) -> None:
    """On stderr. Where the terminal is a file on a full disk, what is said is lost, and everything goes on."""
    try:
        say_on_stderr(sentence)
    except OSError as error:
        if not has_no_room(error):
            raise


def _tell_prepared(outcome: PreparedInstallation, as_json: bool) -> None:
    """Password and recovery words, on stdout: nothing of it reaches a log, which only the children have."""
    if outcome.made_master_key:
        tell_of_new_key(outcome)
    if outcome.first_password and as_json:
        print_json({"first_admin": outcome.first_email, "password": outcome.first_password})
    elif outcome.first_password:
        say(f"First admin: {outcome.first_email}")
        say(f"Password:    {outcome.first_password}  (shown only this once)")
        say_aside(
            "New here? Sign in and choose Try the demo, or run `./whetstone demo`: two agents that need no API key."
        )


def _somebody_watches() -> bool:
    """A person at this machine's own screen, not a script, and not a terminal from afar."""
    screen = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return screen and sys.stdout.isatty() and "SSH_CONNECTION" not in os.environ
