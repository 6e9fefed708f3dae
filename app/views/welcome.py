"""What a one-time link opens: a page on which its holder chooses a password. Whoever holds the link may.

A link that can't be used says why; nothing is written then. Its secret is in the address alone.
"""

from __future__ import annotations

from flask import Blueprint, render_template, request, url_for
from flask.typing import ResponseReturnValue
from flask_security import current_user

from app import security
from app.errors import NotFound, Refused
from app.models import LinkKind, LinkOver, OneTimeLink
from app.security import WeakPassword
from app.views.access import viewer
from app.views.answers import answer_act

blueprint = Blueprint("welcome", __name__)


class SignedInAsAnother(Refused):
    """Somebody is signed in in this browser."""

    code = "signed_in"
    outcome = "Nothing was changed."


@blueprint.get("/welcome/<string:secret>")
def show(secret: str) -> ResponseReturnValue:
    _refuse_signed_in()
    return _render_form(OneTimeLink.find(secret), secret)


@blueprint.post("/welcome/<string:secret>")
def accept(secret: str) -> ResponseReturnValue:
    _refuse_signed_in()
    link = OneTimeLink.find(secret)
    use = security.accept_invitation if link.kind == LinkKind.INVITATION else security.use_password_link
    password, again = (request.form.get(name, "")[:1000] for name in ("password", "password_again"))
    try:
        use(secret, password, again)
    except WeakPassword as error:
        return _render_form(OneTimeLink.find(secret), secret, error.sentence), 422
    return answer_act("Your password is set. Sign in with it.", to=url_for("security.login"))


@blueprint.errorhandler(NotFound)
@blueprint.errorhandler(LinkOver)
@blueprint.errorhandler(Refused)
def refuse(error: NotFound | LinkOver | Refused) -> ResponseReturnValue:
    return render_template("auth/link_over.html", sentence=error.sentence), error.http_status


def _refuse_signed_in() -> None:
    """A link is for whoever gets it, never for who happens to be signed in here."""
    if current_user.is_authenticated:
        raise SignedInAsAnother(f"You are signed in as {viewer().email}. Sign out first to use this link.")


def _render_form(link: OneTimeLink, secret: str, problem: str = "") -> str:
    return render_template("auth/welcome.html", link=link, secret=secret, problem=problem)
