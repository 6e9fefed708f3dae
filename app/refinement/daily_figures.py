"""What the refinements of an account came to, day by day: outcomes, tokens and cost, in the days of one time zone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import CTE, BigInteger, Integer, cast, column, func, select, values

from app.extensions import db
from app.models import Refinement, Status
from app.models.base import UtcDateTime

DAYS = 90


@dataclass
class DayFigures:
    """Of the refinements that were asked for on that day and have ended."""

    day: date
    outcomes: Counter[Status] = field(default_factory=Counter)
    model_tokens: int = 0
    cost_usd: Decimal = Decimal(0)

    @property
    def refinements(self) -> int:
        return self.outcomes.total()

    def as_json(self) -> dict[str, Any]:
        outcomes = {str(status): count for status, count in sorted(self.outcomes.items())}
        figures = {"model_tokens": self.model_tokens, "cost_usd": float(self.cost_usd)}
        return {"day": self.day.isoformat(), "outcomes": outcomes} | figures


@dataclass(frozen=True)
class DailyFigures:
    """`days` has the `DAYS` newest, the oldest first, also those on which nothing was asked for."""

    time_zone: str
    days: Sequence[DayFigures]

    @property
    def refinements(self) -> int:
        return sum(each.refinements for each in self.days)

    @property
    def completed(self) -> int:
        return sum(each.outcomes[Status.COMPLETED] for each in self.days)

    @property
    def model_tokens(self) -> int:
        return sum(each.model_tokens for each in self.days)

    @property
    def cost_usd(self) -> Decimal:
        return sum((each.cost_usd for each in self.days), Decimal(0))

    @property
    def busy_days(self) -> list[DayFigures]:
        """Those on which something was asked for, the oldest first."""
        return [each for each in self.days if each.refinements]

    def as_json(self) -> dict[str, Any]:
        """Days on which nothing was asked for are left out."""
        span = {"from": self.days[0].day.isoformat(), "to": self.days[-1].day.isoformat()}
        return {"time_zone": self.time_zone} | span | {"days": [each.as_json() for each in self.busy_days]}


def load_daily_figures(
    account_id: int, at: datetime, *, time_zone: str = "", agent_id: int | None = None
) -> DailyFigures:
    """By one statement, which reads the index of the account's refinements once a day. Days are those of UTC without a
    `time_zone`, the IANA name of one."""
    zone = ZoneInfo(time_zone) if time_zone else UTC
    today = at.astimezone(zone).date()
    found = [DayFigures(today - timedelta(days=back)) for back in reversed(range(DAYS))]
    days = _days_table([each.day for each in found], zone)
    mine = [Refinement.account_id == account_id, Refinement.ended_at.is_not(None)]
    mine += [Refinement.agent_id == agent_id] if agent_id is not None else []
    within = (Refinement.requested_at >= days.c.starts_at) & (Refinement.requested_at < days.c.ends_at)
    tokens = func.sum(cast(Refinement.prompt_tokens, BigInteger) + Refinement.completion_tokens)
    columns = (days.c.place, Refinement.status, func.count(), cast(tokens, BigInteger), func.sum(Refinement.cost_usd))
    query = select(*columns).select_from(days).join(Refinement, within).where(*mine).group_by(*columns[:2])
    for place, status, count, model_tokens, cost_usd in db.session.execute(query).tuples():
        day = found[place]
        day.outcomes[status] += count
        day.model_tokens += model_tokens
        day.cost_usd += cost_usd or Decimal(0)
    return DailyFigures(time_zone or "UTC", found)


def _days_table(days: Sequence[date], zone: ZoneInfo | Any) -> CTE:
    """Place, beginning and end of each: a day is as long as its zone makes it."""
    starts = [_midnight(day, zone) for day in (*days, days[-1] + timedelta(days=1))]
    rows: Iterable[tuple[int, datetime, datetime]] = zip(range(len(days)), starts, starts[1:], strict=False)
    named = (column("place", Integer), column("starts_at", UtcDateTime), column("ends_at", UtcDateTime))
    return values(*named, name="days").data(list(rows)).cte("days")


def _midnight(day: date, zone: ZoneInfo | Any) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)
