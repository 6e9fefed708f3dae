"""`./whetstone rollback`: take back a refinement, a rollback or one audit entry, or rewind; or only say how."""

from __future__ import annotations

import click
from sqlalchemy import select

from app.cli.common import REFUSED, CommandContext, installation_command
from app.cli.found import find_target
from app.cli.printing import day_and_time, print_hint, print_json, say
from app.cli.refinement_facts import SHORT
from app.extensions import db
from app.history.plan import GuardFinal, Plan, Target, preview_plan
from app.history.undo import RollbackConflict, UndoResult, roll_back
from app.models import COMMAND_LINE, Refinement, Rollback
from app.shapes.audit import PlanShape
from app.vocabulary.rollbacks import describe_memories, describe_moves


@click.command()
@click.argument("number", metavar="ID")
@click.option("--rewind", is_flag=True, help="Go back to just before the refinement ID, with all refinements since.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@installation_command()
def rollback(context: CommandContext, number: str, rewind: bool, dry_run: bool) -> int:
    """Take back a refinement, an earlier rollback, or what one entry of the audit log did to memories.

    ID is that of a refinement or of a rollback (its beginning is enough), or the number of an entry as `whetstone
    audit` prints it. All of it is taken back, or nothing: memories that changed since are conflicts. A rollback can be
    taken back itself. A refinement that is running is ended first.

    Exit status: 0 done, or undone already; 3 conflicts, or what a guard reversed for good, with nothing applied; 1 any
    other trouble.
    """
    target = find_target(number, context.find_account().id if context.account else None)
    if rewind and target.kind != "refinement":
        raise click.UsageError(f"--rewind goes to just before a refinement, and {number} is none.")
    target = Target.rewind(target.id) if rewind else target
    result = _preview_rollback(target) if dry_run else _make_rollback(target)
    plan = result.plan
    if context.as_json:
        changes = 0 if plan.conflicts else len(plan.changes)
        said = {"id": result.rollback and result.rollback.id, "applied": result.applied, "reversed": changes}
        print_json(said | PlanShape.of(plan).as_json())
    elif plan.final:
        say(GuardFinal(plan).sentence)
    elif plan.conflicts:
        _tell_conflict(context, target, plan)
    elif plan.undone_by:
        _tell_undone_already(context, result)
    elif plan.changes:
        _tell_done(context, target, result)
    elif plan.stops:
        ended = "would be ended" if dry_run else "was ended"
        say(f"Refinement {plan.stops[:SHORT]} had changed nothing yet; it {ended}.")
    else:
        say("Nothing is left to undo: every memory is already as it was before.")
        _tell_erased(plan)
    return REFUSED if plan.conflicts or plan.final else 0


def _preview_rollback(target: Target) -> UndoResult:
    """What would happen, with the rollback of long ago where it is undone already. Raises NotFound or NothingToUndo."""
    plan = preview_plan(target)
    return UndoResult(db.session.get(Rollback, plan.undone_by) if plan.undone_by else None, plan, applied=False)


def _make_rollback(target: Target) -> UndoResult:
    """Raises NotFound, and NothingToUndo for an entry that changed no memory."""
    try:
        return roll_back(target, by=COMMAND_LINE)
    except (RollbackConflict, GuardFinal) as refused:
        return UndoResult(None, refused.plan, applied=False)


def _tell_conflict(context: CommandContext, target: Target, plan: Plan) -> None:
    if plan.altered:
        say(RollbackConflict(plan).sentence)
        return
    say(f"Nothing was undone: since then, others changed {describe_memories(plan.conflicts)}.")
    if plan.later:
        query = select(Refinement.id).where(Refinement.id.in_(plan.later))
        newest = db.session.scalars(query.order_by(Refinement.requested_at.desc()).limit(1)).one()
        say(f"Refinements in the way: {', '.join(each[:SHORT] for each in plan.later)}.")
        print_hint(f"rollback {newest[:SHORT]}{context.account_argument}", "Undo the newest of them first")
    if plan.found.refinement is not None:
        again = f"rollback {target.id[:SHORT]} --rewind --dry-run{context.account_argument}"
        print_hint(again, "Or see what a rewind would do")


def _tell_undone_already(context: CommandContext, result: UndoResult) -> None:
    say("It is undone already. Nothing was changed.")
    if result.rollback is not None:
        say(f"It was undone on {day_and_time(result.rollback.at)} UTC by {result.rollback.requested_by}.")
        print_hint(f"rollback {result.rollback.id[:SHORT]}{context.account_argument}", "Take that back")


def _tell_erased(plan: Plan) -> None:
    if plan.erased:
        say(f"Left out: {describe_memories(plan.erased)}, erased for good since.")


def _tell_done(context: CommandContext, target: Target, result: UndoResult) -> None:
    plan, applied = result.plan, result.applied
    mass = (plan.mass_before, plan.mass_after)
    what = describe_moves(plan.restored, plan.removed, mass, notes=plan.removed_notes, past=applied)
    say(f"{'Done' if applied else 'Nothing is done yet'}: {what}.")
    if plan.stays:
        stay = "stayed" if applied else "would stay"
        say(f"Left alone: {describe_memories(plan.stays)} {stay}, because an admin made that constitutional since.")
    _tell_erased(plan)
    if plan.stops:
        say(f"Refinement {plan.stops[:SHORT]}, which was open, {'was' if applied else 'would be'} ended first.")
    if result.rollback is not None:
        print_hint(f"rollback {result.rollback.id[:SHORT]}{context.account_argument}", "Take it back")
    else:
        again = target.id if target.kind == "entry" else target.id[:SHORT]
        rewind = " --rewind" if target.kind == "rewind" else ""
        print_hint(f"rollback {again}{rewind}{context.account_argument}", "Do it")
