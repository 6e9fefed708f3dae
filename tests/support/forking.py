"""A process that has loaded what a worker loads, and becomes one by forking: loading takes three seconds each time.

    python -m tests.support.forking

It runs in a clean environment and knows no settings: what reads them (`tasks`, `celeryconfig`, `create_app`) is loaded
and run after the fork, as `python -m app` would. Each request comes by its socket, as JSON and the file for what is
printed, and is answered by a process id; later comes the id again, with how that process ended.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

from app.config import ROOT

LOADED = (
    *("celery.bin.celery", "celery.bin.worker", "celery.bin.beat", "celery.apps.worker", "celery.apps.beat"),
    *("celery.worker.components", "celery.worker.consumer", "celery.worker.autoscale", "celery.concurrency.thread"),
    *(
        "celery.app.events",
        "celery.app.control",
        "celery.events.state",
        "celery.fixups.django",
        "kombu.transport.redis",
    ),
    *("app.cli.processes", "app.cli.printing", "app.setup", "app.history.proof", "app.history.undo"),
    *("app.notices.timer", "app.statements.checkpointing", "app.refinement.sweep", "app.refinement.process"),
    *("app.refinement.heartbeat", "app.asking.model_test", "app.reflection", "app.authoring", "app.exchange.taking_in"),
    *("app.grants", "app.tokens", "app.keys.agent_keys", "app.security", "psycopg", "sqlalchemy.dialects.sqlite"),
)


class ForkedProcess:
    """As `subprocess.Popen`, as far as tests use it."""

    def __init__(self, pid: int, server: ForkServer) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        if (status := self._ended(timeout)) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.status_of(self.pid, timeout)
        return self.returncode


class ForkServer:
    """The process that forks, from this side: one for a run of tests."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forking", str(theirs.fileno())],
                cwd=ROOT,
                env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._lock = threading.Lock()
        self._statuses: dict[int, int] = {}

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], output: IO[bytes]) -> ForkedProcess:
        """`python -m app ARGUMENTS`, from ROOT."""
        request = json.dumps({"arguments": [*arguments], "environment": {**environment}}).encode()
        with self._lock:
            rights = array.array("i", [output.fileno()])
            self._socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            while "began" not in (said := self._hear(None) or {}):
                assert self._process.poll() is None, "the process that forks has ended"
            self._statuses.pop(said["began"], None)  # an earlier one's of the same number
        return ForkedProcess(said["began"], self)

    def status_of(self, pid: int, timeout: float | None) -> int | None:
        """How it ended, as Popen says it; None where it has not within so many seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                while pid not in self._statuses and self._hear(0.05 if timeout else 0):
                    pass
                if pid in self._statuses:
                    return self._statuses[pid]
            assert self._process.poll() is None, "the process that forks has ended"
            if deadline is not None and time.monotonic() >= deadline:
                return None

    def stop(self) -> None:
        self._socket.close()
        self._process.wait(10)

    def _hear(self, timeout: float | None) -> dict[str, int] | None:
        if not select.select([self._socket], [], [], timeout)[0]:
            return None
        said: dict[str, int] = json.loads(self._socket.recv(1000) or b"{}")
        if "ended" in said:
            self._statuses[said["ended"]] = said["status"]
        return said


@cache
def fork_server() -> ForkServer:
    server = ForkServer()
    atexit.register(server.stop)
    return server


def serve(channel: socket.socket) -> list[str] | None:
    """In the process that was forked, its arguments; in the one that forks, None once nobody asks any more."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    while True:
        ready, _, _ = select.select([channel, woken], [], [])
        if woken in ready:
            os.read(woken, 1000)
            _tell_who_ended(channel)
        if channel not in ready:
            continue
        request, outputs, _, _ = socket.recv_fds(channel, 1 << 20, 1)
        if not request:
            return None
        (output,) = outputs
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            channel.close()
            for own in (woken, wake):
                os.close(own)
            return _become(json.loads(request), output)
        os.close(output)
        channel.send(json.dumps({"began": pid}).encode())
    return None


def _tell_who_ended(channel: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            status = os.waitstatus_to_exitcode(ended[1])
            channel.send(json.dumps({"ended": ended[0], "status": status}).encode())


def _become(request: dict[str, Any], output: int) -> list[str]:
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    os.environ.clear()
    os.environ.update(request["environment"])
    return [*request["arguments"]]


def load() -> None:
    """As `app/__main__.py` begins, then what a worker loads that knows no settings."""
    from app.__main__ import IMPORTED_WHEREVER_FOUND

    for library in IMPORTED_WHEREVER_FOUND:
        sys.modules[library] = None  # type: ignore[assignment]
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    for name in LOADED:
        importlib.import_module(name)
    from app.llm.litellm import load_litellm

    load_litellm()
    from litellm.litellm_core_utils.thread_pool_executor import executor

    executor.shutdown()
    executor.__init__(executor._max_workers, executor._max_pending_tasks)  # type: ignore[misc] - others hold it
    assert threading.active_count() == 1, "only a process of one thread may fork"
    assert not {"tasks.celery", "celeryconfig"} & sys.modules.keys()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        load()
        given = serve(channel)
    if given is not None:
        sys.argv = [str(Path(ROOT, "app", "__main__.py")), *given]
        del sys.modules["app.__main__"]
        runpy.run_module("app", run_name="__main__", alter_sys=True)
