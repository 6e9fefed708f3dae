"""On paper: how many agents an installation can look after each week, and what that takes, from measured unit costs.

`python -m benchmarks.capacity [--costs FILE] [--agents N ...] [--hours H]`. FILE holds a line of
`python -m benchmarks.unit_costs`; without it they are measured now (on PostgreSQL: `WHETSTONE_TEST_DATABASE_URL`).
Nothing here is a measurement of so many agents: it multiplies. What it takes for granted stands in `Assumptions`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks.unit_costs import UnitCosts, measure

WEEKS_A_YEAR = 52
SECONDS_AN_HOUR = 3600


@dataclass(frozen=True)
class Assumptions:
    """What the arithmetic takes for granted. Prices are examples in euros: put your provider's in their place."""

    model_calls: int = 5
    """A refinement's: consent, three changes, the end."""
    seconds_a_call: float = 4.0
    litellm_cpu_ms: float = 2.5
    """Of one call, as `benchmarks.refinement_steps` tells it, and some for first ones."""
    tokens_in: int = 30_000
    """Of all calls of a refinement: a ledger of 5,000 tokens that is sent with each, and what grew since."""
    tokens_out: int = 600
    in_flight_a_process: int = 250
    busy: float = 0.6
    """Of a core, so that a queue stays short."""
    euros_a_core: float = 12.0
    """A month, with 4 GB of memory."""
    euros_a_gigabyte: float = 0.08
    """A month, on a fast disk."""
    euros_a_million_in: float = 0.15
    euros_a_million_out: float = 0.60


@dataclass(frozen=True)
class Need:
    """What a fleet takes. Rates are a second of the hours in which it is refined. Where workers and database are one
    process, what only a server has is None.
    """

    agents: int
    refinements_a_second: float
    in_flight: int
    worker_processes: int
    worker_cores: float
    server_cores: float | None
    busy_connections: float
    wal_megabytes_a_second: float | None
    gigabytes_a_year: float
    log_lock: float | None
    """Share of the time in which somebody holds the log's lock: at 1 nothing more can be appended."""
    agents_of_one_account: int | None
    """At most, before the account's own lock is held more than half of the time."""
    euros_a_month: float
    """Machines and disk of the first year."""
    euros_of_models_a_month: float


def reckon(agents: int, hours: float, costs: UnitCosts, given: Assumptions | None = None) -> Need:
    """What `agents` take that are each refined once a week, within `hours` hours of it."""
    given = given or Assumptions()
    rate = agents / (hours * SECONDS_AN_HOUR)
    own_seconds = (costs.own_cpu_ms + given.model_calls * given.litellm_cpu_ms) / 1000
    server_seconds = (costs.server_cpu_ms or 0) / 1000
    held = costs.account_lock_ms
    in_flight = _rounded_up(rate * (given.model_calls * given.seconds_a_call + own_seconds))
    worker_cores, server_cores = rate * own_seconds / given.busy, rate * server_seconds / given.busy
    gigabytes = agents * WEEKS_A_YEAR * costs.kept_bytes / 1e9
    cores = max(1, _rounded_up(worker_cores)) + max(1, _rounded_up(server_cores))
    tokens = given.tokens_in * given.euros_a_million_in + given.tokens_out * given.euros_a_million_out
    return Need(
        agents=agents,
        refinements_a_second=rate,
        in_flight=in_flight,
        worker_processes=max(1, _rounded_up(worker_cores), _rounded_up(in_flight / given.in_flight_a_process)),
        worker_cores=worker_cores,
        server_cores=_times(server_cores, costs.server_cpu_ms and 1),
        busy_connections=rate * (own_seconds + server_seconds),
        wal_megabytes_a_second=_times(rate / 1e6, costs.wal_bytes),
        gigabytes_a_year=gigabytes,
        log_lock=_times(rate / 1000, costs.log_lock_ms),
        agents_of_one_account=None if not held else int(0.5 * hours * SECONDS_AN_HOUR * 1000 / held),
        euros_a_month=cores * given.euros_a_core + gigabytes * given.euros_a_gigabyte,
        euros_of_models_a_month=agents * WEEKS_A_YEAR / 12 * tokens / 1e6,
    )


def _times(factor: float, cost: float | None) -> float | None:
    return None if cost is None else factor * cost


def _rounded_up(need: float) -> int:
    """A sum that is whole but for the last bit of a float is whole."""
    return math.ceil(round(need, 6))


def find_limit(cores: int, hours: float, costs: UnitCosts, given: Assumptions | None = None) -> int:
    """How many agents one machine refines within `hours` hours, where workers and database share its cores."""
    given = given or Assumptions()
    spent = costs.own_cpu_ms + given.model_calls * given.litellm_cpu_ms + (costs.server_cpu_ms or 0)
    return int(cores * given.busy * hours * SECONDS_AN_HOUR * 1000 / spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--costs", type=Path)
    parser.add_argument("--agents", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--hours", type=float, nargs="+", default=[8, 168])
    options = parser.parse_args()
    costs = _read_costs(options.costs) if options.costs else measure(100, [3])[0]
    print(json.dumps(costs.__dict__))
    for hours in options.hours:
        print(f"\nall within {hours:g} hours of a week; one machine of 2 cores: {find_limit(2, hours, costs):,} agents")
        _print_table([reckon(agents, hours, costs) for agents in options.agents])


def _read_costs(file: Path) -> UnitCosts:
    """The last line of it."""
    return UnitCosts(**json.loads(file.read_text(encoding="utf-8").splitlines()[-1]))


def _print_table(needs: Sequence[Need]) -> None:
    for field in fields(Need):
        values = (getattr(need, field.name) for need in needs)
        print(f"{field.name.replace('_', ' '):<28}" + "".join(f"{_written(value):>14}" for value in values))


def _written(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if isinstance(value, int) or value >= 100 else f"{value:,.2f}"


if __name__ == "__main__":
    main()
