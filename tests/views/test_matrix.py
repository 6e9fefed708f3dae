"""Every route × every role: the right status for each, and nothing changes by looking or by being refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from flask import Flask
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from app.models.user import ADMIN, AUDITOR, OWNER, ROLES, SITE_ADMIN
from app.views.access import NEEDED_ROLE
from tests.support.everything import everything
from tests.views.conftest import Browser
from tests.views.site import CONTENT, NOWHERE, OWN, PUBLIC, SIGN_IN, UNTOUCHED, Subject, act_of, make_subject, routes

pytestmark = pytest.mark.timeout(300)
"""Sweeps over everything: on a busy machine they need longer than any other test may."""

OURS = PUBLIC | SIGN_IN
INCLUDED = {AUDITOR: {AUDITOR}, ADMIN: {AUDITOR, ADMIN}, OWNER: {AUDITOR, ADMIN, OWNER}, SITE_ADMIN: {SITE_ADMIN}}
"""Written down once more, apart from the product."""

READ = frozenset({200, 204})
LEADS_ELSEWHERE = {
    "settings.find_request": frozenset({302}),
    "house.index": frozenset({302}),
    "refinements.show_failures": frozenset({301}),
}

JSON = {"Accept": "application/json"}

DOOR = "api."
"""Endpoints for agents, who come with a token."""


Headers = dict[str, str] | None


@dataclass
class People:
    """One browser a role in the first account, an owner next door, and a stranger."""

    of: dict[str, Browser]
    neighbour: Browser
    stranger: Browser


@pytest.fixture
def people(
    stranger: Browser, auditor: Browser, admin: Browser, owner: Browser, operator: Browser, neighbour: Browser
) -> People:
    return People({AUDITOR: auditor, ADMIN: admin, OWNER: owner, SITE_ADMIN: operator}, neighbour, stranger)


@pytest.fixture
def subject(app: Flask, web: Flask) -> Subject:
    return make_subject()


def needed(web: Flask, rule: Rule) -> str:
    """The role that the view names; whoever may read at all may see a page that names none.

    Content is for no role: this exception is somebody else's, and not granted.
    """
    return str(getattr(web.view_functions[rule.endpoint], NEEDED_ROLE, AUDITOR))


def unchanged(act: Callable[[], TestResponse]) -> TestResponse:
    """Do it, and see that no table knows of it."""
    before = everything()
    answer = act()
    assert everything() == before, f"{answer.request.method} {answer.request.path} changed something"
    return answer


def test_every_page_is_shown_to_those_whose_role_may_and_changes_nothing(
    web: Flask, people: People, subject: Subject
) -> None:
    rules = routes(web, "GET", without=OURS)
    assert len(rules) > 30
    for rule in rules:
        path = _readable(rule, subject)
        for role, person in people.of.items():
            answer = unchanged(lambda person=person, path=path: person.get(path, buffered=True))
            may = needed(web, rule) in INCLUDED[role] and rule.endpoint not in CONTENT
            expected = READ | LEADS_ELSEWHERE.get(rule.endpoint, frozenset()) if may else frozenset({403})
            assert answer.status_code in expected, f"{role} {path}"


def test_strangers_are_sent_to_sign_in_and_programs_are_told_so(web: Flask, people: People, subject: Subject) -> None:
    for rule in routes(web, "GET", without=OURS):
        path = _readable(rule, subject)
        answer = unchanged(lambda path=path: people.stranger.get(path, buffered=True))
        if path.endswith(".json"):
            assert (answer.status_code, answer.json["code"]) == (401, "signed_out"), path  # type: ignore[index]
        elif rule.endpoint == "events.poll":
            assert answer.status_code == 401
        else:
            assert answer.status_code == 302, path
            assert answer.headers["Location"].startswith("/sign-in?next=/") or path == "/", path
        program = people.stranger.get(path, headers=JSON)
        assert program.status_code == 401, path
        assert program.content_type == "application/problem+json", path
    for rule in routes(web, "POST", without=OURS):
        answer = unchanged(lambda rule=rule: _act(people.stranger, rule, subject))
        assert (answer.status_code, answer.headers["Location"]) == (303, "/sign-in"), rule


def test_another_account_can_not_tell_what_exists_from_what_does_not(
    web: Flask, people: People, subject: Subject
) -> None:
    nothing = Subject(subject.agent, NOWHERE, NOWHERE["memory_id"])
    compared = 0
    for method in ("GET", "POST"):
        for rule in routes(web, method, without=OURS):
            if not rule.arguments:
                continue
            ask = _get if method == "GET" else _act
            theirs = unchanged(lambda ask=ask, rule=rule: ask(people.neighbour, rule, subject))
            missing = unchanged(lambda ask=ask, rule=rule: ask(people.neighbour, rule, nothing))
            refused = 403 if needed(web, rule) == SITE_ADMIN else 404
            assert (theirs.status_code, missing.status_code) == (refused, refused), rule
            assert _said(theirs) == _said(missing), rule
            programs = [ask(people.neighbour, rule, each, JSON) for each in (subject, nothing)]
            assert [each.status_code for each in programs] == [refused, refused], rule
            assert programs[0].json == programs[1].json, rule
            compared += 1
    assert compared > 30


def test_a_form_can_not_name_another_account_s_rows(web: Flask, people: People, subject: Subject) -> None:
    named = 0
    for rule in routes(web, "POST", without=OURS):
        if rule.arguments or subject.values["agent_id"] not in act_of(rule).form(subject).values():
            continue
        named += 1
        answer = unchanged(lambda rule=rule: _act(people.neighbour, rule, subject))
        assert answer.status_code in (404, 422), rule
    assert named >= 3


def test_every_act_is_done_for_those_whose_role_may_and_refused_without_a_trace_to_others(
    web: Flask, people: People, subject: Subject
) -> None:
    rules = routes(web, "POST", without=OURS)
    assert len(rules) > 15
    for rule in rules:
        assert needed(web, rule) in (ADMIN, OWNER, SITE_ADMIN) or rule.endpoint in OWN, (
            f"{rule.rule} names no role that may act"
        )
    for rule in rules:  # first, while there is little: everything is looked at each time
        for role, person in people.of.items():
            if needed(web, rule) not in INCLUDED[role]:
                answer = unchanged(lambda person=person, rule=rule: _act(person, rule, subject))
                assert answer.status_code == 403, f"{role} {rule.rule}"
    for role, person in people.of.items():
        own = make_subject()
        for rule in rules:
            if needed(web, rule) in INCLUDED[role]:
                answer = _act(person, rule, make_subject() if rule.endpoint in UNTOUCHED else own)
                assert answer.status_code in act_of(rule).status, f"{role} {rule.rule}: {answer.status_code}"


def test_nobody_does_anything_by_another_method(web: Flask, people: People, subject: Subject) -> None:
    owner, before = people.of[OWNER], everything()
    by_path: dict[str, set[str]] = {}
    for rule in web.url_map.iter_rules():
        by_path.setdefault(rule.rule, set()).update(rule.methods or ())
    for rule in routes(web, "GET") + routes(web, "POST"):
        path = subject.path(rule)
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - by_path[rule.rule]:
            answer = owner.client.open(path, method=method, headers={"X-CSRFToken": owner.token}, buffered=True)
            assert answer.status_code == 405, f"{method} {path}"
    assert everything() == before


def test_the_public_addresses_are_these_and_no_more(web: Flask, people: People) -> None:
    """A new endpoint that a stranger reaches has to be named in tests/views/site.py, and thought about."""
    for rule in web.url_map.iter_rules():
        if rule.endpoint.startswith(DOOR):
            continue  # the next promise
        view = web.view_functions[rule.endpoint]
        blueprint = rule.endpoint.partition(".")[0]
        guarded = web.before_request_funcs.get(blueprint) if blueprint in web.blueprints else None
        assert rule.endpoint in OURS | {"events.poll"} or guarded, f"{rule.endpoint} ({view.__module__}) is open"


def test_no_session_opens_the_agents_door(web: Flask, people: People) -> None:
    """Whoever is signed in is nobody there; only its description is public."""
    door = [rule for rule in web.url_map.iter_rules() if rule.endpoint.startswith(DOOR)]
    assert len(door) > 10
    for rule in door:
        built = rule.build({name: NOWHERE.get(name, 1) for name in rule.arguments})
        assert built is not None, rule
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
            headers = {"X-CSRFToken": people.of[OWNER].token}
            path = built[1]
            answer = unchanged(
                lambda path=path, method=method, headers=headers: people.of[OWNER].client.open(
                    path, method=method, headers=headers, json={}
                )
            )
            expected = 200 if rule.endpoint == "api.openapi" else 401
            assert answer.status_code == expected, f"{method} {path}"


def test_roles_include_what_they_say(people: People) -> None:
    assert set(INCLUDED) == set(ROLES)
    for role, person in people.of.items():
        assert person.user is not None
        assert {other for other in ROLES if person.user.may(other)} == INCLUDED[role]


def _readable(rule: Rule, subject: Subject) -> str:
    path = subject.path(rule)
    return f"{path}?topic=agent:{subject.agent.id}" if rule.endpoint == "events.poll" else path


def _get(person: Browser, rule: Rule, subject: Subject, headers: Headers = None) -> TestResponse:
    return person.get(subject.path(rule), buffered=True, headers=headers)


def _act(person: Browser, rule: Rule, subject: Subject, headers: Headers = None) -> TestResponse:
    act = act_of(rule)
    return person.post(subject.path(rule, **act.named(subject)), act.form(subject), headers=headers)


def _said(answer: TestResponse) -> str:
    """All of it, but for one's own token and the address that one asked for."""
    said = re.sub(r'"X-CSRFToken": "[^"]+"|name="csrf_token" value="[^"]+"', "", answer.text)
    return said.replace(answer.request.path, "")
