"""`whetstone rollback`: the contract that programs rely on, and the words for people."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db, writing
from app.history.verify import verify
from app.models import Account, Action, Agent, AuditLog, Refinement, Rollback, Status
from tests.cli.conftest import Said, Whetstone
from tests.history.going_back import count_entries, delete, newest_entry, refined, update
from tests.support.factories import begin, ledger, make_agent, remember, toggle
from tests.support.tampering import tamper

KEYS = {"id", "applied", "reversed", "conflicts", "mass_before", "mass_after"}
CANARY = "the canary sang at dawn"


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("ezra")
    remember(made, *(f"Memory {number}: {CANARY}, and more of it." for number in range(10)))
    remember(made, *(f"Memories {', '.join(map(str, range(last)))}: {CANARY}, and more of it." for last in (10, 11)))
    return made


def the_rollback() -> Rollback:
    db.session.rollback()
    return db.session.scalars(select(Rollback)).one()


def conflicting(agent: Agent) -> tuple[str, str]:
    """Two refinements, of which the later changed what the earlier had changed."""
    return refined(agent, update(1, "Shorter.")), refined(agent, update(1, "Short."))


def hinted(said: Said) -> list[list[str]]:
    """The commands that are suggested, as words."""
    return [line.rpartition("whetstone ")[2].split() for line in said.out.splitlines() if "whetstone " in line]


def test_a_refinement_is_taken_back_and_that_is_taken_back(agent: Agent, whetstone: Whetstone) -> None:
    original = ledger(agent)
    number = refined(agent, delete(1, 12))
    later = ledger(agent)

    said = whetstone("rollback", number, "--json")
    back = ledger(agent)
    again = whetstone("rollback", said.json["id"], "--json")

    assert said.status == 0
    assert said.json.keys() >= KEYS
    assert (said.json["applied"], said.json["reversed"], said.json["conflicts"]) == (True, 3, [])
    assert (said.json["mass_before"], said.json["mass_after"]) == (sum_of(later), sum_of(original))
    assert (said.json["restored"], said.json["removed"]) == (2, 1), "what was deleted, and its carrier"
    assert back == original
    assert (again.status, again.json["applied"], again.json["kind"]) == (0, True, "rollback")
    assert ledger(agent) == later
    assert verify().ok


def sum_of(rows: list[tuple[Any, ...]]) -> int:
    return sum(row[2] for row in rows)


def test_the_log_says_that_the_command_line_did_it(agent: Agent, whetstone: Whetstone) -> None:
    number = refined(agent, delete(1, 12))
    made = whetstone("rollback", number, "--json").json["id"]
    (entry,) = [each for each in whetstone("audit", "--json").lines if each["action"] == "memory_rollback"]

    assert (entry["actor"], entry["subject"]) == ("system:command line", f"rollback:{made}")


def test_a_dry_run_tells_the_same_and_writes_nothing(agent: Agent, whetstone: Whetstone) -> None:
    number = refined(agent, delete(1, 12))
    later, count = ledger(agent), count_entries()
    dry = whetstone("rollback", number, "--dry-run", "--json")
    words = whetstone("rollback", number, "--dry-run")

    assert (dry.status, dry.json["id"], dry.json["applied"], dry.json["reversed"]) == (0, None, False, 3)
    assert (ledger(agent), count_entries()) == (later, count)
    assert "Nothing is done yet: restores 2 memories, removes 1" in words.out
    real = whetstone("rollback", number, "--json").json
    told = KEYS - {"id", "applied"}
    assert {key: real[key] for key in told} == {key: dry.json[key] for key in told}


def test_what_is_undone_already_is_left_alone(agent: Agent, whetstone: Whetstone) -> None:
    number = refined(agent, delete(1, 12))
    made = whetstone("rollback", number, "--json").json["id"]
    count = count_entries()

    for options in ((), ("--dry-run",)):
        said = whetstone("rollback", number, *options, "--json")
        assert said.status == 0
        assert (said.json["id"], said.json["applied"], said.json["reversed"]) == (made, False, 0)
        assert said.json["mass_before"] == said.json["mass_after"]
    people = whetstone("rollback", number)
    assert "It is undone already. Nothing was changed." in people.out
    assert "by system:command line" in people.out
    assert hinted(people) == [["rollback", made[:8]]]
    assert count_entries() == count


def test_conflicts_exit_with_3_and_nothing_is_applied(agent: Agent, whetstone: Whetstone) -> None:
    first, second = conflicting(agent)
    there, count = ledger(agent), count_entries()

    for options in ((), ("--dry-run",)):
        said = whetstone("rollback", first, *options, "--json")
        assert said.status == 3
        assert (said.json["id"], said.json["applied"], said.json["reversed"]) == (None, False, 0)
        assert (said.json["conflicts"], said.json["later"]) == ([1], [second])
        assert said.json["mass_before"] == said.json["mass_after"]
        people = whetstone("rollback", first, *options)
        assert people.status == 3
        assert "Nothing was undone: since then, others changed memory 1." in people.out
        assert hinted(people) == [["rollback", second[:8]], ["rollback", first[:8], "--rewind", "--dry-run"]]
    assert (ledger(agent), count_entries()) == (there, count)


@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--rewind",)])
def test_a_history_that_was_altered_is_named_so_and_verify_is_what_comes_next(
    agent: Agent, whetstone: Whetstone, options: tuple[str, ...]
) -> None:
    first = refined(agent, update(1, "Shorter."))
    tamper("UPDATE memory_states SET previous_entry_id = NULL WHERE memory_id = 1")
    there, count = ledger(agent), count_entries()
    people = whetstone("rollback", first, *options)

    assert people.status == 3
    assert "Nothing was undone: the history of memory 1 was altered behind Whetstone's back." in people.out
    assert "`./whetstone verify` says where." in people.out
    assert "rollback" not in people.out
    assert (ledger(agent), count_entries()) == (there, count)


def test_a_rewind_reverses_the_later_ones_too(agent: Agent, whetstone: Whetstone) -> None:
    original = ledger(agent)
    first, second = conflicting(agent)
    said = whetstone("rollback", first, "--rewind", "--json")

    assert (said.status, said.json["kind"], said.json["applied"]) == (0, "rewind", True)
    assert sorted(said.json["later"]) == sorted([first, second])
    assert ledger(agent) == original


def test_one_entry_is_named_by_its_number(agent: Agent, whetstone: Whetstone) -> None:
    original = ledger(agent)
    refined(agent, delete(1, 11), delete(2, 12))
    number = str(newest_entry(Action.REFINEMENT_DELETE))
    said = whetstone("rollback", number, "--json")
    second = whetstone("rollback", number, "--json")

    assert (said.status, said.json["kind"], said.json["reversed"]) == (0, "entry", 2)
    assert [row for row in ledger(agent) if row[0] != 11] == [row for row in original if row[0] not in (1, 11)]
    assert (second.status, second.json["id"], second.json["applied"]) == (0, None, False)
    assert "Nothing is left to undo" in whetstone("rollback", number).out


def test_an_entry_that_changed_no_memory_is_refused(agent: Agent, whetstone: Whetstone) -> None:
    said = whetstone("rollback", str(newest_entry(Action.AGENT_CREATE)), "--json")

    assert said.status == 3
    assert said.error["code"] == "nothing_to_undo"


def test_the_beginning_of_an_id_is_enough(agent: Agent, whetstone: Whetstone) -> None:
    number = refined(agent, delete(1, 12))
    made = whetstone("rollback", number[:8], "--json").json["id"]

    assert whetstone("rollback", made[:8], "--json").json["kind"] == "rollback"
    assert whetstone("rollback", f"refinement:{number}", "--json").json["kind"] == "refinement"


def test_digits_that_fit_an_entry_and_a_refinement_are_refused_and_both_named(
    agent: Agent, whetstone: Whetstone
) -> None:
    number = twins_of(refined(agent, delete(1, 12)))
    said = whetstone("rollback", "123456", "--json")

    assert said.status == 1
    assert f"refinement:{number}, entry:123456" in said.error["message"]
    assert whetstone("rollback", "entry:123456", "--json").error["code"] == "nothing_to_undo"
    assert whetstone("rollback", "refinement:123456", "--dry-run", "--json").json["kind"] == "refinement"


def twins_of(refinement_id: str) -> str:
    """An entry whose number is also the beginning of a refinement's id; that id."""
    number = "12345678-0000-4000-8000-000000000000"
    with writing() as session:
        refinement = session.get_one(Refinement, refinement_id)
        entry = session.scalars(select(AuditLog).where(AuditLog.action == Action.AGENT_CREATE)).one()
        session.add(Refinement(**columns_of(refinement) | {"id": number}))
        session.add(AuditLog(**columns_of(entry) | {"id": 123456, "chain": "a twin"}))
    return number


def columns_of(row: Any) -> dict[str, Any]:
    return {column.key: getattr(row, column.key) for column in row.__table__.columns}


@pytest.mark.parametrize(
    "number", ["abcdef12", "00000000-0000-4000-8000-000000000000", "987654", "0", "-1", "x", "", "1_0", "١٢", "99" * 20]
)
def test_what_does_not_exist_is_said_and_exits_with_1(agent: Agent, whetstone: Whetstone, number: str) -> None:
    said = whetstone("rollback", "--json", "--", number)

    assert said.status == 1
    assert said.error["code"] == "not_found"
    assert "There is no refinement, rollback or audit entry" in said.error["message"]


def test_only_a_refinement_can_be_rewound_to(agent: Agent, whetstone: Whetstone) -> None:
    entry = str(newest_entry(Action.CREATE))
    said = whetstone("rollback", entry, "--rewind")

    assert said.status == 2
    assert "--rewind goes to just before a refinement" in said.err


def test_an_account_that_is_named_is_the_only_one_looked_in(agent: Agent, whetstone: Whetstone) -> None:
    number = refined(agent, delete(1, 12))
    with writing():
        Account.create("Other")

    assert whetstone("rollback", number, "--account", "Other", "--json").status == 1
    assert whetstone("rollback", number, "--account", "Nobody", "--json").error["code"] == "not_found"
    with db.session() as session:
        home = session.scalars(select(Account.name).where(Account.id == agent.account_id)).one()
    said = whetstone("rollback", number, "--account", home)
    assert said.status == 0
    assert "--account" in hinted(said)[0]


def test_a_running_refinement_is_ended_first_and_that_is_said(agent: Agent, whetstone: Whetstone) -> None:
    number = refined(agent, delete(1, 12))
    run = begin(agent)
    said = whetstone("rollback", number)

    assert f"Refinement {run.refinement.id[:8]}, which was open, was ended first." in said.out
    assert run.reload().status == "stopped"


def test_a_running_one_that_changed_nothing_is_only_ended(agent: Agent, whetstone: Whetstone) -> None:
    run = begin(agent)
    said = whetstone("rollback", run.refinement.id)

    assert said.status == 0
    assert "had changed nothing yet; it was ended" in said.out
    assert run.reload().status == "stopped"


def test_people_are_told_what_happened_and_how_to_take_it_back(agent: Agent, whetstone: Whetstone) -> None:
    number = refined(agent, ("consolidate", {"ids": [1, 2], "content": "Both."}))
    toggle(agent, 13)
    said = whetstone("rollback", number)

    assert "Done: restores 2 memories" not in said.out
    assert re.search(r"Done: restored 2 memories, removed 1 journal note, \d+ → \d+ tokens\.", said.out)
    assert "Left alone: memory 13 stayed, because an admin made that constitutional since." in said.out
    assert hinted(said) == [["rollback", the_rollback().id[:8]]]
    assert CANARY not in said.out + said.err


def test_an_undone_refinement_says_so_in_its_own_page(agent: Agent, whetstone: Whetstone) -> None:
    number = refined(agent, delete(1, 12))
    assert whetstone("refinements", "show", number, "--json").json["undone_by"] is None
    made = whetstone("rollback", number, "--json").json["id"]

    assert whetstone("refinements", "show", number, "--json").json["undone_by"] == made
    assert f"rollback {made[:8]}" in whetstone("refinements", "show", number).out


def test_the_steps_of_a_refinement_tell_that_it_was_taken_back(agent: Agent, whetstone: Whetstone) -> None:
    undone, rewound = refined(agent, delete(1, 12)), refined(agent, delete(2, 11))
    whetstone("rollback", undone)
    whetstone("rollback", rewound, "--rewind")

    assert re.search(
        r"\d\d  Rolled back · from the command line · [^·]+ tokens · rollback [0-9a-f]{8}\n",
        whetstone("refinements", "show", undone).out,
    )
    assert re.search(r"\d\d  Taken back by a rewind · .* · rollback", whetstone("refinements", "show", rewound).out)


def test_what_a_guard_reversed_is_refused_for_good(agent: Agent, whetstone: Whetstone) -> None:
    run = begin(agent)
    for number in range(1, 6):
        run.tool.execute("delete", id=number, carried_by=12)
    assert run.reload().status == Status.ROLLED_BACK
    reversal, change = newest_entry(Action.REFINEMENT_ROLLBACK), newest_entry(Action.REFINEMENT_DELETE)
    before, counts = ledger(agent), count_entries()

    for target in (str(reversal), str(change), run.refinement.id):
        for options in ((), ("--dry-run",)):
            said = whetstone("rollback", target, *options, "--json")
            assert (said.status, said.json["reason"], said.json["applied"]) == (3, "guard_final", False)
            assert (said.json["id"], said.json["reversed"], said.json["conflicts"]) == (None, 0, [])
            assert said.json.keys() >= KEYS
    words = whetstone("rollback", str(reversal))

    assert (words.status, hinted(words)) == (3, [])
    assert "that is final: it can't be brought back" in words.out
    assert (ledger(agent), count_entries()) == (before, counts)
    assert verify().ok
