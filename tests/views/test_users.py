"""The account's people under /settings: who they are, and what they may do."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from html import unescape

import pytest
from flask import Flask
from sqlalchemy import select, update
from werkzeug.test import TestResponse

from app.extensions import db, writing
from app.grants.request import WantedException, request_access
from app.history.verify import verify
from app.keys.tokens import issue_token
from app.models import (
    COMMAND_LINE,
    AccessGrant,
    Account,
    Agent,
    AuditLog,
    GrantCategory,
    GrantStatus,
    OneTimeLink,
    User,
)
from app.models.key import TokenOrigin
from app.models.user import ADMIN, AUDITOR, OWNER, SITE_ADMIN, LastOwner
from app.setup import FIRST_EMAIL
from tests.support.clock import FakeClock
from tests.support.factories import HOME, make_agent, make_user
from tests.views.conftest import PASSWORD, Browser, browser

NEW = "a staple and a battery"


@pytest.fixture
def alone(owner: Browser) -> Browser:
    """The only active owner: whom the installation was made with is gone."""
    with writing():
        account = Account.lock(HOME)
        User.of_account(account, 1).deactivate(account, by=COMMAND_LINE)
    return owner


def test_settings_lead_to_the_first_tab_and_name_each_that_there_is(auditor: Browser, operator: Browser) -> None:
    assert auditor.get("/settings").headers["Location"] == "/settings/users"
    tabs = auditor.get("/settings.json").json["tabs"]  # type: ignore[index]
    assert tabs[0] == {"label": "Users", "url": "/settings/users"}
    for tab in tabs:
        page = auditor.get(tab["url"])
        assert page.status_code == 200
        assert f'href="{tab["url"]}" aria-current="page"' in page.text
    assert operator.get("/settings").status_code == 403


def test_the_list_names_the_people_of_this_account_and_nobody_else(
    auditor: Browser, owner: Browser, neighbour: Browser
) -> None:
    make_user("<script>@example.org", ADMIN, SITE_ADMIN)
    auditor.post("/sign-out")
    auditor.post("/sign-in", {"email": f"{AUDITOR}-1@example.org", "password": PASSWORD})
    leaver = make_user("leaver@example.org", OWNER)
    with writing():
        leaver.deactivate(Account.lock(1), by=COMMAND_LINE)

    said = {each["email"]: each for each in owner.get("/settings/users.json").json["users"]}  # type: ignore[index]
    page = owner.get("/settings/users").text

    assert neighbour.user is not None
    assert set(said) == {
        FIRST_EMAIL,
        "<script>@example.org",
        leaver.email,
        "auditor-1@example.org",
        "owner-1@example.org",
    }
    assert said["<script>@example.org"]["roles"] == [ADMIN, SITE_ADMIN]
    assert said["auditor-1@example.org"]["last_sign_in_at"] is not None
    assert said["owner-1@example.org"]["last_sign_in_at"] is None
    assert (said[leaver.email]["active"], said[leaver.email]["two_factor"]) == (False, False)
    assert "<script>@" not in page
    assert "<script>@example.org" in unescape(page)
    assert "admin, site admin" in page
    assert neighbour.user.email not in page


def test_the_list_goes_on_from_an_address_and_takes_any_for_one(owner: Browser) -> None:
    for number in range(60):
        make_user(f"person-{number:02}@example.org", AUDITOR)

    first = owner.get("/settings/users.json").json
    assert first is not None
    assert len(first["users"]) == 50
    rest = owner.get("/settings/users.json", query_string={"after": first["next_after"]}).json
    assert rest is not None
    assert (len(rest["users"]), rest["next_after"]) == (12, None)
    assert owner.get("/settings/users", query_string={"after": "\x00' --" * 99}).status_code == 200


def make_link(owner: Browser, path: str = "/settings/users", **form: str) -> str:
    """The path of the link that this POST shows."""
    answer = owner.post(path, form)
    assert answer.status_code == 201, answer.text
    found = re.search(r'<code id="link">http://localhost(/welcome/[^<]+)</code>', answer.text)
    assert found is not None
    return found[1]


def choose(visitor: Browser, link: str, password: str = NEW, again: str = NEW) -> TestResponse:
    return visitor.post(link, {"password": password, "password_again": again})


def person(email: str) -> User | None:
    db.session.rollback()
    found = select(User).where(User.email == email)
    return db.session.scalar(found.execution_options(populate_existing=True))


def can_sign_in(web: Flask, email: str, password: str) -> bool:
    visitor = Browser(web, None)
    visitor.post("/sign-in", {"email": email, "password": password})
    return visitor.get("/settings/users").status_code == 200


def test_an_invited_person_chooses_a_password_once_and_signs_in_with_it(
    web: Flask, owner: Browser, stranger: Browser
) -> None:
    link = make_link(owner, email=" Ann@Example.org ", role=ADMIN)
    assert "ann@example.org" in owner.get("/settings/users").text
    assert link.rpartition("/")[2] not in owner.get("/settings/users").text

    assert "You are invited as admin." in stranger.get(link).text
    assert choose(stranger, link).headers["Location"] == "/sign-in"

    made = person("ann@example.org")
    assert made is not None
    assert made.role_names == [ADMIN]
    assert can_sign_in(web, "ann@example.org", NEW)
    for again in (stranger.get(link), choose(stranger, link, "another password", "another password")):
        assert (again.status_code, "used already" in again.text) == (410, True)
    assert not can_sign_in(web, "ann@example.org", "another password")
    assert verify().ok
    secret = link.rpartition("/")[2]
    for entry in db.session.scalars(select(AuditLog)):
        assert secret not in f"{entry.data} {entry.said}"


@pytest.mark.parametrize(
    ("email", "role", "sentence"),
    [
        ("", ADMIN, "The e-mail address is missing."),
        ("nonsense", ADMIN, "'nonsense' is no e-mail address."),
        ("a@b\x00c", ADMIN, "is no e-mail address."),
        ("x" * 255 + "@example.org", ADMIN, "is no e-mail address."),
        ("owner-1@example.org", ADMIN, "owner-1@example.org is a user of this account already."),
        ("ann@example.org", SITE_ADMIN, "There is no role 'site_admin'."),
        ("ann@example.org", "", "There is no role ''."),
    ],
)
def test_an_invitation_that_can_not_be_made_says_why_at_its_field(
    owner: Browser, email: str, role: str, sentence: str
) -> None:
    answer = owner.post("/settings/users", {"email": email, "role": role})

    assert answer.status_code == 422
    assert sentence in unescape(answer.text)
    assert "link-made" not in answer.text
    assert db.session.scalar(select(OneTimeLink.id)) is None


def test_a_link_that_is_over_says_why_and_does_nothing(owner: Browser, stranger: Browser, clock: FakeClock) -> None:
    replaced = make_link(owner, email="ann@example.org", role=ADMIN)
    revoked = make_link(owner, email="ann@example.org", role=ADMIN)
    link_id = owner.get("/settings/users.json").json["invitations"][0]["id"]  # type: ignore[index]
    assert owner.post(f"/settings/users/invitations/{link_id}/revoke").status_code == 303
    expired = make_link(owner, email="ann@example.org", role=ADMIN)
    signed_in = make_link(owner, email="bob@example.org", role=ADMIN)
    assert "You are signed in as owner-1@example.org" in owner.get(signed_in).text
    assert choose(owner, signed_in).status_code == 409
    clock.advance(days=7)

    for link, status, words in (
        (replaced, 410, "was taken back"),
        (revoked, 410, "was taken back"),
        (expired, 410, "has expired"),
        ("/welcome/nothing", 404, "There is no such link."),
        ("/welcome/%00%ff", 404, "There is no such link."),
    ):
        for answer in (stranger.get(link), choose(stranger, link)):
            assert (answer.status_code, words in answer.text) == (status, True), link
    assert person("ann@example.org") is None
    assert person("bob@example.org") is None


def test_a_link_of_another_account_is_not_there_to_be_taken_back(
    owner: Browser, stranger: Browser, neighbour: Browser
) -> None:
    link = make_link(owner, email="ann@example.org", role=ADMIN)
    link_id = db.session.scalars(select(OneTimeLink.id)).one()
    assert neighbour.post(f"/settings/users/invitations/{link_id}/revoke").status_code == 404
    assert choose(stranger, link).headers["Location"] == "/sign-in"


def test_an_invitation_for_who_has_a_user_elsewhere_is_told_to_its_holder_alone(
    owner: Browser, stranger: Browser, neighbour: Browser
) -> None:
    """Whoever invites learns nothing of other accounts."""
    assert neighbour.user is not None
    before = neighbour.user.password
    link = make_link(owner, email=neighbour.user.email, role=ADMIN)

    answer = choose(stranger, link)

    assert (answer.status_code, f"There is a user {neighbour.user.email} already." in answer.text) == (409, True)
    kept = person(neighbour.user.email)
    assert kept is not None
    assert (kept.password, kept.account_id, kept.role_names) == (before, neighbour.user.account_id, [OWNER])


@pytest.mark.parametrize(
    ("password", "again", "sentence"),
    [
        ("short", "short", "The password must have at least 12 characters."),
        ("", "", "The password must have at least 12 characters."),
        ("x" * 129, "x" * 129, "The password must have at most 128 characters."),
        (NEW, "another password", "The two passwords are not the same."),
        ("a\x00" * 9, "a\x00" * 9, "The password holds a NUL character"),
    ],
)
def test_a_password_that_is_too_weak_or_mistyped_uses_no_link(
    owner: Browser, stranger: Browser, password: str, again: str, sentence: str
) -> None:
    link = make_link(owner, email="ann@example.org", role=ADMIN)

    answer = choose(stranger, link, password, again)

    assert (answer.status_code, sentence in answer.text) == (422, True)
    assert person("ann@example.org") is None
    assert choose(stranger, link).status_code == 303


def test_a_new_password_by_a_link_ends_sessions_and_exceptions(
    web: Flask, app: Flask, owner: Browser, admin: Browser, stranger: Browser
) -> None:
    assert admin.user is not None
    email, agent = admin.user.email, make_agent(model_id="openai/wren")
    wish = WantedException(GrantCategory.DEBUGGING, "It repeats itself.", 15)
    grant = request_access(agent.id, wish, for_user=admin.user, by=admin.user.actor)
    link = make_link(owner, f"/settings/users/{admin.user.id}/password-link")
    assert admin.get("/agents").status_code == 200

    assert "Choose a new password" in stranger.get(link).text
    assert choose(stranger, link).status_code == 303

    assert admin.get("/agents").status_code == 302
    assert can_sign_in(web, email, NEW)
    assert not can_sign_in(web, email, PASSWORD)
    assert db.session.get_one(AccessGrant, grant.id, populate_existing=True).status == GrantStatus.REVOKED
    assert verify().ok


def test_roles_change_with_an_undo_and_an_account_keeps_an_owner(alone: Browser, admin: Browser) -> None:
    owner = alone
    assert owner.user is not None
    assert admin.user is not None
    theirs, mine = f"/settings/users/{admin.user.id}", f"/settings/users/{owner.user.id}"

    last = owner.post(f"{mine}/role", {"role": ADMIN})
    assert (last.status_code, "is the only active owner of this account" in last.text) == (409, True)
    nonsense = owner.post(f"{theirs}/role", {"role": SITE_ADMIN})
    assert (nonsense.status_code, "There is no role" in nonsense.text) == (422, True)
    assert owner.post(f"{theirs}/role", {"role": OWNER}).status_code == 303
    undo = re.search(r'action="([^"]+/role\?role=admin)"', owner.get(theirs).text)
    assert undo is not None
    assert admin.post(f"{mine}/role", {"role": AUDITOR}).status_code == 303
    assert owner.post(f"{theirs}/role", {"role": AUDITOR}).status_code == 403
    assert admin.post(undo[1]).status_code == 409
    assert admin.post(f"{mine}/role", {"role": OWNER}).status_code == 303
    assert owner.post(undo[1]).status_code == 303

    roles = {each["email"]: each["roles"] for each in owner.get("/settings/users.json").json["users"]}  # type: ignore[index]
    assert roles == {FIRST_EMAIL: [OWNER, SITE_ADMIN], "owner-1@example.org": [OWNER], "admin-1@example.org": [ADMIN]}
    assert verify().ok


def test_two_owners_who_demote_one_another_at_once_leave_one(web: Flask, alone: Browser) -> None:
    owner = alone
    other = Browser(web, make_user("second@example.org", OWNER))
    assert owner.user is not None
    assert other.user is not None
    ids = {owner.user.id, other.user.id}
    people = {owner.user.id: owner.user.actor, other.user.id: other.user.actor}

    def demote(user_id: int) -> bool:
        with web.app_context():
            try:
                with writing():
                    account = Account.lock(HOME)
                    User.of_account(account, user_id).change_role(account, ADMIN, by=people[user_id])
            except LastOwner:
                return False
            return True

    db.session.rollback()
    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(demote, ids)) == [False, True]
    db.session.rollback()
    found = db.session.scalars(select(User).where(User.id.in_(ids)).execution_options(populate_existing=True))
    assert sorted(user.account_role for user in found) == [ADMIN, OWNER]


def test_who_is_deactivated_is_out_and_what_they_may_take_along_is_ended(
    app: Flask, web: Flask, owner: Browser, admin: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert admin.user is not None
    enqueued: list[int] = []
    monkeypatch.setattr("tasks.keys.enqueue", enqueued.append)
    path, agent = f"/settings/users/{admin.user.id}", make_agent("wren")
    with writing():
        locked = Agent.lock(agent.id)
        secret = issue_token(locked, by=locked.as_actor, how=TokenOrigin.FIRST, shown_to=admin.user.email)
        locked.change(by=admin.user.actor, core_token_budget=1234)
    token = secret.split("_")[1]
    assert owner.post(f"{path}/end-tokens").status_code == 409

    assert owner.post(f"{path}/deactivate").headers["Location"] == path

    page = unescape(owner.get(path).text)
    assert admin.get("/agents").status_code == 302
    assert token in page
    assert "core_token_budget" in page
    assert "1234" not in page
    assert owner.post(f"{path}/end-tokens").status_code == 303
    assert owner.get(f"{path}.json").json["tokens"] == []  # type: ignore[index]
    assert enqueued == [agent.id]
    assert not can_sign_in(web, admin.user.email, PASSWORD)
    assert owner.post(f"{path}/password-link").status_code == 409
    assert owner.post(f"{path}/reactivate").status_code == 303
    assert can_sign_in(web, admin.user.email, PASSWORD)
    assert verify().ok


def test_who_is_not_active_is_nobody_whatever_became_of_their_sessions(admin: Browser) -> None:
    assert admin.user is not None
    assert admin.get("/settings/account").status_code == 200
    with writing() as session:
        session.execute(update(User).where(User.id == admin.user.id).values(active=False))
    assert admin.get("/settings/account").status_code == 302


def test_nobody_locks_themselves_out_and_only_operators_change_operators(web: Flask, owner: Browser) -> None:
    """Who could reset the operator's password would be the operator."""
    operator = browser(web, SITE_ADMIN, OWNER)
    assert owner.user is not None
    assert operator.user is not None
    theirs = f"/settings/users/{operator.user.id}"

    assert "deactivate yourself" in unescape(owner.post(f"/settings/users/{owner.user.id}/deactivate").text)
    for act in ("role", "deactivate", "reactivate", "password-link", "end-tokens"):
        answer = owner.post(f"{theirs}/{act}", {"role": AUDITOR})
        assert (answer.status_code, "is an operator" in answer.text) == (403, True), act
    assert "password-link" not in owner.get(theirs).text
    assert operator.post(f"{theirs}/role", {"role": AUDITOR}).status_code == 303
    changed = person(operator.user.email)
    assert changed is not None
    assert changed.role_names == [AUDITOR, SITE_ADMIN]


def test_an_admin_looks_and_changes_nobody(admin: Browser, owner: Browser) -> None:
    assert owner.user is not None
    page = admin.get(f"/settings/users/{owner.user.id}").text
    assert "Make a link" not in page + admin.get("/settings/users").text
    assert admin.post("/settings/users", {"email": "ann@example.org", "role": OWNER}).status_code == 403
