"""Every operation once, in an order in which each can be done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from mcp.client import Client
from sqlalchemy import select

from app.extensions import db, writing
from app.grants.request import WantedException, request_access
from app.models import COMMAND_LINE, Agent, GrantCategory, SettingsRequest, TokenRequest, User
from app.models.statement_log import current_of
from app.statements.checkpointing import make_checkpoint

CONVERSATION = [{"role": "user", "content": "My sister is called Ada."}, {"role": "assistant", "content": "Noted."}]


def ask_to_look(agent: Agent) -> str:
    """A request of the first admin; returns its id."""
    user = db.session.scalars(select(User).where(User.account_id == agent.account_id)).first()
    assert user is not None
    wish = WantedException(GrantCategory.DEBUGGING, "To see why it repeats itself.", 15)
    return request_access(agent.id, wish, for_user=user, by=COMMAND_LINE).id


def ask_for_token(agent: Agent, *scopes: str) -> str:
    """A request of the first admin for a token; returns its id."""
    with writing():
        locked = Agent.lock(agent.id)
        user = db.session.scalars(select(User).where(User.account_id == agent.account_id)).first()
        assert user is not None
        return TokenRequest.make(locked, user, name="laptop", scopes=scopes or ("read",), by=user.actor)[0].id


def ask_for_change(agent: Agent) -> str:
    """What an admin wants to change of its settings; returns its id."""
    with writing():
        locked = Agent.lock(agent.id)
        user = db.session.scalars(select(User).where(User.account_id == agent.account_id)).first()
        assert user is not None
        wanted = {"reflection_prompt": "Keep what rhymes."}
        return SettingsRequest.make(locked, wanted, user=user, by=user.actor, about={}).id


def prove_statement(agent: Agent) -> str:
    """The place in the log of what is stated of its model, once a checkpoint covers it."""
    make_checkpoint()
    stated = current_of(agent.id, agent.uuid).model
    assert stated is not None
    return str(stated.position)


async def everything(
    client: Client, request_id: str, token_request_id: str, setting_request_id: str, receipt_id: str
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Names and arguments; what an earlier one made is asked for by the client."""
    yield "whoami", {}
    yield "save_memory", {"content": "I promised to write on Sundays.", "tags": ["vow"]}
    yield "save_memory", {"content": "It rained.", "type": "journal"}
    yield "list_memories", {"type": "core"}
    listed = (await client.call_tool("list_memories", {})).structured_content
    yield "get_memory", {"memory_id": listed["memories"][0]["id"]}
    yield "search_memories", {"query": "SUNDAYS"}
    yield "get_context", {}
    yield "erase_memory", {"memory_id": listed["memories"][1]["id"], "reason": "It was never meant to be kept."}
    yield "hand_in_conversation", {"messages": CONVERSATION}
    handed = (await client.call_tool("hand_in_conversation", {"messages": CONVERSATION})).structured_content
    yield "get_conversation", {"conversation_id": handed["id"]}
    yield "list_settings", {}
    yield "update_setting", {"field": "system_prompt", "value": "I am Ezra."}
    yield "update_setting", {"field": "refinement_threshold", "value": 0.9}
    yield "get_setting", {"field": "system_prompt"}
    yield "get_setting_versions", {"field": "system_prompt"}
    yield "reset_setting", {"field": "system_prompt"}
    yield "list_setting_requests", {}
    yield (
        "decide_setting_request",
        {"setting_request_id": setting_request_id, "decision": "grant", "reason": "It does rhyme."},
    )
    yield "request_refinement", {}
    yield "list_refinements", {}
    asked = (await client.call_tool("list_refinements", {})).structured_content
    yield "get_refinement", {"refinement_id": asked["refinements"][0]["id"]}
    yield "list_access_requests", {}
    yield "get_access_request", {"request_id": request_id}
    yield "decide_access_request", {"request_id": request_id, "decision": "grant", "reason": "You asked kindly."}
    yield "revoke_access", {"request_id": request_id}
    yield "get_access_log", {}
    yield "list_token_requests", {}
    yield "decide_on_token_request", {"token_request_id": token_request_id, "decision": "grant", "reason": "Come in."}
    yield "list_tokens", {}
    yield "make_token", {"name": "spare", "scopes": ["read"]}
    made = (await client.call_tool("list_tokens", {})).structured_content
    yield "revoke_own_token", {"public_id": made["tokens"][0]["id"]}
    yield "list_own_receipts", {"limit": 3}
    yield "get_receipt", {"receipt_id": receipt_id}
    bundle = (await client.call_tool("export_bundle", {})).structured_content
    yield "export_bundle", {}
    yield "import_memories", {"data": bundle["bundle"]}
    brought = (await client.call_tool("import_memories", {"data": bundle["bundle"]})).structured_content
    yield "get_import", {"import_id": brought["id"]}
