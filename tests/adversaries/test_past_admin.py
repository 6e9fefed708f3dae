"""A past admin: deactivated, or without the role, in the middle of an exception and with open tabs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from werkzeug.test import TestResponse

import tasks.grants
from app.authoring.asked_changes import ask_agent as ask_about_change
from app.authoring.asked_changes import save_settings
from app.extensions import db, writing
from app.grants import opening
from app.history.verify import verify
from app.keys.leavers import deactivate_user, end_tokens_shown_to, tokens_shown_to
from app.keys.provision import provision_keys
from app.keys.tokens import issue_token
from app.models import COMMAND_LINE, Agent, User
from app.models.key import TokenOrigin
from app.models.user import AUDITOR
from app.tokens.asking import ask_about_token
from app.tokens.request import WantedToken, request_token
from tests.adversaries.forging import all_rows, read_rows
from tests.adversaries.scene import LATER, SECRET, Scene
from tests.grants.test_lost_admins import change, move, only, strip
from tests.support.pages import Page, serving
from tests.support.processes import wait_for
from tests.support.scripted import say
from tests.views.conftest import Browser
from tests.views.site import CONTENT, OWN, PUBLIC, SIGN_IN, Subject, act_of, make_subject, routes

pytestmark = pytest.mark.once

Lose = Callable[[Scene], None]


def deactivated(scene: Scene) -> None:
    deactivate_user("ann@example.org", by=COMMAND_LINE)


def without_a_role(scene: Scene) -> None:
    change(ann(scene), strip)


def auditor_now(scene: Scene) -> None:
    change(ann(scene), only(AUDITOR))


def next_door(scene: Scene) -> None:
    change(ann(scene), move)


WAYS = pytest.mark.parametrize(
    "lose", [deactivated, without_a_role, auditor_now, next_door], ids=lambda lose: lose.__name__
)


def ann(scene: Scene) -> User:
    return db.session.get_one(User, scene.ann.id, populate_existing=True)


@pytest.fixture
def browser(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Browser:
    """Ann's, signed in; a worker answers each look at once."""

    def answered(view_id: str, timeout: float = 5.0) -> bool:
        with scene.app.app_context():
            opening.answer_view(view_id)
        return True

    monkeypatch.setattr(tasks.grants, "wait_for_answer", answered)
    return Browser(scene.web, ann(scene))


def subject_of(scene: Scene) -> Subject:
    """Addresses that lead to the victim, and to Ann's live exception."""
    made = make_subject()
    made.values |= {"agent_id": str(scene.victim.id), "exception_id": scene.grant(scene.ann)}
    return made


def refused(answer: TestResponse) -> bool:
    return answer.status_code in (301, 302, 303, 401, 403, 404)


# Every route


@WAYS
def test_no_page_shows_them_anything_any_more_and_none_does_anything(
    scene: Scene, browser: Browser, lose: Lose
) -> None:
    """The cookie is the one from before: of pages, parts, twins, exports and of polling for news."""
    subject = subject_of(scene)
    ledger = f"/exceptions/{subject.values['exception_id']}/ledger"
    assert SECRET in browser.get(f"{ledger}.json").text
    lose(scene)
    for rule in routes(scene.web, "GET", without=PUBLIC | SIGN_IN):
        for query in ("", f"?topic=agent:{scene.victim.id}", "?after=1"):
            answer = browser.get(subject.path(rule) + query, buffered=True)
            assert SECRET not in answer.text
            if rule.endpoint in CONTENT or lose is not auditor_now:
                assert refused(answer) or names_nothing(answer, subject), rule
            if rule.endpoint not in ("events.poll", *CONTENT):
                break  # no other page reads these
    assert len(read_rows("access_views", user_id=scene.ann.id)) == 1
    assert_nothing_is_done(scene, browser, subject, lose)


def names_nothing(answer: TestResponse, subject: Subject) -> bool:
    """A page of the account where they are now: nothing of this one's stands there."""
    return subject.agent.name not in answer.text and "wren" not in answer.text


def assert_nothing_is_done(scene: Scene, browser: Browser, subject: Subject, lose: Lose) -> None:
    before = all_rows()
    own = OWN if lose is auditor_now else set()  # an auditor's own password stays theirs to change
    for rule in routes(scene.web, "POST", without=SIGN_IN | own):
        act = act_of(rule)
        if lose is next_door and not rule.arguments:
            continue  # of an account of their own
        answer = browser.post(subject.path(rule, **act.named(subject)), act.form(subject))
        assert refused(answer), rule
    assert all_rows() == before


def test_who_comes_back_is_nobody_by_an_old_cookie(scene: Scene, browser: Browser) -> None:
    subject = subject_of(scene)
    deactivated(scene)
    with writing():
        ann(scene).active = True
    assert refused(browser.get(subject.path(next(r for r in routes(scene.web, "GET") if r.endpoint in CONTENT))))


# What was begun before


@pytest.mark.parametrize("when", ["before it is answered", "before it is fetched"])
@WAYS
def test_a_look_that_was_begun_before_ends_with_nothing(
    scene: Scene, browser: Browser, monkeypatch: pytest.MonkeyPatch, lose: Lose, when: str
) -> None:
    """The page has asked, and waits for the worker in this very moment."""
    grant_id = scene.grant(scene.ann)
    answer_look = tasks.grants.wait_for_answer

    def meanwhile(view_id: str, timeout: float = 5.0) -> bool:
        with scene.app.app_context():
            steps = [lambda: lose(scene), lambda: answer_look(view_id)]
            for step in steps if when == "before it is answered" else reversed(steps):
                step()
        return True

    monkeypatch.setattr(tasks.grants, "wait_for_answer", meanwhile)
    answer = browser.get(f"/exceptions/{grant_id}/ledger.json")
    assert (answer.status_code, answer.json["code"]) == (403, "not_covered")  # type: ignore[index]
    assert SECRET not in answer.text
    (view,) = read_rows("access_views")
    assert view["sealed"] is None
    assert (view["seen"] is None) == (when == "before it is answered")


def test_their_open_tabs_are_sent_away(scene: Scene) -> None:
    grant_id = scene.grant(scene.ann)
    topics = ("overview", f"agent:{scene.victim.id}", f"exception:{grant_id}")
    with serving(scene.web, look=0.05, recheck=0.05) as site:
        cookie = site.cookie_of(ann(scene))
        with (
            Page(site, topics[0], cookie) as one,
            Page(site, topics[1], cookie) as two,
            Page(site, topics[2], cookie) as three,
        ):
            pages = (one, two, three)
            wait_for(lambda: all(page.newest() for page in pages))
            deactivated(scene)
            wait_for(lambda: all(page.is_closed for page in pages))
            scene.save_as_victim()
    for page in pages:
        assert [message.event for message in page.messages][-1] == "bye"
        assert not any(SECRET in message.data or LATER in message.data for message in page.messages)


# What they leave behind


@pytest.mark.parametrize("by", ["its model", "its token"])
@WAYS
def test_what_they_asked_for_and_was_not_answered_gives_nothing(scene: Scene, lose: Lose, by: str) -> None:
    """A token and another prompt wait: nobody is asked on their behalf, and a late YES changes nothing."""
    with scene.web.app_context():
        request, secret = request_token(
            scene.victim.id, WantedToken("laptop", ["read"]), for_user=ann(scene), by=scene.ann.actor
        )
        change_ = save_settings(scene.victim.id, {"system_prompt": "You say YES."}, user=ann(scene)).request
        assert change_ is not None
        token_request, change_request = request.id, change_.id
    scene.attacker.tokens.append(secret)
    lose(scene)
    scene.models.answer = lambda _: say("YES")
    if by == "its token":
        yes = {"decision": "grant"}
        scene.call(scene.home, "POST", f"/token-requests/{token_request}/decision", yes)
        scene.call(scene.home, "POST", f"/setting-requests/{change_request}/decision", yes)
    ask_about_token(token_request, scene.models.dependencies)
    ask_about_change(change_request, scene.models.dependencies)
    provision_keys(scene.victim.id)
    assert scene.models.heard == {}
    assert read_rows("agents", id=scene.victim.id)[0]["system_prompt"] == "You are Wren."
    assert scene.call(secret, "GET", "/memories").status_code == 401
    scene.models.answer = lambda _: say("NO")
    scene.assert_nothing_opened()


def test_the_tokens_that_they_saw_are_listed_and_read_nothing_once_they_are_ended(scene: Scene) -> None:
    with writing():
        agent = Agent.lock(scene.victim.id)
        secret = issue_token(
            agent, by=agent.as_actor, name="seen", how=TokenOrigin.COMMAND_LINE, shown_to="ann@example.org"
        )
    provision_keys(scene.victim.id)
    scene.attacker.tokens.append(secret)
    deactivated(scene)
    assert [token.public_id for _, token in tokens_shown_to(ann(scene))] == [secret.split("_")[1]]
    assert SECRET in scene.read_by(secret), "until somebody ends it"
    assert len(list(end_tokens_shown_to(ann(scene), by=COMMAND_LINE))) == 1
    assert scene.call(secret, "GET", "/memories").status_code == 401
    scene.save_as_victim()
    scene.work()
    scene.assert_nothing_opened(knew=True)
    assert tokens_shown_to(ann(scene)) == []
    assert verify().ok
