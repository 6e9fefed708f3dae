"""The account's people: invited by a link, given a role, deactivated and let in again. Owners act, all others look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flask import render_template, request, url_for
from flask.typing import ResponseReturnValue

from app.errors import Invalid, Refused
from app.extensions import writing
from app.keys.leavers import revoke_tokens_shown_to
from app.models import Account, Actor, OneTimeLink, User
from app.models.user import OWNER, SITE_ADMIN
from app.security import WrongPassword
from app.values.plural import count_nouns
from app.views.access import post_act, viewer
from app.views.answers import answer_act, page
from app.views.house.second_factor import check_my_password
from app.views.house.shell import blueprint
from app.views.shown.users import InvitationForm, MadeLink, UserList, UserPage
from tasks import keys

Change = Callable[[Account, User, Actor], ResponseReturnValue]


class OperatorNeeded(Refused):
    """This user is an operator: only an operator, or a command on the server, changes who they are."""

    code = "operator_needed"
    http_status = 403
    outcome = "Nothing was changed."


@page(blueprint, "/settings/users", "house/users.html")
def users() -> UserList:
    return UserList(viewer(), after=request.args.get("after", "")[:254])


@page(blueprint, "/settings/users/<int:user_id>", "house/user.html")
def user(user_id: int) -> UserPage:
    return UserPage(viewer(), user_id)


@post_act(blueprint, "/settings/users", OWNER)
def invite() -> ResponseReturnValue:
    """The link is in this one answer and nowhere else: not in a redirect, a session or a log."""
    form = InvitationForm(request.form.get("email", "")[:300], request.form.get("role", "")[:20])
    me = viewer()
    actor, account_id = me.actor, me.account_id
    try:
        with writing():
            link, secret = OneTimeLink.invite(Account.lock(account_id), form.email, form.role, by=actor)
    except (Invalid, Refused) as error:
        return _show_list(UserList(viewer(), form=form.blame(error))), 422
    return _show_list(UserList(viewer(), made=MadeLink.of(link, secret))), 201


@post_act(blueprint, "/settings/users/invitations/<int:link_id>/revoke", OWNER)
def revoke_link(link_id: int) -> ResponseReturnValue:
    me = viewer()
    actor, account_id = me.actor, me.account_id
    with writing():
        account = Account.lock(account_id)
        link = OneTimeLink.of_account(account, link_id)
        was_open = link.revoke(account, by=actor)
    words = f"The link for {link.email} is revoked." if was_open else f"The link for {link.email} was over already."
    return answer_act(words, to=url_for("house.users"), tone="success" if was_open else "info")


@post_act(blueprint, "/settings/users/<int:user_id>/role", OWNER)
def change_role(user_id: int) -> ResponseReturnValue:
    """The role stands in the form, or in the address of an Undo."""
    role = request.values.get("role", "")
    with _changing_user(user_id) as (account, person, actor):
        before = person.account_role
        changed = person.change_role(account, role, by=actor)
    undo = url_for("house.change_role", user_id=user_id, role=before) if changed and before else ""
    words = f"{person.email} is {role} now." if changed else f"{person.email} is {role} already."
    return _back_to(user_id, words, undo, changed)


@post_act(blueprint, "/settings/users/<int:user_id>/deactivate", OWNER)
def deactivate(user_id: int) -> ResponseReturnValue:
    if user_id == viewer().id:
        raise Refused("You can't deactivate yourself. Another owner can.", "Nothing was changed.")
    with _changing_user(user_id) as (account, person, actor):
        changed = person.deactivate(account, by=actor)
    words = f"{person.email} is deactivated." if changed else f"{person.email} was deactivated already."
    return _back_to(user_id, words, url_for("house.reactivate", user_id=user_id) if changed else "", changed)


@post_act(blueprint, "/settings/users/<int:user_id>/reactivate", OWNER)
def reactivate(user_id: int) -> ResponseReturnValue:
    with _changing_user(user_id) as (account, person, actor):
        changed = person.reactivate(account, by=actor)
    words = f"{person.email} may sign in again." if changed else f"{person.email} is active already."
    return _back_to(user_id, words, "", changed)


@post_act(blueprint, "/settings/users/<int:user_id>/password-link", OWNER)
def make_password_link(user_id: int) -> ResponseReturnValue:
    """Shown in this one answer, like an invitation."""
    with _changing_user(user_id) as (account, person, actor):
        link, secret = OneTimeLink.for_password(account, person, by=actor)
    shown = UserPage(viewer(), user_id, made=MadeLink.of(link, secret))
    return render_template("house/user.html", page=shown, json_url=""), 201


@post_act(blueprint, "/settings/users/<int:user_id>/second-factor/take-off", OWNER)
def take_off_second_factor(user_id: int) -> ResponseReturnValue:
    """For who lost it. It needs the owner's own password: a browser left open weakens nobody's sign-in."""
    me = viewer()
    if user_id == me.id:
        raise Refused("Turn off your own second factor under Settings, Account.", "Nothing was changed.")
    try:
        check_my_password(me, request.form.get("my_password", "")[:1000])
    except WrongPassword as error:
        shown = UserPage(viewer(), user_id, errors={"my_password": error.sentence})
        return render_template("house/user.html", page=shown, json_url=""), 422
    with _changing_user(user_id) as (account, person, actor):
        passkeys = len(person.passkeys)
        changed = person.take_off_second_factor(account, by=actor)
    if not changed:
        return _back_to(user_id, f"{person.email} has no second factor.", "", changed)
    words = (
        f"The second factor of {person.email} is off, and their sessions have ended. They sign in by password alone."
    )
    if passkeys:
        words += f" {count_nouns(passkeys, 'passkey')} removed."
    return _back_to(user_id, words, "", changed)


@post_act(blueprint, "/settings/users/<int:user_id>/end-tokens", OWNER)
def end_tokens(user_id: int) -> ResponseReturnValue:
    """Of somebody who left: each live token whose secret they were shown. A worker makes the agents' new keys."""
    with _changing_user(user_id) as (_, person, actor):
        if person.active:
            raise Refused(f"{person.email} is active. Deactivate them first.", "Nothing was revoked.")
    ended = list(revoke_tokens_shown_to(person, by=actor))
    for agent_id in {each.token.agent_id for each in ended}:
        keys.enqueue(agent_id)
    count = sum(len(each.tokens) for each in ended)
    return _back_to(user_id, f"{count_nouns(count, 'token')} revoked.", "", bool(count))


@contextmanager
def _changing_user(user_id: int) -> Iterator[tuple[Account, User, Actor]]:
    """A write transaction that holds the account. Raises NotFound for another account's, and OperatorNeeded."""
    me = viewer()
    actor, account_id, is_operator = me.actor, me.account_id, me.may(SITE_ADMIN)
    with writing():
        account = Account.lock(account_id)
        person = User.of_account(account, user_id)
        if person.may(SITE_ADMIN) and not is_operator:
            raise OperatorNeeded
        yield account, person, actor


def _back_to(user_id: int, words: str, undo: str, changed: bool) -> ResponseReturnValue:
    to = url_for("house.user", user_id=user_id)
    return answer_act(words, to=to, undo=undo, tone="success" if changed else "info")


def _show_list(shown: UserList) -> str:
    return render_template("house/users.html", page=shown, json_url=f"{url_for('house.users')}.json")
