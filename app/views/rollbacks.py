"""The Time Machine: what an undo or a rewind would do, the act itself, and what one did."""

from __future__ import annotations

from uuid import UUID

from flask import url_for
from flask.typing import ResponseReturnValue

from app.history.plan import Target
from app.history.undo import RollbackConflict, UndoResult, roll_back
from app.models import AuditLog, Refinement, Rollback, RollbackKind
from app.views.access import my_row, post_act, signed_in_pages, viewer
from app.views.answers import answer_act, page, wants_json
from app.views.live import parts_of_this_page, pressed_on
from app.views.shown.rollback import PlanPage, RollbackPage, target_url
from app.vocabulary import ROLLBACKS
from app.vocabulary.rollbacks import describe_moves

blueprint = signed_in_pages("rollbacks", __name__)


@page(blueprint, "/rollbacks/<uuid:rollback_id>", "rollbacks/show.html")
def show(rollback_id: UUID) -> RollbackPage:
    return RollbackPage(my_row(Rollback, rollback_id))


def _offer_undo(kind: RollbackKind, rule: str, model: type[Refinement | AuditLog | Rollback]) -> None:
    """Two views at one address: the plan of what it would do, and the act itself."""

    def target_of(named: dict[str, int | UUID]) -> Target:
        (row_id,) = named.values()
        return Target(kind, str(my_row(model, row_id).id))

    def plan(**named: int | UUID) -> PlanPage:
        return PlanPage(target_of(named))

    def undo(**named: int | UUID) -> ResponseReturnValue:
        return _roll_back(target_of(named))

    plan.__name__, undo.__name__ = f"plan_{kind}", f"undo_{kind}"
    page(blueprint, rule, "rollbacks/plan.html")(plan)
    post_act(blueprint, rule)(undo)


_offer_undo(RollbackKind.REFINEMENT, "/refinements/<uuid:refinement_id>/rollback", Refinement)
_offer_undo(RollbackKind.REWIND, "/refinements/<uuid:refinement_id>/rewind", Refinement)
_offer_undo(RollbackKind.ENTRY, "/audit/<int:entry_id>/rollback", AuditLog)
_offer_undo(RollbackKind.ROLLBACK, "/rollbacks/<uuid:rollback_id>/rollback", Rollback)


def _roll_back(target: Target) -> ResponseReturnValue:
    """At once and whole. What is in conflict leads to its plan, and programs are told so (409)."""
    try:
        made = roll_back(target, by=viewer().actor)
    except RollbackConflict as conflict:
        if wants_json():
            raise
        return answer_act(conflict.sentence, to=target_url("plan", target), tone="warning")
    undo = url_for("rollbacks.undo_rollback", rollback_id=made.rollback.id) if made.applied and made.rollback else ""
    tone = "success" if made.applied or made.plan.stops else "info"
    return answer_act(
        _outcome_words(made), to=_next_page_url(target, made), undo=undo, tone=tone, parts=parts_of_this_page()
    )


def _outcome_words(made: UndoResult) -> str:
    plan = made.plan
    if not made.applied:
        if plan.stops:
            return "Stopped: the refinement had changed nothing yet, so there was nothing to take back."
        return "It was undone already. Nothing was changed." if plan.undone_by else "Nothing is left to undo."
    first = " The refinement that was running was ended first." if plan.stops else ""
    mass = (plan.mass_before, plan.mass_after)
    what = describe_moves(plan.restored, plan.removed, mass, notes=plan.removed_notes, past=True)
    noun = ROLLBACKS[plan.found.rollback.kind].noun if plan.found.rollback else ""
    how = ROLLBACKS[plan.kind].done.format(noun=noun)
    return f"{how}: {what}.{first}"


_PLANS = ("rollbacks.plan_refinement", "rollbacks.plan_entry", "rollbacks.plan_rollback")


def _next_page_url(target: Target, made: UndoResult) -> str:
    """The page of what was undone, where its parts do not come fresh to the page that asked.

    Whoever clears the way for another undo comes back to the plan of that.
    """
    endpoint, named = pressed_on()
    was_on = url_for(endpoint, **named) if endpoint in _PLANS else ""
    if target.kind == RollbackKind.REFINEMENT and was_on not in ("", target_url("plan", target)):
        return was_on
    if target.kind in (RollbackKind.REFINEMENT, RollbackKind.REWIND):
        return url_for("refinements.show", refinement_id=target.id)
    if made.rollback is not None:
        return url_for("rollbacks.show", rollback_id=made.rollback.id)
    return target_url("plan", target)
