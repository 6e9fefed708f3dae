"""What tests share, to be done once: compiled routes, and a process that forks. Neither shares more than that."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask
from werkzeug.exceptions import MethodNotAllowed, NotFound
from werkzeug.routing import IntegerConverter, Map

from tests.support.forking import ForkedProcess, fork_server
from tests.support.routes import SharedMap


def app_with(*rules: tuple[str, str, list[str]]) -> Flask:
    app = Flask("shared")
    for rule, endpoint, methods in rules:
        app.add_url_rule(rule, endpoint, lambda **_: "", methods=methods)
    return app


def compiled(app: Flask) -> Map:
    assert isinstance(app.url_map, SharedMap)
    return app.url_map._compiled()


def test_the_same_rules_are_compiled_once_and_any_other_anew() -> None:
    first = ("/a/<int:number>", "a", ["GET"])
    one = compiled(app_with(first))
    assert compiled(app_with(first)) is one
    others = [
        app_with(),
        app_with(first, ("/b", "b", ["GET"])),
        app_with(("/a/<int:other>", "a", ["GET"])),
        app_with(("/a/<int:number>", "other", ["GET"])),
        app_with(("/a/<int:number>", "a", ["POST"])),
    ]
    strict = app_with(first)
    strict.url_map.converters["int"] = type("Small", (IntegerConverter,), {})
    assert len({id(one), id(compiled(strict)), *(id(compiled(other)) for other in others)}) == 7


def test_a_rule_that_comes_after_the_first_request_is_found_by_its_own_app_only() -> None:
    one, other = app_with(("/a", "a", ["GET"])), app_with(("/a", "a", ["GET"]))
    ways = [each.url_map.bind("here") for each in (one, other)]
    assert [way.match("/a") for way in ways] == [("a", {}), ("a", {})]
    one.add_url_rule("/b", "b", lambda: "")
    assert ways[0].match("/b") == ("b", {})
    with pytest.raises(NotFound):
        ways[1].match("/b")
    with pytest.raises(MethodNotAllowed):
        ways[1].match("/a", method="POST")


@pytest.fixture
def fork(tmp_path: Path) -> Callable[..., ForkedProcess]:
    def start(*arguments: str, **environment: str) -> ForkedProcess:
        with (tmp_path / "said").open("wb") as said:
            return fork_server().start(arguments, {"WHETSTONE_DATA_DIR": str(tmp_path / "data")} | environment, said)

    return start


def test_a_forked_process_is_the_command_line_with_its_own_settings_output_and_end(
    fork: Callable[..., ForkedProcess], tmp_path: Path
) -> None:
    assert fork("limits", "--json", WHETSTONE_CONCURRENCY="7").wait(30) == 0
    assert '"7"' in (tmp_path / "said").read_text() or ": 7" in (tmp_path / "said").read_text()
    assert fork("worker", "--queues", "nobody").wait(30) == 2
    assert "there is no queue 'nobody'" in (tmp_path / "said").read_text()
    assert fork("worker", WHETSTONE_CONCURRENCY="none").wait(30) == 1
    assert "WHETSTONE_CONCURRENCY" in (tmp_path / "said").read_text()


def test_a_forked_process_is_waited_for_and_killed_as_any_other(fork: Callable[..., ForkedProcess]) -> None:
    waiting = fork("worker", REDIS_URL="redis://127.0.0.1:1/0", PATH="/usr/bin")
    waiting.send_signal(signal.SIGSTOP)
    assert waiting.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.2)
    waiting.kill()
    assert waiting.wait(10) == -signal.SIGKILL
    waiting.terminate()
    assert waiting.poll() == -signal.SIGKILL
