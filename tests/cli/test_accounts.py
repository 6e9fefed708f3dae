"""`--account`: every command that acts within an account takes it, and keeps to it."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from flask import Flask
from sqlalchemy import select

from app import security
from app.cli import cli
from app.extensions import db, writing
from app.models import COMMAND_LINE, Account, AttentionItem
from app.models.statement import LogLeaf
from tests.cli.conftest import Whetstone
from tests.support.factories import begin, make_agent, remember

WHOLE_INSTALLATION = {
    *("up", "web", "worker", "beat", "mcp", "doctor", "limits", "db upgrade", "restore accept", "test", "check"),
    *("keys backup", "keys check", "keys dismiss", "keys enroll", "keys restore", "keys web"),
    *("audit checkpoint", "audit check-receipt"),
    *("accounts list", "accounts create", "accounts limits"),
    "sweep",  # does what beat does, for all
}
"""They ask nothing about one account."""


def every_command(group: click.Group = cli, before: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from every_command(command, f"{before}{name} ")
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield before + name, command


def test_every_command_takes_an_account_unless_it_is_about_the_whole_installation() -> None:
    found = {
        name: any("--account" in parameter.opts for parameter in command.params) for name, command in every_command()
    }
    assert len(found) > 40
    assert {name for name, takes in found.items() if not takes} == WHOLE_INSTALLATION


@pytest.fixture
def elsewhere(app: Flask) -> dict[str, str]:
    """What a second account has, by the command that it is given to."""
    security.init_app(app, views=False)
    with writing():
        account = Account.create("Second house")
        security.create_user(account, "eve@example.org", "a long pass phrase", roles=("admin",), by=COMMAND_LINE)
    agent = make_agent("finch", account_id=account.id)
    remember(agent, "Ann likes tea.", "Bob likes rum.")
    run = begin(agent)
    run.tool.execute("complete", summary="Done.", note_to_admins="All is well.")
    (item,) = run.reload().notes
    assert isinstance(item, AttentionItem)
    statement = db.session.scalars(select(LogLeaf.position).where(LogLeaf.agent_id == agent.id)).first()
    ids = {
        "refinement": run.refinement.id,
        "item": str(item.id),
        "user": "eve@example.org",
        "statement": str(statement),
    }
    db.session.rollback()
    return ids


@pytest.mark.parametrize(
    "words",
    [
        ("refinements", "show", "refinement"),
        ("refinements", "stop", "refinement"),
        ("attention", "seen", "item"),
        ("audit", "receipt", "statement"),
        ("users", "set", "--active", "user"),
        ("users", "reset-password", "user"),
        ("users", "deactivate", "user"),
    ],
)
def test_what_an_id_names_is_found_in_its_own_account_or_in_any_and_in_no_other(
    whetstone: Whetstone, elsewhere: dict[str, str], words: tuple[str, ...]
) -> None:
    words = tuple(elsewhere.get(word, word) for word in words)

    other = whetstone(*words, "--account", "Home")
    assert (other.status, other.out) == (1, "")
    assert "There is no" in other.err
    own = whetstone(*words, "--account", "Second house")
    assert (own.status, own.err) == (whetstone(*words).status, "")
    assert own.out or own.status == 0


def test_the_demo_goes_into_the_account_that_is_named(whetstone: Whetstone, elsewhere: dict[str, str]) -> None:
    made = whetstone("demo", "--account", "Second house", "--json").json
    assert (made["account"], made["made"]) == ("Second house", True)
    both = whetstone("demo", "--account", "Home", "--own-account")
    assert both.status == 2
    assert "not both" in both.err
