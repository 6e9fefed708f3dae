"""Receipts: what was stated of an agent and signed, and each statement with its proof, as a file."""

from __future__ import annotations

from flask import Response, request
from flask.typing import ResponseReturnValue
from sqlalchemy import select

from app.models import Agent
from app.statements.receipts import find_index
from app.values.text import is_row_id
from app.views.access import my_agent, signed_in_pages, viewer
from app.views.answers import page
from app.views.shown.receipt import ReceiptsPage
from tasks import statements as queue

blueprint = signed_in_pages("receipts", __name__)


@page(blueprint, "/agents/<int:agent_id>/receipts", "agents/receipts.html")
def index(agent_id: int) -> ReceiptsPage:
    before = request.args.get("before", "")
    return ReceiptsPage(my_agent(agent_id), before=int(before) if is_row_id(before) else None)


@blueprint.get("/receipts/<receipt_id>")
def download(receipt_id: str) -> ResponseReturnValue:
    """By its place in the log, or the id of what it is about. Statement, proof and checkpoint are one text."""
    mine = select(Agent.id).where(Agent.account_id == viewer().account_id)
    receipt = queue.fetch_receipt(find_index(receipt_id, mine))
    name = f'attachment; filename="whetstone-receipt-{receipt.index}.txt"'
    return Response(receipt.file, mimetype="text/plain", headers={"Content-Disposition": name})
