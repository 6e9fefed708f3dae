"""The constitutional toggle: admins only, at once, with an Undo; never released while a refinement is open."""

from __future__ import annotations

import pytest
from flask import Flask

from app.extensions import db, now
from app.history.verify import verify
from app.models import Agent, Memory, MemoryType
from tests.support.factories import begin, make_agent, remember
from tests.views.conftest import Browser, toast_of

SECRET = "The vow under the blue stone."


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    remember(made, "Ann likes tea.", "Bob likes rum.")
    return made


def is_constitutional(memory_id: int) -> bool:
    db.session.rollback()
    return db.session.get_one(Memory, memory_id, populate_existing=True).constitutional


def test_an_admin_makes_a_memory_constitutional_and_takes_it_back(admin: Browser, agent: Agent) -> None:
    answer = admin.press(f"/agents/{agent.id}/memories/1/constitutional")

    assert answer.status_code == 200
    assert is_constitutional(1)
    assert 'hx-target="#memory-1"' in answer.text
    assert f'action="/agents/{agent.id}/memories/1/constitutional/release"' in toast_of(answer)
    admin.press(f"/agents/{agent.id}/memories/1/constitutional/release")
    assert not is_constitutional(1)
    assert verify().ok


def test_on_phones_no_line_stands_for_flags_that_a_memory_does_not_have(admin: Browser, agent: Agent) -> None:
    empty = '<td data-label="Flags and tags"></td>'
    assert admin.get(f"/agents/{agent.id}/ledger").text.count(empty) == 2

    admin.press(f"/agents/{agent.id}/memories/1/constitutional")

    assert admin.get(f"/agents/{agent.id}/ledger").text.count(empty) == 1


def test_twice_is_once(admin: Browser, agent: Agent) -> None:
    admin.press(f"/agents/{agent.id}/memories/1/constitutional")
    before = db.session.get_one(Memory, 1, populate_existing=True).version
    admin.press(f"/agents/{agent.id}/memories/1/constitutional")

    db.session.rollback()
    assert db.session.get_one(Memory, 1, populate_existing=True).version == before


def test_it_is_not_released_while_a_refinement_is_open(admin: Browser, agent: Agent) -> None:
    admin.press(f"/agents/{agent.id}/memories/1/constitutional")
    begin(agent)
    answer = admin.press(f"/agents/{agent.id}/memories/1/constitutional/release")

    assert answer.status_code == 409
    assert "stays constitutional while refinement" in answer.text
    assert is_constitutional(1)


def test_it_can_be_protected_in_the_middle_of_a_refinement(admin: Browser, agent: Agent) -> None:
    run = begin(agent)
    admin.press(f"/agents/{agent.id}/memories/1/constitutional")

    assert run.tool.execute("delete", id=1, carried_by=2)["type"] == "error"
    assert is_constitutional(1)


@pytest.mark.parametrize("memory_id", [99_999, 2**62])
def test_a_memory_that_is_not_the_agents_is_not_found(admin: Browser, agent: Agent, memory_id: int) -> None:
    other = make_agent("mina")
    theirs = remember(other, "Carl likes milk.")[0]

    for number in (memory_id, theirs):
        assert admin.press(f"/agents/{agent.id}/memories/{number}/constitutional").status_code == 404
    assert not is_constitutional(theirs)


def test_the_ledger_goes_on_from_a_cursor_and_never_skips_a_memory(admin: Browser, app: Flask) -> None:
    agent = make_agent("long")
    ids = remember(agent, *(f"Memory {number}." for number in range(120)))

    found, after = [], ""
    while True:
        shown = admin.get(f"/agents/{agent.id}.json", query_string={"after": after}).json
        assert shown is not None
        found += [row["id"] for row in shown["ledger"]]
        after = shown["next_after"]
        if not after:
            break

    assert found == ids
    assert admin.get(f"/agents/{agent.id}/ledger?after=nonsense~x").status_code == 200


def shown(person: Browser, agent: Agent, query: str = "") -> list[dict[str, object]]:
    said = person.get(f"/agents/{agent.id}.json{query}").json
    assert said is not None
    return list(said["ledger"])


def test_journal_and_discarded_memories_are_listed_too_blind_and_without_a_toggle(
    admin: Browser, auditor: Browser, agent: Agent
) -> None:
    (note,) = remember(agent, SECRET, type_=MemoryType.JOURNAL, tags=["day"])
    (long,) = remember(agent, f"Bob likes rum. {'Cleo likes ink. ' * 20}")
    run = begin(agent)
    run.tool.execute("delete", id=2, carried_by=long)
    pages = {
        show: admin.get(f"/agents/{agent.id}/ledger?show={show}").text for show in ("core", "journal", "discarded")
    }

    assert [each["id"] for each in shown(auditor, agent)] == [1, long]
    assert [(each["id"], each["type"], each["tags"]) for each in shown(auditor, agent, "?show=journal")] == [
        (note, "journal", ["day"])
    ]
    (gone,) = shown(auditor, agent, "?show=discarded")
    assert (gone["id"], gone["type"], gone["discarded"]) == (2, "core", True)
    assert gone["discarded_at"] is not None
    for show, page in pages.items():
        assert SECRET not in page and "Ann likes tea" not in page
        assert ("Make constitutional" in page) == (show == "core")
        assert f'id="memory-{({"core": 1, "journal": note, "discarded": 2})[show]}"' in page
    assert "memories list ezra --type journal" in pages["journal"]
    assert "memories list ezra --discarded" in pages["discarded"]
    assert 'id="ledger"' in pages["core"] and 'id="ledger"' not in pages["journal"] + pages["discarded"]


def test_a_filter_that_there_is_not_shows_the_core_memories(auditor: Browser, agent: Agent) -> None:
    for show in ("", "all", "CORE", "core'--", "%00"):
        assert [each["id"] for each in shown(auditor, agent, f"?show={show}")] == [1, 2]


def test_each_list_goes_on_by_its_own_pages(auditor: Browser, app: Flask) -> None:
    agent = make_agent("mina")
    ids = remember(agent, *(f"Note {number}." for number in range(53)), type_=MemoryType.JOURNAL)
    first = auditor.get(f"/agents/{agent.id}.json?show=journal").json
    assert first is not None
    page = auditor.get(f"/agents/{agent.id}/ledger?show=journal").text
    later = shown(auditor, agent, f"?show=journal&after={first['next_after']}")

    assert [each["id"] for each in [*first["ledger"], *later]] == ids
    assert f"/agents/{agent.id}/ledger?after=" in page and "show=journal" in page
    assert shown(auditor, agent) == shown(auditor, agent, "?show=discarded") == []
    assert "Nothing discarded" in auditor.get(f"/agents/{agent.id}/ledger?show=discarded").text


def test_another_account_sees_none_of_them(neighbour: Browser, agent: Agent) -> None:
    for show in ("core", "journal", "discarded"):
        assert neighbour.get(f"/agents/{agent.id}/ledger?show={show}").status_code == 404


def test_the_ledger_and_a_memory_s_page_show_its_merge_depth(admin: Browser, agent: Agent) -> None:
    ids = remember(agent, *[SECRET] * 3, "It rained in Lisbon. " * 20)
    tool = begin(agent).tool
    pair = tool.execute("consolidate", ids=ids[:2], content=SECRET)["id"]
    merged = tool.execute("consolidate", ids=[pair, ids[2]], content=SECRET)["id"]
    tool.execute("complete", summary="I am done.")
    words = "merged from 3 over 2 merges"

    ledger, page = admin.get(f"/agents/{agent.id}/ledger"), admin.get(f"/agents/{agent.id}/memories/{merged}")
    plain = admin.get(f"/agents/{agent.id}/memories/1")

    assert ledger.text.count(words) == page.text.count(words) == 1
    assert "merged from" not in plain.text
    assert SECRET not in ledger.text + page.text
    said = {row["id"]: row for row in (admin.get(f"/agents/{agent.id}.json").json or {})["ledger"]}
    assert [(said[number]["merged_sources"], said[number]["merges"]) for number in (1, merged)] == [(0, 0), (3, 2)]
    assert (admin.get(f"/agents/{agent.id}/memories/{pair}.json").json or {})["merges"] == 1


def test_the_ledger_s_tab_tells_how_large_how_old_and_whence_in_numbers_only(auditor: Browser, agent: Agent) -> None:
    remember(agent, SECRET + " It rained in Lisbon all day." * 3, at=now())
    told = auditor.get(f"/agents/{agent.id}/ledger.json").json
    assert told is not None
    page = auditor.get(f"/agents/{agent.id}/ledger").text

    figures = {name: {bar["of"]: bar["memories"] for bar in bars} for name, bars in told["figures"].items()}
    assert sum(figures["sizes"].values()) == len(told["ledger"]) == 3
    assert figures["sizes"]["1–10"] == 2
    assert figures["ages"]["up to 7 days"] == 1 and sum(figures["ages"].values()) == 3
    assert figures["sources"] == {"agent": 3}
    assert "Sizes, in tokens" in page and "3 memories" in page
    assert SECRET not in page


def test_old_addresses_of_the_ledger_lead_to_its_tab_and_the_summary_shows_none_of_it(
    auditor: Browser, agent: Agent
) -> None:
    old = auditor.get(f"/agents/{agent.id}?show=journal")
    summary = auditor.get(f"/agents/{agent.id}").text

    assert old.status_code == 302
    assert old.headers["Location"] == f"/agents/{agent.id}/ledger?show=journal&after="
    assert 'id="memory-1"' not in summary
    assert f'href="/agents/{agent.id}/ledger"' in summary and "Cost this month" in summary
    assert "no calls of a model" in summary


@pytest.mark.parametrize("typed", ["0", "99999", "-1", "1; DROP", "²", "9" * 30, "<script>"])
def test_no_memory_is_found_by_a_number_that_it_does_not_have(auditor: Browser, agent: Agent, typed: str) -> None:
    page = auditor.get(f"/agents/{agent.id}/ledger", query_string={"number": typed})

    assert page.status_code == 200
    assert "ezra has no memory of this number." in page.text and "<script>" not in page.text.partition("<main")[2]
    assert 'id="memory-1"' in page.text
    assert auditor.get(f"/agents/{agent.id}/ledger.json", query_string={"number": typed}).status_code == 404


def test_a_memory_is_found_by_its_number_and_its_history_told_blind(
    auditor: Browser, admin: Browser, agent: Agent
) -> None:
    theirs = remember(make_agent("mina"), SECRET)[0]
    (mine,) = remember(agent, SECRET)
    admin.press(f"/agents/{agent.id}/memories/{mine}/constitutional")
    found = auditor.get(f"/agents/{agent.id}/ledger?number= {mine} ")
    page = auditor.get(found.headers["Location"]).text
    told = auditor.get(f"{found.headers['Location']}.json").json

    assert found.headers["Location"] == f"/agents/{agent.id}/memories/{mine}"
    assert told is not None
    assert [each["action"] for each in told["history"]] == ["memory_constitutional_toggle", "memory_create"]
    assert [each["constitutional"] for each in told["history"]] == [True, False]
    assert 'id="memory-history"' in page and SECRET not in page
    assert "has no memory" in auditor.get(f"/agents/{agent.id}/ledger?number={theirs}").text
