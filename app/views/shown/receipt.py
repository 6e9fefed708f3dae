"""What the page of an agent's receipts shows: each statement in a line, the newest first."""

from __future__ import annotations

from typing import Any

from app.models import Agent
from app.models.statement import StatementKind
from app.shapes.receipt import ReceiptLineShape
from app.statements.receipts import list_receipts
from app.views.shown.agent import AgentState

ROWS = 50

KIND_WORDS = {
    StatementKind.MASTER_KEY: "The master key",
    StatementKind.WRAPPED_KEYS: "Its sealed keys",
    StatementKind.TOKEN_MADE: "A token was made",
    StatementKind.TOKEN_ENDED: "A token ended",
    StatementKind.EXCEPTION_DECIDED: "It answered about an exception",
    StatementKind.EXCEPTION_ENDED: "An exception ended",
    StatementKind.CONSENT: "It was asked for consent",
    StatementKind.OWN_REQUEST: "It asked for a refinement itself",
    StatementKind.MODEL: "Its model and prompts",
    StatementKind.ERASURE: "A memory was erased",
}


class ReceiptsPage:
    """`before` is the place in the log that the page begins behind; `next_before` that of the next one."""

    words = KIND_WORDS

    def __init__(self, agent: Agent, *, before: int | None = None) -> None:
        self.state = AgentState.load(agent)
        self.lines, self.next_before = list_receipts(agent.id, ROWS, before)

    def as_json(self) -> dict[str, Any]:
        lines = [ReceiptLineShape.of(line).as_json() for line in self.lines]
        return {"agent": self.state.agent.name, "receipts": lines, "next_before": self.next_before}
