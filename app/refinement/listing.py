"""The refinements of an account as a list: by which filters, and in which order. Pages and commands name both alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, and_, case, cast, func, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from app.errors import Invalid
from app.extensions import db
from app.models import Agent, AttentionItem, Mode, Refinement, Status, Trigger
from app.models.keyset import Keyset
from app.models.refinement import NEWEST_REFINEMENTS
from app.refinement.failures import has_reason
from app.values.dates import parse_day, parse_last_day
from app.values.refinement_states import BROKEN_STATES

FILTERS = ("status", "agent", "trigger", "mode", "model", "from", "to", "reason", "needs")
"""As addresses and forms name them; the command line says `--needs attention`, and so on."""

ATTENTION = "attention"
MAX_TYPED = 1000
MOST_COUNTED = 100_000


@dataclass(frozen=True)
class RefinementFilters:
    """What of one account's refinements is wanted: asked for at `since` or later, and before `until`.

    `reason` is why they failed, as `failures` groups them. Whoever makes this has seen that the agent is the account's.
    """

    account_id: int
    statuses: tuple[Status, ...] = ()
    agent_id: int | None = None
    trigger: Trigger | None = None
    mode: Mode | None = None
    model_id: str = ""
    since: datetime | None = None
    until: datetime | None = None
    reason: str = ""
    needs_attention: bool = False

    @property
    def conditions(self) -> list[ColumnElement[bool]]:
        wanted: list[tuple[object, Callable[[], ColumnElement[bool]]]] = [
            (self.agent_id, lambda: Refinement.agent_id == self.agent_id),
            (self.statuses, lambda: Refinement.status.in_(self.statuses)),
            (self.trigger, lambda: Refinement.trigger == self.trigger),
            (self.mode, lambda: Refinement.mode == self.mode),
            (self.model_id, lambda: Refinement.model_id == self.model_id),
            (self.since, lambda: Refinement.requested_at >= self.since),
            (self.until, lambda: Refinement.requested_at < self.until),
            (self.reason, lambda: and_(has_reason(self.reason), Refinement.status.in_(BROKEN_STATES))),
            (self.needs_attention, lambda: Refinement.id.in_(_with_open_items(self.account_id))),
        ]
        return [Refinement.account_id == self.account_id, *(condition() for value, condition in wanted if value)]

    def count(self) -> int:
        """How many there are; never more than `MOST_COUNTED`."""
        some = select(Refinement.id).where(*self.conditions).limit(MOST_COUNTED).subquery()
        return db.session.scalar(select(func.count()).select_from(some)) or 0


@dataclass(frozen=True)
class TypedFilters:
    """`typed` is what stands in the fields that are not empty, `errors` the sentences beside what can't be used."""

    filters: RefinementFilters
    typed: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, account_id: int, sent: Mapping[str, str | None]) -> TypedFilters:
        typed = {name: text for name in FILTERS if (text := (sent.get(name) or "").strip())}
        found: dict[str, Any] = {}
        errors: dict[str, str] = {}
        for name, text in typed.items():
            into, parse = _PARSERS[name]
            try:
                found[into] = parse(account_id, _require_printable(text))
            except Invalid as error:
                errors[name] = error.sentence
        filters = RefinementFilters(account_id, **found)
        if filters.since and filters.until and filters.since >= filters.until:
            errors["to"] = "The last day is before the first one."
        return cls(filters, typed, errors)


class MillisecondsBetween(FunctionElement[int]):
    """From one moment to a later one, in whole milliseconds, on both databases; NULL where one of them is."""

    type = BigInteger()
    inherit_cache = True
    name = "milliseconds_between"


@compiles(MillisecondsBetween, "sqlite")
def _compile_for_sqlite(element: MillisecondsBetween, compiler: SQLCompiler, **options: Any) -> str:
    first, second = (compiler.process(each, **options) for each in element.clauses)
    return f"CAST(ROUND((julianday({second}) - julianday({first})) * 86400000) AS INTEGER)"


@compiles(MillisecondsBetween, "postgresql")
def _compile_for_postgresql(element: MillisecondsBetween, compiler: SQLCompiler, **options: Any) -> str:
    first, second = (compiler.process(each, **options) for each in element.clauses)
    return f"CAST(EXTRACT(EPOCH FROM {second} - {first}) * 1000 AS BIGINT)"


_KEPT_MILLIONTHS = (
    cast(Refinement.kept_mass, BigInteger) * 1_000_000 // func.nullif(Refinement.mass_before, 0, type_=BigInteger)
)
_KEPT = case((Refinement.mode == Mode.FULL, func.coalesce(_KEPT_MILLIONTHS, -1)), else_=-1)

_SORTED_BY: Mapping[str, Any] = {
    "duration": func.coalesce(MillisecondsBetween(Refinement.started_at, Refinement.ended_at), -1, type_=BigInteger()),
    "changes": Refinement.mutations,
    "kept": cast(_KEPT, BigInteger),
    "tokens": cast(Refinement.prompt_tokens + Refinement.completion_tokens, BigInteger),
    "cost": Refinement.cost_usd,
}

NEWEST = "started"

SORTS: Mapping[str, Keyset] = {
    f"{sign}{name}": Keyset((*columns, *NEWEST_REFINEMENTS.columns), newest_first=not sign)
    for name, columns in {NEWEST: (), **{name: (column,) for name, column in _SORTED_BY.items()}}.items()
    for sign in ("", "-")
}
"""By name: the newest, longest, most, dearest first; with `-` in front the other way round. What is not known comes as
less than nothing."""


def parse_sort(typed: str) -> str:
    """A name of SORTS; nothing means the newest first. Raises Invalid."""
    if typed and typed not in SORTS:
        names = ", ".join(name for name in SORTS if not name.startswith("-"))
        raise Invalid(f"There is no order {typed!r}. There are: {names}; with - in front the other way round.")
    return typed or NEWEST


def with_open_items(refinement_ids: Sequence[str]) -> set[str | None]:
    """Those of these refinements with something that nobody has seen yet."""
    about = AttentionItem.refinement_id
    return set(db.session.scalars(select(about).where(about.in_(refinement_ids), AttentionItem.is_open())))


def _with_open_items(account_id: int) -> Any:
    """Ids of refinements with something that nobody has seen yet."""
    about = AttentionItem.refinement_id
    return select(about).where(AttentionItem.account_id == account_id, AttentionItem.is_open(), about.is_not(None))


def _parse_statuses(account_id: int, typed: str) -> tuple[Status, ...]:
    named = dict.fromkeys(each.strip() for each in typed.split(",") if each.strip())
    return tuple(_parse_word("status", Status, each) for each in named)


def _parse_word(noun: str, words: Iterable[Any], typed: str) -> Any:
    for word in words:
        if word == typed:
            return word
    raise Invalid(f"There is no {noun} {typed!r}. There are: {', '.join(words)}.")


def _parse_needs(account_id: int, typed: str) -> bool:
    if typed != ATTENTION:
        raise Invalid(f"Refinements can need {ATTENTION!r} and nothing else.")
    return True


def _require_printable(text: str) -> str:
    if not text.isprintable() or len(text) > MAX_TYPED:
        raise Invalid("This can't be looked for: it is too long, or holds characters that can't be seen.")
    return text


_PARSERS: Mapping[str, tuple[str, Callable[[int, str], Any]]] = {
    "status": ("statuses", _parse_statuses),
    "agent": ("agent_id", Agent.find_id),
    "trigger": ("trigger", lambda _, typed: _parse_word("trigger", Trigger, typed)),
    "mode": ("mode", lambda _, typed: _parse_word("mode", Mode, typed)),
    "model": ("model_id", lambda _, typed: typed),
    "from": ("since", lambda _, typed: parse_day(typed)),
    "to": ("until", lambda _, typed: parse_last_day(typed)),
    "reason": ("reason", lambda _, typed: typed),
    "needs": ("needs_attention", _parse_needs),
}
"""By field: which filter it sets, and how it is read."""
