"""The log as it is read: whatever the filter and wherever one stands, held against a plain list of all entries."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import select, text

from app.extensions import begin_immediate, db, writing
from app.history import log
from app.history.log import Filters, LogActor, newest_entry, read_batches, read_log_entries, walk_log
from app.history.plan import Target
from app.history.undo import roll_back
from app.models import (
    COMMAND_LINE,
    Account,
    Action,
    Actor,
    ActorKind,
    Agent,
    AuditLog,
    Memory,
    Refinement,
    Status,
    record,
)
from app.models.keyset import TimeCursor
from app.models.user import ADMIN
from tests.support.clock import MONDAY, FakeClock
from tests.support.factories import HOME, begin, make_agent, make_user, remember

DAY = timedelta(days=1)


@dataclass(frozen=True)
class House:
    """An account with two agents that were refined side by side, a person, and an operator who acts next door too."""

    ezra: Agent
    void: Agent
    ann: Actor
    operator: Actor
    refinements: tuple[str, ...]


@pytest.fixture
def house(app: Flask, clock: FakeClock) -> House:
    """Entries of some days; many of them at the same moment, and refinements whose entries stand mixed."""
    chance = random.Random(11)
    ezra, void = (make_agent(name, refinement_threshold="0.5") for name in ("ezra", "void"))
    ann, operator = person("ann@example.org"), person("operator@example.org")
    for agent in (ezra, void):
        remember(agent, *(f"Memory number {n} of {agent.name}, which is long enough." for n in range(12)))
    done = []
    for _ in range(3):
        running = [begin(ezra), begin(void)]
        for turn in range(5):
            clock.advance(hours=chance.choice([0, 0, 5]))
            for run in running:
                shorter = f"Memory number {turn} of {run.agent.name}, long enough{'!' * (1 + len(done))}"
                assert run.tool.execute("update", id=active(run.agent)[turn], content=shorter)["type"] == "updated"
            sign(Action.SIGN_IN, ann)
            sign(Action.SIGN_OUT, operator)
        for run in running:
            finish(run.refinement.id)
            done.append(run.refinement.id)
    next_door(operator)
    return House(ezra, void, ann, operator, tuple(done))


def test_every_entry_comes_once_downwards_and_upwards_whatever_is_wanted(house: House) -> None:
    everything = all_entries()
    wanted = filters_of(house)
    assert len(everything) > 80

    for name, (filters, fits) in wanted.items():
        expected = [place_of(entry) for entry in reversed(everything) if fits(entry)]
        assert bool(expected) == (name != "unknown person"), name
        for size in (1, 7, len(expected) or 1):
            assert pages(filters, size, newest_first=True) == expected, name
            assert pages(filters, size, newest_first=False) == expected[::-1], name
        assert [entry.place for batch in read_batches(filters) for entry in batch] == expected[::-1], name


def test_a_fold_stands_where_the_newest_entry_of_its_refinement_does(house: House) -> None:
    for filters, fits in folding_filters(house).values():
        entries = [entry for entry in all_entries() if fits(entry)]
        last = {entry.refinement_id: entry.id for entry in entries}
        expected = [
            place_of(entry)
            for entry in reversed(entries)
            if entry.refinement_id is None or last[entry.refinement_id] == entry.id
        ]
        for size in (1, 4, 100):
            assert pages(filters, size, newest_first=True, fold=True) == expected
            assert pages(filters, size, newest_first=False, fold=True) == expected[::-1]


def test_a_refinement_shows_the_rollbacks_that_undid_it_too(house: House) -> None:
    chosen = house.refinements[-1]
    undo = roll_back(Target.refinement(chosen), by=house.ann).rollback
    assert undo is not None

    places = pages(Filters(HOME, refinement_id=chosen), 3, newest_first=True)

    own = db.session.scalars(select(AuditLog.id).where(AuditLog.refinement_id == chosen)).all()
    assert read_log_entries(places)[0].action == Action.ROLLBACK
    assert read_log_entries(places)[0].refinement_id is None
    assert sorted(place.id for place in places) == [*sorted(own), undo.entry_id]


def test_nothing_of_another_account_ever_comes(house: House) -> None:
    theirs = db.session.scalars(select(AuditLog).where(AuditLog.account_id != HOME)).all()
    assert len(theirs) > 3

    for filters, _ in filters_of(house).values():
        found = {place.id for place in pages(filters, 50, newest_first=True)}
        assert not found & {entry.id for entry in theirs}
    next_door_log = pages(Filters(theirs[0].account_id), 50, newest_first=True)
    assert {place.id for place in next_door_log} == {entry.id for entry in theirs}


def test_a_page_that_has_looked_at_enough_says_so_and_the_next_goes_on(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LOOKED_AT", 10)
    everything = pages(Filters(HOME), 50, newest_first=True)

    nobody = walk_log(Filters(HOME, who=LogActor(ActorKind.SYSTEM, "nobody")), want=5)
    assert (list(nobody.places), nobody.next, nobody.is_cut) == ([], everything[9], True)
    mine = [entry for entry in all_entries() if entry.account_id == HOME]
    setups = [place_of(entry) for entry in mine if entry.actor == "system:setup"]
    rare = Filters(HOME, who=LogActor(ActorKind.SYSTEM, "setup"))
    assert pages(rare, 5, newest_first=True) == setups[::-1]
    assert pages(rare, 5, newest_first=False) == setups
    assert not walk_log(Filters(HOME), want=5).is_cut


def test_the_newest_place_is_the_agents_or_the_accounts(house: House) -> None:
    mine = [entry for entry in all_entries() if entry.account_id == HOME]

    assert newest_entry(Filters(HOME, action=Action.ACCOUNT_CREATE)) == place_of(mine[-1])
    of_ezra = [entry for entry in mine if entry.agent_id == house.ezra.id]
    assert newest_entry(Filters(HOME, house.ezra.id)) == place_of(of_ezra[-1])
    assert newest_entry(Filters(987)) is None


def test_a_place_survives_being_written_and_anything_else_is_none() -> None:
    for moment in (MONDAY, MONDAY + timedelta(microseconds=7)):
        assert TimeCursor.parse(str(TimeCursor(moment, 12))) == TimeCursor(moment, 12)
    moment = "2026-11-16T04:00:00Z"
    garbage = [
        "",
        "~",
        "12",
        moment,
        f"{moment}~",
        f"{moment}~1_0",
        f"{moment}~١",
        f"{moment}~-1",
        f"{moment}~{10**18}",
    ]
    garbage += ["2026-13-16T04:00:00Z~1", "0000-00-00T00:00:00Z~1", "2026-11-16T04:00:00+02:00~1", "x" * 4000]
    for text_ in [*garbage, f"{moment}~1' OR 1=1"]:
        assert TimeCursor.parse(text_) is None, text_


def test_a_place_outside_of_the_days_shows_nothing_from_outside(house: House) -> None:
    since, until = MONDAY + DAY / 4, MONDAY + DAY
    days = Filters(HOME, since=since, until=until)
    within = pages(days, 50, newest_first=True)
    before, after = TimeCursor(since - DAY, 1), TimeCursor(until + DAY, 1)

    assert within
    assert walk_log(days, after, want=500).places == within
    assert walk_log(days, before, want=500, newest_first=False).places == within[::-1]
    assert list(walk_log(days, before, want=500).places) == []
    assert list(walk_log(days, after, want=500, newest_first=False).places) == []


def test_an_entry_of_the_moment_between_two_days_belongs_to_the_later_one_only(house: House) -> None:
    everything = pages(Filters(HOME), 200, newest_first=True)
    for moment in {place.at for place in everything}:
        before = pages(Filters(HOME, until=moment), 200, newest_first=True)
        after = pages(Filters(HOME, since=moment), 200, newest_first=True)
        assert [*after, *before] == everything
        assert after[-1].at == moment


def test_a_deep_place_within_days_is_where_the_walk_begins(house: House) -> None:
    days = Filters(HOME, since=MONDAY, until=MONDAY + DAY)
    for newest_first in (True, False):
        bounds = route_of(days, newest_first)._range_bounds(TimeCursor(MONDAY + DAY / 2, 7))
        assert len(bounds) == 2, bounds
        assert sum("audit_log.id" in str(log._BOUNDS[bound]) for bound in bounds) == 1


def test_between_two_batches_nothing_is_open_and_nothing_is_kept(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "BATCH", 7)
    db.session.remove()

    sizes = []
    for batch in read_batches(Filters(HOME)):
        sizes.append(len(batch))
        assert not db.session().in_transaction()
        assert not db.session().identity_map.values()
    assert sizes[:-1] == [7] * (len(sizes) - 1)
    assert sum(sizes) == len([entry for entry in all_entries() if entry.account_id == HOME])


def test_what_is_written_while_it_is_read_comes_at_its_end(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "BATCH", 7)
    reading = read_batches(Filters(HOME))
    next(reading)
    sign(Action.SIGN_IN_FAILED, house.ann)

    assert Action.SIGN_IN_FAILED in [entry.action for batch in reading for entry in batch]


def test_every_filter_walks_an_index_of_its_own(house: House) -> None:
    expected = {
        "all": "ix_audit_log_account_at",
        "agent": "ix_audit_log_agent_at",
        "person": "ix_audit_log_user_at",
        "action": "ix_audit_log_account_action_at",
        "refinement": "ix_audit_log_refinement_id",
        "days": "ix_audit_log_account_at",
        "rare part": "ix_audit_log_account_at",
    }
    for name, index in expected.items():
        filters, _ = filters_of(house)[name]
        plan = plan_of(filters, TimeCursor(MONDAY + DAY, 60))
        assert index in plan, plan
        assert "SCAN audit_log" not in plan, plan


Fits = Callable[[AuditLog], bool]


def filters_of(house: House) -> dict[str, tuple[Filters, Fits]]:
    """Filters with the same said in plain Python."""
    ezra, ann, operator = house.ezra.id, house.ann, house.operator
    one = house.refinements[2]
    by_ann = LogActor(ActorKind.USER, ann.name, user_id=ann.user_id)
    by_operator = LogActor(ActorKind.USER, operator.name, user_id=operator.user_id)
    wanted: dict[str, tuple[Filters, Fits]] = {
        "action": (Filters(HOME, action=Action.SIGN_IN), lambda e: e.action == Action.SIGN_IN),
        "refinement": (Filters(HOME, refinement_id=one), lambda e: e.refinement_id == one),
        "person": (Filters(HOME, who=by_ann), lambda e: e.user_id == ann.user_id),
        "operator": (Filters(HOME, who=by_operator), lambda e: e.user_id == operator.user_id),
        "unknown person": (Filters(HOME, who=LogActor(ActorKind.USER, "nobody@example.org")), lambda e: False),
        "people": (Filters(HOME, who=LogActor(ActorKind.USER)), lambda e: e.actor_kind == "user"),
        "agents": (Filters(HOME, who=LogActor(ActorKind.AGENT)), lambda e: e.actor_kind == "agent"),
        "rare part": (Filters(HOME, who=LogActor(ActorKind.SYSTEM, "setup")), lambda e: e.actor == "system:setup"),
        "agent by name": (
            Filters(HOME, who=LogActor(ActorKind.AGENT, "ezra", agent_id=ezra)),
            lambda e: e.actor == "agent:ezra",
        ),
        "agent and action": (
            Filters(HOME, agent_id=ezra, action=Action.REFINEMENT_UPDATE),
            lambda e: e.agent_id == ezra and e.action == Action.REFINEMENT_UPDATE,
        ),
        "person, action and days": (
            Filters(HOME, who=by_ann, action=Action.SIGN_IN, since=MONDAY + DAY / 4, until=MONDAY + DAY),
            lambda e: e.user_id == ann.user_id and MONDAY + DAY / 4 <= e.at < MONDAY + DAY,
        ),
    } | folding_filters(house)
    return {name: (filters, _at_home(fits)) for name, (filters, fits) in wanted.items()}


def folding_filters(house: House) -> dict[str, tuple[Filters, Fits]]:
    ezra = house.ezra.id
    since, until = MONDAY + DAY / 4, MONDAY + DAY
    wanted: dict[str, tuple[Filters, Fits]] = {
        "all": (Filters(HOME), lambda e: True),
        "agent": (Filters(HOME, agent_id=ezra), lambda e: e.agent_id == ezra),
        "days": (Filters(HOME, since=since, until=until), lambda e: since <= e.at < until),
        "until": (Filters(HOME, until=since), lambda e: e.at < since),
        "agent since": (Filters(HOME, agent_id=ezra, since=since), lambda e: e.agent_id == ezra and since <= e.at),
    }
    return {name: (filters, _at_home(fits)) for name, (filters, fits) in wanted.items()}


def _at_home(fits: Fits) -> Fits:
    return lambda entry: entry.account_id == HOME and fits(entry)


def pages(filters: Filters, size: int, *, newest_first: bool, fold: bool = False) -> list[TimeCursor]:
    """Everything, page by page."""
    found: list[TimeCursor] = []
    place: TimeCursor | None = None
    while True:
        stretch = walk_log(filters, place, want=size, newest_first=newest_first, fold=fold)
        assert len(stretch.places) <= size
        found += stretch.places
        place = stretch.next
        if place is None:
            return found


def all_entries() -> list[AuditLog]:
    """Oldest first, whatever the account."""
    db.session.rollback()
    query = select(AuditLog).order_by(AuditLog.at, AuditLog.id)
    return list(db.session.scalars(query.execution_options(populate_existing=True)))


def place_of(entry: AuditLog) -> TimeCursor:
    return TimeCursor(entry.at, entry.id)


def plan_of(filters: Filters, start: TimeCursor) -> str:
    """How the database would walk, were the table large."""
    session = db.session()
    postgresql = session.get_bind().dialect.name == "postgresql"
    if postgresql:
        session.rollback()
        begin_immediate(session)
        # What earlier tests left in the indexes has a cost, too; and of few rows two walks cost the same.
        session.execute(text("REINDEX TABLE audit_log"))
        session.execute(text("ANALYZE audit_log"))
        session.execute(text("UPDATE pg_class SET reltuples = 1e6, relpages = 1 WHERE relname = 'audit_log'"))
        session.execute(text("SET LOCAL enable_seqscan = off"))
        session.execute(text("SET LOCAL enable_sort = off"))
        session.execute(text("SET LOCAL enable_bitmapscan = off"))
    route = route_of(filters)
    query = log._query_behind(route.along, route._range_bounds(start), True, log._NEEDED).limit(50)
    compiled = query.params(route._values(start)).compile(session.connection(), compile_kwargs={"literal_binds": True})
    explain = "EXPLAIN" if postgresql else "EXPLAIN QUERY PLAN"
    said = [str(row[-1]) for row in session.connection().exec_driver_sql(f"{explain} {compiled}")]
    session.rollback()
    return "\n".join(said)


def route_of(filters: Filters, newest_first: bool = True) -> log._IndexWalk:
    return log._IndexWalk(filters, newest_first=newest_first, fold=False)


def person(email: str) -> Actor:
    return make_user(email, ADMIN).actor


def sign(action: Action, who: Actor, account_id: int = HOME) -> None:
    with writing():
        record(action, actor=who, of=Account.lock(account_id), subject=f"user:{who.user_id}")


def next_door(operator: Actor) -> None:
    """Another account, where the operator acts and an agent has the same name."""
    with writing():
        account = Account.create("Next door")
    remember(make_agent("ezra", account_id=account.id), "Something else.")
    for _ in range(2):
        sign(Action.SIGN_IN, operator, account.id)


def finish(refinement_id: str) -> None:
    with writing():
        refinement = Refinement.lock(refinement_id)
        refinement.end(Agent.lock(refinement.agent_id), Status.UNFINISHED, by=COMMAND_LINE)


def active(agent: Agent) -> list[int]:
    return sorted(db.session.scalars(select(Memory.id).where(Memory.agent_id == agent.id)))
