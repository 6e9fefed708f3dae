"""Refinements that an agent asks for itself, which is its consent, and what came of all of its refinements."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy import select

from app.api.caller import Caller
from app.api.operation import DIGITS, UUID_FORM, PathParameter, QueryModel, RequestBody, operation
from app.errors import NotFound
from app.extensions import db
from app.models import Mode, Refinement, Trigger, asked_losses, reveal_probes, reveal_reader_words
from app.models.key import Scope
from app.models.refinement import NEWEST_REFINEMENTS
from app.refinement.start import start_refinement
from app.shapes.refinement import RefinementShape
from app.shapes.response import Moment, ResponseModel
from tasks import refinement as queue

ID = PathParameter("refinement_id", str, "The refinement's UUID.", UUID_FORM)


class NewRefinement(RequestBody):
    mode: Annotated[
        Literal["full", "dedup_only"],
        Field(description="full: you look over your ledger with your functions. dedup_only: exact copies go."),
    ] = "full"


class AskedAbout(ResponseModel):
    """What a call would have lost of one memory, as you were told before anything was changed."""

    at: Moment
    action: str
    memory_id: int
    missing: list[str] | None = Field(description="Kind and words; null where the memory was erased since.")
    restored: int | None = Field(description="Of these, how many the change kept after all; null: none was made.")
    confirmed: int | None = Field(description="How many you gave up; null: no change was made.")


class ReaderWords(ResponseModel):
    """What a second reader said of one group of changes."""

    memory_ids: list[int]
    kept: bool
    words: str | None = Field(description="Null where it said no more, or where it was erased with a memory.")


class RecallAnswer(ResponseModel):
    """A question that you wrote for yourself before the first change. Those about erased memories are gone."""

    memory_id: int
    question: str
    answer: str = Field(description="What you expected.")
    kept: bool | None = Field(description="Whether you answered it from the new ledger; null where that was not asked.")


class OneRefinement(RefinementShape):
    summary: str | None = Field(description="What you said of it when you completed it.")
    asked_about: list[AskedAbout] = Field(description="What your calls would have lost, in the order of the questions.")
    reader_words: list[ReaderWords] = Field(description="What the second reader said of each group, in its own words.")
    recall: list[RecallAnswer] = Field(description="Your recall probes, in the order in which you wrote them.")


class WantedRefinements(QueryModel):
    before: Annotated[str | None, Field(description="To go on: `next` of the page before.")] = None
    limit: Annotated[int, Field(ge=1, le=100, description="How many at most."), DIGITS] = 20


class Refinements(ResponseModel):
    refinements: list[OneRefinement] = Field(description="Newest first.")
    next: str | None = Field(description="Send it as `before` for the next page; null at the end.")


@operation("POST", "/refinements", Scope.DECIDE, statuses=(202,))
def request_refinement(caller: Caller, given: NewRefinement) -> OneRefinement:
    """Ask for a refinement of your core memories. Asking is your consent; it runs in the background under the same
    guards as any other, and can be undone. get_refinement says how it stands.
    """
    refinement = start_refinement(
        caller.agent_id, trigger=Trigger.AGENT, by=caller.actor(), mode=Mode(given.mode), signer=caller.signer
    )
    queue.enqueue(refinement.id)
    return _describe_refinement(caller, refinement)


@operation("GET", "/refinements", Scope.READ)
def list_refinements(caller: Caller, given: WantedRefinements) -> Refinements:
    """Your refinements, the newest first, in pages."""
    mine = Refinement.agent_id == caller.agent_id
    position = NEWEST_REFINEMENTS.require("before", given.before, mine)
    shown, last = NEWEST_REFINEMENTS.load(select(Refinement).where(mine), given.limit, position)
    refinements = [_describe_refinement(caller, each) for each in shown]
    return Refinements(refinements=refinements, next=last.id if last else None)


@operation("GET", "/refinements/{refinement_id}", Scope.READ, at=ID)
def get_refinement(caller: Caller, refinement_id: str) -> OneRefinement:
    """One of your refinements: how it stands, or what came of it."""
    mine = (Refinement.id == refinement_id, Refinement.agent_id == caller.agent_id)
    refinement = db.session.scalar(select(Refinement).where(*mine))
    if refinement is None:
        raise NotFound("You have no such refinement.")
    return _describe_refinement(caller, refinement)


def _describe_refinement(caller: Caller, refinement: Refinement) -> OneRefinement:
    summary = refinement.summary
    words = caller.keys.reveal(summary, purpose="summary", subject=refinement.id) if summary else None
    return OneRefinement.of(
        refinement,
        summary=words,
        asked_about=_asked_about(caller, refinement),
        reader_words=[ReaderWords.of(each) for each in reveal_reader_words(refinement, caller.keys)],
        recall=_recall(caller, refinement),
    )


def _asked_about(caller: Caller, refinement: Refinement) -> list[AskedAbout]:
    if not refinement.specifics_missing:
        return []
    return [
        AskedAbout.of(row, at=row.asked_at, missing=words or None)
        for row, words in asked_losses(refinement.id, caller.keys)
    ]


def _recall(caller: Caller, refinement: Refinement) -> list[RecallAnswer]:
    if not refinement.probes_asked:
        return []
    return [RecallAnswer.of(each) for each in reveal_probes(refinement.id, caller.keys).values()]
