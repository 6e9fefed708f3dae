"""Who did it: a user, an agent, or the system by one of its parts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ActorKind(StrEnum):
    USER = "user"
    AGENT = "agent"
    SYSTEM = "system"


@dataclass(frozen=True)
class Actor:
    """Stands in the audit log as `kind:name`. `user_id` only for users."""

    kind: ActorKind
    name: str
    user_id: int | None = None

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


WORKER = Actor(ActorKind.SYSTEM, "worker")
BEAT = Actor(ActorKind.SYSTEM, "beat")
COMMAND_LINE = Actor(ActorKind.SYSTEM, "command line")
SETUP = Actor(ActorKind.SYSTEM, "setup")
