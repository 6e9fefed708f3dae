"""The page of a refinement: its timeline, its figures, its Stop, and what its end means."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from app.extensions import db, now, writing
from app.models import Agent, Consent, Refinement, Status, note_to_admins
from app.refinement.dedup import remove_exact_duplicates
from app.refinement.heartbeat import STALE_SECONDS
from app.refinement.start import start_refinement
from tests.support.clock import FakeClock
from tests.support.factories import Running, begin, make_agent, remember
from tests.views.conftest import Browser, toast_of
from tests.views.undoing import SOME


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    remember(made, *SOME)
    return made


def twin(person: Browser, run: Running) -> dict[str, Any]:
    shown = person.get(f"/refinements/{run.refinement.id}.json").json
    assert shown is not None
    return dict(shown)


def page(person: Browser, run: Running) -> str:
    return unescape(person.get(f"/refinements/{run.refinement.id}").text)


def end(run: Running, status: Status, reason: str | None = None) -> None:
    with writing():
        Refinement.lock(run.refinement.id).end(Agent.lock(run.agent.id), status, reason=reason)


def test_it_shows_one_row_an_operation_with_ids_and_tokens(auditor: Browser, agent: Agent) -> None:
    run = begin(agent)
    run.tool.execute("consolidate", ids=[1, 2], content="Memory number, of which there are some:")
    run.tool.execute("delete", id=3, carried_by=12)
    run.tool.execute("protect", id=4)

    rows = [row for row in twin(auditor, run)["timeline"] if row["kind"] == "operation"]

    assert [(row["title"], row["ids"], row.get("result"), row["tokens"]) for row in rows] == [
        ("Consolidated", [1, 2], 13, [22, 10]),
        ("Deleted", [3], None, [11, 0]),
        ("Made constitutional", [4], None, [11, 11]),
    ]
    assert "memories 1, 2 → 13" in page(auditor, run)


def test_refusals_of_one_kind_are_one_row(auditor: Browser, agent: Agent) -> None:
    run = begin(agent)
    for number in (901, 902, 903):
        run.tool.execute("delete", id=number, carried_by=12)
    run.tool.execute("burn")
    run.tool.settle()

    rows = [row for row in twin(auditor, run)["timeline"] if row["kind"].startswith("refused")]

    assert [(row["title"], row["count"], row.get("ids")) for row in rows] == [
        ("Refused: delete", 3, [901, 902, 903]),
        ("Refused: `burn` is not an available function", 1, None),
    ]
    text = page(auditor, run)
    assert '<span class="ids">memories 901, 902, 903</span>' in text
    assert "no such memory of this agent; nothing changed" in text


def test_what_a_model_calls_a_function_can_neither_act_nor_tell_a_memory_nor_fill_the_page(
    auditor: Browser, agent: Agent
) -> None:
    run = begin(agent)
    for name in ("<script>alert(1)</script>", "ann_likes_tea", "delete_memory_4111111111111111", "x" * 500, ""):
        run.tool.call(name, "{}")
    for name in ("frobnicate", "listMemories", *(f"merge_{each}" for each in ("all", "core", "notes", "ids", "items"))):
        run.tool.call(name, "{}")
    run.tool.execute("delete", id="4111111111111111", carried_by=12)
    run.tool.settle()

    rows = [row for row in twin(auditor, run)["timeline"] if row["kind"].startswith("refused")]
    markup = auditor.get(f"/refinements/{run.refinement.id}").text

    named = ["frobnicate", "listMemories", "merge_all", "merge_core", "merge_notes"]
    assert [row.get("function") for row in rows] == [None, *named, None]
    assert (rows[0]["title"], rows[0]["count"]) == ("Refused: what it called is not an available function", 7)
    assert "ids" not in rows[-1]  # too long for a memory's number: it may be something that a memory says
    assert not any(text in markup for text in ("alert(1)", "likes_tea", "4111", "xxx"))
    assert "<code><bdi>frobnicate</bdi></code> is not an available function" in markup


def test_the_last_row_says_what_it_waits_for_and_every_place_is_there_from_the_start(
    auditor: Browser, agent: Agent
) -> None:
    run = begin(agent)
    run.tool.execute("delete", id=1, carried_by=12)
    shown, text = twin(auditor, run), page(auditor, run)

    assert (shown["now"]["waits_for"], shown["now"]["turn"]) == ("turn", 1)
    last = text.rpartition('<li id="row-')[2]
    assert "Turn 1: the model is thinking" in last
    assert 'data-running="' in last
    assert f'hx-get="/events/poll?topic=refinement:{run.refinement.id}"' in text
    assert "What came of it and what comes next will stand here." in text
    assert "ezra wrote nothing to the admins yet." in text
    assert "Possible once it has ended, for all of it or for one change." in text
    end(run, Status.COMPLETED)
    text = page(auditor, run)
    assert twin(auditor, run)["now"] is None
    assert "is thinking" not in text
    assert "/events/poll?topic=refinement:{run.refinement.id}" not in text.partition('id="refinement-timeline"')[2]


def test_a_worker_that_is_silent_too_long_is_said_to_be(auditor: Browser, agent: Agent, clock: FakeClock) -> None:
    run = begin(agent)
    with writing():
        db.session.execute(update(Refinement).values(heartbeat_at=clock.at))
    assert "sign of life" in page(auditor, run)
    assert "no sign of life" not in page(auditor, run)
    clock.advance(seconds=STALE_SECONDS + 1)
    assert "no sign of life for" in page(auditor, run)


def test_it_says_how_many_calls_were_refused_and_of_what_kind(auditor: Browser, agent: Agent) -> None:
    run = begin(agent)
    run.tool.execute("search", query="memory")
    run.tool.settle()
    assert "1, none refused" in page(auditor, run)
    for number in (901, 902, 903):
        run.tool.execute("delete", id=number, carried_by=12)
    run.tool.execute("burn")
    run.tool.settle()

    shown = twin(auditor, run)

    assert (shown["calls"], shown["stats"]["refused"]) == (5, {"unknown_memory": 3, "unknown_function": 1})
    text = page(auditor, run)
    assert "4 of 5 calls were refused: this model may not be able to refine" in text
    assert "(3 unknown memory, 1 unknown function)" in text


def test_the_agents_page_says_that_its_model_may_not_be_able(auditor: Browser, agent: Agent, clock: FakeClock) -> None:
    def warning() -> str | None:
        shown = auditor.get(f"/agents/{agent.id}.json").json
        assert shown is not None
        text = unescape(auditor.get(f"/agents/{agent.id}").text)
        said: str | None = shown["model_warning"]
        assert (said or "this model may not be able") in text or said is None
        return said

    run = begin(agent)
    for number in range(13):
        run.tool.execute("delete", id=900 + number, carried_by=12)
    run.tool.execute("search", query="memory")
    run.tool.execute("search", query="number")
    run.tool.settle()
    assert warning() is None  # it may still learn
    end(run, Status.UNFINISHED)
    assert warning() == "13 of 15 calls were refused: this model may not be able to refine"
    clock.advance(minutes=1)
    end(begin(agent), Status.COMPLETED)
    assert warning() is None


def test_after_its_end_it_advises_another_model_only_where_the_model_seems_unable(
    admin: Browser, agent: Agent, clock: FakeClock
) -> None:
    run = begin(agent)
    run.tool.execute("delete", id=1, carried_by=12)
    end(run, Status.UNFINISHED)
    assert "Refine again if more is to be done." in page(admin, run)
    assert "Its settings</a>" not in page(admin, run)
    clock.advance(minutes=1)
    unable = begin(agent)
    for number in range(5):
        unable.tool.execute("delete", id=900 + number, carried_by=12)
    unable.tool.settle()
    end(unable, Status.UNFINISHED)

    text = page(admin, unable)

    assert "this model may not be able to refine. Choose another one in its settings, then refine again." in text
    assert "Refine again if more is to be done." not in text
    assert f'href="/agents/{agent.id}/settings"><svg' in text


def test_after_a_failure_its_settings_are_one_step_away_and_its_reason_gives_the_advice(
    auditor: Browser, agent: Agent
) -> None:
    run = begin(agent)
    end(run, Status.FAILED, "The model openai/x could not be reached. Check its address (api base).")
    text = page(auditor, run)

    assert "Check its address (api base). Fix the cause, then refine again." in text
    assert "Its settings</a>" in text


def test_what_was_undone_gets_no_advice(admin: Browser, agent: Agent) -> None:
    run = begin(agent)
    run.tool.execute("delete", id=1, carried_by=12)
    end(run, Status.UNFINISHED)
    admin.post(f"/refinements/{run.refinement.id}/rollback")

    assert "all that it did was taken back since. Next run " in page(admin, run)


def test_the_gauge_of_what_ended_without_a_snapshot_waits_for_nothing(auditor: Browser, agent: Agent) -> None:
    refinement = start_refinement(agent.id, trigger="admin", by=run_by())  # type: ignore[arg-type]
    address = f"/refinements/{refinement.id}"
    assert "<figcaption>not measured yet · limit 75%</figcaption>" in auditor.get(address).text
    with writing():
        Refinement.lock(refinement.id).end(Agent.lock(agent.id), Status.FAILED, reason="No answer.")

    assert "<figcaption>not measured · limit 75%</figcaption>" in auditor.get(address).text


def test_a_rollback_of_a_latched_one_says_that_only_duplicates_come_back(admin: Browser, app: Flask) -> None:
    agent = make_agent("mina")
    remember(agent, *(f"Memory number {number % 4}, of which there are some." for number in range(5)))
    refinement = start_refinement(agent.id, trigger="admin", by=run_by())  # type: ignore[arg-type]
    with writing():
        row, locked = Refinement.lock(refinement.id), Agent.lock(agent.id)
        remove_exact_duplicates(row, locked)
        row.end(locked, Status.ROLLED_BACK, reason="A guard tripped.")

    text = unescape(admin.get(f"/refinements/{refinement.id}").text)

    assert "Only the removal of exact duplicates stands. " in text


def test_a_refusal_that_came_again_keeps_its_place_and_the_time_of_the_first(
    auditor: Browser, agent: Agent, clock: FakeClock
) -> None:
    run = begin(agent)
    for number in (901, 1, 901):
        run.tool.execute("delete", id=number, carried_by=12)
        run.tool.settle()
        clock.advance(seconds=30)

    rows = twin(auditor, run)["timeline"]
    times = [row["at"] for row in rows]

    assert [row["count"] for row in rows if row["kind"].startswith("refused")] == [2]
    assert times == sorted(times)


def test_a_rollback_strikes_its_operations_through_and_says_what_it_means(auditor: Browser, agent: Agent) -> None:
    run = begin(agent)
    for number in (1, 2, 3, 4):
        run.tool.execute("delete", id=number, carried_by=12)

    shown = twin(auditor, run)
    text = page(auditor, run)

    assert shown["status"] == "rolled_back"
    assert all(row["reversed"] for row in shown["timeline"] if row["kind"] == "operation")
    assert "below the limit of 75%" in text
    assert "Every change was reversed; the ledger is as it was before them." in text
    assert "is-reversed" in text


def test_duplicates_that_stay_removed_after_a_no_are_told(auditor: Browser, app: Flask) -> None:
    agent = make_agent("mina")
    remember(agent, "Ann likes tea.", "Ann likes tea.", "Bob likes rum.")
    refinement = start_refinement(agent.id, trigger="admin", by=run_by())  # type: ignore[arg-type]
    with writing() as session:
        row, locked = Refinement.lock(refinement.id), Agent.lock(agent.id)
        remove_exact_duplicates(row, locked)
        session.add(
            Consent(
                account_id=1, agent_id=agent.id, refinement_id=row.id, granted=False, asked_at=now(), answered_at=now()
            )
        )
        note_to_admins(locked, "Not today.", about=row)
        row.end(locked, Status.DECLINED)

    text = unescape(auditor.get(f"/refinements/{refinement.id}").text)

    assert "1 exact duplicate that went first stays removed." in text
    assert "That is a normal outcome" in text
    assert "mina is not asked again before Tuesday 04:00 UTC" in text
    assert "Not today." in text
    assert "<span>mina wrote to the admins, <time" in text  # one piece, which a phone does not tear apart


def run_by() -> object:
    from app.models import COMMAND_LINE

    return COMMAND_LINE


@pytest.mark.parametrize("status", [s for s in Status if s not in ("queued", "asking", "running")])
def test_every_end_says_what_happened_and_what_comes_next(auditor: Browser, agent: Agent, status: Status) -> None:
    run = begin(agent)
    end(run, status, "The model server refused the connection.")
    text = page(auditor, run)

    assert f'data-status="{status}"' in text
    assert "What came of it" not in text
    assert "Next run " in text
    assert ">Stop<" not in text
    assert "hx-sse:connect" in text


def test_stop_acts_before_the_next_change(admin: Browser, agent: Agent) -> None:
    run = begin(agent)
    run.tool.execute("delete", id=1, carried_by=12)
    before = page(admin, run)
    answer = admin.press(f"/refinements/{run.refinement.id}/stop")
    late = run.tool.execute("delete", id=2, carried_by=12)

    assert "</svg> Stop</button>" in before
    assert answer.status_code == 200
    assert "Stopping: it ends before its next change." in toast_of(answer)
    assert 'hx-target="#refinement-status"' in answer.text
    assert "terminated" in late["error"]
    assert run.reload().mutations == 1
    assert "</svg> Stop</button>" not in page(admin, run)
    assert "Stop pressed" in page(admin, run)


def test_stop_ends_a_queued_one_at_once(admin: Browser, agent: Agent) -> None:
    refinement = start_refinement(agent.id, trigger="admin", by=run_by())  # type: ignore[arg-type]
    answer = admin.post(f"/refinements/{refinement.id}/stop")

    db.session.rollback()
    assert answer.status_code == 303
    assert db.session.get_one(Refinement, refinement.id, populate_existing=True).status == Status.STOPPED


def test_stop_of_an_ended_one_changes_nothing_and_says_so(admin: Browser, agent: Agent) -> None:
    run = begin(agent)
    end(run, Status.COMPLETED)
    answer = admin.press(f"/refinements/{run.refinement.id}/stop")

    assert "It had ended already." in toast_of(answer)
    assert run.reload().status == Status.COMPLETED


def test_auditors_see_no_buttons(auditor: Browser, agent: Agent) -> None:
    run = begin(agent)

    assert "</svg> Stop</button>" not in page(auditor, run)
    assert "Make constitutional" not in auditor.get(f"/agents/{agent.id}/ledger").text


def test_the_gauge_never_shows_the_threshold_for_just_under_it(auditor: Browser, agent: Agent) -> None:
    run = begin(agent)
    with writing():
        row = Refinement.lock(run.refinement.id)
        row.mass_before, row.kept_mass = 10_000, 7_499

    assert "Retention: 74.9% kept, too little; limit 75%" in page(auditor, run)


@pytest.mark.parametrize("address", ["/refinements/1", "/refinements/not-a-uuid", "/refinements/x.json", "/agents/0x1"])
def test_odd_addresses_are_not_found(auditor: Browser, address: str) -> None:
    assert auditor.get(address).status_code == 404


def test_its_agent_lists_those_that_were_asked_about_losses_and_those_that_confirmed_some(
    auditor: Browser, agent: Agent
) -> None:
    quiet, asked, lossy = (begin_and_update(agent, times) for times in (0, 1, 2))

    def listed(show: str) -> set[str]:
        found = auditor.get(f"/agents/{agent.id}/refinements.json?show={show}").json
        assert found is not None
        return {each["id"] for each in found["refinements"]}

    assert listed("all") == listed("") == listed("nonsense") == {lossy, asked, quiet}
    assert listed("asked") == {lossy, asked}
    assert listed("lossy") == {lossy}
    assert listed("flagged") == set()
    shown = unescape(auditor.get(f"/agents/{agent.id}/refinements?show=lossy").text)
    assert "refinements list --agent ezra --lossy" in shown
    assert "1 loss confirmed by the agent" in shown
    assert "No such refinement" in auditor.get(f"/agents/{agent.id}/refinements?show=flagged").text


def begin_and_update(agent: Agent, times: int) -> str:
    """A refinement that sends a change that loses a number: never, once, or once more with a confirmation."""
    (number,) = remember(agent, "Ann pays 1,200 euros of rent, on the first of each month.")
    run = begin(agent)
    for confirm in (False, True)[:times]:
        flag = {"confirm_loss": True} if confirm else {}
        content = "Ann pays 1,250 euros of rent, on the first of each month."
        run.tool.execute("update", id=number, content=content, **flag)
    end(run, Status.COMPLETED)
    return run.refinement.id
