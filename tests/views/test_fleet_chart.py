"""The chart above the list of refinements: what it draws, says and tells programs."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from html import unescape
from types import SimpleNamespace

import pytest
from flask import Flask, render_template

from app.extensions import db, writing
from app.models import Agent, Status, User
from app.refinement.daily_figures import DAYS, DailyFigures, DayFigures
from app.views.shown.fleet_chart import FleetChart, _round_up, dollars
from tests.support.clock import FakeClock
from tests.support.factories import make_agent
from tests.views.conftest import Browser
from tests.views.test_refinement_list import agent_named, listed, run

TODAY = date(2026, 11, 16)


def chart(**days: DayFigures) -> FleetChart:
    """`d3` is three days ago."""
    found = [DayFigures(TODAY - timedelta(days=back)) for back in reversed(range(DAYS))]
    for name, figures in days.items():
        found[-1 - int(name[1:])] = figures
    return FleetChart(DailyFigures("UTC", found))


def day(tokens: int = 0, cost: str = "0", **outcomes: int) -> DayFigures:
    return DayFigures(TODAY, Counter({Status(name): count for name, count in outcomes.items()}), tokens, Decimal(cost))


def test_outcomes_stand_one_upon_the_other_and_fill_the_scale(app: Flask) -> None:
    outcomes, tokens, cost = chart(
        d0=day(completed=6, failed=3, interrupted=1), d2=day(1500, "0.5", completed=5)
    ).charts

    assert (outcomes.top, outcomes.half) == ("10", "5")
    assert [(layer.tone, layer.bars) for layer in outcomes.layers] == [
        ("ok", [(87, 0, 50), (89, 0, 60)]),
        ("bad", [(89, 60, 40)]),
    ]
    assert outcomes.legend == [("ok", "completed"), ("bad", "failed or interrupted")]
    assert (tokens.top, tokens.layers[0].bars) == ("1,500", [(87, 0, 100)])
    assert (cost.top, cost.half, cost.layers[0].bars) == ("$0.50", "$0.25", [(87, 0, 100)])


def test_one_failure_among_thousands_is_seen(app: Flask) -> None:
    assert chart(d0=day(completed=4000, failed=1)).charts[0].layers[1].bars == [(89, 80, 1)]


def test_ninety_busy_days_stay_small_on_the_wire(web: Flask) -> None:
    dice = random.Random(7)
    ends = ("completed", "declined", "stopped", "rolled_back", "failed")
    days = {
        f"d{back}": day(dice.randrange(10**8), f"{dice.random() * 99:.2f}", **{end: dice.randrange(99) for end in ends})
        for back in range(DAYS)
    }
    with web.test_request_context():
        drawn = render_template("refinements/_fleet.html", page=SimpleNamespace(chart=chart(**days), chart_agent=""))

    assert drawn.count("<tr>") == DAYS + 1
    assert len(gzip.compress(drawn.encode())) < 6_000


def test_it_says_in_words_what_it_draws(app: Flask) -> None:
    shown = chart(d0=day(completed=6, failed=2), d1=day(1500, "0.0125", declined=1))

    assert shown.line == "9 refinements, 66.7% completed"
    assert shown.charts[0].words.startswith("Outcomes a day, 19 Aug to 16 Nov: 6 completed, 1 declined, 2 failed or")
    assert [(counts, cost) for _, counts, cost in shown.rows] == [
        ([6, 0, 0, 0, 2], "$0.00"),
        ([0, 1, 0, 0, 0], "$0.0125"),
    ]


@pytest.mark.parametrize(
    ("highest", "top"),
    [(0, 1), (1, 1), (3, 3), (7, 8), (10, 10), (11, 15), (4999, 5000), (0.03, 0.03), (0.5, 0.5), (0.61, 0.8)],
)
def test_an_axis_ends_at_a_round_number(highest: float, top: float) -> None:
    assert _round_up(highest) == pytest.approx(top)


def test_small_amounts_are_not_nothing() -> None:
    assert [dollars(amount) for amount in (0, 0.0004, 0.1, 1234.5)] == ["$0.00", "$0.0004", "$0.10", "$1,234.50"]


def test_the_page_draws_it_and_has_the_same_numbers_as_table_and_json(auditor: Browser, app: Flask) -> None:
    run(agent_named("ezra"), Status.FAILED, prompt_tokens=900, cost_usd=Decimal("0.5"))
    run(agent_named("mina"), Status.COMPLETED)
    page = unescape(auditor.get("/refinements").text)

    (today,) = listed(auditor)["daily"]["days"]
    assert (today["outcomes"], today["model_tokens"]) == ({"completed": 1, "failed": 1}, 900)
    assert page.count('<svg class="chart-days"') == 3
    assert "2 refinements, 50% completed" in page
    table = page.split('id="fleet-table"')[1]
    assert f'<th scope="row" class="nowrap">{today["day"]}</th><td class="num">1</td>' in table
    assert '<td class="num">900</td><td class="num">$0.50</td>' in table
    assert "style=" not in page.split('id="fleet"')[1].split("</section>")[0]


def test_it_is_of_the_agent_that_the_list_is_filtered_by(auditor: Browser, app: Flask) -> None:
    run(agent_named("ezra"), Status.FAILED)
    run(agent_named("mina"), Status.COMPLETED)

    assert listed(auditor, "agent=mina")["daily"]["days"][0]["outcomes"] == {"completed": 1}
    assert "Last 90 days of mina" in auditor.get("/refinements?agent=mina").text
    assert listed(auditor, "status=declined")["daily"]["days"][0]["outcomes"] == {"completed": 1, "failed": 1}


def test_where_nothing_ended_that_is_said_and_an_empty_account_has_no_chart(auditor: Browser, app: Flask) -> None:
    assert listed(auditor)["daily"] is None
    assert 'id="fleet"' not in auditor.get("/refinements").text
    make_agent("ezra")
    page = auditor.get("/refinements?agent=ezra").text
    assert "no refinement has ended" in page
    assert '<svg class="chart-days"' not in page


def test_days_are_those_of_the_reader_s_own_time_zone(auditor: Browser, app: Flask, clock: FakeClock) -> None:
    clock.advance(hours=17)  # 21:00 UTC
    run(agent_named("ezra"), Status.COMPLETED)
    assert auditor.user is not None
    with writing():
        db.session.get_one(User, auditor.user.id).time_zone = "Asia/Tokyo"

    daily = listed(auditor)["daily"]

    assert (daily["time_zone"], daily["days"][0]["day"], daily["to"]) == ("Asia/Tokyo", "2026-11-17", "2026-11-17")
    assert "asked for, in Asia/Tokyo" in auditor.get("/refinements").text


def test_an_agent_s_name_is_text_in_it(auditor: Browser, app: Flask) -> None:
    made: Agent = agent_named("<i>x</i>")
    run(made, Status.COMPLETED)

    assert "<i>x" not in auditor.get(f"/refinements?agent={made.id}").text
