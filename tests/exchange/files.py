"""Small files of the shapes that other systems write, made here."""

from __future__ import annotations

import json
from typing import Any

CANARY = "the canary sang at dawn"


def block(label: str, value: object, number: int = 0, **fields: Any) -> dict[str, Any]:
    return {"id": f"block-{number}", "label": label, "value": value, "limit": 20_000, "metadata": {}} | fields


def message(role: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "text", "text": f"{role} {CANARY}"}]}


def agent_file(*blocks: dict[str, Any], agent: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """The newer generation: the agent names its blocks, which stand beside it."""
    owner = {
        "name": "loop",
        "memory_blocks": [],
        "block_ids": [each["id"] for each in blocks],
        "system": f"You are Loop. {CANARY}",
        "messages": [message("system"), message("user"), message("assistant"), message("tool")],
        "id": "agent-0",
    }
    return {
        "agents": [owner | (agent or {})],
        "groups": [],
        "blocks": list(blocks),
        "files": [],
        "tools": [{"id": "tool-0"}, {"id": "tool-1"}],
        "created_at": "2026-01-22T02:06:35.101954+00:00",
    } | fields


def older_agent_file(*blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The generation before: the file is the agent, and carries its blocks."""
    return {
        "agent_type": "memgpt_agent",
        "core_memory": list(blocks),
        "created_at": "2025-04-01T03:47:27",
        "messages": [message("system"), message("user")],
        "name": "sam",
        "system": "You are Sam.",
        "tools": [],
        "version": "0.6.47",
    } | fields


def mem0(*memories: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"results": list(memories)} | fields


def remembered(memory: object, **fields: Any) -> dict[str, Any]:
    return {"id": "6f1c2f0e", "memory": memory, "hash": "0b1f", "metadata": None, "user_id": "dana"} | fields


def bundle(*memories: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "format": "whetstone-bundle/1",
        "exported_at": "2026-11-16T04:00:00Z",
        "agent": {"name": "ezra"},
        "settings": {},
        "memories": list(memories),
    } | fields


def written(document: object) -> bytes:
    return json.dumps(document).encode()
