"""What the log of statements says of one agent now, replayed from its leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from app.models.base import iso
from app.models.statement import Statement, StatementKind


@dataclass(frozen=True)
class Answer:
    """One YES or NO of an agent, as the log tells it."""

    at: datetime
    kind: StatementKind
    subject: str
    granted: bool
    body: Mapping[str, Any]


@dataclass
class Current:
    """What the log says of one agent now. `seen` counts its leaves that were replayed.

    `tokens` are live, `ended_tokens` were, as they were made; `wrapped` holds by reader (its public key in hex) the
    newest statement of its keys, `exceptions` every one that was decided, with the end of those that ended in `ended`.
    `model` has what all statements about it say together, and `model_requests` names what was signed for each by who
    asked for it.
    """

    seen: int = 0
    tokens: dict[str, Statement] = field(default_factory=dict)
    ended_tokens: dict[str, Statement | None] = field(default_factory=dict)
    wrapped: dict[str, Statement] = field(default_factory=dict)
    exceptions: dict[str, Statement] = field(default_factory=dict)
    ended: dict[str, Statement] = field(default_factory=dict)
    requests: dict[str, Statement] = field(default_factory=dict)
    consents: dict[str, Statement] = field(default_factory=dict)
    model: Statement | None = None
    model_requests: set[str] = field(default_factory=set)
    erased: dict[str, Statement] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)

    def copy(self) -> Current:
        """One that can be replayed on without changing this one."""
        copied = Current(self.seen)
        for name, value in vars(self).items():
            setattr(copied, name, value.copy() if isinstance(value, dict | set | list) else value)
        return copied

    @property
    def had_token(self) -> bool:
        """Whether the agent ever had one."""
        return bool(self.tokens or self.ended_tokens)

    def digests(self, reader: str) -> dict[tuple[str, int], str]:
        """Of the keys that are wrapped for a reader: SHA-256 in hex, by purpose and version."""
        stated = self.wrapped.get(reader)
        keys = stated.body["keys"] if stated is not None else ()
        return {(key["purpose"], key["version"]): key["sha256"] for key in keys}

    def apply(self, said: Statement) -> None:
        """Replay one more."""
        match said.kind:
            case StatementKind.TOKEN_MADE:
                self.tokens[said.subject_id] = said
            case StatementKind.TOKEN_ENDED:
                known = self.ended_tokens.get(said.subject_id)
                self.ended_tokens[said.subject_id] = self.tokens.pop(said.subject_id, known)
            case StatementKind.WRAPPED_KEYS:
                self.wrapped[said.subject_id] = said
            case StatementKind.EXCEPTION_DECIDED:
                self.exceptions[said.subject_id] = said
                self._note_answer(said)
            case StatementKind.EXCEPTION_ENDED:
                self.ended[said.subject_id] = said
            case StatementKind.CONSENT:
                self.consents[said.subject] = said
                self._note_answer(said)
            case StatementKind.OWN_REQUEST:
                self.requests[said.subject_id] = said
            case StatementKind.MODEL:
                self._take_model(said)
            case StatementKind.ERASURE:
                self.erased[said.subject_id] = said

    def _take_model(self, said: Statement) -> None:
        """Each says what changed; the whole is what all of them say."""
        before = self.model.body if self.model is not None else {}
        prompts = {**before.get("prompts", {}), **said.body.get("prompts", {})}
        self.model = replace(said, body={**before, **said.body, "prompts": prompts})
        self.model_requests.add(name_request(said))

    def _note_answer(self, said: Statement) -> None:
        self.answers.append(Answer(said.at, said.kind, said.subject, bool(said.body.get("granted")), said.body))


def name_request(said: Statement) -> str:
    """What was signed by who asked for it, and when: the same for a statement that a worker made of it."""
    body = dict(said.body)
    asked_at = body.pop("asked_at", None) or iso(said.at)
    return json.dumps([asked_at, body], sort_keys=True)
