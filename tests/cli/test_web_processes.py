"""`up` with two web processes on one port, and two workers: whichever answers, it is the same installation."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from app.config import ROOT, load_settings
from app.errors import Misconfigured
from tests.support.installation import START_SECONDS, free_port, read_until_ready
from tests.support.processes import is_alive, read, wait_for
from tests.support.workers import NO_TICK

EMAIL = "admin@whetstone.local"
A_MINUTE = 20
"""Requests that a token may send, over all processes."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class House:
    """A running `up` with two web processes and two workers."""

    address: str
    password: str
    process: subprocess.Popen[str]
    data: Path
    environment: dict[str, str]

    def webs(self) -> set[int]:
        return {pid for pid in _children(self.process.pid) if _words(pid)[1:4] == ["-m", "app", "web"]}

    def serving(self) -> set[int]:
        """The web processes that listen."""
        port = f":{int(self.address.rpartition(':')[2]):04X}"
        lines = (line.split() for line in read(Path("/proc/net/tcp")).splitlines()[1:])
        listening = {f"socket:[{line[9]}]" for line in lines if line[1].endswith(port) and line[3] == "0A"}
        return {pid for pid in self.webs() if listening & _open_files(pid)}

    def two_serving(self) -> bool:
        return len(self.serving()) == 2

    def client_of_each(self, stack: ExitStack) -> dict[int, httpx.Client]:
        """A client with one connection to each web process; which process took it is read off its open files."""
        found: dict[int, httpx.Client] = {}
        for _ in range(200):
            client = httpx.Client(base_url=self.address, timeout=60, limits=httpx.Limits(max_connections=1))
            stack.enter_context(client)
            found.setdefault(self._server_of(client), client)
            if len(found) == 2:
                return found
        raise AssertionError("all connections went to one process")

    def _server_of(self, client: httpx.Client) -> int:
        _, port = client.get("/healthz").extensions["network_stream"].get_extra_info("client_addr")
        lines = (line.split() for line in read(Path("/proc/net/tcp")).splitlines()[1:])
        inodes = {f"socket:[{line[9]}]" for line in lines if line[2].endswith(f":{port:04X}")}
        return next(pid for pid in self.webs() if inodes & _open_files(pid))

    def workers(self) -> list[int]:
        """The processes that have left their note in the database."""
        with contextlib.closing(sqlite3.connect(self.data / "whetstone.db")) as database:
            marks = database.execute("SELECT value FROM marks WHERE name LIKE 'worker%'")
            return [json.loads(value)["process"] for (value,) in marks]

    def make_agent(self, name: str) -> str:
        command = [sys.executable, "-m", "app", "agents", "create", name, "--model", "whetstone/offline", "--json"]
        made = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, check=True)
        return str(json.loads(made.stdout)["token"])

    def sign_in(self, client: httpx.Client) -> dict[str, str]:
        """Returns the cookies."""
        token = re.search(r'name="csrf_token" value="([^"]+)"', client.get("/sign-in").text)
        assert token is not None
        form = {"email": EMAIL, "password": self.password, "csrf_token": token[1]}
        assert client.post("/sign-in", data=form).status_code == 302
        return dict(client.cookies)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    data, port = tmp_path_factory.mktemp("two") / "var", free_port()
    environment = os.environ | {
        "WHETSTONE_DATA_DIR": str(data),
        "WHETSTONE_WEB_PROCESSES": "2",
        "WHETSTONE_API_RATE": f"{A_MINUTE}/hour",
        "WHETSTONE_SCHEDULE": NO_TICK,
    }
    up = subprocess.Popen(
        [sys.executable, "-m", "app", "up", "--no-browser", "--json", "--workers", "2", "--port", str(port)],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert up.stdout is not None
    try:
        said = read_until_ready(up.stdout, '"ready"')
        told = {name: value for line in said.splitlines() for name, value in json.loads(line).items()}
        assert told["ready"] == f"http://127.0.0.1:{port}"
        house = House(told["ready"], told["password"], up, data, environment)
        wait_for(house.two_serving, seconds=START_SECONDS)
        yield house
    finally:
        up.terminate()
        up.communicate(timeout=60)


def test_each_serves_pages_the_stream_and_the_agents_door_to_whom_the_other_let_in(house: House) -> None:
    token = house.make_agent("Ann")
    with ExitStack() as stack:
        one, other = house.client_of_each(stack).values()
        other.cookies.update(house.sign_in(one))
        for client in (one, other):
            assert "Sign out" in client.get("/").text
            assert client.get("/api/v1/me", headers={"Authorization": f"Bearer {token}"}).status_code == 200
            with client.stream("GET", "/events?topics=agents&after=0") as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")


def test_a_token_has_one_allowance_for_all_of_them(house: House) -> None:
    headers = {"Authorization": f"Bearer {house.make_agent('Bob')}"}
    with ExitStack() as stack:
        one, other = house.client_of_each(stack).values()
        answers = [client.get("/api/v1/me", headers=headers).status_code for client in [one, other] * 12]

    assert answers == [200] * A_MINUTE + [429] * (24 - A_MINUTE)


def test_what_ends_is_started_again_while_the_other_serves(house: House) -> None:
    killed, *_ = house.serving()
    os.kill(killed, signal.SIGKILL)
    # Until the last of its threads has ended, and it is reaped, its socket takes connections that nobody answers.
    wait_for(lambda: not Path(f"/proc/{killed}").exists(), seconds=START_SECONDS)

    assert httpx.get(f"{house.address}/sign-in", timeout=60).status_code == 200
    wait_for(house.two_serving, seconds=START_SECONDS)
    assert killed not in house.serving()


def test_all_end_with_the_supervisor(house: House) -> None:
    """Both web processes and both workers, as many as it was told. The last test: the house is gone behind it."""
    wait_for(lambda: len(house.workers()) == 2, seconds=60)
    webs, workers = house.webs(), house.workers()
    assert len(webs) == 2
    house.process.terminate()
    house.process.communicate(timeout=60)

    assert house.process.returncode == 0
    assert not any(map(is_alive, [*webs, *workers]))
    logs = {path.name for path in (house.data / "logs").iterdir()}
    assert {"web.log", "web-2.log", "worker.log", "worker-2.log"} <= logs


@pytest.mark.parametrize("number", ["0", "65", "two", "1.5", ""])
def test_a_wrong_number_is_named(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHETSTONE_WEB_PROCESSES", number)

    with pytest.raises(Misconfigured, match="WHETSTONE_WEB_PROCESSES"):
        load_settings()


def _children(parent: int) -> list[int]:
    return [int(pid) for pid in read(Path(f"/proc/{parent}/task/{parent}/children")).split()]


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def _open_files(pid: int) -> set[str]:
    found = set()
    for file in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            found.add(str(file.readlink()))
        except OSError:
            continue  # closed meanwhile
    return found
