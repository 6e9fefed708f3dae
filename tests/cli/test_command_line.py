"""What a person, or a program, reads and gets as exit status when a command is wrong, refused, or broken."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from app.cli import COMMANDS, LazyCommand, main
from app.config import ROOT
from app.errors import NotFound, Refused

CANARY = "the canary sang at dawn"


@click.command()
@click.argument("how")
@click.option("--json", "as_json", is_flag=True)
def act(how: str, as_json: bool) -> int | None:
    """A command that ends as it is told."""
    endings = {
        "missing": NotFound("There is no agent named Ezra."),
        "refused": Refused("Ezra is being refined already."),
        "broken": ValueError(CANARY),
        "interrupted": KeyboardInterrupt(),
    }
    if how in endings:
        raise endings[how] from RuntimeError(CANARY)
    click.echo("done")
    return 3 if how == "three" else None


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line within this process: exit status, stdout, stderr."""
    monkeypatch.setitem(COMMANDS, "act", LazyCommand(__name__, "Ends as it is told."))
    monkeypatch.setitem(COMMANDS, "absent", LazyCommand("app.cli.absent", "Its module is not there."))
    monkeypatch.setenv("WHETSTONE_DATA_DIR", str(tmp_path))

    def go(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return go


def test_a_done_command_exits_0_and_one_may_give_a_status_of_its_own(run: Run) -> None:
    assert run("act", "well") == (0, "done\n", "")
    assert run("act", "three") == (3, "done\n", "")


def test_an_error_is_a_sentence_with_its_exit_status(run: Run) -> None:
    assert run("act", "missing") == (1, "", "Error: There is no agent named Ezra.\n")
    assert run("act", "refused") == (3, "", "Error: Ezra is being refined already.\n")


def test_an_error_is_json_where_json_was_asked_for(run: Run) -> None:
    status, out, err = run("act", "refused", "--json")
    assert (status, out) == (3, "")
    assert json.loads(err) == {"error": {"code": "refused", "message": "Ezra is being refined already."}}


def test_wrong_usage_exits_2(run: Run) -> None:
    assert run("act")[0] == 2
    status, _, err = run("ac")
    assert status == 2
    assert "No such command" in err
    status, _, err = run("act", "--json")
    assert status == 2
    assert json.loads(err)["error"]["code"] == "usage"


def test_ctrl_c_exits_130(run: Run) -> None:
    assert run("act", "interrupted")[0] == 130


def test_the_unexpected_is_told_and_kept_without_any_value(run: Run, tmp_path: Path) -> None:
    status, out, err = run("act", "broken")
    log = tmp_path / "logs" / "errors.log"
    assert (status, out) == (1, "")
    assert err == f"Error: Something unexpected happened (ValueError). Details, without any values, are in {log}.\n"
    kept = log.read_text()
    assert "builtins.RuntimeError\nwhich led to" in kept
    assert kept.rstrip().endswith("builtins.ValueError")
    assert "test_command_line.py" in kept
    assert CANARY not in kept
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_the_unexpected_is_told_where_it_cannot_be_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHETSTONE_DATA_DIR", "/dev/null/data")
    status, _, err = run("act", "broken")
    assert status == 1
    assert err.endswith("Its details could not be kept (NotADirectoryError).\n")


def test_a_command_whose_module_is_not_there_is_not_listed(run: Run) -> None:
    _, out, _ = run("--help")
    assert "Ends as it is told." in out
    assert "Its module is not there." not in out
    assert run("absent")[0] == 2


def test_a_reader_that_leaves_is_no_error() -> None:
    code = "import click; from app.cli import LazyGroup, cli, main\n"
    code += '@cli.command()\ndef talk():\n  while True: click.echo("line")\n'
    code += 'LazyGroup.get_command = lambda self, ctx, name: talk\nmain(["talk"])'
    shell = f"{sys.executable} -c '{code}' | head -n 1; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", shell], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "line\n", "")


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from app.cli import main\ntry: main(['--help'])\nfinally: print(sorted(sys.modules))"
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    for heavy in ("litellm", "celery", "flask", "sqlalchemy", "pydantic"):
        assert f"'{heavy}'" not in loaded


def test_every_listed_command_can_be_loaded() -> None:
    for name, entry in COMMANDS.items():
        if (ROOT / entry.module.replace(".", "/")).with_suffix(".py").exists():
            assert isinstance(entry.load(name), click.Command), name
