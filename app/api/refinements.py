"""Refinements that an agent asks for itself, which is its consent, and what came of all of its refinements."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy import select

from app.api.caller import Caller
from app.api.operation import (
    DIGITS,
    UUID_FORM,
    NoParameters,
    NoteToAdmins,
    Operation,
    PathParameter,
    QueryModel,
    RequestBody,
    RequestResult,
    ResponseModel,
)
from app.errors import NotFound
from app.extensions import db
from app.models import Mode, Refinement, Trigger
from app.models.key import Scope
from app.models.keyset import cut_page
from app.models.refinement import NEWEST_REFINEMENTS
from app.refinement.start import start
from tasks import refinement as queue

ID = PathParameter("refinement_id", str, "The refinement's UUID.", UUID_FORM)


class NewRefinement(RequestBody):
    mode: Annotated[
        Literal["full", "dedup_only"],
        Field(description="full: you look over your ledger with the six functions. dedup_only: exact copies go."),
    ] = "full"


class Stats(ResponseModel):
    consolidated: int
    updated: int
    deleted: int
    protected: int
    deduplicated: int
    memories_merged: int = Field(description="How many memories went into consolidations.")
    memories_before: int | None = Field(
        description="Core memories before anything was done, exact duplicates included."
    )
    memories_after: int | None = Field(description="Core memories at the end; null while it is open.")
    refused: dict[str, int] = Field(description="How many of your calls were refused, by kind.")


class Mass(ResponseModel):
    start: int = Field(description="Before anything was done, in tokens.")
    after_dedup: int = Field(description="Without the exact duplicates: what retention is measured from.")
    after: int | None
    retention: float | None
    limit: float | None = Field(description="The least that had to be kept; null where nothing is measured.")
    line: str = Field(description="The same in words.")


class OneRefinement(ResponseModel):
    id: str
    status: str
    mode: str
    trigger: str
    mass_before: int | None
    mass_after: int | None
    threshold: float
    mutations: int
    stats: Stats
    turns: int
    calls: int
    retention: float | None
    mass: Mass | None = Field(description="What became of the mass, as one story.")
    reason: str | None = Field(description="Why it ended so, in the system's words.")
    note_to_admins: str | None = Field(description="The latest of `notes`.")
    notes: list[NoteToAdmins] = Field(description="What you wrote to the admins, oldest first.")
    undone_by: str | None = Field(description="The rollback that took it back, if one did.")
    requested_at: str | None
    started_at: str | None
    ended_at: str | None
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    summary: str | None = Field(description="What you said of it when you completed it.")


class WantedRefinements(QueryModel):
    before: Annotated[str | None, Field(description="To go on: `next` of the page before.")] = None
    limit: Annotated[int, Field(ge=1, le=100, description="How many at most."), DIGITS] = 20


class Refinements(ResponseModel):
    refinements: list[OneRefinement] = Field(description="Newest first.")
    next: str | None = Field(description="Send it as `before` for the next page; null at the end.")


def request(caller: Caller, given: NewRefinement) -> RequestResult:
    refinement = start(caller.agent_id, trigger=Trigger.AGENT, by=caller.actor(), mode=Mode(given.mode))
    queue.enqueue(refinement.id)
    return RequestResult(_told(caller, refinement), 202)


def list_(caller: Caller, given: WantedRefinements) -> Refinements:
    mine = Refinement.agent_id == caller.agent_id
    place = NEWEST_REFINEMENTS.require("before", given.before, mine)
    query = NEWEST_REFINEMENTS.page(select(Refinement).where(mine), given.limit, place)
    shown, last = cut_page(db.session.scalars(query), given.limit)
    return Refinements(refinements=[_told(caller, each) for each in shown], next=last.id if last else None)


def show(caller: Caller, refinement_id: str, _: NoParameters) -> OneRefinement:
    mine = (Refinement.id == refinement_id, Refinement.agent_id == caller.agent_id)
    refinement = db.session.scalar(select(Refinement).where(*mine))
    if refinement is None:
        raise NotFound("You have no such refinement.")
    return _told(caller, refinement)


def _told(caller: Caller, refinement: Refinement) -> OneRefinement:
    said, summary = refinement.as_json(), refinement.summary
    words = caller.keys().reveal(summary, purpose="summary", subject=refinement.id) if summary else None
    return OneRefinement(**{**said, "stats": Stats(**said["stats"]), "summary": words})


OPERATIONS = (
    Operation(
        "request_refinement", "POST", "/refinements", Scope.DECIDE,
        "Ask for a refinement of your core memories. Asking is your consent; it runs in the background under the same "
        "guards as any other, and can be undone. get_refinement says how it stands.",
        request, OneRefinement, NewRefinement, statuses=(202,),
    ),
    Operation(
        "list_refinements", "GET", "/refinements", Scope.READ,
        "Your refinements, the newest first, in pages.",
        list_, Refinements, WantedRefinements,
    ),
    Operation(
        "get_refinement", "GET", "/refinements/{refinement_id}", Scope.READ,
        "One of your refinements: how it stands, or what came of it.",
        show, OneRefinement, at=ID,
    ),
)  # fmt: skip
