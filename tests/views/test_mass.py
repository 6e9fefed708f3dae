"""An agent's mass over time: what changed it is marked, linked and said in words."""

from __future__ import annotations

import re
from html import unescape
from itertools import pairwise

import pytest
from flask import Flask

from app.extensions import db, writing
from app.models import Agent, Refinement, Status
from tests.support.clock import FakeClock
from tests.support.factories import HOME, begin, make_agent, remember
from tests.views.conftest import Browser
from tests.views.undoing import SOME, merge_and_delete, press, rollbacks, twin


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    remember(made, *SOME)
    return made


def marks(person: Browser, agent: Agent) -> list[tuple[str, str]]:
    """The marks of the chart: address and words."""
    markup = person.get(f"/agents/{agent.id}").text
    return re.findall(r'class="chart-mark" href="([^"]+)" aria-label="([^"]+)"', unescape(markup))


def test_the_chart_marks_and_links_refinements_duplicates_and_rollbacks(
    admin: Browser, auditor: Browser, agent: Agent, clock: FakeClock
) -> None:
    remember(agent, SOME[0])
    run = begin(agent, deduplicate=True)
    clock.advance(minutes=2)
    run.tool.execute("delete", id=3, carried_by=12)
    run.tool.execute("complete", summary="Done.")
    clock.advance(days=3)
    admin.post(f"/refinements/{run.refinement.id}/rollback")
    (made,) = rollbacks()

    assert marks(auditor, agent) == [
        (f"/refinements/{run.refinement.id}", "16 Nov 04:00 exact duplicates removed, undone since, 143 → 132 tokens"),
        (f"/refinements/{run.refinement.id}", "16 Nov 04:02 refinement completed, undone since, 132 → 121 tokens"),
        (f"/rollbacks/{made.id}", "19 Nov 04:02 rollback of a refinement, 121 → 143 tokens"),
    ]
    shapes = re.findall(r'class="mark mark-(\w+)', auditor.get(f"/agents/{agent.id}").text)
    assert set(shapes) == {"dedup", "refinement", "rollback"}
    assert [each["kind"] for each in twin(auditor, f"/agents/{agent.id}")["mass"]] == [
        "dedup",
        "refinement",
        "rollback",
    ]


def test_the_chart_shows_the_last_sixty_events_apart_from_one_another(
    auditor: Browser, agent: Agent, clock: FakeClock
) -> None:
    with writing():
        for number in range(70):
            clock.advance(seconds=1)
            db.session.add(ended(agent, clock, number))
    clock.advance(days=300)
    found = marks(auditor, agent)
    places = [float(x) for x in re.findall(r'<svg x="([\d.]+)%"', auditor.get(f"/agents/{agent.id}").text)]

    assert len(found) == 60
    assert found[-1][1].endswith("1,000 → 931 tokens")
    assert found[0][1].endswith("1,000 → 990 tokens")
    assert all(right - left > 1.5 for left, right in pairwise(places))
    assert 0 <= places[0] < places[-1] < 100


def ended(agent: Agent, clock: FakeClock, number: int) -> Refinement:
    return Refinement(
        id=f"00000000-0000-4000-8000-{number:012}",
        account_id=HOME,
        agent_id=agent.id,
        trigger="weekly",
        started_by="system:beat",
        mode="full",
        status=Status.COMPLETED,
        model_id="whetstone/offline",
        threshold=agent.effective_refinement_threshold,
        cap=10,
        mass_before=1_000,
        kept_mass=1_000 - number,
        mass_after=1_000 - number,
        requested_at=clock.now(),
        ended_at=clock.now(),
    )


def test_an_agent_without_refinements_has_no_chart(auditor: Browser, agent: Agent) -> None:
    assert marks(auditor, agent) == []
    assert '<section id="agent-mass" hidden>' in auditor.get(f"/agents/{agent.id}").text


def test_the_stream_brings_the_chart_after_a_rollback(web: Flask, admin: Browser, agent: Agent) -> None:
    refinement_id = merge_and_delete(agent)
    answer = press(admin, f"/refinements/{refinement_id}/rollback", on=f"/agents/{agent.id}")

    assert 'hx-target="#agent-mass"' in answer.text
    assert f'href="/rollbacks/{rollbacks()[0].id}"' in answer.text
    assert f'href="/rollbacks/{rollbacks()[0].id}"' in admin.get(f"/events/poll?topic=agent:{agent.id}").text
