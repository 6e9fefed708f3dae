"""The agents' guide does what it says: its commands and programs run as they stand there, against a real server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
from flask import Flask

from app.config import ROOT
from app.errors import WhetstoneError
from app.problems import status_phrase
from tests.api.conftest import Door
from tests.support.model_server import ModelServer, text, tool_call
from tests.support.pages import Site, serving

pytestmark = pytest.mark.once

GUIDE = (ROOT / "docs" / "agents.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", GUIDE, re.S)


@pytest.fixture
def site(web: Flask) -> Iterator[Site]:
    with serving(web) as made:
        yield made


def environment(site: Site, door: Door, **more: str) -> dict[str, str]:
    return os.environ | {"WHETSTONE_URL": site.url, "WHETSTONE_TOKEN": door.token, **more}


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_every_command_is_answered_as_it_should_be(site: Site, door: Door) -> None:
    commands = re.findall(r"^curl .*?(?<!\\)$", GUIDE.replace("\\\n", "  "), re.M)
    assert len(commands) == 11
    for command in commands:
        told = subprocess.run(
            ["bash", "-c", f"{command} -w '\\n%{{http_code}}'"],
            env=os.environ | {"URL": f"{site.url}/api/v1", "TOKEN": door.token},
            capture_output=True, text=True, check=True, timeout=30,
        )  # fmt: skip
        body, _, status = told.stdout.rpartition("\n")
        assert status in ("200", "201", "202"), (command, told.stdout)
        assert isinstance(json.loads(body), dict)
    assert [each["content"] for each in door.get("/memories")["memories"]] == ["Ann promised to call on Sunday."]


def test_the_official_client_s_program_saves_and_reads(site: Site, door: Door) -> None:
    said = run(PROGRAMS[0], environment(site, door))

    assert "save_memory" in said.splitlines()[0]
    assert "Ann promised to call on Sunday." in said


def test_the_loop_s_model_saves_and_recalls_by_itself(site: Site, door: Door) -> None:
    door.save("The kettle is blue.")
    with ModelServer() as model:
        model.script(
            tool_call("remember", content="Ann moved to Bern."),
            tool_call("recall", query="bern"),
            text("She lives in Bern."),
        )
        more = {"MODEL": "openai/scripted", "API_BASE": model.base_url, "OPENAI_API_KEY": "none",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # fmt: skip
        said = run(PROGRAMS[1], environment(site, door, **more), "Ann moved to Bern. Where does she live?")
        asked = [request.messages for request in model.requests]

    assert said.strip().endswith("She lives in Bern.")
    assert "The kettle is blue." in asked[0][0]["content"]
    assert [each["content"] for each in door.get("/memories")["memories"]] == [
        "The kettle is blue.",
        "Ann moved to Bern.",
    ]
    recalled = json.loads(asked[2][-1]["content"])
    assert [each["content"] for each in recalled["memories"]] == ["Ann moved to Bern."]


def test_the_loop_is_about_thirty_lines() -> None:
    assert len([line for line in PROGRAMS[1].splitlines() if line.strip()]) <= 33


def test_every_code_of_an_error_in_the_guide_is_one_that_is_given() -> None:
    table = GUIDE.partition("| status | `code` |")[2].partition("\n\n")[0]
    told = {
        word for row in table.splitlines() if row.count("|") > 3 for word in re.findall(r"`(\w+)`", row.split("|")[2])
    }
    ours = {each.code for each in _kinds(WhetstoneError)}
    http = {status_phrase(status).lower().replace(" ", "_") for status in (405, 413)}

    assert len(told) > 15
    assert told <= ours | http | {"unexpected"}


def _kinds(kind: type[WhetstoneError]) -> Iterator[type[WhetstoneError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)


def run(program: str, said: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=said, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
