"""How many SQL statements the work takes that is done most: exactly, so that nobody doubles it unseen.

A number that goes down is written down here; one that goes up needs a reason. The beginnings and ends of
transactions are not counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Engine, event

from app.extensions import end_reading
from app.history.verify import verify
from tests.api.conftest import Door, client, door
from tests.refinement.driving import call, carry, say
from tests.support.databases import SERVER
from tests.support.factories import begin, make_agent, remember
from tests.support.life import live
from tests.views.conftest import Browser, browser
from tests.views.site import make_subject

__all__ = ["client", "door"]

NOT_COUNTED = ("BEGIN", "PRAGMA")


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements that this thread sends meanwhile."""
    sent: list[str] = []
    here = threading.get_ident()

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if threading.get_ident() == here and not statement.startswith(NOT_COUNTED):
            sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def count(work: Callable[[], Any]) -> int:
    end_reading()
    with counted() as sent:
        work()
    return len(sent)


def budget(sqlite: int, server: int) -> int:
    """On PostgreSQL a change passes the fence and locks its agent by one statement."""
    return server if SERVER else sqlite


CHANGES: dict[str, tuple[dict[str, Any], int]] = {
    "update": ({"id": 0, "content": "Ann likes tea."}, budget(10, 9)),
    "delete": ({"id": 1, "carried_by": 3}, budget(10, 9)),  # its carrier gets its dates
    "consolidate": ({"ids": [0, 1], "content": "Ann likes tea, milk. Bob likes rum."}, budget(13, 12)),
    "protect": ({"id": 0}, budget(9, 8)),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("others", [10, 40])
def test_a_change(app: Flask, name: str, others: int) -> None:
    arguments, statements = CHANGES[name]
    agent = make_agent()
    remember(agent, *(f"Something else, number {number}." for number in range(others)))
    ids = remember(agent, "Ann likes tea with milk.", "Bob likes rum.", "Cleo likes ink.", "Bob likes rum and ink.")
    run = begin(agent)
    given = dict(arguments)
    for each in ("id", "carried_by"):
        if each in given:
            given[each] = ids[given[each]]
    if "ids" in given:
        given["ids"] = [ids[place] for place in given["ids"]]
    run.tool.execute("search", query="rum")

    assert count(lambda: run.tool.execute(name, **given)) == statements


def test_a_refinement_without_a_change(app: Flask) -> None:
    """One of them asks what humans imported lately, to leave it out of the question of consent; one, at the end,
    settles what earlier failures called for. Two ask for its account's limits, at the start and at the claim;
    before each turn they are asked with whether it may go on."""
    agent = make_agent()
    remember(agent, "Ann likes tea with milk.", "Bob likes rum.")
    done = call("complete_refinement", summary="All is well.")

    assert count(lambda: carry(agent, say("YES"), done)) == 58


@pytest.mark.parametrize(("changes", "statements"), [(1, budget(72, 71)), (5, budget(128, 123))])
def test_a_refinement_with_changes(app: Flask, changes: int, statements: int) -> None:
    agent = make_agent()
    ids = remember(agent, *(f"Number {number} is rather long." for number in range(10)))
    work = [call("update_memory", id=ids[number], content=f"Number {number}.") for number in range(changes)]
    done = call("complete_refinement", summary="All is well.")

    assert count(lambda: carry(agent, say("YES"), *work, done)) == statements


@pytest.fixture
def visited(door: Door) -> Door:
    """Its token was used before."""
    door.save("Ann likes tea.")
    door.get("/context")
    return door


def test_a_save(visited: Door) -> None:
    assert count(lambda: visited.save("Bob likes rum.")) == 11


@pytest.mark.parametrize("memories", [1, 40])
def test_a_context(visited: Door, memories: int) -> None:
    remember(visited.agent, *(f"Number {number}." for number in range(memories)))

    assert count(lambda: visited.get("/context")) == 3


PAGES = {
    "/": 17,
    "/agents": 9,
    "/attention": 4,
    "/refinements": 9,
    "/exceptions": 5,
    "/exceptions/mine": 3,
    "/audit": 10,
    "/settings/users": 6,
    "/settings/schedule": 5,
    "/settings/limits": 2,
    "/settings/models": 6,
    "/agents/{agent}": 21,
    "/agents/{agent}/ledger": 14,
    "/agents/{agent}/audit": 18,
    "/agents/{agent}/refinements": 11,
    "/agents/{agent}/exceptions": 16,
    "/agents/{agent}/tokens": 16,
    "/agents/{agent}/imports": 12,
    "/agents/{agent}/settings": 17,
}
"""By a page of lists: its statements."""


def test_pages_of_lists_however_long_they_are(web: Flask) -> None:
    owner, agent_id = browser(web, "owner"), live().agent.id
    for _ in range(2):
        for _ in range(3):
            make_subject()
        counted_now = {path: _statements(owner, path.format(agent=agent_id)) for path in PAGES}

        assert counted_now == PAGES


def _statements(owner: Browser, path: str) -> int:
    assert owner.get(path).status_code == 200
    return count(lambda: owner.get(path))


@pytest.mark.parametrize("memories", [1, 40])
def test_a_proof_of_everything(app: Flask, memories: int) -> None:
    remember(make_agent(), *(f"Number {number}." for number in range(memories)))
    assert verify().ok

    assert count(lambda: verify()) == 85
