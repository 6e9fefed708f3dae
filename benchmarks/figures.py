"""What a row of the table has measured: a value, what stands beside it, and the limit that it has to keep."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """Of one figure, and of a whole row."""

    MET = "met"
    MISSED = "missed"
    SHOWN = "shown"
    """There is no limit: it is told for comparison."""

    NOT_MEASURED = "not measured"
    FAILED = "failed"


@dataclass(frozen=True)
class Figure:
    """`base` is what stands beside `value`, in the same unit, and `beside` says what that is.

    The limits are of the value itself, or of its ratio to the base. `reason`: why there is no value.
    """

    what: str
    value: float | None = None
    unit: str = ""
    beside: str = ""
    base: float | None = None
    most: float | None = None
    least: float | None = None
    most_ratio: float | None = None
    least_ratio: float | None = None
    reason: str = ""

    @property
    def ratio(self) -> float | None:
        return self.value / self.base if self.base and self.value is not None else None

    @property
    def verdict(self) -> Verdict:
        if self.value is None:
            return Verdict.NOT_MEASURED
        limits = [
            *((self.value, self.least, self.most),),
            *(((self.ratio, self.least_ratio, self.most_ratio),) if self.ratio is not None else ()),
        ]
        if all(least is None and most is None for _, least, most in limits):
            return Verdict.SHOWN
        held = all(
            (least is None or found >= least) and (most is None or found <= most) for found, least, most in limits
        )
        return Verdict.MET if held else Verdict.MISSED

    @property
    def limit(self) -> str:
        bounds = (
            ("≤", self.most, ""),
            ("≥", self.least, ""),
            ("≤", self.most_ratio, " ×"),
            ("≥", self.least_ratio, " ×"),
        )
        return ", ".join(
            f"{sign} {plain(limit)}{unit or self._unit}" for sign, limit, unit in bounds if limit is not None
        )

    @property
    def measured(self) -> str:
        if self.value is None:
            return self.reason
        beside = f" beside {plain(self.base)} of {self.beside}" if self.base is not None else ""
        return f"{plain(self.value)}{self._unit}{beside}"

    @property
    def _unit(self) -> str:
        return f" {self.unit}" if self.unit else ""

    def as_json(self) -> dict[str, Any]:
        kept = {key: _rounded(value) for key, value in asdict(self).items() if value not in (None, "")}
        ratio = {} if self.ratio is None else {"ratio": round(self.ratio, 4)}
        return kept | ratio | {"verdict": str(self.verdict)}

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Figure:
        return cls(**{key: value for key, value in given.items() if key not in ("ratio", "verdict")})


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def plain(value: float | None) -> str:
    """Three digits that count, with no exponent."""
    if value is None:
        return "–"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def print_figures(figures: Iterable[Figure], *, as_json: bool) -> None:
    """For people a line each; for the table one line of JSON, which `read_printed` finds again."""
    if as_json:
        print(json.dumps({"figures": [figure.as_json() for figure in figures]}))
        return
    for figure in figures:
        ratio = "" if figure.ratio is None else f", ratio {figure.ratio:.2f}"
        limit = f" ({figure.limit}: {figure.verdict})" if figure.limit else ""
        print(f"{figure.what}: {figure.measured}{ratio}{limit}", flush=True)


def read_printed(said: str) -> list[Figure]:
    """Raises ValueError where the benchmark printed no figures."""
    for line in reversed(said.splitlines()):
        if line.startswith('{"figures": '):
            return [Figure.from_json(each) for each in json.loads(line)["figures"]]
    raise ValueError("it printed no figures")
