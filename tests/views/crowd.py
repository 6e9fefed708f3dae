"""People of every role, each with an exception in every state, over a life full of canaries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from flask import Flask
from sqlalchemy import select

from app.asking.replies import ConsentAnswer
from app.extensions import db, writing
from app.grants import endings
from app.grants.request import WantedException, request_access, revoke_grant
from app.keys.agent_keys import open_keys
from app.models import AccessGrant, Account, Agent, GrantCategory, Role, TokenRequest, User
from app.models.user import ADMIN, AUDITOR, OWNER, SITE_ADMIN
from app.tokens.request import decide_token_request
from tests.authoring.conftest import declines
from tests.grants.conftest import put
from tests.support.canary import canary
from tests.support.factories import make_agent, make_user, remember
from tests.support.life import HISTORY, LEDGER, Life, live
from tests.support.scripted import say
from tests.views.conftest import Browser
from tests.views.site import Subject, make_subject

NEXT_DOOR = "owner next door"
STRANGER = "stranger"
ROLES = (OWNER, ADMIN, AUDITOR, SITE_ADMIN, NEXT_DOOR, STRANGER)

NONE, PENDING, DENIED, EXPIRED, RUN_OUT, REVOKED = "none", "pending", "denied", "expired", "run out", "revoked"
OTHER_AGENT, OTHER_SCOPE, LIVE = "live for another agent", "live for another scope", "live"
STATES = (NONE, PENDING, DENIED, EXPIRED, RUN_OUT, REVOKED, OTHER_AGENT, OTHER_SCOPE, LIVE)
"""Of a person's exception."""

COVERED = {LIVE: ("ledger", LEDGER), OTHER_SCOPE: ("history", HISTORY), OTHER_AGENT: ("ledger", {"other"})}
"""The page on which each live one shows content, and the places of the canaries that it shows."""


@dataclass
class Person:
    """Somebody with a role now, and an exception from when they were an admin: only admins get one."""

    browser: Browser
    role: str
    state: str = NONE
    exception_id: str = ""

    def __str__(self) -> str:
        return f"{self.role}, exception {self.state}"

    def may_see(self, endpoint: str, exception_id: str) -> set[str]:
        """The places that this person's own exception covers on this page."""
        part, places = COVERED.get(self.state, ("", set()))
        is_mine = exception_id == self.exception_id and self.role in (OWNER, ADMIN)
        return places if is_mine and endpoint.removesuffix("_json") == f"exceptions.{part}" else set()


@dataclass
class Crowd:
    """`theirs` are an owner's live exceptions: to everybody else they are live for another user."""

    life: Life
    subject: Subject
    people: list[Person] = field(default_factory=list)
    theirs: list[str] = field(default_factory=list)

    def exceptions_for(self, person: Person) -> list[str]:
        """All that matter to a person: their own, and those."""
        return list(dict.fromkeys([person.exception_id or self.theirs[0], *self.theirs]))


def gather(web: Flask, role: str) -> Crowd:
    """Everybody of a role, or a stranger, over one life."""
    life, other = live(), make_agent("crumb")
    remember(other, canary("other"))
    crowd = Crowd(life, _subject_of(life))
    owners = [_person(web, life, other, OWNER, state, "a.") for state in (LIVE, OTHER_SCOPE)]
    declines(life.agent, db.session.get_one(User, 1), canary("reason"))
    crowd.theirs = [each.exception_id for each in owners]
    if role == STRANGER:
        crowd.people = [Person(Browser(web, None), role)]
        return crowd
    crowd.people = [_person(web, life, other, role, state) for state in STATES]
    for state in (EXPIRED, RUN_OUT):
        _run_out(each.exception_id for each in crowd.people if each.state == state)
        if state == EXPIRED:
            endings.end_what_is_over()
    _give_role([*owners, *crowd.people])
    return crowd


def _subject_of(life: Life) -> Subject:
    """Its addresses lead to where the canaries are."""
    subject = make_subject()
    ids = {"agent_id": str(life.agent.id), "refinement_id": life.refinement.id, "rollback_id": life.rollback_id}
    subject.values |= ids | {"entry_id": str(life.refinement.snapshot_entry_id), "memory_id": "5"}
    return subject


def _person(web: Flask, life: Life, other: Agent, role: str, state: str, prefix: str = "") -> Person:
    user = make_user(f"{prefix}{role}-{state}@example.org".replace(" ", "-"), ADMIN)
    person = Person(Browser(web, user), role, state)
    agent = {OTHER_AGENT: other, DENIED: None}.get(state, life.agent) or make_agent(f"shy, asked by {role}")
    wish = WantedException(
        GrantCategory.DEBUGGING, "It repeats itself.", 15, life.refinement.id if state == OTHER_SCOPE else None
    )
    if state == PENDING:
        person.exception_id = request_access(agent.id, wish, for_user=user, by=user.actor).id
    elif state != NONE:
        word = "NO" if state == DENIED else "YES"
        person.exception_id = put(agent, user, say(f"{word}. {canary('reason')}"), wish=wish)[0].id
    if state == DENIED:
        with writing():
            asked, _ = TokenRequest.make(Agent.lock(agent.id), user, name="laptop", scopes=["read"], by=user.actor)
        answer = ConsentAnswer(granted=False, words=canary("reason"))
        decide_token_request(asked.id, answer, agent_id=agent.id, by=agent.as_actor, keys=open_keys(agent))
    if state == REVOKED:
        revoke_grant(person.exception_id, by=user.actor)
    return person


def _run_out(exception_ids: Iterator[str]) -> None:
    """As if their minutes had passed by the database's clock."""
    with writing():
        for exception_id in exception_ids:
            grant = AccessGrant.lock(exception_id)
            assert grant.expires_at is not None
            grant.expires_at -= timedelta(minutes=16)


def _give_role(people: list[Person]) -> None:
    """What they are from now on."""
    with writing() as session:
        next_door = Account.create("Next door")
        for person in people:
            assert person.browser.user is not None
            user = session.get_one(User, person.browser.user.id)
            name = OWNER if person.role == NEXT_DOOR else person.role
            user.roles = [session.scalar(select(Role).where(Role.name == name)) or Role(name=name)]
            if person.role == NEXT_DOOR:
                user.account_id = next_door.id
