"""The chart above the list of refinements: outcomes, model tokens and cost a day, and the same numbers as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from app.models import Status
from app.refinement.daily_figures import DailyFigures, DayFigures
from app.values.mass_story import percent
from app.values.plural import count_nouns

LAYERS: Sequence[tuple[str, str, tuple[Status, ...]]] = (
    ("completed", "ok", (Status.COMPLETED,)),
    ("declined", "ask", (Status.DECLINED,)),
    ("stopped or unfinished", "neutral", (Status.STOPPED, Status.UNFINISHED)),
    ("rolled back", "warn", (Status.ROLLED_BACK,)),
    ("failed or interrupted", "bad", (Status.FAILED, Status.INTERRUPTED)),
)
"""From the bottom to the top: what it is called, its tone, and the outcomes that it counts."""

Number = float | int


@dataclass(frozen=True)
class Layer:
    """Bars of one tone: (place, bottom, height), both in whole percent of the chart's height, none below 1."""

    tone: str
    bars: Sequence[tuple[int, int, int]]


@dataclass(frozen=True)
class DayBars:
    """One chart of bars, one a day. `words` say for the ear what it shows; `top` and `half` stand at its axis."""

    title: str
    words: str
    top: str
    half: str
    layers: Sequence[Layer]
    legend: Sequence[tuple[str, str]] = ()


class FleetChart:
    """Three charts over the same days, and their table."""

    def __init__(self, figures: DailyFigures) -> None:
        self.figures = figures
        self.first, self.last = (day_words(figures.days[place].day) for place in (0, -1))

    @property
    def line(self) -> str:
        """`312 refinements, 94% completed`."""
        figures = self.figures
        if not figures.refinements:
            return "no refinement has ended"
        share = percent(figures.completed / figures.refinements)
        return f"{count_nouns(figures.refinements, 'refinement')}, {share} completed"

    @property
    def charts(self) -> list[DayBars]:
        tokens, cost = f"{self.figures.model_tokens:,} in all", f"{dollars(self.figures.cost_usd)} in all"
        return [
            self._outcomes(),
            self._plain("Model tokens a day", tokens, lambda day: day.model_tokens, "{:,.0f}".format),
            self._plain("Cost a day", cost, lambda day: float(day.cost_usd), dollars),
        ]

    @property
    def rows(self) -> list[tuple[DayFigures, list[int], str]]:
        """Of the table, the newest day first: its figures, how many of each layer, and what it cost."""
        return [(day, _layer_counts(day), dollars(day.cost_usd)) for day in reversed(self.figures.busy_days)]

    @property
    def headings(self) -> list[str]:
        return [word.capitalize() for word, *_ in LAYERS]

    def _outcomes(self) -> DayBars:
        counts = [_layer_counts(day) for day in self.figures.days]
        top = _round_up(max(map(sum, counts)), whole=True)
        layers = [Layer(tone, _stack(counts, number, top)) for number, (_, tone, _) in enumerate(LAYERS)]
        totals = [sum(each[number] for each in counts) for number in range(len(LAYERS))]
        told = ", ".join(f"{total:,} {word}" for (word, *_), total in zip(LAYERS, totals, strict=True) if total)
        legend = [(tone, word) for (word, tone, _), total in zip(LAYERS, totals, strict=True) if total]
        words = self._words("Outcomes a day", told)
        half = f"{top / 2:,.0f}" if top % 2 == 0 else ""
        return DayBars("Outcomes a day", words, f"{top:,.0f}", half, [each for each in layers if each.bars], legend)

    def _plain(
        self, title: str, told: str, number_of: Callable[[DayFigures], Number], words: Callable[[Any], str]
    ) -> DayBars:
        numbers = [[number_of(day)] for day in self.figures.days]
        top = _round_up(max(each[0] for each in numbers))
        layer = Layer("info", _stack(numbers, 0, top))
        return DayBars(title, self._words(title, told), words(top), words(top / 2), [layer])

    def _words(self, title: str, told: str) -> str:
        return f"{title}, {self.first} to {self.last}: {told}. The table below has the numbers."


def day_words(day: date) -> str:
    return f"{day.day} {day:%b}"


def dollars(amount: Any) -> str:
    """With cents; what is smaller than ten cents with four places, so that it is not nothing."""
    return f"${amount:,.4f}" if 0 < amount < 0.1 else f"${amount:,.2f}"


def _layer_counts(day: DayFigures) -> list[int]:
    return [sum(day.outcomes[status] for status in statuses) for *_, statuses in LAYERS]


def _stack(counts: Sequence[Sequence[Number]], layer: int, top: Number) -> list[tuple[int, int, int]]:
    return [
        (place, sum(_height(below, top) for below in each[:layer]), _height(each[layer], top))
        for place, each in enumerate(counts)
        if each[layer]
    ]


def _height(count: Number, top: Number) -> int:
    """A pixel or so for whatever is not nothing; whole numbers keep the page small."""
    return max(round(count * 100 / top), 1) if count else 0


def _round_up(highest: Number, *, whole: bool = False) -> Number:
    """The next number of one digit, or one and a half, times a power of ten: an axis can be read then."""
    if highest <= 0:
        return 1
    power = 10.0 ** (len(str(int(highest))) - 1) if highest >= 1 else 1.0
    while not whole and power >= highest:
        power /= 10
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= highest)
