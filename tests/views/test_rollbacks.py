"""The Time Machine's buttons: one press, an Undo in the toast, and a conflict that changes nothing."""

from __future__ import annotations

from html import unescape

import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db, writing
from app.history.verify import verify
from app.models import Account, Action, Agent, AuditLog, Status
from tests.history.going_back import count_entries, newest_entry, refined, update
from tests.support.factories import begin, ledger, make_agent, remember
from tests.support.tampering import tamper
from tests.views.conftest import Browser, toast_of
from tests.views.undoing import SOME, merge_and_delete, page, press, rollbacks, twin, undo_in, undone_by

JSON = {"Accept": "application/json"}
GUARDED = (Action.REFINEMENT_DELETE, Action.REFINEMENT_ROLLBACK)


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    remember(made, *SOME)
    return made


def test_one_press_brings_every_memory_back_and_the_toasts_undo_takes_that_back(
    auditor: Browser, admin: Browser, agent: Agent
) -> None:
    original = ledger(agent)
    refinement_id = merge_and_delete(agent)
    later = ledger(agent)
    here = f"/refinements/{refinement_id}"
    offered = page(auditor, here)

    answer = press(admin, f"{here}/rollback", on=here)
    back, toast = ledger(agent), toast_of(answer)
    shown = page(auditor, here)
    again = press(admin, undo_in(toast), on=here)

    assert "Restores 4 memories, removes 1 memory and 1 journal note, 103 → 132 tokens" in offered
    assert answer.status_code == 200
    assert back == original
    assert "Rolled back: restored 4 memories, removed 1 memory and 1 journal note, 103 → 132 tokens." in toast
    assert 'hx-target="#refinement-rollback"' in answer.text
    assert "by admin-1@example.org on 2026-11-16 04:00 UTC" in shown
    assert "The rollback is undone: restored 6 memories, 132 → 103 tokens." in toast_of(again)
    assert 'hx-target="#refinement-rollback"' in again.text
    assert ledger(agent) == later
    assert undone_by(refinement_id) is None
    assert verify().ok


def test_the_press_works_without_scripts(admin: Browser, agent: Agent) -> None:
    refinement_id = merge_and_delete(agent)
    answer = admin.post(f"/refinements/{refinement_id}/rollback")
    landed = admin.get(answer.headers["Location"]).text

    (made,) = rollbacks()
    assert answer.status_code == 303
    assert answer.headers["Location"] == f"/refinements/{refinement_id}"
    assert f'action="/rollbacks/{made.id}/rollback"' in landed
    assert "Rolled back: restored 4 memories" in landed


def test_a_second_press_has_no_effect_and_says_so(admin: Browser, agent: Agent) -> None:
    refinement_id = merge_and_delete(agent)
    here = f"/refinements/{refinement_id}"
    press(admin, f"{here}/rollback", on=here)
    once = (ledger(agent), count_entries())
    second = press(admin, f"{here}/rollback", on=here)

    assert "It was undone already. Nothing was changed." in toast_of(second)
    assert "<form" not in toast_of(second)
    assert (ledger(agent), count_entries()) == once
    assert len(rollbacks()) == 1


def test_a_second_undo_in_the_toast_has_no_effect_either(admin: Browser, agent: Agent) -> None:
    refinement_id = merge_and_delete(agent)
    here = f"/refinements/{refinement_id}"
    undo = undo_in(toast_of(press(admin, f"{here}/rollback", on=here)))
    press(admin, undo, on=here)
    second = press(admin, undo, on=here)

    assert "It was undone already." in toast_of(second)
    assert len(rollbacks()) == 2
    assert undone_by(refinement_id) is None


def test_a_conflict_applies_nothing_and_names_what_is_in_the_way(admin: Browser, agent: Agent) -> None:
    first = refined(agent, update(1), update(2))
    second = refined(agent, update(1, "Short."))
    now_there, count = ledger(agent), count_entries()
    path = f"/refinements/{first}/rollback"
    answer = press(admin, path, on=f"/refinements/{first}")
    plain = admin.post(path)
    shown, plan = page(admin, path), twin(admin, path)

    assert answer.headers["HX-Redirect"] == path
    assert (plain.status_code, plain.headers["Location"]) == (303, path)
    assert (ledger(agent), count_entries()) == (now_there, count)
    assert (plan["state"], plan["conflicts"], plan["later"]) == ("conflict", [1], [second])
    assert (plan["restored"], plan["removed"], plan["mass_after"]) == (0, 0, plan["mass_before"])
    assert "Nothing is applied." in shown
    assert "since then, others changed memory 1." in shown
    assert f"Refinement {second[:8]}" in shown
    assert f'href="/refinements/{second}"' in admin.get(path).text
    assert "Not possible by itself: since then, others changed memory 1." in page(admin, f"/refinements/{first}")


def test_a_history_that_was_altered_is_named_so_and_no_rewind_is_offered(admin: Browser, agent: Agent) -> None:
    first = refined(agent, update(1), update(2))
    second = refined(agent, update(1, "Short."))
    tamper("UPDATE memory_states SET previous_entry_id = NULL WHERE memory_id = 1")
    there, count = ledger(agent), count_entries()
    for refinement_id in (first, second):
        here, plan = f"/refinements/{refinement_id}", f"/refinements/{refinement_id}/rollback"
        assert press(admin, plan, on=here).headers["HX-Redirect"] == plan
        shown = page(admin, plan)
        assert "the history of memory 1 was altered behind Whetstone's back." in shown
        assert "On the server, this says where: ./whetstone verify" in shown
        assert "undo those first" not in shown
        assert 'id="rewind-instead"' not in admin.get(plan).text
        assert "Not possible by itself: the history of memory 1 was altered" in page(admin, here)
    assert (ledger(agent), count_entries()) == (there, count)


def test_programs_are_told_of_a_conflict_by_a_409(admin: Browser, agent: Agent) -> None:
    first = refined(agent, update(1))
    refined(agent, update(1, "Short."))
    count = count_entries()
    answer = admin.post(f"/refinements/{first}/rollback", headers=JSON)

    assert answer.status_code == 409
    assert answer.content_type == "application/problem+json"
    assert answer.json is not None
    assert answer.json["code"] == "rollback_conflict"
    assert "memory 1" in answer.json["detail"]
    assert count_entries() == count


def test_a_conflict_offers_the_rewind_with_its_own_preview(admin: Browser, agent: Agent) -> None:
    original = ledger(agent)
    first = refined(agent, update(1), update(2))
    second = refined(agent, update(1, "Short."))
    path = f"/refinements/{first}/rollback"
    plan, markup = twin(admin, path), admin.get(path).text
    answer = press(admin, f"/refinements/{first}/rewind", on=path)
    rewound = ledger(agent)
    (made,) = rollbacks()
    undone = admin.post(f"/rollbacks/{made.id}/rollback")

    assert plan["rewind"]["kind"] == "rewind"
    assert sorted(plan["rewind"]["later"]) == sorted([first, second])
    assert (plan["rewind"]["restored"], plan["rewind"]["mass_after"]) == (2, 132)
    assert f'hx-post="/refinements/{first}/rewind"' in markup
    assert "Rewind instead" in markup
    assert answer.headers["HX-Redirect"] == f"/refinements/{first}"
    assert rewound == original
    assert sorted(made.undid) == sorted([first, second])
    assert undone.status_code == 303
    assert ledger(agent) != original
    assert (undone_by(first), undone_by(second)) == (None, None)


def test_one_entry_is_undone_and_nothing_else(admin: Browser, agent: Agent) -> None:
    run = begin(agent)
    run.tool.execute("delete", id=3, carried_by=12)
    without_the_third = ledger(agent)
    run.tool.execute("delete", id=4, carried_by=12)
    run.tool.execute("complete", summary="I am done.")
    entry_id = newest_entry(Action.REFINEMENT_DELETE)
    shown = page(admin, f"/audit/{entry_id}/rollback")
    answer = admin.post(f"/audit/{entry_id}/rollback")
    second = press(admin, f"/audit/{entry_id}/rollback", on="/audit")

    (made,) = rollbacks()
    assert f"Undo entry {entry_id}" in shown
    assert answer.headers["Location"] == f"/rollbacks/{made.id}"
    assert ledger(agent) == without_the_third
    assert (made.kind, made.target_entry_id) == ("entry", entry_id)
    assert second.headers["HX-Redirect"] == f"/audit/{entry_id}/rollback"
    assert "Nothing is left to undo." in page(admin, f"/audit/{entry_id}/rollback")


def test_an_entry_in_conflict_offers_to_rewind_to_before_what_is_in_the_way(admin: Browser, agent: Agent) -> None:
    entry_id = newest_entry(Action.CREATE)
    first = refined(agent, update(1))
    path = f"/audit/{entry_id}/rollback"
    shown, plan = page(admin, path), twin(admin, path)
    admin.post(f"/refinements/{first}/rewind")

    assert plan["conflicts"] == [1]
    assert "That clears the way: undo this afterwards." in shown
    assert twin(admin, path)["state"] == "ready"


def test_an_entry_that_changed_no_memory_can_not_be_undone(admin: Browser, agent: Agent) -> None:
    entry_id = newest_entry(Action.AGENT_CREATE)
    for answer in (
        admin.get(f"/audit/{entry_id}/rollback"),
        admin.get(f"/audit/{entry_id}/rollback.json"),
        press(admin, f"/audit/{entry_id}/rollback", on="/audit"),
    ):
        assert answer.status_code == 409
        assert "changed no memory, so there is nothing to undo" in answer.text
    assert rollbacks() == []


def test_a_running_refinement_is_ended_before_it_is_taken_back(admin: Browser, agent: Agent) -> None:
    original = ledger(agent)
    run = begin(agent)
    run.tool.execute("delete", id=1, carried_by=12)
    here = f"/refinements/{run.refinement.id}"
    on_its_page, planned, plan = page(admin, here), page(admin, f"{here}/rollback"), twin(admin, f"{here}/rollback")
    answer = press(admin, f"{here}/rollback", on=f"{here}/rollback")
    late = run.tool.execute("delete", id=2, carried_by=12)

    assert "Roll back Possible once it has ended" in on_its_page
    assert plan["stops"] == run.refinement.id
    assert "Ended first the refinement that is open now" in planned
    assert answer.headers["HX-Redirect"] == here
    assert "terminated" in late["error"]
    assert run.reload().status == Status.STOPPED
    assert ledger(agent) == original


def test_another_running_refinement_is_ended_too_and_the_plan_says_so(admin: Browser, agent: Agent) -> None:
    refinement_id = merge_and_delete(agent)
    run = begin(agent)
    path = f"/refinements/{refinement_id}/rollback"
    shown = page(admin, path)
    answer = press(admin, path, on=f"/refinements/{refinement_id}")

    assert "Ended first the refinement that is open now" in shown
    assert "The refinement that was running was ended first." in toast_of(answer)
    assert run.reload().status == Status.STOPPED


def test_a_running_one_that_did_nothing_is_ended_and_there_is_nothing_to_take_back(
    admin: Browser, agent: Agent
) -> None:
    run = begin(agent)
    answer = press(admin, f"/refinements/{run.refinement.id}/rollback", on=f"/refinements/{run.refinement.id}")

    assert "Stopped: the refinement had changed nothing yet" in toast_of(answer)
    assert run.reload().status == Status.STOPPED
    assert rollbacks() == []


def test_a_page_of_another_account_named_as_the_one_pressed_on_gives_nothing_away(
    web: Flask, admin: Browser, agent: Agent
) -> None:
    with writing():
        other = Account.create("Elsewhere")
    theirs = make_agent("theirs", account_id=other.id)
    refinement_id = merge_and_delete(agent)
    answer = press(admin, f"/refinements/{refinement_id}/rollback", on=f"/agents/{theirs.id}")

    assert answer.status_code == 404
    assert "theirs" not in answer.text
    assert undone_by(refinement_id) is not None


@pytest.mark.parametrize("here", ["", "nonsense", "http://[", "/agents", "/refinements/x", "/assets/app.js"])
def test_a_page_without_live_parts_is_left_for_one_that_shows_it(admin: Browser, agent: Agent, here: str) -> None:
    refinement_id = merge_and_delete(agent)
    headers = {"HX-Request": "true", "HX-Current-URL": here}
    answer = admin.post(f"/refinements/{refinement_id}/rollback", headers=headers)

    assert answer.headers["HX-Redirect"] == f"/refinements/{refinement_id}"
    assert len(rollbacks()) == 1


def trip(agent: Agent) -> str:
    """A refinement that the latch reversed; its id."""
    run = begin(agent)
    for number in range(1, 6):
        run.tool.execute("delete", id=number, carried_by=12)
    assert run.reload().status == Status.ROLLED_BACK
    return run.refinement.id


def test_what_a_guard_reversed_is_refused_on_pages_and_to_programs(admin: Browser, agent: Agent) -> None:
    refinement_id = trip(agent)
    reversal, change = newest_entry(Action.REFINEMENT_ROLLBACK), newest_entry(Action.REFINEMENT_DELETE)
    before, counts = ledger(agent), count_entries()
    paths = [f"/audit/{reversal}/rollback", f"/audit/{change}/rollback", f"/refinements/{refinement_id}/rollback"]

    for path in paths:
        toast, posted, told = press(admin, path, on="/audit"), admin.post(path), admin.post(path, headers=JSON)
        shown, twin_of_it = admin.get(path), admin.get(f"{path}.json")
        assert {each.status_code for each in (toast, posted, told, shown, twin_of_it)} == {409}, path
        assert {(each.json or {})["code"] for each in (told, twin_of_it)} == {"guard_final"}
        for each in (toast, posted, shown):
            assert "that is final" in unescape(each.text)
            assert "it can't be brought back" in unescape(each.text)
            assert f'action="{path}' not in each.text
    assert (ledger(agent), count_entries()) == (before, counts)
    assert verify().ok


def test_no_page_offers_a_way_back_to_what_a_guard_reversed(admin: Browser, agent: Agent) -> None:
    remember(agent, SOME[11])
    refinement_id = trip(agent)
    pages = [f"/refinements/{refinement_id}", "/audit", f"/agents/{agent.id}/audit", "/"]
    pages += [f"/audit/folds/{refinement_id}", f"/audit?refinement={refinement_id}"]
    reversed_ = [
        entry_id for (entry_id,) in db.session.execute(select(AuditLog.id).where(AuditLog.action.in_(GUARDED)))
    ]
    shown = {path: admin.get(path) for path in pages}

    for path, answer in shown.items():
        for entry_id in reversed_:
            assert f"/audit/{entry_id}/rollback" not in answer.text, path
    log = shown[f"/audit?refinement={refinement_id}"].text
    assert log.count(">final</span>") == len(reversed_) == 5
    assert "Only the agent can do that work again" in log
    assert "the guard reversed every change itself. That is final" in page(admin, f"/refinements/{refinement_id}")
