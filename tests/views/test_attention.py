"""What waits for an admin's eyes stands first, until one has seen it; marking it is audited, and can be taken back."""

from __future__ import annotations

from html import unescape

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from app.extensions import db, writing
from app.history.plan import Target
from app.history.undo import roll_back
from app.history.verify import verify
from app.models import COMMAND_LINE, Action, Agent, AttentionItem, AuditLog, Refinement, Status
from app.views.shown.attention import ROWS, SHOWN
from tests.refinement.driving import LONG, alike
from tests.support.clock import FakeClock
from tests.support.factories import Running, begin, make_agent, remember
from tests.views.conftest import Browser, toast_of


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("ezra")
    remember(made, *alike(12))
    return made


def end(run: Running, status: Status) -> None:
    run.tool.settle()
    with writing():
        Refinement.lock(run.refinement.id).end(Agent.lock(run.agent.id), status)


def unfinished(agent: Agent) -> Running:
    """Ended by a limit, with a change that stays."""
    run = begin(agent)
    assert run.tool.execute("delete", id=1, carried_by=12)["type"] == "deleted"
    end(run, Status.UNFINISHED)
    return run


def noted(agent: Agent, text: str) -> int:
    """The id of the item."""
    run = begin(agent)
    run.tool.execute("complete", summary="Done.", note_to_admins=text)
    return run.reload().notes[0].id


def unseen(browser: Browser, path: str = "/overview.json") -> list[tuple[str, str]]:
    answer = browser.get(path).json
    assert answer is not None
    items = answer["items"] if "items" in answer else answer["attention_items"]
    return [(item["kind"], item["line"]) for item in items]


def audited(*actions: Action) -> int:
    db.session.rollback()
    return db.session.scalar(select(func.count()).where(AuditLog.action.in_(actions))) or 0


@pytest.mark.parametrize("path", ["/", "/agents/1", "/attention"])
def test_a_note_stands_on_the_overview_on_its_agent_s_page_and_in_the_list_as_it_was_written(
    auditor: Browser, agent: Agent, path: str
) -> None:
    noted(agent, "<b>Mind</b> the tea \U0001f375 & {{ 7 * 7 }}")

    page = auditor.get(path).text

    assert "&lt;b&gt;Mind&lt;/b&gt; the tea \U0001f375 &amp; {{ 7 * 7 }}" in page
    assert "wrote to the admins" in page


def test_it_comes_before_everything_else(auditor: Browser, agent: Agent) -> None:
    noted(agent, "Mind the tea.")
    page = auditor.get("/").text

    assert page.index('id="overview-attention"') < page.index("Mind the tea.") < page.index('id="overview-figures"')
    assert "All is well." not in page
    assert auditor.get("/agents/1").text.index("Mind the tea.") < auditor.get("/agents/1").text.index(
        'id="agent-state"'
    )


def test_where_nothing_waits_the_list_says_so_and_an_agent_s_page_is_silent(auditor: Browser, agent: Agent) -> None:
    assert "Nothing needs attention." in auditor.get("/attention").text
    assert "Nothing needs attention." not in auditor.get("/agents/1").text
    assert '<section id="attention" class="notices" aria-label="To be seen" hidden>' in auditor.get("/agents/1").text


def test_changes_of_an_unfinished_refinement_wait_with_roll_back_beside_them(admin: Browser, agent: Agent) -> None:
    run = unfinished(agent)
    page = unescape(admin.get("/attention").text)

    assert unseen(admin) == [("unfinished", f"ended a refinement unfinished: {run.reload().machine_line}")]
    assert f'action="/refinements/{run.refinement.id}/rollback"' in page

    admin.post(f"/refinements/{run.refinement.id}/rollback")

    assert unseen(admin) == unseen(admin, "/agents/1.json") == unseen(admin, "/attention.json") == []
    assert "undone since" in admin.get("/attention?seen=1").text


def test_an_unfinished_one_waits_again_when_its_undo_is_undone(admin: Browser, agent: Agent) -> None:
    run = unfinished(agent)
    done = roll_back(Target.refinement(run.refinement.id), by=COMMAND_LINE).rollback
    assert done is not None
    assert unseen(admin) == []

    roll_back(Target.rollback(done.id), by=COMMAND_LINE)

    assert [kind for kind, _ in unseen(admin)] == ["unfinished"]


def test_what_was_seen_does_not_wait_again_however_often_it_is_undone(admin: Browser, agent: Agent) -> None:
    run = unfinished(agent)
    item = db.session.scalars(select(AttentionItem.id)).one()
    admin.post(f"/attention/{item}/seen")
    done = roll_back(Target.refinement(run.refinement.id), by=COMMAND_LINE).rollback
    assert done is not None
    roll_back(Target.rollback(done.id), by=COMMAND_LINE)

    assert unseen(admin) == []


def test_without_a_change_an_unfinished_one_asks_for_nothing(admin: Browser, agent: Agent) -> None:
    end(begin(agent), Status.UNFINISHED)

    assert unseen(admin) == []


def test_nor_do_the_changes_of_one_that_an_admin_stopped(admin: Browser, agent: Agent) -> None:
    run = begin(agent)
    run.tool.execute("delete", id=1, carried_by=12)
    end(run, Status.STOPPED)

    assert unseen(admin) == []


@pytest.mark.parametrize("status", [Status.INTERRUPTED, Status.FAILED])
def test_one_that_broke_down_waits_until_a_later_one_of_its_agent_ended(
    admin: Browser, agent: Agent, status: Status
) -> None:
    first = begin(agent)
    first.tool.execute("delete", id=1, carried_by=12)
    end(first, status)
    assert unseen(admin) == [("failed", f"did not finish a refinement ({status}): No reason was recorded")]
    assert f'action="/refinements/{first.refinement.id}/rollback"' in admin.get("/attention").text

    second = begin(agent)
    assert len(unseen(admin)) == 1
    end(second, Status.FAILED)

    (item,) = db.session.scalars(select(AttentionItem).where(AttentionItem.is_open()))
    assert item.refinement_id == second.refinement.id
    assert "a later refinement</a> ended since" in admin.get("/attention?seen=1").text
    end(begin(agent), Status.STOPPED)
    assert unseen(admin) == []
    assert verify().ok


def test_another_agent_s_end_settles_nothing(admin: Browser, agent: Agent) -> None:
    end(begin(agent), Status.FAILED)
    other = make_agent("mina")
    remember(other, "Bob likes rum.")
    end(begin(other), Status.COMPLETED)

    assert [kind for kind, _ in unseen(admin)] == ["failed"]


def test_what_a_guard_reversed_waits_until_the_agent_finishes_or_says_no(admin: Browser, agent: Agent) -> None:
    reversed_ = begin(agent)
    reversed_.tool.execute("delete", id=1, carried_by=12)
    end(reversed_, Status.ROLLED_BACK)
    end(begin(agent), Status.FAILED)
    assert [kind for kind, _ in unseen(admin)] == ["failed", "rolled_back"]
    assert "had a refinement reversed by a guard: 1 deletion reversed" in unseen(admin)[1][1]

    end(begin(agent), Status.DECLINED)

    assert unseen(admin) == []
    assert verify().ok


def test_who_edits_what_settled_an_item_is_found_out(admin: Browser, agent: Agent) -> None:
    end(begin(agent), Status.FAILED)
    done = begin(agent)
    end(done, Status.COMPLETED)
    assert verify().ok
    with writing() as session:
        session.execute(update(AttentionItem).values(settled_by=None))

    assert "settled_by of attention item" in str(verify().first_problem)


def test_ten_protections_wait_and_nine_do_not(admin: Browser, agent: Agent) -> None:
    for count in (9, 1):
        run = begin(agent)
        for number in range(count):
            run.tool.execute("protect", id=number + 1 if count == 9 else 12)
        run.tool.execute("complete", summary="Done.")
    assert unseen(admin) == []
    other = make_agent("mina")
    ids = remember(other, *(f"{LONG}{n}" for n in range(11)))
    run = begin(other)
    for number in ids:
        run.tool.execute("protect", id=number)
    run.tool.execute("complete", summary="Done.")

    assert unseen(admin) == [("protections", "made 10 memories constitutional, as many as one refinement may")]


def test_a_model_most_of_whose_calls_were_refused_waits(admin: Browser, agent: Agent) -> None:
    run = begin(agent)
    for number in range(13):
        run.tool.execute("delete", id=900 + number, carried_by=12)
    run.tool.execute("search", query="truth")
    run.tool.execute("search", query="May")
    end(run, Status.UNFINISHED)

    assert unseen(admin) == [("refusals", "13 of 15 calls were refused: this model may not be able to refine")]


def test_seen_and_unseen_each_leave_one_entry_however_often_they_are_pressed(admin: Browser, agent: Agent) -> None:
    item = noted(agent, "Mind the tea.")
    for _ in range(2):
        assert admin.post(f"/attention/{item}/seen").status_code == 303
    assert (audited(Action.ATTENTION_SEEN), unseen(admin)) == (1, [])
    row = db.session.get_one(AttentionItem, item, populate_existing=True)
    assert row.seen_by == "user:admin-1@example.org"
    assert verify().ok

    for _ in range(2):
        assert admin.post(f"/attention/{item}/unseen").status_code == 303
    assert (audited(Action.ATTENTION_UNSEEN), len(unseen(admin))) == (1, 1)
    assert verify().ok


def test_with_htmx_the_page_stays_and_a_toast_offers_undo(admin: Browser, agent: Agent) -> None:
    item = noted(agent, "Mind the tea.")
    here = {"HX-Request": "true", "HX-Current-URL": "http://localhost/"}

    answer = admin.post(f"/attention/{item}/seen", headers=here)

    assert f'hx-post="/attention/{item}/unseen"' in toast_of(answer)
    assert 'hx-target="#overview-attention"' in answer.text
    assert "Mind the tea." not in answer.text
    here["HX-Current-URL"] = "http://localhost/attention?seen=1"
    back = admin.post(f"/attention/{item}/unseen", headers=here)
    assert f'hx-target="#attention-{item}"' in back.text


@pytest.mark.parametrize(
    ("on", "to"), [("agent", "/agents/1"), ("list", "/attention"), ("overview", "/"), ("//evil.example", "/")]
)
def test_without_javascript_the_browser_goes_back_to_where_it_was(
    admin: Browser, agent: Agent, on: str, to: str
) -> None:
    item = noted(agent, "Mind the tea.")

    assert admin.post(f"/attention/{item}/seen", {"on": on}).headers["Location"] == to


def test_an_auditor_sees_it_and_may_not_mark_it(auditor: Browser, agent: Agent) -> None:
    item = noted(agent, "Mind the tea.")

    assert "Mark as seen" not in auditor.get("/").text
    assert auditor.post(f"/attention/{item}/seen").status_code == 403
    assert len(unseen(auditor)) == 1


def test_another_account_sees_and_marks_nothing(neighbour: Browser, agent: Agent) -> None:
    item = noted(agent, "Mind the tea.")

    assert neighbour.post(f"/attention/{item}/seen").status_code == 404
    assert unseen(neighbour) == unseen(neighbour, "/attention.json") == []
    assert audited(Action.ATTENTION_SEEN) == 0


def test_the_overview_shows_the_newest_and_the_list_has_them_all_page_by_page(
    admin: Browser, agent: Agent, clock: FakeClock
) -> None:
    for number in range(ROWS + 3):
        if number % 5:
            clock.advance(seconds=1)
        noted(agent, f"note {number}")
    overview = admin.get("/").text
    assert overview.count("wrote to the admins") == SHOWN
    assert 'href="/attention?kind=note"' in overview
    found: list[int] = []
    before = ""
    while True:
        answer = admin.get("/attention.json", query_string={"before": before}).json
        assert answer is not None
        found += [item["id"] for item in answer["items"]]
        if answer["next_before"] is None:
            break
        before = answer["next_before"]

    assert len(found) == len(set(found)) == ROWS + 3
    assert found == sorted(found, reverse=True)
    assert admin.get("/attention", query_string={"before": "nonsense"}).status_code == 200
