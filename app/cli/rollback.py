"""`./whetstone rollback`: take back a refinement, a rollback or one audit entry, or rewind; or only say how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
from sqlalchemy import select

from app.cli import json_option
from app.cli.common import (
    REFUSED,
    account_argument,
    account_option,
    day_and_time,
    find_account,
    open_installation,
    print_hint,
    print_json,
    say,
)
from app.cli.found import find_target
from app.cli.refinement_facts import SHORT
from app.extensions import db
from app.history.plan import GuardFinal, Plan, Target, preview_plan
from app.history.undo import RollbackConflict, UndoResult, roll_back
from app.history.words import describe_memories, describe_moves
from app.models import COMMAND_LINE, Refinement, Rollback
from app.shapes.rollback import PlanShape


@click.command()
@click.argument("number", metavar="ID")
@click.option("--rewind", is_flag=True, help="Go back to just before the refinement ID, with all refinements since.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@account_option
@json_option
def rollback(number: str, rewind: bool, dry_run: bool, account: str | None, as_json: bool) -> int:
    """Take back a refinement, an earlier rollback, or what one entry of the audit log did to memories.

    ID is that of a refinement or of a rollback (its beginning is enough), or the number of an entry as `whetstone
    audit` prints it. All of it is taken back, or nothing: memories that changed since are conflicts. A rollback can be
    taken back itself. A refinement that is running is ended first.

    Exit status: 0 done, or undone already; 3 conflicts, or what a guard reversed for good, with nothing applied; 1 any
    other trouble.
    """
    with open_installation():
        target = _resolve_target(number, rewind, find_account(account).id if account else None)
        outcome = _RollbackOutcome.of(target, dry_run)
        if as_json:
            print_json(outcome.as_json())
        else:
            outcome.tell(account_argument(account))
        return REFUSED if outcome.plan.conflicts or outcome.plan.final else 0


@dataclass(frozen=True)
class _RollbackOutcome:
    """What happened, or in a dry run what would. `rollback` is the one that was made, or the one of long ago."""

    target: Target
    plan: Plan
    rollback: Rollback | None
    applied: bool
    dry_run: bool

    @classmethod
    def of(cls, target: Target, dry_run: bool) -> _RollbackOutcome:
        """Raises NotFound, and NothingToUndo for an entry that changed no memory."""
        if dry_run:
            plan = preview_plan(target)
            earlier = db.session.get(Rollback, plan.undone_by) if plan.undone_by else None
            return cls(target, plan, earlier, applied=False, dry_run=True)
        try:
            done: UndoResult = roll_back(target, by=COMMAND_LINE)
        except (RollbackConflict, GuardFinal) as refused:
            return cls(target, refused.plan, None, applied=False, dry_run=False)
        return cls(target, done.plan, done.rollback, applied=done.applied, dry_run=False)

    def as_json(self) -> dict[str, Any]:
        """What programs rely on."""
        plan = self.plan
        changes = 0 if plan.conflicts else len(plan.changes)
        said = {"id": self.rollback.id if self.rollback else None, "applied": self.applied, "reversed": changes}
        return said | PlanShape.of(plan).as_json()

    def tell(self, in_account: str) -> None:
        if self.plan.final:
            self._tell_final()
        elif self.plan.conflicts:
            self._tell_conflict(in_account)
        elif self.plan.undone_by:
            self._tell_undone_already(in_account)
        elif not self.plan.changes:
            self._tell_nothing()
        else:
            self._tell_done(in_account)

    def _tell_done(self, in_account: str) -> None:
        plan = self.plan
        what = describe_moves(plan.restored, plan.removed, (plan.mass_before, plan.mass_after), past=self.applied)
        say(f"{'Done' if self.applied else 'Nothing is done yet'}: {what}.")
        if plan.stays:
            stay = "stayed" if self.applied else "would stay"
            say(f"Left alone: {describe_memories(plan.stays)} {stay}, because an admin made that constitutional since.")
        if plan.stops:
            was = "was" if self.applied else "would be"
            say(f"Refinement {plan.stops[:SHORT]}, which was open, {was} ended first.")
        if self.rollback is not None:
            print_hint(f"rollback {self.rollback.id[:SHORT]}{in_account}", "Take it back")
        else:
            print_hint(f"rollback {self._again}{in_account}", "Do it")

    def _tell_final(self) -> None:
        say(GuardFinal(self.plan).sentence)

    def _tell_conflict(self, in_account: str) -> None:
        say(f"Nothing was undone: since then, others changed {describe_memories(self.plan.conflicts)}.")
        if self.plan.later:
            newest = _newest_refinement(self.plan.later)
            say(f"Refinements in the way: {', '.join(each[:SHORT] for each in self.plan.later)}.")
            print_hint(f"rollback {newest[:SHORT]}{in_account}", "Undo the newest of them first")
        if self.plan.found.refinement is not None:
            print_hint(
                f"rollback {self.target.id[:SHORT]} --rewind --dry-run{in_account}", "Or see what a rewind would do"
            )

    def _tell_undone_already(self, in_account: str) -> None:
        say("It is undone already. Nothing was changed.")
        if self.rollback is not None:
            say(f"It was undone on {day_and_time(self.rollback.at)} UTC by {self.rollback.requested_by}.")
            print_hint(f"rollback {self.rollback.id[:SHORT]}{in_account}", "Take that back")

    def _tell_nothing(self) -> None:
        if self.plan.stops:
            ended = "would be ended" if self.dry_run else "was ended"
            say(f"Refinement {self.plan.stops[:SHORT]} had changed nothing yet; it {ended}.")
        else:
            say("Nothing is left to undo: every memory is already as it was before.")

    @property
    def _again(self) -> str:
        short = self.target.id if self.target.kind == "entry" else self.target.id[:SHORT]
        return f"{short} --rewind" if self.target.kind == "rewind" else short


def _newest_refinement(refinement_ids: Sequence[str]) -> str:
    query = select(Refinement.id).where(Refinement.id.in_(refinement_ids))
    return db.session.scalars(query.order_by(Refinement.requested_at.desc()).limit(1)).one()


def _resolve_target(number: str, rewind: bool, account_id: int | None) -> Target:
    target = find_target(number, account_id)
    if not rewind:
        return target
    if target.kind != "refinement":
        raise click.UsageError(f"--rewind goes to just before a refinement, and {number} is none.")
    return Target.rewind(target.id)
