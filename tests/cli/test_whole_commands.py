"""A few commands as a person starts them: processes of their own, one after another, beside nothing else."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from app.config import ROOT, Settings
from tests.support.workers import environment_of


def command(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        cwd=ROOT,
        env=environment_of(settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.slow
def test_the_demo_is_made_refined_and_verified(settings: Settings) -> None:
    assert json.loads(command(settings, "demo", "--json").stdout)["made"] is True

    refined = command(settings, "refine", "Crumb", "--wait", "--json")

    assert refined.returncode == 0, refined.stderr
    assert refined.stderr == ""
    done = json.loads(refined.stdout)
    assert (done["status"], done["stats"]["deduplicated"], done["stats"]["deleted"]) == ("completed", 3, 3)
    assert command(settings, "verify").returncode == 0


@pytest.mark.once
def test_a_reader_that_leaves_early_gets_no_complaint(settings: Settings) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "app", "audit", "--json"],
        cwd=ROOT,
        env=environment_of(settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        reading.stdout.close()
        said = reading.stderr.read()

    assert said == b""


@pytest.mark.once
def test_output_in_a_plain_locale_is_whole(settings: Settings) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app", "doctor"],
        cwd=ROOT,
        env=environment_of(settings) | {"LC_ALL": "C", "PYTHONIOENCODING": ""},
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert "→" in done.stdout.decode()


NOT_FOR_A_LIST = {
    *("litellm", "openai", "httpx", "alembic", "mcp", "spectree", "starlette", "uvicorn", "prometheus_client"),
    *("celery", "kombu", "redis", "webauthn.registration", "rich.pretty", "pygments", "app.views", "app.api", "tasks"),
}
"""What takes long to load, and belongs to other parts. Who adds an import that brings one along sees it here."""


READ_ALL = """
# One after another, as app/__main__.py begins each: what one of them loads is told from then on.
import runpy, sys
for words in ("agents list", "agents show Crumb", "audit", "attention list", "refinements list", "grants list"):
    sys.argv = ["whetstone", *words.split()]
    try:
        runpy.run_module("app", run_name="__main__", alter_sys=True)
    except SystemExit:
        print("LOADED", words, *(name for name, module in sys.modules.items() if module), sep=",", file=sys.stderr)
"""


@pytest.mark.once
def test_a_command_that_only_reads_loads_nothing_of_other_parts(settings: Settings) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL],
        cwd=ROOT,
        env=environment_of(settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    told = [line.split(",")[1:] for line in done.stderr.splitlines() if line.startswith("LOADED,")]
    assert len(told) == 6
    for words, *loaded in told:
        assert "flask_sqlalchemy" in loaded
        assert NOT_FOR_A_LIST & set(loaded) == set(), words


NOT_OF_THE_WEB = """
import pkgutil, sys
sys.modules["webauthn"] = None  # as app/__main__.py does for all processes but the web's
import app.cli, tasks
for package in (app.cli, tasks):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        __import__(module.name)
print(*sorted(name for name in sys.modules if name.startswith(("app.passkeys", "app.views.passkeys", "webauthn."))))
"""


@pytest.mark.once
def test_neither_a_command_nor_a_task_needs_what_checks_passkeys(settings: Settings) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOT_OF_THE_WEB],
        cwd=ROOT,
        env=environment_of(settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
