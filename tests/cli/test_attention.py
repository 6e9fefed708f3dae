"""`whetstone attention`: what waits for an admin, at the command line; marked as seen once, and taken back."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db
from app.models import Action, Agent, AuditLog
from tests.cli.conftest import Whetstone
from tests.support.factories import begin, make_agent, remember


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("ezra")
    remember(made, "Ann likes tea.")
    begin(made).tool.execute("complete", summary="Done.", note_to_admins="Mind the tea.")
    return made


def test_it_lists_notes_as_they_were_written_for_people_and_programs(whetstone: Whetstone, agent: Agent) -> None:
    (item,) = whetstone("attention", "list", "--json").json

    assert (item["kind"], item["agent"], item["text"], item["seen_at"]) == ("note", "ezra", "Mind the tea.", None)
    assert item["subject"].startswith("refinement:")
    said = whetstone("attention", "list").out
    assert "ezra" in said
    assert "wrote to the admins: “Mind the tea.”" in said


def test_what_is_marked_as_seen_leaves_the_list_once_and_comes_back_by_undo(whetstone: Whetstone, agent: Agent) -> None:
    number = str(whetstone("attention", "list", "--json").json[0]["id"])

    assert whetstone("attention", "seen", number, "--json").json == [{"id": int(number), "changed": True}]
    assert whetstone("attention", "seen", number).out == f"{number}: was seen already.\n"
    assert whetstone("attention", "list").out == "Nothing needs attention.\n"
    (seen,) = whetstone("attention", "list", "--all", "--json").json
    assert seen["seen_by"] == "system:command line"
    assert whetstone("attention", "seen", number, "--undo").out == f"{number}: marked as not seen.\n"
    assert len(whetstone("attention", "list", "--agent", "ezra", "--json").json) == 1
    actions = db.session.scalars(select(AuditLog.action).order_by(AuditLog.id.desc()).limit(2)).all()
    assert actions == [Action.ATTENTION_UNSEEN, Action.ATTENTION_SEEN]
    assert whetstone("verify", "--json").json["ok"]


def test_the_list_takes_the_filters_of_the_page(whetstone: Whetstone, agent: Agent) -> None:
    for options, count in ((["--kind", "note,reading"], 1), (["--kind", "unfinished"], 0), (["--reason", "x"], 0)):
        assert len(whetstone("attention", "list", *options, "--json").json) == count
    assert whetstone("attention", "list", "--kind", "nonsense").status == 2


def test_all_that_a_filter_leaves_is_marked_at_once(whetstone: Whetstone, agent: Agent) -> None:
    assert whetstone("attention", "seen", "--kind", "failed").out == "Nothing matches that is not seen yet.\n"
    assert "1 item marked as seen." in whetstone("attention", "seen", "--kind", "note", "--agent", "ezra").out
    assert whetstone("attention", "list").out == "Nothing needs attention.\n"
    for words in ((), ("--kind", "note", "1"), ("--kind", "note", "--undo"), ("--kind", "nonsense")):
        assert whetstone("attention", "seen", *words).status == 2


@pytest.mark.parametrize("number", ["0", "-1", "x", "9" * 30])
def test_what_is_no_number_of_an_item_is_wrong_usage(whetstone: Whetstone, agent: Agent, number: str) -> None:
    assert whetstone("attention", "seen", "--", number).status == 2


def test_an_unknown_item_is_not_found(whetstone: Whetstone, agent: Agent) -> None:
    answer = whetstone("attention", "seen", "4711", "--json")

    assert (answer.status, answer.error["code"]) == (1, "not_found")
