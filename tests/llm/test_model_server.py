"""The scripted model server itself, and its use by hand."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_server import ModelServer, hang, replies_from, text, tool_call


def post(base_url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(f"{base_url}/chat/completions", json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=10) as answered:
        decoded: dict[str, Any] = json.load(answered)
    return decoded


def test_a_reply_can_be_made_from_what_was_asked() -> None:
    with ModelServer().always(lambda request: text(request.messages[-1]["content"][::-1])) as server:
        answered = post(server.base_url, {"messages": [{"role": "user", "content": "abc"}]})
    assert answered["choices"][0]["message"]["content"] == "cba"


def test_a_request_that_no_script_foresaw_is_refused_for_good() -> None:
    with ModelServer().script(text("YES")) as server:
        post(server.base_url, {})
        with pytest.raises(urllib.error.HTTPError) as caught:
            post(server.base_url, {})
        caught.value.close()
    assert caught.value.code == 418
    assert len(server.requests) == 2


def test_it_hangs_until_it_is_released() -> None:
    release, answers = threading.Event(), []
    with ModelServer().script(hang(release, text("late"))) as server:
        asking = threading.Thread(target=lambda: answers.append(post(server.base_url, {})))
        asking.start()
        asking.join(0.1)
        assert asking.is_alive()
        release.set()
        asking.join(10)
    assert answers[0]["choices"][0]["message"]["content"] == "late"


def test_stopping_ends_whatever_hangs() -> None:
    forgotten, ended = threading.Event(), []

    def ask() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            post(server.base_url, {})
        ended.append(True)

    with ModelServer().script(hang(forgotten)) as server:
        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(0.1)
        assert not ended
    asking.join(10)
    assert ended


def test_a_script_can_be_written_as_json() -> None:
    made = replies_from(
        [
            {"text": "YES"},
            {"tool_calls": [["delete_memory", {"id": 3}], ["delete_memory", "{bad"]], "delay": 1},
            {"status": 429, "retry_after": 2},
            {"html": "<p>", "status": 502},
            {"body": {"choices": []}, "repeat": 2},
        ]
    )
    assert [(reply.status, reply.delay) for reply in made] == [
        (200, 0),
        (200, 1),
        (429, 0),
        (502, 0),
        (200, 0),
        (200, 0),
    ]
    assert made[2].headers["Retry-After"] == "2"
    assert json.loads(made[1].body)["choices"][0]["message"]["tool_calls"][1]["function"]["arguments"] == "{bad"
    assert json.loads(tool_call("delete_memory", id=3).body)["choices"][0]["finish_reason"] == "tool_calls"


def test_it_runs_by_hand(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"text": "YES"}\n{"text": "again"}\n')
    command = [sys.executable, "-m", "tests.support.model_server", "--script", str(script), "--then-last"]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        base_url = running.stdout.readline().split()[-1]
        said = [post(base_url, {})["choices"][0]["message"]["content"] for _ in range(3)]
        running.terminate()
    assert said == ["YES", "again", "again"]
