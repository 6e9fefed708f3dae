"""The Time Machine's pages: what an undo would do, what one did, and which refinements stand no more."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask import Flask

from app.models import Action, Agent, Status
from app.shapes.audit import RollbackShape
from tests.history.going_back import count_entries, newest_entry, refined, update
from tests.support.clock import FakeClock
from tests.support.factories import begin, ledger, make_agent, remember, toggle
from tests.views.conftest import Browser, toast_of
from tests.views.undoing import SOME, merge_and_delete, page, press, rollbacks, twin


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    remember(made, *SOME)
    return made


def test_a_plan_counts_what_goes_back_and_changes_nothing(auditor: Browser, agent: Agent) -> None:
    refinement_id = merge_and_delete(agent)
    before = count_entries()
    path = f"/refinements/{refinement_id}/rollback"
    plan, words = twin(auditor, path), page(auditor, path)

    assert (plan["kind"], plan["state"], plan["restored"], plan["removed"]) == ("refinement", "ready", 4, 2)
    assert (plan["mass_before"], plan["mass_after"]) == (103, 132)
    assert sorted(plan["memories"]) == [1, 2, 3, 12, 13, 14]
    assert (plan["conflicts"], plan["stays"], plan["stops"], plan["rewind"]) == ([], [], None, None)
    assert "Restores 4 memories to an earlier state" in words
    assert "Removes 1 memory and 1 journal note" in words
    assert "103 → 132 tokens" in words
    assert f"./whetstone rollback {refinement_id} --dry-run" in words
    assert count_entries() == before


def test_a_rewind_says_beforehand_which_refinements_it_reverses(auditor: Browser, agent: Agent) -> None:
    first, second = refined(agent, update(1)), refined(agent, update(2))
    remember(agent, "Saved since.")
    path = f"/refinements/{first}/rewind"
    shown, plan = page(auditor, path), twin(auditor, path)

    assert "Rewind ezra to before refinement" in shown
    assert "It reverses 2 refinements" in shown
    assert all(f"Refinement {each[:8]}" in shown for each in (first, second))
    assert (plan["restored"], plan["conflicts"]) == (2, [])
    assert f"./whetstone rollback {first} --rewind --dry-run" in shown


def test_the_page_of_a_rollback_says_what_it_did_and_undoes_it(auditor: Browser, admin: Browser, agent: Agent) -> None:
    refinement_id = merge_and_delete(agent)
    admin.post(f"/refinements/{refinement_id}/rollback")
    (made,) = rollbacks()
    here = f"/rollbacks/{made.id}"
    shown, said = page(admin, here), twin(auditor, here)
    answer = press(admin, f"{here}/rollback", on=here)
    after = page(auditor, here)

    assert said == RollbackShape.of(made).as_json() | {
        "agent": "ezra",
        "agent_id": agent.id,
        "restored": 4,
        "removed": 2,
        "removed_notes": 1,
        "stays": [],
        "undid": [refinement_id],
        "redid": [],
    }
    for words in (
        "Rollback of a refinement",
        "stands",
        f"refinement {refinement_id[:8]}",
        "admin-1@example.org, 2026-11-16 04:00:00 UTC",
        "Restored 4 memories, removed 1 memory and 1 journal note, 103 → 132 tokens",
        "Undo this rollback",
    ):
        assert words in shown, words
    assert 'hx-target="#rollback-state"' in answer.text
    assert "Undone. By admin-1@example.org" in after
    assert "Undo this rollback" not in after
    assert rollbacks()[1].undid == [made.id]


def test_an_undo_of_an_undo_can_be_planned_too(auditor: Browser, admin: Browser, agent: Agent) -> None:
    refinement_id = merge_and_delete(agent)
    admin.post(f"/refinements/{refinement_id}/rollback")
    (made,) = rollbacks()
    path = f"/rollbacks/{made.id}/rollback"
    plan = twin(auditor, path)
    admin.post(path)

    assert (plan["kind"], plan["restored"], plan["removed"], plan["mass_after"]) == ("rollback", 6, 0, 103)
    assert twin(auditor, path)["state"] == "undone"
    assert "It is undone already." in page(auditor, path)


def test_the_plan_of_a_rollback_s_own_entry_is_the_plan_of_the_rollback(admin: Browser, agent: Agent) -> None:
    admin.post(f"/refinements/{merge_and_delete(agent)}/rollback")
    (made,) = rollbacks()
    by_entry, by_itself = f"/audit/{made.entry_id}/rollback", f"/rollbacks/{made.id}/rollback"

    assert f"./whetstone rollback {made.id} --dry-run" in page(admin, by_entry)
    assert twin(admin, by_entry) == twin(admin, by_itself)
    assert page(admin, by_entry) == page(admin, by_itself)


def test_what_an_admin_protected_since_is_said_to_stay(admin: Browser, agent: Agent) -> None:
    refinement_id = merge_and_delete(agent)
    toggle(agent, 13)
    path = f"/refinements/{refinement_id}/rollback"
    shown, plan = page(admin, path), twin(admin, path)
    admin.post(path)

    assert plan["stays"] == [13]
    assert "Left alone 1 memory that an admin made constitutional since: 13" in shown
    assert 13 in [row[0] for row in ledger(agent)]
    assert twin(admin, f"/rollbacks/{rollbacks()[0].id}")["stays"] == [13]


def test_auditors_see_the_words_and_no_button(auditor: Browser, agent: Agent) -> None:
    first = refined(agent, update(1), update(2))
    assert "Restores 2 memories, removes 1" in page(auditor, f"/refinements/{first}")
    refined(agent, update(1, "Short."))
    for path in (f"/refinements/{first}", f"/refinements/{first}/rollback", f"/refinements/{first}/rewind"):
        markup = auditor.get(path).text
        assert 'method="post" action="/ref' not in markup, path
    assert auditor.post(f"/refinements/{first}/rewind").status_code == 403
    assert rollbacks() == []


def test_the_timeline_strikes_through_what_was_undone_and_tells_who_did(admin: Browser, agent: Agent) -> None:
    refinement_id = merge_and_delete(agent)
    admin.post(f"/refinements/{refinement_id}/rollback")
    undone = twin(admin, f"/refinements/{refinement_id}")
    admin.post(f"/rollbacks/{rollbacks()[0].id}/rollback")
    given_back = twin(admin, f"/refinements/{refinement_id}")

    assert all(row["reversed"] for row in undone["timeline"] if row["kind"] == "operation")
    last = undone["timeline"][-1]
    assert (last["title"], last["detail"], last["tokens"]) == ("Rolled back", "by admin-1@example.org", [103, 132])
    assert not any(row.get("reversed") for row in given_back["timeline"])
    assert given_back["timeline"][-1]["title"] == "Its work was given back"


def test_an_undone_refinement_says_so_wherever_it_is_listed(admin: Browser, agent: Agent) -> None:
    refinement_id = merge_and_delete(agent)
    pages = ("/", "/agents", f"/agents/{agent.id}", f"/agents/{agent.id}/refinements", f"/refinements/{refinement_id}")
    badge = "<span>undone</span>"
    before = [badge in admin.get(path).text for path in pages]
    admin.post(f"/refinements/{refinement_id}/rollback")

    assert before == [False] * len(pages)
    assert [badge in admin.get(path).text for path in pages] == [True] * len(pages)


def test_what_is_in_the_way_is_rolled_back_from_there_and_the_way_is_clear(
    admin: Browser, agent: Agent, clock: FakeClock
) -> None:
    made = []
    for words in ("Memory number", "Memory", "M"):
        made.append(refined(agent, update(1, f"{words} 1.")))
        clock.advance(days=1)
    first, second, third = made
    here = f"/refinements/{first}/rollback"
    for each in (third, second):
        shown = admin.get(here).text
        assert re.findall(r'action="/refinements/([^/]+)/rollback"', shown) == [each]
        answer = press(admin, f"/refinements/{each}/rollback", on=here)
        assert answer.headers["HX-Redirect"] == here

    assert "Nothing is applied" not in page(admin, here)
    answer = press(admin, f"{here}", on=here)
    assert answer.headers["HX-Redirect"] == f"/refinements/{first}"


def test_the_undo_of_a_rewind_is_called_so(admin: Browser, agent: Agent) -> None:
    here = f"/refinements/{refined(agent, update(1))}"
    admin.post(f"{here}/rewind")
    (made,) = rollbacks()

    assert "The rewind is undone: restored 2 memories" in press(admin, f"/rollbacks/{made.id}/rollback", on=here).text


def test_the_page_of_an_entry_s_undo_leads_to_the_refinement_it_was_of(admin: Browser, agent: Agent) -> None:
    refinement_id = refined(agent, update(1))
    admin.post(f"/audit/{newest_entry(Action.REFINEMENT_UPDATE)}/rollback")
    (made,) = rollbacks()
    said = page(admin, f"/rollbacks/{made.id}")

    assert f"Shortened a memory of refinement {refinement_id[:8]}" in said


def test_an_undone_refinement_claims_no_more_what_does_not_stand(admin: Browser, app: Flask) -> None:
    agent = make_agent("mina")
    remember(agent, "Ann likes tea.", "Ann likes tea.", *(f"Memory {number} of some length." for number in range(9)))
    path = f"/refinements/{refined(agent, update(5))}"
    assert "every change passed the guards" in page(admin, path)
    admin.post(f"{path}/rollback")
    said = page(admin, path)

    assert "Undone. It had ended as completed; all that it did was taken back since." in said
    assert "every change passed the guards" not in said
    (made,) = rollbacks()
    admin.post(f"/rollbacks/{made.id}/rollback")
    assert "every change passed the guards" in page(admin, path)


def test_one_change_is_undone_from_its_row_and_the_page_says_so(admin: Browser, auditor: Browser, agent: Agent) -> None:
    path = f"/refinements/{refined(agent, update(1), update(2))}"
    undoes = re.compile(r'<form method="post" action="(/audit/\d+/rollback)"')
    first, second = undoes.findall(admin.get(path).text)
    assert "/audit/" not in "".join(undoes.findall(auditor.get(path).text))
    answer = press(admin, first, on=path)

    assert 'hx-target="#refinement-timeline"' in answer.text
    assert "Undone: restored 1 memory, " in toast_of(answer)
    assert "Nothing is left to undo." in toast_of(press(admin, first, on=path))  # a second click
    assert undoes.findall(admin.get(path).text) == [second]
    rows = twin(admin, path)["timeline"]
    assert [row.get("reversed") for row in rows if row["kind"] == "operation"] == [True, None]
    assert rows[-1]["title"] == "One of its changes was undone"
    (made,) = rollbacks()
    admin.post(f"/rollbacks/{made.id}/rollback")
    rows = twin(admin, path)["timeline"]
    assert not any(row.get("reversed") for row in rows)
    assert rows[-1]["detail"].endswith("; that was undone")


def twin_of_log(person: Browser, url: str) -> list[dict[str, Any]]:
    path, _, query = url.partition("?")
    return list((person.get(f"{path}.json?{query}").json or {})["entries"])


def test_a_refinement_s_page_leads_to_its_entries(auditor: Browser, agent: Agent) -> None:
    refinement_id = refined(agent, update(1))
    found = re.search(r'href="([^"]+)">View audit entries', auditor.get(f"/refinements/{refinement_id}").text)
    assert found is not None
    assert [row["action"] for row in twin_of_log(auditor, found[1])][-3:] == [
        "memory_refinement_update",
        "memory_refinement_snapshot",
        "memory_refinement_start",
    ]


def test_a_refinement_that_changed_nothing_offers_no_rollback(admin: Browser, agent: Agent) -> None:
    path = f"/refinements/{refined(agent)}"

    assert "Nothing to roll back: it changed no core memory." in page(admin, path)
    assert f'action="{path}/rollback"' not in admin.get(path).text
    assert f'href="{path}/rewind"' in admin.get(path).text
    assert twin(admin, path)["rollback"] is None


def test_a_latch_left_nothing_to_roll_back(admin: Browser, agent: Agent) -> None:
    run = begin(agent)
    for number in (1, 2, 3, 4):
        run.tool.execute("delete", id=number, carried_by=12)

    assert run.reload().status == Status.ROLLED_BACK
    path = f"/refinements/{run.refinement.id}"
    assert "Nothing to roll back: the guard reversed every change itself." in page(admin, path)
    assert f'action="{path}/rollback"' not in admin.get(path).text
    assert "Nothing to roll back" not in page(admin, f"/refinements/{refined(agent, update(5))}")
