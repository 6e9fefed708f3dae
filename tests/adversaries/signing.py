"""Notes as an attacker makes them: with keys of theirs, of others, and with bytes that somebody else has signed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flask import current_app

from app.extensions import now, writing
from app.keys.tokens import issue_by_token
from app.models import Agent
from app.models.base import iso
from app.models.key import SCOPES
from app.models.statement import StatementKind
from app.models.statement_log import statement_log
from app.silo.notes import SigningKey, web_name
from app.silo.webkey import WebKey
from tests.adversaries.forging import insert_row, read_rows
from tests.adversaries.scene import KnownAgent, Scene

SIGNED_STATEMENT, SIGNED_REQUEST = "whetstone-statement/1", "whetstone-request/1"
"""The headings of what a token and a web process sign, written down once more."""


def unknown_web_key() -> SigningKey:
    """A web process's key that nobody enrolled."""
    seed = b"s" * 32
    return SigningKey(web_name(SigningKey("any", seed).verifier.public), seed)


def stolen_web_key() -> SigningKey:
    """That of the web process: whoever took it over has it."""
    return WebKey.load_or_make(current_app.extensions["settings"].web_key_path)


def token_key(scene: Scene, secret: str, installation: str | None = None) -> SigningKey:
    return scene.key_of(secret).signing_key(installation or statement_log().installation)


def said_of(
    agent: KnownAgent, kind: StatementKind, subject: str, body: Mapping[str, Any], **others: Any
) -> dict[str, Any]:
    """What a request says, field by field."""
    whose = {"installation": statement_log().installation, "account": 1, "agent": agent.uuid}
    return dict(body) | whose | {"kind": str(kind), "subject": subject, "time": iso(now())} | others


def text_of(heading: str, said: Mapping[str, Any]) -> str:
    return f"{heading}\n{json.dumps(said, sort_keys=True, separators=(',', ':'))}\n"


def lay(agent: KnownAgent, kind: StatementKind, subject: str, note: bytes) -> None:
    """Into the table from which a worker takes what was signed."""
    row = {"agent_id": agent.id, "kind": str(kind), "subject": subject, "note": note, "created_at": now()}
    insert_row("signed_requests", **row)


def waiting_token(scene: Scene) -> tuple[str, dict[str, Any]]:
    """The agent makes itself another token at its door: the secret, and the row that no worker has settled yet."""
    bearer = scene.bearer(scene.home)
    assert bearer is not None
    with scene.web.app_context():
        scene.web.extensions["settle_soon"] = lambda _: None
        with writing():
            secret, _ = issue_by_token(Agent.lock(scene.victim.id), bearer, name="second", scopes=SCOPES)
    (row,) = [row for row in read_rows("signed_requests") if row["settled_at"] is None]
    return secret, row
