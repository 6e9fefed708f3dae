"""One memory of the sealed ledger: admins make it constitutional, or take that back; owners erase it for good."""

from __future__ import annotations

from collections.abc import Callable

from flask import render_template, request, url_for
from flask.typing import ResponseReturnValue

from app.history.erasing import LONGEST_REASON, erase_memory
from app.keys.shredding import shred_files
from app.models import Agent, Memory, Refinement
from app.models.user import OWNER
from app.views.access import changing_agent, my_agent, post_act, signed_in_pages, viewer
from app.views.answers import answer_act, page
from app.views.live import pressed_on, wrap_part
from app.views.shown.agent import AgentState, MemoryPage, load_ledger_row
from tasks import keys

blueprint = signed_in_pages("memories", __name__)


@post_act(blueprint, "/agents/<int:agent_id>/memories/<int:memory_id>/constitutional")
def protect(agent_id: int, memory_id: int) -> ResponseReturnValue:
    text = f"Memory {memory_id} is constitutional: no refinement touches it."
    return _change_memory(agent_id, memory_id, Memory.protect, text, undo="memories.release")


@post_act(blueprint, "/agents/<int:agent_id>/memories/<int:memory_id>/constitutional/release")
def release(agent_id: int, memory_id: int) -> ResponseReturnValue:
    text = f"Memory {memory_id} is no longer constitutional."
    return _change_memory(agent_id, memory_id, Memory.release, text, undo="memories.protect")


@page(blueprint, "/agents/<int:agent_id>/memories/<int:memory_id>", "agents/memory.html")
def show(agent_id: int, memory_id: int) -> MemoryPage:
    """Raises NotFound, and MemoryErased with the receipt."""
    return MemoryPage(my_agent(agent_id), memory_id, may_erase=viewer().may(OWNER))


@post_act(blueprint, "/agents/<int:agent_id>/memories/<int:memory_id>/erase", OWNER)
def erase(agent_id: int, memory_id: int) -> ResponseReturnValue:
    """Raises NotFound, MemoryErased, Refused or Invalid."""
    agent, actor = my_agent(agent_id), viewer().actor
    typed, reason = request.form.get("number", "").strip(), request.form.get("reason", "")
    if typed != str(memory_id) or not reason.strip():
        shown = MemoryPage(agent, memory_id, may_erase=True, typed=typed[:20], reason=reason[:LONGEST_REASON])
        return render_template("agents/memory.html", page=shown, json_url=f"{shown.url}.json"), 422
    receipt = erase_memory(agent.id, memory_id, by=actor, reason=reason)
    keys.enqueue_renewal(agent_id)
    shred_files()
    return answer_act(receipt.sentence, to=url_for("agents.ledger", agent_id=agent_id))


def _change_memory(
    agent_id: int, memory_id: int, change: Callable[..., None], text: str, *, undo: str
) -> ResponseReturnValue:
    with changing_agent(my_agent(agent_id).id) as (agent, actor):
        change(Memory.lock_core(agent, memory_id), agent, by=actor)
    return answer_act(
        text,
        to=url_for("agents.ledger", agent_id=agent_id),
        undo=url_for(undo, agent_id=agent_id, memory_id=memory_id),
        parts=lambda: _render_row(my_agent(agent_id), memory_id),
    )


def _render_row(agent: Agent, memory_id: int) -> str:
    """The row of the sealed ledger; on the page of an exception the flags beside the text, never the text."""
    row = load_ledger_row(agent, memory_id)
    if row is None:
        return ""
    if pressed_on()[0] == "exceptions.ledger":
        is_open = Refinement.open_of(agent.id) is not None
        flags = render_template("exceptions/_flags.html", row=row, agent_id=agent.id, is_open=is_open)
        return wrap_part(f"flags-{memory_id}", flags)
    return wrap_part(
        f"memory-{memory_id}", render_template("agents/_memory.html", row=row, state=AgentState.load(agent))
    )
