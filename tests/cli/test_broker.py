"""The embedded broker: found, started with its password out of sight, found again after a restart, gone at its stop."""

from __future__ import annotations

import resource
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.config import Settings, load_settings
from app.errors import DiskFull, Unavailable
from app.processes import broker as module
from app.processes.broker import BrokerFailed, BrokerMissing, EmbeddedBroker, find_server, require_broker, trouble_of
from tests.support.processes import is_alive, read, wait_for


@pytest.fixture
def own(tmp_path: Path) -> Settings:
    return load_settings(data_dir=tmp_path / "data", redis_url="")


@pytest.fixture
def broker(own: Settings) -> Iterator[EmbeddedBroker]:
    made = EmbeddedBroker(own)
    made.start()
    yield made
    made.stop()


def test_it_answers_redis_commands_at_the_announced_address(own: Settings, broker: EmbeddedBroker) -> None:
    assert own.broker_url == broker.url
    assert require_broker(own) == broker.url
    with redis.Redis.from_url(own.broker_url) as client:
        client.lpush("queue", "42")
        assert client.brpop(["queue"], timeout=1) == (b"queue", b"42")


def test_it_refuses_who_does_not_know_the_password(broker: EmbeddedBroker) -> None:
    address, port = broker.url.rpartition("@")[2].removesuffix("/0").split(":")
    with (
        redis.Redis(host=address, port=int(port), retry=Retry(NoBackoff(), 0)) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()


def test_its_password_stands_in_no_command_line_environment_or_log(own: Settings) -> None:
    broker = EmbeddedBroker(own)
    running = broker.start()
    password = broker.url.removeprefix("redis://:").partition("@")[0].encode()
    try:
        for place in ("cmdline", "environ"):
            assert password not in Path(f"/proc/{running.pid}/{place}").read_bytes()
        files = [path for path in own.data.rglob("*") if path.is_file()]
        assert [path.name for path in files if password in path.read_bytes()] == ["broker.url"]
    finally:
        broker.stop()


def test_its_files_are_private(own: Settings, broker: EmbeddedBroker) -> None:
    for path in [own.data, *own.data.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_it_listens_on_this_machine_only(broker: EmbeddedBroker) -> None:
    port = int(broker.url.rpartition(":")[2].removesuffix("/0"))
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines() if f":{port:04X} " in line]
    assert {row[1] for row in listening if row[3] == "0A"} == {f"0100007F:{port:04X}"}


def test_waiting_messages_survive_a_restart(own: Settings) -> None:
    first = EmbeddedBroker(own)
    first.start()
    with redis.Redis.from_url(first.url) as client:
        client.lpush("queue", "42")
    first.stop()
    second = EmbeddedBroker(own)
    second.start()
    with redis.Redis.from_url(second.url) as client:
        assert client.rpop("queue") == b"42"
    second.stop()


def test_unreadable_files_are_put_aside(own: Settings) -> None:
    first = EmbeddedBroker(own)
    first.start()
    with redis.Redis.from_url(first.url) as client:
        for number in range(20):
            client.lpush("queue", number)
    first.stop()
    (journal,) = (own.data / "broker" / "appendonlydir").glob("*.incr.aof")
    journal.write_bytes(journal.read_bytes()[:60] + b"damage" * 5 + journal.read_bytes()[90:])
    second = EmbeddedBroker(own)
    second.start()
    with redis.Redis.from_url(second.url) as client:
        assert client.llen("queue") == 0
    second.stop()
    (aside,) = own.data.glob("broker.unreadable.*")
    assert (aside / "appendonlydir" / journal.name).exists()


def test_a_port_that_somebody_took_meanwhile_is_changed(own: Settings) -> None:
    broker = EmbeddedBroker(own)
    with socket.create_server(("127.0.0.1", broker._port)):
        broker.start()
        assert require_broker(own) == broker.url
        broker.stop()


def test_the_supervisor_finds_it_again_at_the_same_address(own: Settings) -> None:
    broker = EmbeddedBroker(own)
    running = broker.start()
    with redis.Redis.from_url(broker.url) as client:
        client.set("kept", "yes")
    running.stop()
    again = running.child.start()
    again.tell()
    wait_for(broker.answers)
    with redis.Redis.from_url(broker.url) as client:
        assert client.get("kept") == b"yes"
    again.stop()


def test_stop_leaves_neither_process_nor_address(own: Settings) -> None:
    broker = EmbeddedBroker(own)
    pid = broker.start().pid
    broker.stop()
    assert not is_alive(pid)
    assert own.broker_url == ""
    with pytest.raises(Unavailable, match="No broker is running"):
        require_broker(own)


def test_a_server_that_does_not_start_says_why(own: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\necho 'Illegal instruction'\nexit 3\n")
    program.chmod(0o700)
    monkeypatch.setattr(module, "find_server", lambda: program)
    with pytest.raises(BrokerFailed, match="Illegal instruction"):
        EmbeddedBroker(own).start()
    assert read(own.run_dir / "broker.url") == ""


def test_without_the_package_the_path_is_searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerMissing, match="Install valkey-server or redis-server"):
        find_server()
    (tmp_path / "redis-server").write_text("#!/bin/sh\n")
    (tmp_path / "redis-server").chmod(0o700)
    assert find_server() == tmp_path / "redis-server"


def test_a_server_of_the_operator_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = load_settings(data_dir=tmp_path, redis_url=f"redis://:hunter2@127.0.0.1:{port}/0")
    with pytest.raises(Unavailable) as refusal:
        require_broker(settings)
    assert f"127.0.0.1:{port} does not answer" in refusal.value.sentence
    assert "hunter2" not in refusal.value.sentence


def test_an_address_left_by_a_killed_up_is_recognised(own: Settings) -> None:
    own.run_dir.mkdir(parents=True)
    (own.run_dir / "broker.url").write_text("redis://:x@127.0.0.1:9/0\n")
    with pytest.raises(Unavailable, match="does not answer"):
        require_broker(own)


def test_a_broker_whose_file_has_no_room_says_so_and_goes_on_by_itself(own: Settings, broker: EmbeddedBroker) -> None:
    """Its file may not grow: a write in part is to it what a full disk is."""
    pid = pid_of(broker)
    let_files_grow(pid, 4_000)
    with redis.Redis.from_url(broker.url, retry=Retry(NoBackoff(), 0)) as client:
        client.set("filler", "x" * 10_000)
        wait_for(lambda: trouble_of_ping(client).startswith("takes nothing: "))
        with pytest.raises(Unavailable, match=r"takes nothing: .* it goes on by itself then"):
            require_broker(own)
        let_files_grow(pid, resource.RLIM_INFINITY)
        wait_for(lambda: not trouble_of_ping(client))
    assert require_broker(own) == broker.url


def pid_of(broker: EmbeddedBroker) -> int:
    with redis.Redis.from_url(broker.url) as client:
        return int(client.info("server")["process_id"])


def let_files_grow(pid: int, size: int) -> None:
    """As large as that, and no larger."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def trouble_of_ping(client: redis.Redis) -> str:
    try:
        client.ping()
    except redis.RedisError as error:
        return trouble_of(error)
    return ""


def test_a_full_disk_of_the_broker_is_named() -> None:
    full = redis.ResponseError("MISCONF Errors writing to the AOF file: No space left on device")
    assert trouble_of(full) == "takes nothing: its disk is full"
    broken = redis.ResponseError("MISCONF Errors writing to the AOF file: Input/output error")
    assert trouble_of(broken) == "takes nothing: it can't write (Input/output error)"
    assert trouble_of(redis.TimeoutError("Timeout reading from socket")) == "does not answer (TimeoutError)"


def test_one_that_finds_no_room_to_start_says_so_and_keeps_its_files(
    own: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "server"
    program.write_text('#!/bin/sh\necho "Can\'t open the append only file: No space left on device"\nexit 1\n')
    program.chmod(0o700)
    monkeypatch.setattr(module, "find_server", lambda: program)
    with pytest.raises(DiskFull, match="did not start: its disk is full"):
        EmbeddedBroker(own).start()
    assert list(own.data.glob("broker.unreadable.*")) == []
