"""A fleet to take pictures of: four weeks of real refinements by a scripted model, on a clock that runs ahead."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal

from flask import Flask

from app.asking.calls import Dependencies
from app.errors import Refused
from app.extensions import db, now, writing
from app.llm.client import ModelError, ModelErrorKind, Usage
from app.models import COMMAND_LINE, Account, Agent, ChannelType, NoticeKind, Trigger
from app.notices.channels import create_channel
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from app.security import create_user
from tests.support.clock import FakeClock
from tests.support.factories import HOME, make_agent, remember
from tests.support.scripted import Scripted, ScriptedClient, ScriptedClients, call, say

NAMES = (
    *("Avocet", "Bittern", "Curlew", "Dunlin", "Egret", "Fieldfare", "Godwit", "Hoopoe", "Ibis", "Jackdaw", "Knot"),
    *("Linnet", "Merlin", "Nightjar", "Osprey", "Plover", "Quail", "Redstart", "Siskin", "Turnstone", "Whimbrel"),
)
LIVE = ("Wren", "Kestrel")
"""Their refinements run while the pictures are taken."""

GUARDED = "Wheatear"
"""Its model would remove too much: the latch reverses that."""

MODELS = ("openai/gpt-5", "anthropic/claude-sonnet-4-5", "openai/gpt-5-mini")
BROKEN = "anthropic/claude-sonnet-4-5"
"""Its server fails on the last day."""

LIKES = ("Ann likes tea.", "Bob likes rum.", "Cleo likes ink.")

DAYS = 28
SEED = 13
_WHO = ("The hospital kitchen", "Cafe Linden", "The school", "Mrs. Okafor", "The night shelter", "The choir", "Benno")
_WHAT = ("rye loaves", "spelt rolls", "walnut loaves", "saffron buns", "plain rolls", "small baguettes")
_WHEN = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_HOW = ("at the side door before half past six", "in two crates", "without sesame", "sliced thin", "still warm")


@dataclass(frozen=True)
class Fleet:
    """The memories that a running refinement will name, by the agent's name: pairs of one and what carries it."""

    pairs: dict[str, list[tuple[int, int]]]


def make_fleet(app: Flask, api_base: str) -> Fleet:
    """Agents of the first account and their past, up to now. `api_base` is where the live ones' model answers."""
    chance = random.Random(SEED)
    ends = now()
    clock = FakeClock(ends - timedelta(days=DAYS))
    app.extensions["clock"] = clock
    _make_people()
    agents = [make_agent(name, model_id=chance.choice(MODELS), core_token_budget=1_400) for name in NAMES]
    served = {"model_id": "openai/gpt-5", "api_base": api_base, "api_key_env": "A_KEY", "core_token_budget": 3_000}
    live = [make_agent(name, **served) for name in LIVE]
    guarded = make_agent(GUARDED, model_id=MODELS[0])
    everything = {agent.id: _save(agent, chance, chance.randrange(24, 60, 2)) for agent in (*agents, *live)}
    shown = {agent.id: (agent.name, agent.model_id) for agent in agents}
    for day in range(1, DAYS + 1):
        clock.at = ends - timedelta(days=DAYS - day, hours=3)
        for index, (agent_id, (name, model)) in enumerate(shown.items()):
            if index % 7 != day % 7 and day != DAYS:
                continue
            clock.advance(minutes=chance.randrange(2, 9))
            fails = day == DAYS and model == BROKEN
            if day < DAYS or fails or index % 3 == 0:
                _refine(agent_id, _script(chance, name, everything[agent_id], fails=fails), clock)
            everything[agent_id] += _save(db.session.get_one(Agent, agent_id), chance, 6)
    clock.at = ends - timedelta(minutes=25)
    _refine(guarded.id, _too_much(guarded), clock)
    return Fleet({name: everything[agent.id] for name, agent in zip(LIVE, live, strict=True)})


def _make_people() -> None:
    with writing():
        account = Account.lock(HOME)
        create_user(account, "robin@example.org", "a long enough pass phrase", roles=("admin",), by=COMMAND_LINE)
        create_user(account, "maya@example.org", "another long pass phrase", roles=("auditor",), by=COMMAND_LINE)
    kinds = (NoticeKind.FAILED, NoticeKind.LATCH, NoticeKind.STATEMENT, NoticeKind.AWAY)
    create_channel(HOME, ChannelType.EMAIL, name="On call", to="oncall@example.org", kinds=kinds, by=COMMAND_LINE)


def _save(agent: Agent, chance: random.Random, count: int) -> list[tuple[int, int]]:
    """Memories, every second one told again in full: pairs of the short one and the one that says all of it."""
    texts = []
    for _ in range(count // 2):
        short = (
            f"{chance.choice(_WHO)} wants {chance.randrange(4, 90)} {chance.choice(_WHAT)} on {chance.choice(_WHEN)}"
        )
        texts += [f"{short}.", f"{short}, {chance.choice(_HOW)}. The order came by telephone and was read back slowly."]
    ids = remember(agent, *texts)
    return list(zip(ids[::2], ids[1::2], strict=True))


def _script(chance: random.Random, name: str, pairs: list[tuple[int, int]], *, fails: bool) -> list[Scripted]:
    if fails:
        told = f"The model {BROKEN} failed (HTTP 529)"
        return [ModelError(ModelErrorKind.BAD_REQUEST, f"{told}.", summary=told, status=529)]
    if chance.random() < 0.06:
        return [say("NO. I want to keep this week as it is.")]
    taken = [pairs.pop(0) for _ in range(min(len(pairs), chance.randrange(1, 4)))]
    deletions = [call("delete_memory", id=one, carried_by=carrier) for one, carrier in taken]
    note = {"note_to_admins": f"{name} here: two suppliers have the same name."} if chance.random() < 0.04 else {}
    done = call("complete_refinement", summary="Orders that were told twice are told once.", **note)
    return [say("YES"), *deletions, done]


def _too_much(agent: Agent) -> list[Scripted]:
    ids = remember(agent, *LIKES, " ".join(LIKES))
    deletions = [call("delete_memory", id=each, carried_by=ids[-1]) for each in ids[:-1]]
    return [say("YES"), *deletions, call("complete_refinement", summary="Done.")]


def _refine(agent_id: int, script: Sequence[Scripted], clock: FakeClock) -> None:
    """From the first question to the end, a few seconds each. An agent that declined is left alone."""
    try:
        refinement = start_refinement(agent_id, trigger=Trigger.WEEKLY, by=COMMAND_LINE)
    except Refused:
        return
    spent = Usage(6_400, 310, Decimal("0.0121"))
    replies = [replace(each, usage=spent) if hasattr(each, "usage") else each for each in script]
    timed = [_after(clock, each) for each in replies]
    run_refinement(refinement.id, Dependencies(ScriptedClients(ScriptedClient(*timed)), pause=lambda _: None))
    db.session.rollback()


def _after(clock: FakeClock, scripted: Scripted) -> Scripted:
    def answer(_: object) -> object:
        clock.advance(seconds=6.4)
        if isinstance(scripted, ModelError):
            raise scripted
        return scripted

    return answer  # type: ignore[return-value]
