"""Who calls: an agent, by a token of its own, which says what it may and opens its keys while the call lasts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import structlog

from app.api.throttle import current_throttle
from app.errors import NotFound, WhetstoneError
from app.extensions import db, reading
from app.keys.bearer import Bearer, authenticate
from app.models import Actor, Agent
from app.silo import AgentKeys, SealBroken, parse_token

log = structlog.get_logger(__name__)


class Unauthorized(WhetstoneError):
    """The token is missing, malformed, unknown or revoked. Send `Authorization: Bearer TOKEN`; nothing was done."""

    code = "unauthorized"
    http_status = 401


class ScopeMissing(WhetstoneError):
    """The token lacks the scope that this needs. Nothing was done."""

    code = "scope_missing"
    http_status = 403


class KeysNotReady(WhetstoneError):
    """This token is so new that a worker has not sealed your keys to it yet. Try again in a moment."""

    code = "keys_not_ready"
    http_status = 503


@dataclass
class Caller:
    """One call of one agent. Nothing of another agent can be reached through it."""

    bearer: Bearer

    @property
    def agent_id(self) -> int:
        return self.bearer.agent_id

    def agent(self) -> Agent:
        """The agent's row, read once a transaction. Raises NotFound."""
        agent = db.session.get(Agent, self.agent_id)
        if agent is None:
            raise NotFound("There is no such agent any more.")
        return agent

    def actor(self) -> Actor:
        """The agent, as the audit log names it."""
        return self.agent().as_actor

    @cached_property
    def keys(self) -> AgentKeys:
        """The agent's keys, opened by the token, once a call. Raises KeysNotReady."""
        try:
            return self.bearer.open_keys()
        except SealBroken as error:
            raise KeysNotReady from error

    def check_still_live(self) -> None:
        """For what takes long. Raises Unauthorized where the token was revoked since it came."""
        with reading():
            if not self.bearer.is_live():
                raise Unauthorized

    def check(self, scope: str) -> None:
        """Raises ScopeMissing."""
        if scope not in self.bearer.scopes:
            held = ", ".join(self.bearer.scopes)
            raise ScopeMissing(f"This needs the scope {scope}; this token has {held}.", "Nothing was done.")


def admit(authorization: str | None) -> Caller:
    """Who sent this Authorization header. Raises Unauthorized or TooManyRequests; logs refusals without the token."""
    scheme, _, secret = (authorization or "").partition(" ")
    bearer = authenticate(secret.strip()) if scheme.lower() == "bearer" else None
    if bearer is None:
        parsed = parse_token(secret.strip())
        log.info("token refused", token=parsed[0] if parsed else "malformed or missing")
        raise Unauthorized
    current_throttle().count(bearer.public_id)
    return Caller(bearer)
