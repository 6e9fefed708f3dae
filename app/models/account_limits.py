"""The operator's three limits of an account, as they are typed and as they are stored; each may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from app.errors import Invalid

MOST_AGENTS = 1_000_000
MOST_AT_ONCE = 10_000
MOST_DOLLARS = Decimal(1_000_000)


class LimitsInvalid(Invalid):
    """Limits that can't be stored. `errors` are sentences by the limit's name."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__(" ".join(errors.values()), "Nothing was written.")
        self.errors = dict(errors)


@dataclass(frozen=True)
class AccountLimits:
    """None is no limit. `max_refinements` at once; `max_monthly_cost` in US dollars a calendar month of UTC."""

    max_agents: int | None = None
    max_refinements: int | None = None
    max_monthly_cost: Decimal | None = None

    @classmethod
    def parse(cls, typed: Mapping[str, str]) -> AccountLimits:
        """Each as it was typed; empty or missing for none. Raises LimitsInvalid, with a sentence for each wrong one."""
        found: dict[str, Any] = {}
        errors: dict[str, str] = {}
        for name, parse in _PARSERS.items():
            try:
                found[name] = parse(typed.get(name, "").strip())
            except Invalid as error:
                errors[name] = error.sentence
        if errors:
            raise LimitsInvalid(errors)
        return cls(**found)

    def as_json(self) -> dict[str, int | str | None]:
        cost = self.max_monthly_cost
        return {
            "max_agents": self.max_agents,
            "max_refinements": self.max_refinements,
            "max_monthly_cost": None if cost is None else f"{cost:.2f}",
        }


LIMIT_NAMES = ("max_agents", "max_refinements", "max_monthly_cost")


def _parse_agents(typed: str) -> int | None:
    return _parse_count(typed, MOST_AGENTS, "agents")


def _parse_at_once(typed: str) -> int | None:
    return _parse_count(typed, MOST_AT_ONCE, "refinements at once")


def _parse_count(typed: str, most: int, what: str) -> int | None:
    if not typed:
        return None
    if not (typed.isascii() and typed.isdigit() and len(typed) <= 12 and int(typed) <= most):
        raise Invalid(f"The number of {what} must be a whole number from 0 to {most:,}, or empty for no limit.")
    return int(typed)


def _parse_dollars(typed: str) -> Decimal | None:
    """Plain digits with at most two behind the point: neither a sign nor an exponent."""
    if not typed:
        return None
    plain = typed.isascii() and typed.replace(".", "", 1).isdigit() and len(typed) <= 12
    try:
        dollars = Decimal(typed if plain else "")
    except InvalidOperation:
        dollars = Decimal(-1)
    if not 0 <= dollars <= MOST_DOLLARS or dollars != round(dollars, 2):
        raise Invalid(
            f"The model cost a month must be a number of US dollars from 0 to {MOST_DOLLARS:,}, with at most two "
            "digits after the point, or empty for no limit."
        )
    return dollars.quantize(Decimal("0.01"))


_PARSERS = {"max_agents": _parse_agents, "max_refinements": _parse_at_once, "max_monthly_cost": _parse_dollars}
