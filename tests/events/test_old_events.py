"""Events are announcements: old ones go, ids go on growing, and no page stays silent for what it missed."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import event as hook
from sqlalchemy import select

from app.events.topics import NONE_SEEN, last_seen, newest_event
from app.extensions import db
from app.models import Event, User
from app.models.event import KEPT, drop_old_events
from tests.events.conftest import happen, make_neighbour
from tests.support.clock import FakeClock
from tests.support.factories import HOME, cookie_id, make_agent
from tests.support.pages import Page, serving
from tests.support.processes import wait_for


def kept(account_id: int = HOME) -> list[int]:
    db.session.rollback()
    return list(db.session.scalars(select(Event.id).where(Event.account_id == account_id).order_by(Event.id)))


def test_what_is_older_than_ninety_days_goes_and_the_rest_stays(app: Flask, clock: FakeClock) -> None:
    happen(3)
    clock.advance(seconds=1)
    first = happen()
    clock.advance(days=30)
    second = happen()
    clock.advance(days=60)
    assert KEPT.days == 90

    assert [drop_old_events(), drop_old_events()] == [3, 0]
    assert kept() == [first, second]


def test_the_newest_of_each_account_stays_so_that_ids_go_on_growing(app: Flask, clock: FakeClock) -> None:
    neighbour = make_neighbour()
    theirs = happen(2, account_id=neighbour.id)
    ours = happen(5)
    clock.advance(days=400)

    assert drop_old_events() == 1 + 4
    assert (kept(), kept(neighbour.id)) == ([ours], [theirs])
    assert happen() > ours


def test_a_great_many_go_in_bounded_batches(app: Flask, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.models.base.BATCH", 4)
    removed: list[int] = []

    def note(connection: object, cursor: object, statement: str, values: object, *_: object) -> None:
        if statement.startswith("DELETE FROM events"):
            removed.append(len(values))  # type: ignore[arg-type]

    newest = happen(10)
    clock.advance(days=91)
    hook.listen(db.engine, "before_cursor_execute", note)
    try:
        assert drop_old_events() == 9
    finally:
        hook.remove(db.engine, "before_cursor_execute", note)
    assert removed == [4, 4, 1]
    assert kept() == [newest]


def test_an_id_that_is_older_than_all_that_are_kept_says_nothing(app: Flask, clock: FakeClock) -> None:
    old = happen(2)
    clock.advance(days=91)
    oldest = happen()
    newest = happen()
    assert last_seen(str(old), HOME) == old

    drop_old_events()
    assert kept() == [oldest, newest]
    assert [last_seen(str(number), HOME) for number in (old, oldest, newest)] == [NONE_SEEN, oldest, newest]
    assert newest_event(HOME) == newest


@pytest.mark.parametrize("way", ["Last-Event-ID", "after"])
def test_a_page_that_slept_too_long_is_brought_to_now_though_its_own_event_is_gone(
    app: Flask, web: Flask, admin: User, clock: FakeClock, way: str
) -> None:
    agent = make_agent()
    asleep_since = happen()
    happen(agent_id=agent.id)
    clock.advance(days=91)
    newest = happen()
    drop_old_events()
    named = {"last_event_id": str(asleep_since)} if way == "Last-Event-ID" else {"after": str(asleep_since)}
    with serving(web, look=0.05) as site, Page(site, f"agent:{agent.id}", site.cookie_of(admin), **named) as page:
        wait_for(lambda: page.newest() is not None)
        assert page.newest().id == str(newest)
    client = web.test_client()
    with client.session_transaction() as session:
        session.update(_user_id=cookie_id(admin), _fresh=True, fs_cc="set")
    assert client.get(f"/events/poll?topic=agent:{agent.id}&after={asleep_since}").status_code == 200
    assert client.get(f"/events/poll?topic=agent:{agent.id}&after={newest}").status_code == 204
