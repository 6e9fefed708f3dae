"""Models in use by an account: who has each, what this month's calls came to, and whether the workers have its key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import func, select

from app.config import OFFLINE_MODEL
from app.extensions import db, now
from app.modelnames import usual_key_of
from app.models import Agent, ModelCall
from app.models.base import iso
from app.models.model_call import ANSWERED
from app.models.presence import WorkerPresence, has_variable, present_workers

CALLS_TIMED = 5000
"""The newest calls of the month, whose median duration is told."""

MOST_MODELS = 100
MOST_PLACES = 1000
"""Combinations of model, address and key variable that are read; those that most agents have."""


@dataclass(frozen=True)
class NeededKey:
    """A variable that agents of a model need, and whether all workers have it; None where no worker is there to say."""

    name: str
    is_there: bool | None

    @property
    def words(self) -> str:
        return f"{self.name} {'unknown' if self.is_there is None else 'set' if self.is_there else 'missing'}"

    def as_json(self) -> dict[str, Any]:
        return {"variable": self.name, "set": self.is_there}


@dataclass
class UsedModel:
    """One model. Failed calls cost too; `median_seconds` is None without a call."""

    model_id: str
    agents: int = 0
    calls: int = 0
    failures: int = 0
    tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    median_seconds: float | None = None
    keys: list[NeededKey] = field(default_factory=list)
    is_keyless: bool = False

    @property
    def cost_words(self) -> str:
        return f"${self.cost_usd:,.2f}"

    @property
    def key_words(self) -> str:
        """`OPENAI_API_KEY set`; of a model that needs none, or of which it is not known, that."""
        if self.keys:
            return ", ".join(key.words for key in self.keys)
        return "none needed" if self.is_keyless else "unknown"

    @property
    def lacks_key(self) -> bool:
        return any(key.is_there is False for key in self.keys)

    def as_json(self) -> dict[str, Any]:
        said = {name: getattr(self, name) for name in ("model_id", "agents", "calls", "failures", "tokens")}
        said |= {"cost_usd": float(self.cost_usd), "median_seconds": self.median_seconds}
        return said | {"keys": [key.as_json() for key in self.keys]}


class ModelUsage:
    """Of an account: first those that most agents have."""

    def __init__(self, account_id: int) -> None:
        at = now()
        self.since = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        self.workers = present_workers(at)
        found: dict[str, UsedModel] = {}
        _add_agents(found, account_id, self.workers)
        _add_calls(found, account_id, self.since)
        for used in found.values():
            _name_usual_key(used, self.workers)
        ordered = sorted(found.values(), key=lambda used: (-used.agents, -used.calls, used.model_id))
        self.models, self.left_off = ordered[:MOST_MODELS], max(len(ordered) - MOST_MODELS, 0)
        self.calls = sum(used.calls for used in ordered)
        self.cost_usd = sum((used.cost_usd for used in ordered), Decimal(0))

    def as_json(self) -> dict[str, Any]:
        models = [used.as_json() for used in self.models]
        return {"since": iso(self.since), "workers": len(self.workers), "models": models, "left_off": self.left_off}


def _add_agents(found: dict[str, UsedModel], account_id: int, workers: Sequence[WorkerPresence]) -> None:
    place = (Agent.model_id, Agent.api_base, Agent.api_key_env)
    query = select(*place, func.count()).where(Agent.account_id == account_id, Agent.forgotten_at.is_(None))
    rows = db.session.execute(query.group_by(*place).order_by(func.count().desc(), *place).limit(MOST_PLACES)).tuples()
    for model_id, api_base, key_env, agents in rows:
        used = found.setdefault(model_id, UsedModel(model_id))
        used.agents += agents
        name = key_env or (None if api_base else usual_key_of(model_id))
        used.is_keyless |= name is None and (bool(api_base) or model_id == OFFLINE_MODEL)
        if name is not None and name not in [key.name for key in used.keys]:
            used.keys = sorted([*used.keys, NeededKey(name, has_variable(name, workers))], key=lambda key: key.name)


def _add_calls(found: dict[str, UsedModel], account_id: int, since: datetime) -> None:
    mine = (ModelCall.account_id == account_id, ModelCall.started_at >= since)
    failed = func.count().filter(ModelCall.outcome != ANSWERED)
    sums = (func.count(), failed, func.sum(ModelCall.total_tokens), func.sum(ModelCall.cost_usd))
    for model_id, calls, failures, tokens, cost in db.session.execute(
        select(ModelCall.model_id, *sums).where(*mine).group_by(ModelCall.model_id)
    ).tuples():
        used = found.setdefault(model_id, UsedModel(model_id))
        used.calls, used.failures, used.tokens, used.cost_usd = calls, failures, int(tokens or 0), cost or Decimal(0)
    for model_id, seconds in _median_seconds(mine):
        found.setdefault(model_id, UsedModel(model_id)).median_seconds = seconds


def _name_usual_key(used: UsedModel, workers: Sequence[WorkerPresence]) -> None:
    """Of one that no agent has now, such as a second reader's or one that was renamed."""
    name = usual_key_of(used.model_id)
    if not used.agents and name is not None:
        used.keys.append(NeededKey(name, has_variable(name, workers)))


def _median_seconds(mine: Iterable[Any]) -> Iterable[tuple[str, float]]:
    """Of each model's calls among the newest: the middle one, or the mean of the two in the middle."""
    newest = select(ModelCall.model_id, ModelCall.seconds).where(*mine).order_by(ModelCall.started_at.desc())
    timed = newest.limit(CALLS_TIMED).subquery()
    model = timed.c.model_id
    place = func.row_number().over(partition_by=model, order_by=timed.c.seconds).label("place")
    ranked = select(timed, place, func.count().over(partition_by=model).label("calls")).subquery()
    middle = ranked.c.place.in_([(ranked.c.calls + 1) // 2, (ranked.c.calls + 2) // 2])
    query = select(ranked.c.model_id, func.avg(ranked.c.seconds)).where(middle).group_by(ranked.c.model_id)
    return [(model_id, float(seconds)) for model_id, seconds in db.session.execute(query).tuples()]
