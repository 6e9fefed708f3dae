"""The recipes of docs/statements.md, as they stand there: run on a real receipt, and on one that was changed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from flask import Flask

from app.config import ROOT
from app.models.statement import StatementKind
from app.models.statement_log import current_of, statement_log
from app.statements.checkpointing import make_checkpoint
from app.statements.receipts import make_receipt
from tests.support.factories import make_agent

PAGE = (ROOT / "docs" / "statements.md").read_text()


@pytest.fixture
def folder(app: Flask, tmp_path: Path) -> Path:
    """A receipt from the middle of a log, and the key, as somebody else has them."""
    first = make_agent()
    for name in ("wren", "crumb", "otis"):
        make_agent(name)
    make_checkpoint()
    stated = current_of(first.id, first.uuid).model
    assert stated is not None
    assert stated.position is not None
    made = tmp_path / "elsewhere"
    made.mkdir()
    (made / "receipt.txt").write_bytes(make_receipt(stated.position).file)
    (made / "key.vkey").write_text(f"{statement_log().keys.verifier.vkey}\n")
    return made


def recipe(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)
    return str(found)


def run_python(folder: Path) -> subprocess.CompletedProcess[str]:
    vkey = (folder / "key.vkey").read_text().strip()
    command = [sys.executable, "-I", "-c", recipe("python"), "receipt.txt", vkey]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def run_openssl(folder: Path) -> subprocess.CompletedProcess[str]:
    shell = shutil.which("bash") or "sh"
    return subprocess.run([shell, "-ec", recipe("sh")], cwd=folder, capture_output=True, text=True, check=False)


def change(folder: Path, old: str, new: str) -> None:
    file = folder / "receipt.txt"
    text = file.read_text()
    assert text.count(old) >= 1
    file.write_text(text.replace(old, new, 1))


def test_the_recipe_in_python_checks_all_of_a_receipt(folder: Path) -> None:
    done = run_python(folder)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kind"] == "model"


@pytest.mark.parametrize(
    ("old", "new"), [("whetstone/offline", "openai/gpt-5"), ("index ", "index 1"), ("\nindex 1\n", "\nindex 2\n")]
)
def test_the_recipe_in_python_refuses_what_was_changed(folder: Path, old: str, new: str) -> None:
    change(folder, old, new)

    assert run_python(folder).returncode != 0


def test_the_recipe_with_openssl_checks_both_signatures(folder: Path) -> None:
    done = run_openssl(folder)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Signature Verified Successfully") == 2


def test_the_recipe_with_openssl_refuses_what_was_changed(folder: Path) -> None:
    change(folder, "whetstone/offline", "openai/gpt-5")

    assert run_openssl(folder).returncode != 0


def test_every_kind_of_statement_is_described() -> None:
    assert {kind for kind in StatementKind if f"\n| `{kind}` |" not in PAGE} == set()
