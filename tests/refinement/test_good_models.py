"""Refinements as a good model makes them: near-duplicates merged, one memory tightened, one deleted with its carrier.

Where it is asked about a loss it puts the words back. That costs it one turn at most, and nothing is blocked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from app.keys.agent_keys import open_keys
from app.llm.client import Messages, Reply
from app.models import Agent, Status
from tests.refinement.driving import DONE, carry, contents
from tests.support.factories import remember
from tests.support.scripted import calls, say

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Session:
    """Memories 1 and 2 are merged, 3 and 4 too; 5 is tightened; 6 goes, because 7 says it.

    `better` are the second texts, by the place of the call that was asked about.
    """

    name: str
    memories: tuple[str, ...]
    merges: tuple[str, str]
    tightened: str
    better: Mapping[int, str]

    def calls(self) -> list[Call]:
        return [
            ("consolidate_memories", {"ids": [1, 2], "content": self.merges[0]}),
            ("consolidate_memories", {"ids": [3, 4], "content": self.merges[1]}),
            ("update_memory", {"id": 5, "content": self.tightened}),
            ("delete_memory", {"id": 6, "carried_by": 7}),
        ]


REST = (
    "On Sunday evenings we look through the week's photographs together, and she tells me the story of each.",
    "The neighbour's cat is called Miso; it sleeps on the warm bonnet of the old blue car.",
    "When the power failed in March we played chess by candlelight until two in the morning.",
    "She keeps her grandmother's letters in a tin box, and has read me three of them so far.",
)

ASSISTANT = Session(
    "an assistant's facts about people",
    (
        "Maria works as a nurse at St. Anna Hospital in Vienna.",
        "Maria is a nurse at St. Anna Hospital in Vienna, on the children's ward.",
        "Tom is allergic to peanuts and always carries an EpiPen.",
        "Tom, who is allergic to peanuts, always carries an EpiPen with him.",
        "I should probably remember that it is the case that the dentist appointment of Maria is on 14 May at 9:30.",
        "Maria's son Jonas starts school in September.",
        "Maria's son Jonas starts school in September, at the Volksschule in the Gallgasse.",
        *REST,
    ),
    (
        "Maria works as a nurse at St. Anna Hospital in Vienna, on the children's ward.",
        "Tom is allergic to peanuts and always carries an EpiPen.",
    ),
    "Maria's dentist appointment is on 14 May at 9:30.",
    {2: "Maria's dentist appointment is probably on 14 May at 9:30; I should remember it."},
)

CODING = Session(
    "a coding agent's rules",
    (
        "Never push to main directly; open a pull request.",
        "Never push directly to main: always open a pull request.",
        "Tests run with `pytest -n 4`; the database tests need PostgreSQL 15.",
        "Run tests with `pytest -n 4`. Database tests need PostgreSQL 15.",
        "It is important to note that the API key must not be logged, in any case, in production or staging.",
        "The staging server is stage.example.org.",
        "The staging server is stage.example.org, and its deploys go through `make deploy`.",
        *REST,
    ),
    (
        "Never push to main directly; always open a pull request.",
        "Tests run with `pytest -n 4`; the database tests need PostgreSQL 15.",
    ),
    "The API key must not be logged, in production or staging.",
    {2: "The API key must not be logged in any case, in production or staging."},
)

COMPANION = Session(
    "a companion's memories",
    (
        "Lena felt lost after her father's funeral, and we talked until dawn.",
        "After her father's funeral Lena felt lost, and we talked until dawn about him.",
        'Her favourite song is "Harvest Moon"; she hums it when she is nervous.',
        'Her favourite song is "Harvest Moon", and she hums it when she is nervous.',
        "It was really on the 3rd of June that Lena promised me, with a smile, that she would write every month.",
        "Lena wants to see the northern lights.",
        "Lena wants to see the northern lights, in Tromsø, before she turns 40.",
        *REST,
    ),
    (
        "Lena felt lost after her father's funeral, and we talked about him until dawn.",
        'Her favourite song is "Harvest Moon"; she hums it when she is nervous.',
    ),
    "On the 3rd of June Lena promised me with a smile to write every month.",
    {2: "On the 3rd of June Lena promised me, with a smile, that she would write every month."},
)


@pytest.mark.parametrize("session", [ASSISTANT, CODING, COMPANION], ids=lambda session: session.name)
def test_it_costs_one_turn_more_at_most_and_nothing_is_blocked(agent: Agent, session: Session) -> None:
    remember(agent, *session.memories)

    def put_back(messages: Messages) -> Reply:
        told = [json.loads(str(message["content"])) for message in messages if message["role"] == "tool"]
        asked = [place for place, answer in enumerate(told) if answer["type"] == "would_lose"]
        again = [session.calls()[place] for place in asked]
        for place, (_, arguments) in zip(asked, again, strict=True):
            arguments["content"] = session.better[place]
        return calls(*again) if again else DONE

    done = carry(agent, say("YES"), calls(*session.calls()), put_back, DONE, DONE)

    row = done.refinement
    assert (row.status, row.refused_calls) == (Status.COMPLETED, 0)
    assert (row.consolidated, row.updated, row.deleted) == (2, 1, 1)
    assert row.turns <= 3, "the calls, one extra turn, the end"
    assert row.specifics_confirmed == 0
    kept = contents(agent, open_keys(agent))
    assert len(kept) == len(session.memories) - 3
    assert session.memories[6] in kept.values()
