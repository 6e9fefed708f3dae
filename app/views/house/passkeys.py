"""One's own passkeys: added by what the browser answers to a challenge, and removed. Both need the password."""

from __future__ import annotations

from flask import request, url_for
from flask.typing import ResponseReturnValue

from app import passkeys
from app.errors import Refused
from app.models.user import AUDITOR
from app.security import WrongPassword
from app.views.access import post_act, viewer
from app.views.answers import answer_act
from app.views.house.second_factor import count_failures, show_account
from app.views.house.shell import blueprint
from app.views.passkeys import keep_challenge, relying_party, take_challenge


@post_act(blueprint, "/settings/account/passkeys/challenge", AUDITOR)
def ask_for_passkey() -> ResponseReturnValue:
    """What the browser is asked to make, as JSON."""
    me, party = viewer(), relying_party()
    name, password = request.form.get("passkey_name", "")[:200], _password()
    return keep_challenge(count_failures(me, lambda: passkeys.begin_registration(me, password, name, party)))


@post_act(blueprint, "/settings/account/passkeys", AUDITOR)
def add_passkey() -> ResponseReturnValue:
    me = viewer()
    try:
        challenge = take_challenge("register", me)
        codes = passkeys.register(me, challenge, request.form.get("credential", ""), relying_party())
    except Refused as error:
        return show_account(errors={"passkey": error.sentence}), error.http_status
    if codes:
        return show_account(codes=codes), 201
    return answer_act(f"The passkey {challenge.name} is added.", to=url_for("house.account"))


@post_act(blueprint, "/settings/account/passkeys/<int:passkey_id>/remove", AUDITOR)
def remove_passkey(passkey_id: int) -> ResponseReturnValue:
    me, password = viewer(), _password()
    try:
        name = count_failures(me, lambda: passkeys.remove(me, password, passkey_id))
    except WrongPassword as error:
        return show_account(errors={"passkey_password": error.sentence}), 422
    return answer_act(f"The passkey {name} is removed.", to=url_for("house.account"))


def _password() -> str:
    return request.form.get("passkey_password", "")[:1000]
