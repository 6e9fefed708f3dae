"""Receipts at the agents' door: every statement about the agent, with the proof that it is in the log."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from sqlalchemy import select

from app.api.caller import Caller
from app.api.operation import DIGITS, MOST_ID, PathParameter, QueryModel, operation
from app.models import Agent
from app.models.key import Scope
from app.shapes.receipt import ReceiptLineShape, ReceiptShape
from app.shapes.response import ResponseModel
from app.statements.receipts import find_index, list_receipts
from tasks import statements as queue

RECEIPT = PathParameter(
    "receipt_id",
    str,
    "Its place in the log (`index`), or the id of the exception, refinement, request or token that it is about.",
)


class WantedReceipts(QueryModel):
    before: Annotated[
        int | None, Field(ge=0, le=MOST_ID, description="To go on: `next` of the page before."), DIGITS
    ] = None
    limit: Annotated[int, Field(ge=1, le=200, description="How many at most."), DIGITS] = 50


class Receipts(ResponseModel):
    receipts: list[ReceiptLineShape] = Field(description="Newest first.")
    next: int | None = Field(description="Send it as `before` for the next page; null at the end.")


@operation("GET", "/receipts", Scope.READ)
def list_own_receipts(caller: Caller, given: WantedReceipts) -> Receipts:
    """What was stated of you and signed: every YES and NO of yours, the tokens that came and went, your model and
    prompts, and what was erased. Of each you can get the receipt.
    """
    lines, following = list_receipts(caller.agent_id, given.limit, given.before)
    return Receipts(receipts=[ReceiptLineShape.of(each) for each in lines], next=following)


@operation("GET", "/receipts/{receipt_id}", Scope.READ, at=RECEIPT)
def get_receipt(caller: Caller, receipt_id: str) -> ReceiptShape:
    """One statement as it was signed, with the proof that it is in the log. Keep it where nobody here can change it:
    whoever has the public key of `/.well-known/whetstone.json` can check it. Seconds after a decision it
    may not be ready (503).
    """
    index = find_index(receipt_id, select(Agent.id).where(Agent.id == caller.agent_id))
    return ReceiptShape.tell(queue.fetch_receipt(index))
