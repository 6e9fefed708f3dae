"""The figures in what a benchmark printed for people, where it prints none of its own as JSON.

A reader takes what was printed and the database ("sqlite" or "postgresql"). Raises ValueError where it finds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.figures import Figure, read_printed

Reader = Callable[[str, str], list[Figure]]

NUMBER = r"([\d,]+(?:\.\d+)?)"


def printed(said: str, database: str) -> list[Figure]:
    """Of benchmarks that know `--json`."""
    return read_printed(said)


def limits(**of_database: float) -> Mapping[str, float]:
    return of_database


def pattern(what: str, expression: str, **fields: Any) -> Reader:
    """One figure for each place where the expression is found.

    `#` in it stands for a number: the first is the value, a second what stands beside it. Words of a group named
    `name` go to the figure's. A limit that depends on the database is a mapping by its name.
    """
    found_by = re.compile(expression.replace("#", NUMBER), re.MULTILINE)

    def read(said: str, database: str) -> list[Figure]:
        chosen = {key: value[database] if isinstance(value, Mapping) else value for key, value in fields.items()}
        figures = [_figure(what, found, chosen) for found in found_by.finditer(said)]
        if not figures:
            raise ValueError(f"no “{what}” in what it printed")
        return figures

    return read


def _figure(what: str, found: re.Match[str], fields: Mapping[str, Any]) -> Figure:
    names, named = found.groupdict(), found.re.groupindex.values()
    numbers = [float(each.replace(",", "")) for place, each in enumerate(found.groups(), 1) if place not in named]
    base = {"base": numbers[1]} if len(numbers) > 1 else {}
    return Figure(what.format(**names), numbers[0], **base, **fields)


def several(*readers: Reader) -> Reader:
    """All of their figures."""

    def read(said: str, database: str) -> list[Figure]:
        return [figure for reader in readers for figure in reader(said, database)]

    return read


guarded_change = several(
    pattern(
        "{name} memories, SQL by hand beside it", r"^ *(?P<name>[\d,]+) memories: guarded +# ms, by hand +# ms",
        unit="ms", beside="SQL by hand", most_ratio=limits(sqlite=5, postgresql=2),
    ),
    pattern("10,000 memories over 100", r"10,000 over 100 memories, guarded: ratio #", unit="×", most=1.2),
)  # fmt: skip
undo = pattern(
    "undo of 500, set-based SQL beside it", r"undo # ms, by hand # ms", unit="ms", beside="SQL by hand", most_ratio=2
)
audit_page = several(
    pattern(
        "page {name} deep, the first one beside it", r"^folded, (?P<name>\d+%) deep +# +#", unit="ms",
        beside="the first page", most_ratio=1.5,
    ),
)  # fmt: skip
agents_door = several(
    pattern("errors at the wanted rate", r"for \d+ s; # errors", most=0),
    pattern("{name}, p95", r"^(?P<name>save|context) +p50 \S+ ms, p95 # ms", unit="ms", most=100),
    pattern("processor time a request", r"web process +# ms of processor", unit="ms", most=3),
)
in_flight = several(
    pattern("wall time over the ideal", r"wall \S+ s, # x the ideal", unit="×", most=1.5),
    pattern("peak memory", r"peak memory # MB", unit="MB", most=600),
    pattern("an exception's page meanwhile", r"exception's page: median # ms", unit="ms", most=100),
)


def refinement_time(said: str, database: str) -> list[Figure]:
    """The worker's processor time over the number of refinements, what a first call loads included."""
    found = re.search(rf"{NUMBER} refinements.*CPU {NUMBER} s", said)
    if found is None:
        raise ValueError("no processor time in what it printed")
    return [Figure("the worker's processor time, 200 at once", 1000 * float(found[2]) / float(found[1]), "ms", most=30)]


event_stream = several(
    pattern("an event to the last page, median", r"median # ms", unit="ms", most=100),
    pattern("another page meanwhile, idle beside it", r"ratio # \(2\)", unit="×", most=1.5),
)
first_page = several(
    pattern("{name}, bytes", r"^(?P<name>first, \S+) +#", unit="bytes", most=60_000),
    pattern("{name}, requests", r"^(?P<name>first, \S+) +[\d,]+ +#", most=5),
    pattern("{name}, bytes", r"^(?P<name>later, \S+) +#", unit="bytes", most=15_000),
    pattern("{name}, asked again", r"^(?P<name>later, \S+) +[\d,]+ +\d+ +\d+ +#", most=0),
)
kill_storm = several(
    pattern("kills", r"^kills +#"), pattern("open after the last sign of life", r"longest # s", unit="s", most=120)
)
slow_requests = pattern("{name} beside them, idle beside it", r"^(?P<name>/\S*(?: \(attacker\))?) .*ratio # \(2\)",
                        unit="×", most=2)  # fmt: skip
hostile_models = pattern("attacks held, all beside it", r"^held: # of #", beside="attacks", least_ratio=1)
meaning = several(
    pattern("specifics: planted losses asked about", r"\| specifics \(this one\) \| # %", unit="%", least=96),
    pattern("specifics: harmless changes asked about", r"\| specifics \(this one\) \| \S+ % \| # %", unit="%", most=10),
    pattern("mass ratio: planted losses asked about", r"\| mass ratio \| # %", unit="%"),
    pattern("token overlap: planted losses asked about", r"\| token overlap \| # %", unit="%"),
    pattern("a check of usual texts", r"a check takes # ms", unit="ms", most=1),
)
