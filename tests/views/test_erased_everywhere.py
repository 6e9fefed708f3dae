"""After a memory was erased, nothing has its text, its keyed hash or its key: no page, twin, export, table or file."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from flask import Flask
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from app.extensions import db
from app.grants import opening
from app.grants.opening import NotCovered, RequestedView
from app.grants.request import WantedException
from app.history.erasing import renew_data_key
from app.history.plan import Target
from app.history.undo import roll_back
from app.keys.shredding import is_due, shred_files
from app.models import COMMAND_LINE, WORKER, AccessGrant, GrantCategory, MemoryText, User
from app.models.memory_text import texts_of
from app.models.user import ADMIN, OWNER
from tests.api.conftest import issue
from tests.grants.conftest import put
from tests.history.going_back import do, update
from tests.support.canary import assert_nowhere, assert_nowhere_at_rest, canary, everything_at_rest
from tests.support.factories import begin, remember
from tests.support.scripted import say
from tests.views.conftest import Browser, browser
from tests.views.site import CONTENT, SIGN_IN, Subject, make_subject, routes
from tests.views.test_canary import Heard, assert_silent, heard, seen_in

__all__ = ["heard"]

SAVED_ONCE = {"Idempotency-Key": "once"}

BESIDE = {"exceptions.ledger": "Cleo likes ink.", "exceptions.history": "Bob drinks."}
"""What the pages of live exceptions show beside the memory that is erased."""


@dataclass
class Known:
    """One memory that was saved over REST, changed and shown; `remains` is all that the database has of it.

    `live` are the viewer's exceptions, by the page that each shows.
    """

    viewer: Browser
    token: str
    subject: Subject
    memory_id: int = 0
    live: dict[str, str] = field(default_factory=dict)
    remains: list[bytes] = field(default_factory=list)

    def read_pages(self, web: Flask) -> Iterator[tuple[Rule, TestResponse]]:
        """Every address, with each exception where it names one."""
        for rule in routes(web, "GET", without=SIGN_IN):
            for number in self.live.values() if "exception_id" in rule.arguments else [""]:
                path = self.subject.path(rule, **({"exception_id": number} if number else {}))
                yield rule, self.viewer.get(path, buffered=True)

    def read_content(self) -> list[set[str]]:
        """The canaries that each exception shows."""
        parts = {page: page.rpartition(".")[2] for page in self.live}
        return [seen_in(self.viewer.get(f"/exceptions/{self.live[page]}/{part}")) for page, part in parts.items()]

    def ask_to_look(self) -> RequestedView:
        grant = db.session.get_one(AccessGrant, self.live["exceptions.ledger"])
        return opening.look(grant, db.session.get_one(User, grant.user_id))

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> TestResponse:
        """By the agent's own token."""
        headers["Authorization"] = f"Bearer {self.token}"
        client = self.viewer.client.application.test_client()
        return client.open(f"/api/v1{path}", method=method, json=body, headers=headers, buffered=True)

    def call_all(self) -> Iterator[TestResponse]:
        """What tells the agent of its memories; and what it asked before, once more."""
        for path in ("/memories", f"/memories/{self.memory_id}", "/context", "/export", "/memories/search?query=sang"):
            yield self.call("GET", path)
        yield self.call("POST", "/memories", {"content": canary("ledger")}, **SAVED_ONCE)


@pytest.fixture
def known(web: Flask, worker: None, request: pytest.FixtureRequest) -> Known:
    """The parameter is the viewer's role."""
    subject = make_subject()
    made = Known(browser(web, request.param), issue(subject.agent), subject)
    saved = made.call("POST", "/memories", {"content": canary("ledger")}, **SAVED_ONCE).get_json()
    (other,) = remember(subject.agent, "Bob drinks rum.")
    run = begin(subject.agent)
    for number, content in ((saved["id"], canary("edit")), (other, "Bob drinks.")):
        assert do(run, update(number, content))["type"] == "updated"
    run.tool.execute("complete", summary="Two were wordy.")
    made.memory_id = saved["id"]
    subject.values |= {"refinement_id": run.refinement.id, "memory_id": str(made.memory_id)}
    for page, scope in (("exceptions.ledger", None), ("exceptions.history", run.refinement.id)):
        assert made.viewer.user is not None
        wish = WantedException(GrantCategory.DEBUGGING, "It repeats itself.", 15, scope)
        made.live[page] = put(subject.agent, made.viewer.user, say("YES"), wish=wish)[0].id
    db.session.rollback()
    for sealed in texts_of(MemoryText.memory_id == made.memory_id).values():
        text, *others = sealed.check_whole()
        made.remains += [text.at_rest, *others]
    return made


@pytest.mark.parametrize("known", [OWNER, ADMIN], indirect=True)
def test_what_was_erased_is_nowhere_while_live_exceptions_show_the_rest(
    app: Flask, web: Flask, known: Known, heard: Heard
) -> None:
    """By an owner's page, or by the agent; and it stays so when the refinement that changed it is undone."""
    assert known.read_content() == [{"edit"}, {"ledger", "edit"}]
    assert len(known.remains) == 6
    unfetched = known.ask_to_look()
    opening.answer_view(unfetched.view_id)

    erase(known)

    with pytest.raises(NotCovered):
        opening.fetch_view(unfetched)
    assert_erased_everywhere(app, web, known)
    undone = roll_back(Target.refinement(known.subject.values["refinement_id"]), by=COMMAND_LINE)
    assert undone.plan.erased == (known.memory_id,)
    assert_erased_everywhere(app, web, known)
    assert_nowhere(heard(), "what was logged and printed")


def erase(known: Known) -> None:
    assert known.viewer.user is not None
    if known.viewer.user.may(OWNER):
        form = {"number": str(known.memory_id), "reason": "It was a slip."}
        path = f"/agents/{known.subject.agent.id}/memories/{known.memory_id}/erase"
        assert known.viewer.post(path, form).status_code == 303
    else:
        assert known.call("POST", f"/memories/{known.memory_id}/erase", {}).status_code == 200


def assert_erased_everywhere(app: Flask, web: Flask, known: Known) -> None:
    """A worker has done its part, too."""
    db.session.rollback()
    renew_data_key(known.subject.agent.id, by=WORKER)
    assert shred_files() or not is_due()
    shown = set()
    for rule, answer in known.read_pages(web):
        assert_silent(answer, "somebody with exceptions")
        assert_no_remains(answer.data, known, rule.rule)
        if rule.endpoint in CONTENT and BESIDE[rule.endpoint.removesuffix("_json")] in answer.text:
            shown.add(rule.endpoint)
    assert shown == CONTENT
    for answer in known.call_all():
        assert_silent(answer, "the agent")
    assert_nowhere_at_rest(app)
    for where, content in everything_at_rest(app):
        assert_no_remains(content, known, where)


def assert_no_remains(content: bytes, known: Known, where: str) -> None:
    """Neither sealed text nor keyed hash nor sealed key: as bytes, and as text writes them."""
    for each in known.remains:
        for form in (each, each.hex().encode(), base64.b64encode(each)):
            assert form not in content, where
