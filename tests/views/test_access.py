"""Who may do what: every route is asked by every role, another account and a stranger."""

from __future__ import annotations

import pytest
from flask import Flask
from werkzeug.routing import Rule

from app.extensions import db, writing
from app.grants.request import WantedException, request_access
from app.history.plan import Target
from app.history.undo import roll_back
from app.models import COMMAND_LINE, Agent, AgentToken, GrantCategory, Memory, SettingProposal, User
from app.models.user import ADMIN, OWNER
from app.views.access import NEEDED_ROLE
from tests.support.factories import begin, make_agent, remember
from tests.views.conftest import Browser

OPEN = {"static", "security.static", "health.healthz", "health.readyz", "health.metrics"}
FLASK_SECURITYS = {"security.login", "security.logout", "security.verify"}
OTHER = {"events.poll"}
CONTENT = {"exceptions.ledger", "exceptions.ledger_json", "exceptions.history", "exceptions.history_json"}
FOR_ADMINS = {"agents.new", "exceptions.new"} | CONTENT


def routes(web: Flask, method: str) -> list[Rule]:
    skipped = OPEN | FLASK_SECURITYS | OTHER
    return [
        rule
        for rule in web.url_map.iter_rules()
        if method in (rule.methods or ()) and rule.endpoint not in skipped and not rule.endpoint.startswith("api")
    ]


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    remember(made, "Ann likes tea.", "Bob likes rum.")
    return made


@pytest.fixture
def addresses(agent: Agent, web: Flask) -> dict[str, str]:
    """Values for every placeholder, so that each route leads to something that exists."""
    saved = remember(agent, "Cleo likes ink.")
    entry_id = str(db.session.get_one(Memory, saved[0]).entry_id)
    rollback = roll_back(Target.entry(int(entry_id)), by=COMMAND_LINE).rollback
    assert rollback is not None
    ended = begin(agent)
    ended.tool.execute("complete", summary="Done.", note_to_admins="Mind the tea.")
    refinement_id = begin(agent).refinement.id
    memory = {"agent_id": str(agent.id), "memory_id": "1"}
    user = db.session.get_one(User, 1)
    wish = WantedException(GrantCategory.DEBUGGING, "It repeats itself.", 15)
    exception_id = request_access(agent.id, wish, for_user=user, by=user.actor).id
    others = {"refinement_id": refinement_id, "rollback_id": rollback.id, "entry_id": entry_id}
    with writing():
        token = AgentToken.issue(Agent.lock(agent.id), by=COMMAND_LINE)
        proposal = SettingProposal.make(Agent.lock(agent.id), "system_prompt", "Be gentle.", by=COMMAND_LINE)
    mine = {"token_id": token.split("_")[1], "proposal_id": proposal.id, "item_id": str(ended.reload().notes[0].id)}
    return memory | others | mine | {"exception_id": exception_id}


def fill(rule: Rule, addresses: dict[str, str]) -> str:
    path = rule.rule
    for name in rule.arguments:
        for converter in ("int:", "uuid:", ""):
            path = path.replace(f"<{converter}{name}>", addresses[name])
    assert "<" not in path, rule
    return path


def test_strangers_reach_nothing(web: Flask, stranger: Browser, addresses: dict[str, str]) -> None:
    for rule in routes(web, "GET"):
        path = fill(rule, addresses)
        answer = stranger.get(path)
        if path.endswith(".json"):
            assert (answer.status_code, answer.json["code"]) == (401, "signed_out"), path  # type: ignore[index]
        else:
            assert answer.status_code == 302, path
            assert answer.headers["Location"].startswith("/sign-in"), path
    for rule in routes(web, "POST"):
        answer = stranger.post(fill(rule, addresses))
        assert answer.status_code == 303, rule
        assert answer.headers["Location"] == "/sign-in", rule


def test_an_expired_sign_in_sends_htmx_to_the_sign_in_page(stranger: Browser, addresses: dict[str, str]) -> None:
    answer = stranger.press(f"/refinements/{addresses['refinement_id']}/stop")

    assert answer.headers["HX-Redirect"] == "/sign-in"


def test_auditors_read_every_page(web: Flask, auditor: Browser, addresses: dict[str, str]) -> None:
    for rule in routes(web, "GET"):
        expected = 403 if rule.endpoint in FOR_ADMINS else 200
        assert auditor.get(fill(rule, addresses)).status_code == expected, rule


def test_auditors_change_nothing(web: Flask, auditor: Browser, addresses: dict[str, str]) -> None:
    for rule in routes(web, "POST"):
        answer = auditor.post(fill(rule, addresses), {"agent": addresses["agent_id"]})
        assert answer.status_code == 403, rule
        assert "This needs the role" in answer.text, rule


def test_every_post_names_the_role_that_it_needs(web: Flask) -> None:
    rules = routes(web, "POST")

    assert len(rules) > 10
    for rule in rules:
        assert getattr(web.view_functions[rule.endpoint], NEEDED_ROLE, None) in (ADMIN, OWNER), rule


def test_another_account_finds_nothing_and_learns_nothing(
    web: Flask, neighbour: Browser, addresses: dict[str, str]
) -> None:
    nobody = "00000000-0000-4000-8000-000000000000"
    nowhere = {"agent_id": "987654", "memory_id": "1", "entry_id": "987654", "token_id": "0" * 16}
    nowhere |= {"refinement_id": nobody, "rollback_id": nobody, "exception_id": nobody, "proposal_id": nobody}
    nowhere |= {"item_id": "987654"}
    for method in ("GET", "POST"):
        for rule in routes(web, method):
            if not rule.arguments:
                continue
            ask = neighbour.get if method == "GET" else neighbour.post
            theirs, missing = ask(fill(rule, addresses)), ask(fill(rule, nowhere))
            assert (theirs.status_code, missing.status_code) == (404, 404), rule
            if rule.endpoint.endswith("_json"):
                assert theirs.json == missing.json, rule


def test_bulk_acts_on_another_accounts_agent_do_nothing_at_all(neighbour: Browser, agent: Agent) -> None:
    answer = neighbour.post("/agents/pause", {"agent": str(agent.id)})

    assert answer.status_code == 404


def test_an_operator_reads_no_accounts_pages(operator: Browser) -> None:
    answer = operator.get("/agents")

    assert answer.status_code == 403
    assert "no role that may read" in answer.text


def test_no_post_works_without_its_token(web: Flask, admin: Browser, addresses: dict[str, str]) -> None:
    for rule in routes(web, "POST"):
        answer = admin.client.post(fill(rule, addresses))
        assert answer.status_code == 400, rule
        assert "too old to act from" in answer.text, rule


def test_nothing_changes_by_a_get(web: Flask, admin: Browser, addresses: dict[str, str]) -> None:
    reading = {rule.rule for rule in routes(web, "GET")}
    for rule in routes(web, "POST"):
        if rule.rule not in reading:
            assert admin.get(fill(rule, addresses)).status_code in (404, 405), rule


def test_a_number_that_no_row_can_have_is_not_found(admin: Browser) -> None:
    for path in (f"/agents/{10**30}", f"/agents/{2**63}/refinements"):
        assert admin.get(path).status_code == 404, path
    assert admin.press(f"/agents/{10**30}/pause").status_code == 404
