"""An auditor for tests: recounts totals, replays states and re-hashes chains by raw SQL, not by the product's code."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from flask import Flask
from sqlalchemy import text

from app.extensions import db

STATE = (
    "type",
    "content_digest",
    "token_estimate",
    "constitutional",
    "tags",
    "origin_at",
    "other_dates",
    "merged_sources",
    "merges",
    "source",
    "created_at",
    "updated_at",
    "discarded_at",
    "version",
)
_FLAGS = {"constitutional", "immutable"}
_DATES = {"origin_at", "created_at", "updated_at", "discarded_at", "at"}
_CHANGES = {
    "memory_refinement_consolidate": "consolidated",
    "memory_refinement_update": "updated",
    "memory_refinement_delete": "deleted",
    "memory_refinement_protect": "protected",
}


def assert_sound(app: Flask) -> None:
    """Totals equal a recount, every memory its newest state, every chain its hashes, every refinement its entries."""
    with app.app_context():
        states = defaultdict(list)
        for state in _rows("memory_states", "memory_id, entry_id"):
            states[state["entry_id"]].append(state)
        memories, entries = _rows("memories", "id"), _rows("audit_log", "chain, sequence")
        _check_totals(memories)
        _check_states(memories, states)
        _check_chains(entries, states)
        _check_refinements(entries)
        db.session.rollback()


def _check_totals(memories: list[dict[str, Any]]) -> None:
    for agent in _rows("agents", "id"):
        mine = [m for m in memories if m["agent_id"] == agent["id"] and m["discarded_at"] is None]
        core = [m for m in mine if m["type"] == "core"]
        counted = (sum(m["token_estimate"] for m in core), len(core), len(mine) - len(core))
        assert (agent["core_token_usage"], agent["core_count"], agent["journal_count"]) == counted


def _check_states(memories: list[dict[str, Any]], states: Mapping[int, list[dict[str, Any]]]) -> None:
    written: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for entry_id in sorted(states):
        for state in states[entry_id]:
            previous = written[state["memory_id"]]
            assert state["previous_entry_id"] == (previous[-1]["entry_id"] if previous else None)
            previous.append(state)
    texts = {(text["memory_id"], text["content_digest"]): text for text in _rows("memory_texts", "memory_id")}
    for memory in memories:
        newest = written[memory["id"]][-1]
        assert memory["entry_id"] == newest["entry_id"]
        assert {name: memory[name] for name in STATE} == {name: newest[name] for name in STATE}
        if memory["erased_at"] is not None:
            assert memory["discarded_at"] is not None
            assert not any(number == memory["id"] for number, _ in texts)
            continue
        text = texts[memory["id"], memory["content_digest"]]["sealed"]
        assert memory["content_digest"] == hashlib.sha256(text).digest()
        assert memory["token_estimate"] == int.from_bytes(text[5:9], "big")
        assert memory["immutable"] == bool({"audio", "somatic", "voice"} & set(memory["tags"]))


def _check_chains(entries: list[dict[str, Any]], states: Mapping[int, list[dict[str, Any]]]) -> None:
    heads: dict[str, tuple[int, bytes]] = {}
    for entry in entries:
        sequence, head = heads.get(entry["chain"], (0, b""))
        assert (entry["sequence"], entry["previous_hash"]) == (sequence + 1, head)
        assert entry["hash"] == _digest(entry, states.get(entry["id"], [])), f"entry {entry['id']} does not hash"
        heads[entry["chain"]] = (entry["sequence"], entry["hash"])
    for agent in _rows("agents", "id"):
        assert heads[f"agent:{agent['uuid']}"] == (agent["audit_sequence"], agent["audit_head"])
    for account in _rows("accounts", "id"):
        assert heads.get(f"account:{account['id']}", (0, b"")) == (account["audit_sequence"], account["audit_head"])


def _check_refinements(entries: list[dict[str, Any]]) -> None:
    by_refinement: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        if entry["refinement_id"]:
            by_refinement[entry["refinement_id"]].append(entry)
    for refinement in _rows("refinements", "id"):
        mine = [entry["action"] for entry in by_refinement[refinement["id"]]]
        counted = {name: mine.count(action) for action, name in _CHANGES.items()}
        assert {name: refinement[name] for name in counted} == counted
        assert refinement["mutations"] == sum(counted.values()) - counted["protected"] <= refinement["cap"] <= 10
        is_open = refinement["status"] in ("queued", "asking", "running")
        assert mine.count("memory_refinement_end") == (0 if is_open else 1)
        assert is_open or mine[-1] == "memory_refinement_end", f"{mine[-1]} after the end"
        if refinement["kept_mass"] is not None:
            assert 0 <= refinement["kept_mass"] <= refinement["mass_before"]


def _digest(entry: Mapping[str, Any], states: list[dict[str, Any]]) -> bytes:
    written = hashlib.sha256()
    for state in states:
        said = {name: _plain(state[name]) for name in STATE}
        said |= {"memory": state["memory_id"], "previous_entry": state["previous_entry_id"], "kept": state["kept"]}
        if state["restores_entry_id"] is not None:
            said = {"memory": state["memory_id"], "previous_entry": state["previous_entry_id"]}
            said |= {"restores": state["restores_entry_id"], "constitutional": state["constitutional"]}
            said |= {} if state["restores_entry_id"] else {"discarded_at": _plain(state["discarded_at"])}
        written.update(_canonical(said) + b"\n")
    plain = {
        name: entry[name] for name in ("chain", "sequence", "actor", "actor_kind", "action", "subject", "data", "said")
    }
    plain |= {
        "format": 1,
        "at": _plain(entry["at"]),
        "user": entry["user_id"],
        "account": entry["account_id"],
        "agent": entry["agent_id"],
        "refinement": entry["refinement_id"],
        "states": written.hexdigest(),
        "previous": entry["previous_hash"].hex(),
    }
    return hashlib.sha256(_canonical(plain)).digest()


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode() if len(value) > 32 else value.hex()
    return value.isoformat() if isinstance(value, datetime) else value


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _rows(table: str, order: str) -> list[dict[str, Any]]:
    return [
        _decoded(dict(row)) for row in db.session.execute(text(f"SELECT * FROM {table} ORDER BY {order}")).mappings()
    ]


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    """The same Python values from both databases."""
    for name, value in row.items():
        if name in _FLAGS:
            row[name] = bool(value)
        elif name in _DATES and value is not None:
            moment = datetime.fromisoformat(value) if isinstance(value, str) else value
            row[name] = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        elif name in {"tags", "other_dates", "data", "said"} and isinstance(value, str):
            row[name] = json.loads(value)
        elif isinstance(value, memoryview):
            row[name] = bytes(value)
    return row
