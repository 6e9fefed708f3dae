"""What `up` starts, and in which order: the preparation of the database, then the parts, until all are ready."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from app.config import ROOT, Settings
from app.errors import WhetstoneError
from app.keynames import is_like_a_key
from app.processes.broker import EmbeddedBroker
from app.processes.child import Child, before_command
from app.processes.quickcheck import PreparedInstallation, is_prepared
from app.processes.supervisor import Supervisor

PREPARE_SECONDS = 3600.0
"""Migrations of a large database take their time; Ctrl-C works meanwhile."""

READY_SECONDS = 120.0

NOWHERE = f"{os.devnull}/kept-from-this-process"
"""The private master key's location, for the processes that must not read it."""

ANYWHERE = {"0.0.0.0", "::", "localhost", ""}  # noqa: S104 - what the operator may have set, as answered locally


class PreparationFailed(WhetstoneError):
    """The database could not be prepared."""

    code = "preparation_failed"


def local_address(settings: Settings) -> str:
    """Where a person on this machine finds the pages."""
    host = _local_host(settings)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def start_parts(
    supervisor: Supervisor, settings: Settings, broker: EmbeddedBroker | None, *, with_words: bool
) -> PreparedInstallation:
    """Return when web and worker may begin. They load meanwhile, and wait for the word on their standard input.

    `with_words`: somebody is there to write down the recovery words of a master key that is made now.
    """
    with ExitStack() as stack:
        preparation = None if is_prepared(settings) else stack.enter_context(_preparing(settings, with_words))
        if broker:
            supervisor.adopt(broker.start())
        parts = [
            supervisor.start(_make_child(settings, "web", grace=8)),
            supervisor.start(_make_child(settings, "worker", grace=20)),
        ]
        outcome = _wait_for(preparation, supervisor) if preparation else PreparedInstallation()
    for part in parts:
        part.tell()
    return outcome


def wait_until_ready(supervisor: Supervisor, settings: Settings) -> None:
    """Return when the web process says on `/readyz` that database, broker and worker answer."""
    last = "nothing"

    def is_ready() -> bool:
        nonlocal last
        connection = http.client.HTTPConnection(_local_host(settings), settings.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            last = f"{answer.status} {answer.read(500).decode('utf-8', 'replace')}"
        except (OSError, http.client.HTTPException) as error:
            last = f"not at all ({type(error).__name__})"
            return False
        finally:
            connection.close()
        return answer.status == 200

    supervisor.wait_until(is_ready, seconds=READY_SECONDS, otherwise=lambda: f"/readyz last answered: {last}")


def start_more_processes(supervisor: Supervisor, settings: Settings) -> None:
    """Those beyond the first of a kind, which answers already: nobody waits for them."""
    for number in range(2, settings.web_processes + 1):
        supervisor.start(_make_child(settings, "web", grace=8, number=number)).tell()
    for number in range(2, settings.workers + 1):
        supervisor.start(_make_child(settings, "worker", grace=20, number=number)).tell()


def start_beat(supervisor: Supervisor, settings: Settings) -> None:
    """Last, because nobody waits for the timetable, and its loading would slow the others down."""
    supervisor.start(_make_child(settings, "beat", grace=3)).tell()


@contextmanager
def _preparing(settings: Settings, with_words: bool) -> Iterator[subprocess.Popen[str]]:
    """The command `prepare` in a process of its own, so that the supervisor stays small. Its secrets come by pipe."""
    words = ["--words"] if with_words else []
    process = subprocess.Popen(  # noqa: S603 - our own command
        [*before_command(), sys.executable, "-m", "app", "prepare", *words, "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_child_environment(settings),
        process_group=0,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _wait_for(preparation: subprocess.Popen[str], supervisor: Supervisor) -> PreparedInstallation:
    """What it made. Raises PreparationFailed with the sentence that the process left."""
    supervisor.wait_until(
        lambda: preparation.poll() is not None,
        seconds=PREPARE_SECONDS,
        otherwise=lambda: "The database was not prepared.",
    )
    said, complained = preparation.communicate()
    if preparation.returncode == 0:
        return PreparedInstallation(**json.loads(said))
    raise PreparationFailed(_error_sentence(complained) or f"The preparation ended with {preparation.returncode}.")


def _make_child(settings: Settings, part: str, *, grace: float, number: int = 1) -> Child:
    """`number`: which of several. The first is named for the part alone, as is its log; then worker-2 and so on."""
    environment = _child_environment(settings)
    name = part if number == 1 else f"{part}-{number}"
    if part != "worker":
        environment = without_model_keys(environment, settings)
        environment["WHETSTONE_MASTER_KEY_FILE"] = NOWHERE
    return Child(
        name=name,
        part=part,
        command=(sys.executable, "-m", "app", part, "--on-word"),
        log=settings.data / "logs" / f"{name}.log",
        environment=environment,
        first_words=b"go\n",
        grace=grace,
    )


def without_model_keys(environment: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """What is left for a process that asks no model: nothing that a provider would take for a key."""
    listed = {*(settings.api_key_envs or ()), settings.safety_api_key_env, settings.second_reader_api_key_env}
    return {name: value for name, value in environment.items() if name not in listed and not is_like_a_key(name)}


def _child_environment(settings: Settings) -> dict[str, str]:
    """Of every process that `up` starts: the same data dir and port, and the code of this checkout."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONSAFEPATH": "1",
        "WHETSTONE_DATA_DIR": str(settings.data),
        "WHETSTONE_PORT": str(settings.port),
    }


def _local_host(settings: Settings) -> str:
    return "127.0.0.1" if settings.host in ANYWHERE else settings.host


def _error_sentence(complained: str) -> str:
    lines = complained.strip().splitlines()
    try:
        message: str = json.loads(lines[-1])["error"]["message"]
    except (IndexError, ValueError, KeyError, TypeError):
        return "\n".join(lines[-3:])
    return message
