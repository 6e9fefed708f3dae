"""Rolling back several refinements: in numbers first, then each by itself, the newest first."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select

from app.extensions import db
from app.history.plan import Target
from app.history.undo import roll_back
from app.history.verify import verify
from app.models import COMMAND_LINE, Agent, Rollback
from tests.refinement.driving import alike
from tests.support.clock import FakeClock
from tests.support.factories import Running, begin, ledger, make_agent, remember
from tests.views.conftest import Browser

NOBODY = "00000000-0000-4000-8000-000000000000"


def agent_named(name: str) -> Agent:
    made = make_agent(name)
    remember(made, "Ann likes tea with milk.", "Bob likes rum.", "Bob likes rum and ink.")
    return made


def shortened(agent: Agent, memory_id: int, text: str) -> str:
    """The id of a refinement that changed that memory and completed."""
    run: Running = begin(agent)
    assert run.tool.execute("update", id=memory_id, content=text, confirm_loss=True)["type"] == "updated"
    run.tool.execute("complete", summary="Done.")
    return run.refinement.id


def plan(person: Browser, *ids: str, **query: str) -> dict[str, Any]:
    answer = person.get(
        "/refinements/rollback.json", query_string=[*(("refinement", each) for each in ids), *query.items()]
    )
    assert answer.json is not None
    return answer.json


def prospects(found: dict[str, Any]) -> list[str]:
    return [each["prospect"] for each in found["planned"]]


def rollbacks() -> int:
    db.session.rollback()
    return db.session.scalar(select(func.count(Rollback.id))) or 0


def test_the_preview_says_in_numbers_what_would_happen_and_does_nothing(
    auditor: Browser, app: Flask, clock: FakeClock
) -> None:
    ezra, mina = agent_named("ezra"), agent_named("mina")
    first = shortened(ezra, 1, "Ann likes tea.")
    clock.advance(hours=1)
    other = shortened(mina, 4, "Ann likes tea.")
    undone = shortened(mina, 5, "Bob: rum.")
    roll_back(Target.refinement(undone), by=COMMAND_LINE)
    before = (ledger(ezra), ledger(mina), rollbacks())

    found = plan(auditor, first, other, undone)
    page = unescape(auditor.get(f"/refinements/rollback?refinement={first}&refinement={undone}").text)

    assert sorted(prospects(found)) == ["ready", "ready", "undone"]
    assert (found["done"], found["agents"], found["restored"]) == (2, 2, 2)
    assert found["gain"] > 0
    assert "nothing has happened yet" in page
    assert found["removed_notes"] == found["removed"] > 0
    assert "1 journal note" in page
    assert "undone already" in page
    assert "Roll back 1" not in page  # an auditor's
    assert (ledger(ezra), ledger(mina), rollbacks()) == before


def test_the_newest_go_first_so_that_what_they_are_in_the_way_of_can_follow(
    admin: Browser, app: Flask, clock: FakeClock
) -> None:
    agent = agent_named("ezra")
    start = ledger(agent)
    first = shortened(agent, 1, "Ann likes tea, milk.")
    clock.advance(hours=1)
    second = shortened(agent, 1, "Ann likes tea.")
    assert prospects(plan(admin, first)) == ["conflict"]
    assert prospects(plan(admin, first, second)) == ["ready", "waits"]

    admin.post("/refinements/rollback", {"refinement": [first, second]})

    assert "2 refinements rolled back." in admin.get("/refinements").text
    assert ledger(agent)[0][:4] == start[0][:4]
    assert verify().ok


def test_what_can_not_be_rolled_back_is_left_out_and_named_and_the_others_are_done(
    admin: Browser, app: Flask, clock: FakeClock
) -> None:
    ezra, mina, otto = agent_named("ezra"), agent_named("mina"), agent_named("otto")
    conflicting = shortened(ezra, 1, "Ann likes tea, milk.")
    clock.advance(hours=1)
    shortened(ezra, 1, "Ann likes tea.")
    ready = shortened(mina, 4, "Ann likes tea.")
    busy = shortened(otto, 7, "Ann likes tea.")
    open_one = begin(otto)

    answer = admin.post("/refinements/rollback", {"refinement": [conflicting, ready, busy]})

    said = unescape(admin.get(answer.headers["Location"]).text)
    assert "1 refinement rolled back; 2 left out:" in said
    assert "1 agent is being refined" in said
    assert "1 changed since by others" in said
    assert open_one.reload().is_open
    assert rollbacks() == 1
    again = admin.post("/refinements/rollback", {"refinement": [ready]})
    assert "0 refinements rolled back; 1 left out: undone already." in admin.get(again.headers["Location"]).text
    assert rollbacks() == 1


def test_what_a_guard_reversed_for_good_is_left_out(admin: Browser, app: Flask) -> None:
    agent = make_agent("ezra")
    remember(agent, *alike(12))
    run = begin(agent)
    for number in range(1, 5):
        run.tool.execute("delete", id=number, carried_by=12)
    assert run.reload().status == "rolled_back"

    assert prospects(plan(admin, run.refinement.id)) == ["final"]
    admin.post("/refinements/rollback", {"refinement": [run.refinement.id]})

    assert "0 refinements rolled back; 1 left out: reversed by a guard for good." in admin.get("/refinements").text


@pytest.mark.parametrize("act", ["get", "post"])
def test_strangers_ids_nonsense_and_too_many_are_refused_whole(
    admin: Browser, neighbour: Browser, app: Flask, act: str
) -> None:
    mine = shortened(agent_named("ezra"), 1, "Ann likes tea.")

    def ask(person: Browser, sent: dict[str, Any]) -> int:
        if act == "get":
            return person.get("/refinements/rollback", query_string=sent).status_code
        return person.post("/refinements/rollback", sent).status_code

    assert ask(neighbour, {"refinement": [mine]}) == 404
    assert ask(admin, {"refinement": [mine, NOBODY]}) == 404
    assert ask(admin, {"status": "nonsense"}) == 422
    assert ask(admin, {"refinement": [str(each) for each in range(501)]}) == 422
    assert rollbacks() == 0


def test_an_auditor_rolls_nothing_back(auditor: Browser, app: Flask) -> None:
    mine = shortened(agent_named("ezra"), 1, "Ann likes tea.")

    assert auditor.post("/refinements/rollback", {"refinement": [mine]}).status_code == 403
    assert rollbacks() == 0
