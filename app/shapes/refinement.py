"""A refinement: how it stands, what it did and what became of the mass. Only the agent's own door adds its words."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from app.models import Refinement
from app.shapes.response import Moment, ResponseModel


class NoteToAdmins(ResponseModel):
    """What the caller wrote for the admins to read."""

    at: Moment | None
    text: str


class SpecificsCounts(ResponseModel):
    checked: int = Field(description="Specifics that the texts of your changes said before.")
    missing: int = Field(description="Those that you were asked about, because a change would have lost them.")
    restored: int = Field(description="Of the missing: those that you put back.")
    confirmed: int = Field(description="Of the missing: those that you gave up by confirm_loss.")


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
    specifics: SpecificsCounts


class Mass(ResponseModel):
    start: int = Field(description="Before anything was done, in tokens.")
    after_dedup: int = Field(description="Without the exact duplicates: what retention is measured from.")
    after: int | None
    retention: float | None
    limit: float | None = Field(description="The least that had to be kept; null where nothing is measured.")
    line: str = Field(description="The same in words.")


class Probes(ResponseModel):
    asked: int = Field(description="Questions that you wrote for yourself before the first change.")
    kept: int | None = Field(description="How many you answered from the new ledger; null where that was not asked.")
    missing: int | None = Field(description="Specifics that the functions had named to you as missing.")
    missing_in_ledger: int | None = Field(description="How many of them stand in the new ledger.")


class SecondReadingShape(ResponseModel):
    groups: int = Field(description="Groups of changes that another model compared, before and after.")
    kept: int = Field(description="How many of them it called kept.")
    flagged: list[list[int]] = Field(description="The memories of each group that it did not call kept.")
    action: str = Field(description="What becomes of those: `flag`, or `reverse` for the whole refinement.")
    outcome: str = Field(description="`read`, `unusable`, `unreachable` or `not_read`.")


class RefinementShape(ResponseModel):
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
    second_reading: SecondReadingShape | None = Field(description="Null where no second reader was to read.")
    probes: Probes | None = Field(description="Your recall probes; null where you wanted none.")
    reason: str | None = Field(description="Why it ended so, in the system's words.")
    note_to_admins: str | None = Field(description="The latest of `notes`.")
    notes: list[NoteToAdmins] = Field(description="What you wrote to the admins, oldest first.")
    undone_by: str | None = Field(description="The rollback that took it back, if one did.")
    requested_at: Moment | None
    started_at: Moment | None
    ended_at: Moment | None
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float

    @classmethod
    def of(cls, refinement: Refinement, /, **more: Any) -> Self:
        return super().of(refinement, mass=refinement.mass_story(), **more)


class NamedRefinement(RefinementShape):
    """Among those of several agents."""

    agent: str


class ListedRefinement(NamedRefinement):
    """In the list of an account's."""

    agent_id: int
    model_id: str
    seconds: float | None = Field(description="From a worker's claim to its end.")
    model_tokens: int
    needs_attention: bool
