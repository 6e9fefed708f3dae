"""A receipt: one signed statement of the log, and what proves that it is there."""

from __future__ import annotations

from pydantic import Field

from app.shapes.response import Moment, ResponseModel
from app.statements.receipts import Receipt


class ReceiptLineShape(ResponseModel):
    index: int = Field(description="Its place in the log, from 0.")
    kind: str = Field(description="What is stated, such as consent or token-made.")
    subject: str = Field(description="What it is about, such as exception: and its id.")
    at: Moment
    answer: str | None = Field(description="YES or NO; null for what is no answer.")


class ReceiptShape(ResponseModel):
    index: int = Field(description="Its place in the log, from 0.")
    kind: str
    subject: str
    statement: str = Field(description="The signed note, byte by byte as it was signed: text, empty line, signatures.")
    proof: str = Field(description="C2SP tlog-proof: that it stands at `index` in the log of the checkpoint.")
    checkpoint: str = Field(description="The signed note of the log's size and root, as the proof has it, too.")

    @classmethod
    def tell(cls, receipt: Receipt) -> ReceiptShape:
        texts = {name: getattr(receipt, name).decode() for name in ("statement", "proof", "checkpoint")}
        return cls(index=receipt.index, kind=receipt.said.kind, subject=receipt.said.subject, **texts)
