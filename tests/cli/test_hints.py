"""Every command that Whetstone prints works as it stands: `./whetstone`, the right words, the right account."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from flask import Flask

from app.cli import cli
from app.config import ROOT
from app.extensions import writing
from app.keys.agent_keys import make_keys
from app.models import COMMAND_LINE, Account, Agent
from tests.cli.conftest import Whetstone
from tests.support.factories import remember

pytestmark = pytest.mark.once

COMMAND = re.compile(r"(?<![\w./-])(\./)?whetstone ([a-z][a-z-]*)")


def printed() -> Iterator[tuple[Path, str, bool, str]]:
    """Every command named in a text of the product: its file, the text, whether `./` stands before it, its word."""
    for path in sorted((ROOT / "app").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for found in COMMAND.finditer(node.value):
                    yield path, node.value, bool(found[1]), found[2]


def test_every_command_in_a_text_begins_with_the_program_as_it_lies_there_and_exists() -> None:
    commands = set(cli.list_commands(click.Context(cli)))
    found = list(printed())
    assert len(found) > 40
    for path, text, is_runnable, command in found:
        assert command in commands, (path, text)
        assert is_runnable, (path, text)


@pytest.fixture
def elsewhere(app: Flask) -> Agent:
    """An agent of the second account, with an awkward name."""
    with writing():
        account = Account.create("Second house")
        agent = Agent.create(account.id, name="it's me; $HOME", model_id="whetstone/offline", by=COMMAND_LINE)
        make_keys(agent)
    remember(agent, "Ann likes tea.", "Ann likes tea.", "Bob likes rum.", "Cleo likes ink.")
    return agent


def hints_of(*texts: str) -> list[list[str]]:
    """The commands at the ends of lines, without those that need a word of the reader's."""
    lines = [line for text in texts for line in text.splitlines()]
    found = [shlex.split(line.partition(": ./whetstone ")[2]) for line in lines if ": ./whetstone " in line]
    return [words for words in found if not any(re.fullmatch("[A-Z]{2,}", word) for word in words)]


def test_every_printed_hint_runs_as_it_stands_also_in_another_account(
    elsewhere: Agent, whetstone: Whetstone, tmp_path: Path
) -> None:
    name, account = elsewhere.name, ("--account", "Second house")
    file = tmp_path / "memories.jsonl"
    file.write_text('{"content": "Dora likes ink."}\n' * 2)
    begun = (
        ("agents", "list", *account),
        ("agents", "show", name, *account),
        ("agents", "token", "list", name, *account),
        ("memories", "import", str(file), "--agent", name, *account),
        ("memories", "list", name, *account),
        ("refine", name, *account, "--mode", "dedup_only", "--wait"),
        ("refinements", "list", *account),
        ("audit", *account),
        ("grants", "list", *account),
        ("keys", "check"),
        ("demo",),
        ("demo", "--own-account"),
    )
    waiting = [(list(words), "") for words in begun]
    ran: set[tuple[str, ...]] = set()
    while waiting:
        words, printed_by = waiting.pop(0)
        if tuple(words) in ran or len(ran) > 60:
            continue
        ran.add(tuple(words))
        said = whetstone(*words)
        assert said.status in (0, 3), (printed_by, words, said.err)
        waiting += [(hint, " ".join(words)) for hint in hints_of(said.out, said.err)]
    assert len(ran) > len(begun) + 3


def test_what_an_unknown_token_is_told_runs_in_its_account_too(elsewhere: Agent, whetstone: Whetstone) -> None:
    account = ("--account", "Second house")
    said = whetstone("agents", "token", "revoke", elsewhere.name, "nobody", *account)
    assert said.status == 1
    (command,) = re.findall(r"`\./whetstone (.*)` names them", said.err)
    assert whetstone(*shlex.split(command)).status == 0
