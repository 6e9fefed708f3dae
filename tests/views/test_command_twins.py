"""The command that a page names is copied into a shell: what an agent calls itself is one word there, and no order."""

from __future__ import annotations

import re
import shlex
import subprocess
from html import unescape
from pathlib import Path

import click
import pytest
from flask import Flask
from sqlalchemy import update

from app.cli import cli
from app.extensions import db, writing
from app.models import Account, Agent
from tests.views.conftest import Browser
from tests.views.site import CONTENT, PUBLIC, SIGN_IN, make_subject, routes

pytestmark = pytest.mark.once

HOSTILE = (
    *("$(touch owned)", '"; touch owned; "', "`touch owned`", "'; touch owned #", "a & touch owned", "> owned", "\\"),
    *("!! $HOME", "x"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a shell would leave what an order made."""
    made = tmp_path / "shell"
    made.mkdir()
    return made


def twin_of(page: str) -> str:
    """The command as the button copies it; empty where the page names none."""
    found = re.search(r'<code id="cli-twin">(.*?)</code>', page, re.S)
    return unescape(re.sub(r"<[^>]+>", "", found[1])).strip() if found else ""


def words_of(command: str, folder: Path) -> list[str]:
    """What a real shell makes of it, with something harmless in the program's place."""
    harmless = command.replace("./whetstone", "printf '%s\\0'", 1)
    ran = subprocess.run(["sh", "-c", harmless], cwd=folder, capture_output=True, text=True, check=True)
    return ran.stdout.split("\0")[:-1]


def test_an_agent_s_name_is_one_word_of_every_command(web: Flask, app: Flask, owner: Browser, folder: Path) -> None:
    subject = make_subject()
    paths = [
        subject.path(rule)
        for rule in routes(web, "GET", without=PUBLIC | SIGN_IN | CONTENT)
        if not rule.rule.endswith((".json", ".csv", ".jsonl"))
    ]
    for name in HOSTILE:
        with writing():
            db.session.execute(update(Agent).where(Agent.id == subject.agent.id).values(name=name))
        commands = {path: twin_of(owner.get(path, buffered=True).text) for path in paths}
        paths = [path for path, command in commands.items() if command]
        named = [path for path in paths if name in words_of(commands[path], folder)]
        assert len(named) >= 7, name
        assert list(folder.iterdir()) == [], name


@pytest.mark.parametrize("given", HOSTILE[:-1])
def test_nor_does_an_address_put_words_into_a_command(
    web: Flask, app: Flask, owner: Browser, given: str, folder: Path
) -> None:
    """A link that somebody sends to an admin."""
    subject = make_subject()
    for path, named in ((f"/agents/{subject.agent.id}/exceptions/new", "scope"), ("/audit", "agent")):
        command = twin_of(owner.get(path, query_string={named: given}).text)
        assert command, path
        words_of(command, folder)
    assert list(folder.iterdir()) == []


def test_a_single_account_needs_no_name(admin: Browser) -> None:
    assert "--account" not in twin_of(admin.get("/agents").text)


def test_with_several_accounts_every_command_is_taken_as_it_stands(web: Flask, app: Flask, owner: Browser) -> None:
    """Its options are those that the program has: a page of one account names it only where that can be given."""
    with writing():
        Account.create("Second house")
    subject = make_subject()
    named = 0
    for rule in routes(web, "GET", without=PUBLIC | SIGN_IN | CONTENT):
        if rule.rule.endswith((".json", ".csv", ".jsonl")):
            continue
        command = twin_of(owner.get(subject.path(rule), buffered=True).text)
        if command:
            _, *words = shlex.split(command.replace(" FILE", " /dev/null"))
            try:
                parse(cli, words)
            except click.UsageError as error:
                raise AssertionError(f"{rule.rule}: {command}") from error
            named += "--account" in words
    assert named > 20


def parse(group: click.Group, words: list[str]) -> None:
    """As the program reads them, without running anything."""
    context = click.Context(group)
    command = group.get_command(context, words[0])
    assert command is not None, words
    if isinstance(command, click.Group) and len(words) > 1 and command.get_command(context, words[1]):
        return parse(command, words[1:])
    with command.make_context(words[0], words[1:]):
        return None
