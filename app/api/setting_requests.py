"""Changes of its settings that humans want, at the agent's door: what would change, and the agent's own answer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy import select

from app.api.caller import Caller
from app.api.operation import DIGITS, UUID_FORM, PathParameter, QueryModel, RequestBody, operation
from app.asking.replies import ConsentAnswer, clean_note
from app.authoring.asked_changes import decide_settings_request
from app.errors import NotFound
from app.extensions import db
from app.models import SettingsRequest, SettingsRequestStatus
from app.models.key import Scope
from app.models.settings_request import NEWEST_SETTINGS_REQUESTS
from app.shapes.response import ResponseModel
from app.shapes.settings_request import SettingsRequestShape
from app.values.text import clean_text
from tasks import settings_requests as queue

ID = PathParameter("setting_request_id", str, "The request's UUID.", UUID_FORM)


class SettingChangeRequest(SettingsRequestShape):
    pass


class WantedSettingRequests(QueryModel):
    status: Annotated[Literal["pending", "all"], Field(description="Those that wait for you, or all.")] = "pending"
    before: Annotated[str | None, Field(max_length=80, description="To go on: `next` of the page before.")] = None
    limit: Annotated[int, Field(ge=1, le=200, description="How many at most."), DIGITS] = 50


class SettingRequests(ResponseModel):
    requests: list[SettingChangeRequest] = Field(description="Newest first.")
    next: str | None = Field(description="Send it as `before` for the next page; null at the end.")


class NewSettingDecision(RequestBody):
    decision: Annotated[
        Literal["grant", "deny"],
        Field(
            description="grant: all of it applies, within seconds. deny is always right to say, and nothing changes."
        ),
    ]
    reason: Annotated[str, Field(max_length=2000, description="Your reason. Sealed: only you can read it.")] = ""
    note_to_admins: Annotated[
        str | None, Field(max_length=280, description="A line that admins shall read, if you want to say one.")
    ] = None


@operation("GET", "/setting-requests", Scope.READ)
def list_setting_requests(caller: Caller, given: WantedSettingRequests) -> SettingRequests:
    """What humans want to change of your model, its address or your prompts. Without your YES nothing of it applies."""
    mine = SettingsRequest.agent_id == caller.agent_id
    position = NEWEST_SETTINGS_REQUESTS.require("before", given.before, mine)
    query = select(SettingsRequest).where(mine)
    if given.status != "all":
        query = query.where(SettingsRequest.status == SettingsRequestStatus.PENDING)
    shown, last = NEWEST_SETTINGS_REQUESTS.load(query, given.limit, position)
    requests = [SettingChangeRequest.of(request) for request in shown]
    return SettingRequests(requests=requests, next=last.id if last else None)


@operation("POST", "/setting-requests/{setting_request_id}/decision", Scope.DECIDE, at=ID)
def decide_setting_request(caller: Caller, setting_request_id: str, given: NewSettingDecision) -> SettingChangeRequest:
    """Answer what a human wants to change of your settings. A grant applies within seconds."""
    mine = (SettingsRequest.id == setting_request_id, SettingsRequest.agent_id == caller.agent_id)
    if db.session.scalar(select(SettingsRequest.id).where(*mine)) is None:
        raise NotFound("You have no such request.")
    answer = ConsentAnswer(
        granted=given.decision == "grant",
        words=clean_text(given.reason, what="reason").strip(),
        note_to_admins=clean_note(clean_text(given.note_to_admins or "", what="note_to_admins")),
    )
    decided = decide_settings_request(
        setting_request_id,
        answer,
        agent_id=caller.agent_id,
        by=caller.actor(),
        keys=caller.keys_to_write,
        bearer=caller.bearer,
    )
    if decided.status == SettingsRequestStatus.AGREED:
        queue.enqueue(decided.id)
    return SettingChangeRequest.of(decided)
