"""What a fleet takes, on paper: the arithmetic of `benchmarks.capacity`, with costs that are easy to multiply."""

from __future__ import annotations

import pytest

from benchmarks.capacity import Assumptions, find_limit, reckon
from benchmarks.unit_costs import UnitCosts

COSTS = UnitCosts(
    database="postgresql",
    changes=3,
    own_cpu_ms=70,
    server_cpu_ms=50,
    statements=100,
    transactions=10,
    wal_bytes=40_000,
    kept_bytes=25_000,
    log_lock_ms=5,
    account_lock_ms=20,
)
GIVEN = Assumptions(model_calls=5, seconds_a_call=4, litellm_cpu_ms=6, busy=0.5, in_flight_a_process=250)
OF_A_SERVER = ("server_cpu_ms", "wal_bytes", "log_lock_ms", "account_lock_ms")
A_SECOND = 36_000
"""Agents that make one refinement a second over ten hours."""


def test_what_waits_for_a_model_decides_how_many_processes_there_are() -> None:
    need = reckon(100 * A_SECOND, 10, COSTS, GIVEN)

    assert need.refinements_a_second == pytest.approx(100)
    assert need.in_flight == 2010  # 20 s of waiting and 0.1 s of work each
    assert need.worker_cores == pytest.approx(20)
    assert need.worker_processes == 20
    assert reckon(100 * A_SECOND, 10, COSTS, Assumptions(busy=1, in_flight_a_process=100)).worker_processes == 21


def test_the_server_its_log_and_its_disk() -> None:
    need = reckon(10 * A_SECOND, 10, COSTS, GIVEN)

    assert need.server_cores == pytest.approx(1)
    assert need.wal_megabytes_a_second == pytest.approx(0.4)
    assert need.log_lock == pytest.approx(0.05)
    assert need.agents_of_one_account == 25 * A_SECOND  # half of the time, 20 ms each
    assert need.gigabytes_a_year == pytest.approx(360_000 * 52 * 25_000 / 1e9)


def test_the_same_agents_spread_over_the_week_take_fewer_machines_and_as_many_bytes() -> None:
    night, week = (reckon(1_000_000, hours, COSTS, GIVEN) for hours in (8, 168))

    assert week.worker_processes < night.worker_processes
    assert week.gigabytes_a_year == night.gigabytes_a_year
    assert week.euros_of_models_a_month == night.euros_of_models_a_month


def test_one_machine_ends_where_its_cores_do() -> None:
    assert find_limit(2, 10, COSTS, GIVEN) == 240_000  # 150 ms each, two cores half busy


def test_sqlite_has_no_server_to_count() -> None:
    alone = UnitCosts(**COSTS.__dict__ | dict.fromkeys(OF_A_SERVER))

    need = reckon(A_SECOND, 10, alone, GIVEN)

    assert (need.server_cores, need.wal_megabytes_a_second, need.log_lock, need.agents_of_one_account) == (None,) * 4
    assert need.worker_cores == pytest.approx(0.2)
