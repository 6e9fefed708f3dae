"""The Knife's refusals: each is a result that says what was wrong, changes nothing and is not counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from app.extensions import db, writing
from app.models import Agent, AuditLog, Memory, MemoryType
from app.refinement.functions import ACTIONS
from tests.refinement.driving import LONG, alike
from tests.support.factories import Running, begin, ledger, make_agent, remember

pytestmark = pytest.mark.once


@contextmanager
def nothing_changes(run: Running) -> Iterator[None]:
    def state() -> tuple[Any, ...]:
        row = run.reload()
        entries = db.session.scalar(db.select(db.func.count(AuditLog.id)))
        rows = db.session.scalar(db.select(db.func.count(Memory.id)))
        return ledger(run.agent), row.mutations, row.stats, row.kept_mass, row.status, entries, rows

    before = state()
    yield
    assert state() == before


@pytest.fixture
def run(agent: Agent) -> Running:
    remember(agent, *alike(20))
    return begin(agent)


def refused(run: Running, action: str, /, **arguments: Any) -> str:
    left = run.tool.execute("search", query="zzz")["changes_left"]
    result = run.tool.execute(action, **arguments)
    assert result["type"] == "error", (action, str(arguments)[:80], result)
    assert set(result) - {"allowed_actions", "allowed_functions"} == {"type", "error", "changes_left", "retention"}
    assert result["changes_left"] == left
    sentence: str = result["error"]
    sentence.encode()
    assert sentence.strip()
    return sentence


def test_an_unknown_function_or_action_names_those_that_there_are(run: Running) -> None:
    with nothing_changes(run):
        for name in ("burn", "", "Delete_Memory", "delete", "search_memories ", "x" * 10_000, "\ud800", "__class__"):
            result = run.tool.call(name, '{"id": 1}')
            assert result["type"] == "error"
            assert result["allowed_functions"] == list(ACTIONS)
        for name in ("burn", "", "delete_memory", "COMPLETE", "\x00"):
            assert "no such action" in refused(run, name)
        actions = ["search", "consolidate", "update", "delete", "protect", "complete"]
        assert run.tool.execute("burn", id=1)["allowed_actions"] == actions


def test_malformed_or_empty_arguments_are_never_valid(run: Running) -> None:
    with nothing_changes(run):
        for name in ACTIONS:
            for raw in ("", "{}", "[]", "null", '{"id": 1', '{"id": NaN}', '{"id":1,"id":2}', "[" * 9999, "9" * 5000):
                result = run.tool.call(name, raw)
                assert result["type"] == "error", (name, raw[:20])
                assert result["error"]
        for action in ACTIONS.values():
            refused(run, action)
            refused(run, action, nonsense=1)
            refused(run, action, **dict.fromkeys(("id", "ids", "content", "query", "summary")))


def test_unknown_and_missing_parameters_are_named(run: Running) -> None:
    (first, *_) = ledger(run.agent)
    with nothing_changes(run):
        assert "Missing: content" in refused(run, "update", id=first[0])
        assert "Unknown: 'force'" in refused(run, "delete", id=first[0], carried_by=first[0] + 1, force=True)
        assert "Unknown: 'action'" in refused(run, "delete", id=first[0], carried_by=first[0] + 1, action="search")
        assert "Unknown: 'ids'" in refused(run, "delete", id=first[0], carried_by=first[0] + 1, ids=[1, 2])
        assert "Missing: carried_by" in refused(run, "delete", id=first[0])
        assert "can't carry itself" in refused(run, "delete", id=first[0], carried_by=first[0])
        assert "Missing: query" in refused(run, "search", since="2026-01-01")


def test_ids_of_other_agents_are_answered_like_ids_that_do_not_exist(run: Running) -> None:
    (theirs,) = remember(make_agent("eve"), "Eve likes rum.")
    (journal,) = remember(run.agent, "a day", type_=MemoryType.JOURNAL)
    mine = [row[0] for row in ledger(run.agent)]
    run.tool.execute("delete", id=mine[0], carried_by=mine[1])
    with nothing_changes(run):
        for action, more in {"update": {"content": "x"}, "delete": {"carried_by": mine[1]}, "protect": {}}.items():
            said = {
                refused(run, action, id=one, **more).replace(str(one), "N")
                for one in (theirs, journal, mine[0], 10**17, 0)
            }
            assert said == {"No active core memory of yours has the id N. Nothing was changed."}
        for carrier in (theirs, journal, mine[0], 10**17):
            sentence = refused(run, "delete", id=mine[2], carried_by=carrier)
            assert sentence == f"No active core memory of yours has the id {carrier}. Nothing was changed."
        sentence = refused(run, "consolidate", ids=[mine[1], theirs, mine[2], 999_999], content="x")
        assert f"{theirs}, 999999" in sentence
        assert str(mine[1]) not in sentence.split()


def test_constitutional_and_immutably_tagged_memories_are_never_touched(run: Running) -> None:
    (kept,) = remember(run.agent, "We never lie.", constitutional=True)
    tagged = [remember(run.agent, f"A {tag}.", tags=[tag])[0] for tag in ("audio", "somatic", "voice")]
    plain = ledger(run.agent)[0][0]
    with nothing_changes(run):
        for one, word in ((kept, "constitutional"), *((one, "immutable") for one in tagged)):
            assert word in refused(run, "update", id=one, content="x")
            assert word in refused(run, "delete", id=one, carried_by=plain)
            assert word in refused(run, "consolidate", ids=[plain, one], content="x")
        assert "constitutional already" in refused(run, "protect", id=kept)
    assert run.tool.execute("protect", id=tagged[0])["type"] == "protected"


def test_content_that_can_not_be_a_memory_is_refused_in_words(run: Running) -> None:
    first, second = ledger(run.agent)[0][0], ledger(run.agent)[1][0]
    bad = {
        "": "blank",
        " \n": "blank",
        "\u200b": "blank",
        "\u3164": "blank",
        "\u2800\ufe0f \U000e0100": "blank",
        "x" * 10_001: "10,001",
        "a\x00": "NUL",
        "a\ud800": "surrogate",
    }
    with nothing_changes(run):
        for content, word in bad.items():
            assert word in refused(run, "update", id=first, content=content)
            assert word in refused(run, "consolidate", ids=[first, second], content=content)
        for content in (5, True, ["x"], {"text": "x"}, 1.5):
            assert "must be text" in refused(run, "update", id=first, content=content)


def test_content_identical_to_before_is_refused_with_or_without_spaces_around(run: Running) -> None:
    first = ledger(run.agent)[0][0]
    with nothing_changes(run):
        assert "identical" in refused(run, "update", id=first, content=LONG + ".")
        assert "identical" in refused(run, "update", id=first, content=f"\n {LONG}. \t")
    assert run.tool.execute("update", id=first, content=LONG + "!!")["type"] == "updated"


def test_a_consolidation_may_be_as_long_as_its_sources_together_and_no_longer(run: Running) -> None:
    ids = remember(run.agent, "tea & rum!", "tea & rum!!")
    with nothing_changes(run):
        assert "22 characters, its sources together 21" in refused(
            run, "consolidate", ids=ids, content="tea & rum! tea & rum!!"
        )
        assert "two different ids" in refused(run, "consolidate", ids=[ids[0], ids[0]], content="x")
        assert "two different ids" in refused(run, "consolidate", ids=f"{ids[0]},{ids[0]}", content="x")
        assert "two different ids" in refused(run, "consolidate", ids=[ids[0]], content="x")
    assert run.tool.execute("consolidate", ids=ids, content="tea & rum! tea & rum!")["type"] == "consolidated"


def test_bad_searches_and_summaries_are_refused(run: Running) -> None:
    with nothing_changes(run):
        for query in ("", " ", "x" * 1001, 5, ["a"], "a\x00", "\ud800"):
            refused(run, "search", query=query)
        assert "since" in refused(run, "search", query="tea", since="last week")
        assert "until" in refused(run, "search", query="tea", until=20260101)
        for summary in ("", "  ", "x" * 10_001, 5, [], "a\x00", "\ud800"):
            refused(run, "complete", summary=summary)
        for note in (5, [], False, "a\x00", "\udc00", {"x": 1}):
            refused(run, "complete", summary="Done.", note_to_admins=note)


def test_the_cap_refuses_the_eleventh_change_and_nothing_else(run: Running) -> None:
    ids = [row[0] for row in ledger(run.agent)]
    for number in range(10):
        result = run.tool.execute("update", id=ids[number], content=f"{LONG} again {number}")
        assert result["changes_left"] == 9 - number
    with nothing_changes(run):
        for action, arguments in {
            "update": {"id": ids[11], "content": "x"},
            "delete": {"id": ids[11], "carried_by": ids[12]},
            "consolidate": {"ids": ids[11:13], "content": "x"},
        }.items():
            assert "Hard cap reached: 10 of 10" in refused(run, action, **arguments)
    assert run.tool.execute("protect", id=ids[11])["changes_left"] == 0
    assert run.tool.execute("search", query="again")["count"] == 10
    assert run.tool.execute("complete", summary="Done.")["type"] == "refinement_complete"


def test_the_eleventh_protection_is_refused_and_nothing_else(run: Running) -> None:
    ids = [row[0] for row in ledger(run.agent)]
    for number in range(10):
        assert run.tool.execute("protect", id=ids[number])["type"] == "protected"
    with nothing_changes(run):
        assert "All 10 protections" in refused(run, "protect", id=ids[10])
        assert "All 10 protections" in refused(run, "protect", id=10**15)
    assert run.tool.execute("delete", id=ids[11], carried_by=ids[-1])["changes_left"] == 9
    assert run.reload().protected == 10


def test_the_database_refuses_an_eleventh_protection(run: Running) -> None:
    with pytest.raises(IntegrityError), writing() as session:
        session.execute(text("UPDATE refinements SET protected = 11"))
    assert run.reload().protected == 0


def test_a_refused_protection_is_not_counted(run: Running) -> None:
    ids = [row[0] for row in ledger(run.agent)]
    for number in [*ids[:9], 10**15, ids[0], ids[9]]:
        run.tool.execute("protect", id=number)
    assert run.reload().protected == 10


def test_refused_and_free_calls_are_not_counted(run: Running) -> None:
    ids = [row[0] for row in ledger(run.agent)]
    for number in range(10):
        refused(run, "delete", id=10**15, carried_by=ids[0])
        assert run.tool.execute("protect", id=ids[number])["type"] == "protected"
    assert run.tool.execute("delete", id=ids[13], carried_by=ids[-1])["changes_left"] == 9
