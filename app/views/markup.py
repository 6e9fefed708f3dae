"""Small pieces that stand many times on a page: chips, times, bars. In Python, because fifty rows call them hundreds of
times, and a macro of a template costs as much as a row does here. Templates know each by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

from markupsafe import Markup, escape

from app.values.mass_story import exact_percent, percent
from app.views.icons import icon
from app.vocabulary import STATUSES
from app.vocabulary.term import Term

NOTHING = Markup("")
_SELECTED = Markup(" selected")
_NONE = Markup('<span class="muted">–</span>')
_READY = frozenset({Markup, int, float})
_SPECIAL = re.compile("[&<>\"']")


def fill(form: str, *values: object) -> Markup:
    """A form, which is a constant of ours, with its places (`{}`) filled: what is neither markup nor a number is
    escaped."""
    filled = form.format(*[each if type(each) in _READY else _escaped(each) for each in values])
    return str.__new__(Markup, filled)  # as `Markup(filled)`, which first asks whether it is markup already


def fill_each(form: str, rows: Iterable[Sequence[object]]) -> Markup:
    """The form filled for each row of values, one behind the other."""
    filled = [form.format(*[each if type(each) in _READY else _escaped(each) for each in row]) for row in rows]
    return str.__new__(Markup, "".join(filled))


def _escaped(value: object) -> str:
    """Most of what is filled in needs none of it, and to see that is cheaper."""
    text = value if type(value) is str else str(value)
    return escape(text) if _SPECIAL.search(text) else text


def chip(status: str, table: Mapping[str, Term] = STATUSES) -> Markup:
    """How something stands, as icon and word: `status` is the stored word, such as `rolled_back`."""
    return _chip(str(status), table[status])


@cache
def _chip(status: str, term: Term) -> Markup:
    form = '<span class="chip tone-{}" data-status="{}" title="{}">{}<span>{}</span></span>'
    return fill(form, term.tone, status, term.meaning, icon(term.icon), term.words)


def tag(word: str, icon_name: str = "", tone: str = "neutral", title: str = "") -> Markup:
    """Any other small label, in one of the tones neutral info ask ok warn broken bad."""
    drawn, hint = icon(icon_name) if icon_name else NOTHING, fill(' title="{}"', title) if title else NOTHING
    return fill('<span class="chip tone-{}"{}>{}<span>{}</span></span>', tone, hint, drawn, word)


_UNDONE = tag("undone", "history", "neutral", "Its work was taken back since; that can be undone too")


def outcome(refinement: Any) -> Markup:
    """How a refinement ended, and whether the Time Machine took its work back since."""
    ended = chip(refinement.status)
    return fill("{} {}", ended, _UNDONE) if refinement.undone_by else ended


def ago(at: datetime | None, text: str, missing: str = "never") -> Markup:
    """Relative words (`3 min ago`) over the exact time, in UTC; static/app.js keeps them fresh."""
    if at is None:
        return fill('<span class="muted">{}</span>', missing)
    return fill("<time {} data-ago>{}</time>", _moment(at), text)


def when(at: datetime | None, missing: str = "–", seconds: bool = False) -> Markup:
    """The exact time in UTC; static/app.js shows it in the reader's own zone."""
    if at is None:
        return fill('<span class="muted">{}</span>', missing)
    form, kind = ("%Y-%m-%d %H:%M:%S", "seconds") if seconds else ("%Y-%m-%d %H:%M", "minutes")
    zoned = '<time {} data-at="{}">{} <span class="zone">UTC</span></time>'
    return fill(zoned, _moment(at), kind, at.strftime(form))


def hour(at: datetime) -> Markup:
    """The time of a day near today."""
    return fill('<time {} data-at="hour">{} <span class="zone">UTC</span></time>', _moment(at), at.strftime("%H:%M"))


def clock(at: datetime) -> Markup:
    """The time alone, in a list under the heading of its day in UTC."""
    stamp = _stamp(at)
    date_, time_ = stamp[:10], stamp[11:]
    return fill('<time datetime="{}Z" title="{} {} UTC" data-at="clock">{}</time>', stamp, date_, time_, time_)


def day(at: date) -> Markup:
    """The date that a memory speaks from."""
    text = at.isoformat()[:10]
    return fill('<time datetime="{}">{}</time>', text, text)


def _moment(at: datetime) -> Markup:
    """Digits only: nothing to escape."""
    stamp = _stamp(at)
    return Markup(f'datetime="{stamp}Z" title="{stamp[:10]} {stamp[11:]} UTC"')  # noqa: S704


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="seconds")[:19]


_BUDGET = (
    '<span class="budget budget-{}">'
    '<svg class="bar" role="img" aria-label="{}: {:,} of {:,} tokens{}">'
    '<rect class="bar-track"/>'
    '<rect class="bar-fill" width="{:.2f}%"/>'
    '<rect class="bar-limit"/>'
    "</svg>"
    '<span class="budget-text" aria-hidden="true"><b>{:,}</b> of {:,} tokens{}</span>'
    "</span>"
)


def budget_bar(used: int, budget: int, label: str = "Core memory") -> Markup:
    """Tokens used of the budget, on one scale for all agents: the bar is as wide as three budgets, with a line where
    one ends; what is larger still fills it."""
    spoken = written = NOTHING
    if used > budget:
        times = used / max(budget, 1)
        spoken, written = fill(", {:.1f}× its budget", times), fill(" · <strong>{:.1f}×</strong>", times)
    tone = "bad" if used > budget else "warn" if used and used * 10 >= budget * 9 else "ok"
    width = min(used * 100 / max(budget * 3, 1), 100)
    return fill(_BUDGET, tone, label, used, budget, spoken, width, used, budget, written)


_RETENTION = (
    '<span class="budget budget-{} budget-inline">'
    '<svg class="bar" role="img" aria-label="Retention {}{}, limit {}">'
    '<rect class="bar-track"/>'
    '<rect class="bar-fill" width="{}%"/>'
    '<rect class="bar-limit" x="{}%"/>'
    "</svg>"
    '<span class="budget-text" aria-hidden="true">{}</span>'
    "</span>"
)


def retention_bar(retention: Decimal | None, threshold: Decimal, state: str = "") -> Markup:
    """Kept mass ÷ mass at the start, and the limit, for a table's cell; `reversed` is grey: it was taken back."""
    if retention is None:
        return _NONE
    is_reversed = state == "reversed"
    tone = "reversed" if is_reversed else "bad" if retention < threshold else "ok"
    kept, said = percent(retention, threshold), ", reversed" if is_reversed else ""
    filled, limit = f"{min(max(retention, Decimal(0)), Decimal(1)) * 100:.2f}", f"{threshold * 100:.2f}"
    return fill(_RETENTION, tone, kept, said, exact_percent(threshold), filled, limit, kept)


_SPARKLINE = (
    '<svg class="spark" viewBox="-2 -2 100 28" role="img" aria-label="{}">'
    '<path class="chart-line" d="{}"/>'
    '<circle class="chart-end" cx="96" cy="{:.1f}" r="2"/>'
    "</svg>"
)


def sparkline(points: Sequence[tuple[int, int]], label: str) -> Markup:
    """A line of 96 × 24 without axes; the points are oldest first, `label` says in words what it shows."""
    if len(points) < 2:
        return _NONE
    (first, _), (last, end) = points[0], points[-1]
    least, most = min(y for _, y in points), max(y for _, y in points)
    across, up = 96 / ((last - first) or 1), 24 / ((most - least) or 1)
    line = "L".join([f"{(x - first) * across:.1f} {24 - (y - least) * up:.1f}" for x, y in points])
    return fill(_SPARKLINE, label, f"M{line}", 24 - (end - least) * up)


def select_options(options: Sequence[tuple[object, str]], value: object) -> Markup:
    """The options of a select, of which the one of that value is selected."""
    wanted = str(value)
    chosen = ((choice, _SELECTED if str(choice) == wanted else NOTHING, text) for choice, text in options)
    return fill_each('\n    <option value="{}"{}>{}</option>', chosen)


def suggestions(values: Sequence[str]) -> Markup:
    """The options of a datalist."""
    return fill_each('<option value="{}"></option>', ((value,) for value in values))


_NAMED = (
    *(icon, chip, tag, outcome, ago, when, hour, clock, day, budget_bar, retention_bar, sparkline),
    *(select_options, suggestions),
)
FOR_JINJA: Mapping[str, Any] = {each.__name__: each for each in _NAMED}
"""What every template knows by name."""
