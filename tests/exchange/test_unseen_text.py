"""Text of which nothing can be seen is blank at every door; an emoji with its variation selector is not."""

from __future__ import annotations

import json

import pytest
from flask import Flask

from app.asking.replies import MalformedReply
from app.authoring.fields import author_setting
from app.errors import Invalid
from app.exchange.formats import parse_as
from app.exchange.parsed import ImportFormat
from app.extensions import writing
from app.grants.request import WantedException
from app.keys.agent_keys import open_keys
from app.models import Agent, Memory
from app.reflection.conversation import hand_in, read_findings
from tests.exchange.files import agent_file, block, mem0, remembered, written
from tests.support.factories import begin, make_agent, remember
from tests.support.scripted import say

UNSEEN = ["\u3164", "\u2800\ufe0f", "\u034f \U000e0101", "\u115f\u1160\uffa0\u180e", "\U000e0041\U000e007f"]
pytestmark = pytest.mark.parametrize("unseen", UNSEEN)


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent()


def test_no_file_brings_it_in(app: Flask, unseen: str) -> None:
    line = json.dumps({"content": unseen}).encode()
    bundle = json.dumps({"format": "whetstone-bundle/1", "memories": [{"content": unseen}]}).encode()
    for kind, data in (
        (ImportFormat.JSON_LINES, line),
        (ImportFormat.BUNDLE, bundle),
        (ImportFormat.MEM0, written(mem0(remembered(unseen)))),
        (ImportFormat.TEXT, unseen.encode()),
    ):
        with pytest.raises(Invalid, match="blank"):
            parse_as(data, kind)
    found = parse_as(written(agent_file(block("human", unseen, 1), block("bob", "Bob.", 2))), ImportFormat.AGENT_FILE)
    assert ([each.content for each in found.drafts], found.left_out["empty"]) == (["Bob."], 1)


def test_no_agent_saves_or_writes_it(agent: Agent, unseen: str) -> None:
    with pytest.raises(Invalid, match="blank"), writing():
        locked = Agent.lock(agent.id)
        Memory.save(locked, unseen, keys=open_keys(locked), by=locked.as_actor)
    with pytest.raises(Invalid, match="blank"):
        author_setting(agent.id, "system_prompt", unseen, by=agent.as_actor)
    with pytest.raises(Invalid, match="blank"):
        hand_in(agent.id, [{"role": "user", "content": unseen}], agent.as_actor)
    with pytest.raises((Invalid, MalformedReply)):
        read_findings(say(json.dumps({"journal": [unseen], "core": []})))


def test_no_refinement_makes_it(agent: Agent, unseen: str) -> None:
    first, second = remember(agent, "Ann likes tea.", "Ann likes green tea.")
    tool = begin(agent).tool
    for action, arguments in (
        ("update", {"id": first, "content": unseen}),
        ("consolidate", {"ids": [first, second], "content": unseen}),
        ("search", {"query": unseen}),
        ("complete", {"summary": unseen}),
    ):
        assert tool.execute(action, **arguments)["type"] == "error", action


def test_it_is_no_purpose_of_a_look(unseen: str) -> None:
    with pytest.raises(Invalid, match="purpose"):
        WantedException.read({"category": "debugging", "purpose": unseen, "minutes": 15})


def test_beside_anything_that_is_seen_it_stays_as_it_is(agent: Agent, unseen: str) -> None:
    for content in (f"❤\ufe0f{unseen.strip()}", f"tea{unseen.strip()}tea", "🏴\U000e0067\U000e0062\U000e007f"):
        (draft,) = parse_as(json.dumps({"content": content}).encode(), ImportFormat.JSON_LINES).drafts
        assert draft.content == content
