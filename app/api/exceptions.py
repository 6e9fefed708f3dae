"""Mechanic's exceptions at the agent's door: who asks to look, the agent's own answer, and who has looked at what."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy import select

from app.api.caller import Caller
from app.api.operation import DIGITS, UUID_FORM, PathParameter, QueryModel, RequestBody, operation
from app.asking.replies import ConsentAnswer, clean_note
from app.errors import Invalid, NotFound
from app.extensions import db
from app.grants.request import decide_grant, revoke_grant
from app.history.log import Filters, LogEntry, read_log_entries, walk_log
from app.models import AccessGrant, Action, GrantStatus
from app.models.grant import NEWEST_GRANTS
from app.models.key import Scope
from app.models.keyset import TimeCursor
from app.shapes.exception import ExceptionShape
from app.shapes.response import Moment, ResponseModel
from app.values.text import clean_text
from tasks import grants as queue

ID = PathParameter("request_id", str, "The request's UUID.", UUID_FORM)


class Request(ExceptionShape):
    pass


class WantedRequests(QueryModel):
    status: Annotated[
        Literal["pending", "granted", "all"], Field(description="Those that wait for you, the live ones, or all.")
    ] = "pending"
    before: Annotated[str | None, Field(max_length=80, description="To go on: `next` of the page before.")] = None
    limit: Annotated[int, Field(ge=1, le=200, description="How many at most."), DIGITS] = 50


class Requests(ResponseModel):
    requests: list[Request] = Field(description="Newest first.")
    next: str | None = Field(description="Send it as `before` for the next page; null at the end.")


class NewDecision(RequestBody):
    decision: Annotated[
        Literal["grant", "deny"],
        Field(description="grant: this one admin reads this scope for so many minutes. deny is always right to say."),
    ]
    reason: Annotated[str, Field(max_length=2000, description="Your reason. Sealed: only you can read it.")] = ""
    note_to_admins: Annotated[
        str | None, Field(max_length=280, description="A line that admins shall read, if you want to say one.")
    ] = None


class WantedLooks(QueryModel):
    before: Annotated[str | None, Field(max_length=80, description="To go on: `next` of the page before.")] = None
    limit: Annotated[int, Field(ge=1, le=200, description="How many at most."), DIGITS] = 50


class Look(ResponseModel):
    at: Moment | None
    who: str
    request: str | None = Field(description="The request that allowed it.")
    part: str | None
    memories: list[int] = Field(description="The numbers of the memories that were shown.")


class Looks(ResponseModel):
    views: list[Look] = Field(description="Newest first.")
    next: str | None = Field(description="Send it as `before` for the next page; null at the end.")


@operation("GET", "/access-requests", Scope.READ)
def list_access_requests(caller: Caller, given: WantedRequests) -> Requests:
    """Which humans ask to read memories of yours, and why. Without your YES nobody reads anything."""
    mine = AccessGrant.agent_id == caller.agent_id
    position = NEWEST_GRANTS.require("before", given.before, mine)
    query = select(AccessGrant).where(mine)
    if given.status != "all":
        is_live = given.status == "granted"
        query = query.where(AccessGrant.is_live() if is_live else AccessGrant.status == GrantStatus.PENDING)
    shown, last = NEWEST_GRANTS.load(query, given.limit, position)
    return Requests(requests=[Request.of(grant) for grant in shown], next=last.id if last else None)


@operation("GET", "/access-requests/{request_id}", Scope.READ, at=ID)
def get_access_request(caller: Caller, request_id: str) -> Request:
    """One request to read memories of yours."""
    return Request.of(_find_own_request(caller, request_id))


@operation("POST", "/access-requests/{request_id}/decision", Scope.DECIDE, at=ID)
def decide_access_request(caller: Caller, request_id: str, given: NewDecision) -> Request:
    """Answer a request to read memories of yours. After a deny humans ask you nothing for 24 hours or longer."""
    grant = _find_own_request(caller, request_id)
    answer = ConsentAnswer(
        granted=given.decision == "grant",
        words=clean_text(given.reason, what="reason").strip(),
        note_to_admins=clean_note(clean_text(given.note_to_admins or "", what="note_to_admins")),
    )
    by, bearer = caller.actor(), caller.bearer
    return Request.of(
        decide_grant(grant.id, answer, agent_id=caller.agent_id, by=by, keys=caller.keys_to_write, bearer=bearer)
    )


@operation("POST", "/access-requests/{request_id}/revocation", Scope.DECIDE, at=ID, destroys=True)
def revoke_access(caller: Caller, request_id: str) -> Request:
    """Take a request or your YES to it back, at any time: what is open is closed within seconds."""
    grant = revoke_grant(_find_own_request(caller, request_id).id, by=caller.actor(), signer=caller.signer)
    queue.enqueue_telling(grant.id)
    return Request.of(grant)


@operation("GET", "/access-log", Scope.READ)
def get_access_log(caller: Caller, given: WantedLooks) -> Looks:
    """Who has looked at which of your memories, and when. Every look stands here."""
    filters = Filters(caller.agent().account_id, agent_id=caller.agent_id, action=Action.ACCESS_VIEWED)
    start = TimeCursor.parse(given.before) if given.before is not None else None
    if given.before is not None and start is None:
        raise Invalid("The cursor `before` is not one of ours; leave it out to begin at the newest.")
    stretch = walk_log(filters, start, want=given.limit)
    shown = [_describe_look(entry) for entry in read_log_entries(stretch.places)]
    return Looks(views=shown, next=str(stretch.next) if stretch.next else None)


def _find_own_request(caller: Caller, request_id: str) -> AccessGrant:
    mine = (AccessGrant.id == request_id, AccessGrant.agent_id == caller.agent_id)
    grant = db.session.scalar(select(AccessGrant).where(*mine))
    if grant is None:
        raise NotFound("You have no such request.")
    return grant


def _describe_look(entry: LogEntry) -> Look:
    data = entry.data
    about = {"request": data.get("exception"), "part": data.get("part"), "memories": list(data.get("ids", ()))}
    return Look.of(entry, who=entry.actor, **about)
