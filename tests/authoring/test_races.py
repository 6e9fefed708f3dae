"""Real threads at one agent's settings and tokens: one order, no error, nothing sealed to whom it was taken from."""

from __future__ import annotations

from flask import Flask

from app.asking.calls import Dependencies
from app.authoring.fields import author_setting, read_setting
from app.authoring.reading import read_proposal
from app.errors import Refused
from app.extensions import db, writing
from app.history.verify import verify
from app.keys.bearer import authenticate
from app.keys.provision import provision_keys
from app.keys.tokens import issue_token, revoke_token, rotate_token
from app.models import COMMAND_LINE, Actor, ActorKind, Agent, ProposalStatus, SettingProposal
from app.models.key import live_tokens
from app.silo import MasterPublicKey
from tests.authoring.conftest import proposal, writes
from tests.refinement.test_races import at_once
from tests.silo.holding import readers
from tests.support.rows import fresh
from tests.support.scripted import ScriptedClient, ScriptedClients, say

ADMIN = Actor(ActorKind.USER, "ann@example.org")


def test_of_prompts_written_at_once_one_waits_and_the_others_gave_way(app: Flask, agent: Agent, guarded: None) -> None:
    by = agent.as_actor
    jobs = [lambda n=n: author_setting(agent.id, "system_prompt", f"Number {n}.", by=by).field for n in range(6)]
    assert at_once(app, *jobs) == ["system_prompt"] * 6

    found = db.session.scalars(db.select(SettingProposal.status)).all()
    assert sorted(found) == [ProposalStatus.READING] + [ProposalStatus.SUPERSEDED] * 5
    assert verify().ok


def test_of_workers_told_the_same_one_asks(app: Flask, agent: Agent, guarded: None) -> None:
    waiting = writes(agent, "system_prompt", "One.").unread
    assert waiting is not None
    client = ScriptedClient(say("SAFE"), say("SAFE"))
    dependencies = Dependencies(ScriptedClients(client), pause=lambda _: None, monotonic=lambda: 0.0)
    assert at_once(app, *[lambda: read_proposal(waiting, dependencies)] * 4) == [None] * 4
    assert len(client.asked) == 1
    assert proposal(waiting).status == ProposalStatus.APPLIED
    assert read_setting(fresh(agent), "system_prompt").version == 2


def test_of_apply_dismiss_and_a_change_at_once_each_has_one_effect_or_is_refused(
    app: Flask, agent: Agent, guarded: None
) -> None:
    waiting = writes(agent, "system_prompt", "One.").unread
    assert waiting is not None

    def decide(name: str) -> None:
        with writing():
            locked = Agent.lock(agent.id)
            getattr(SettingProposal.lock(locked, waiting), name)(locked, by=ADMIN)

    jobs = [lambda: decide("apply"), lambda: decide("dismiss"), lambda: decide("apply")]
    found = at_once(app, *jobs)
    assert found.count(None) == 1
    assert all(one is None or isinstance(one, Refused) for one in found), found
    assert (fresh(agent).system_prompt == "One.") == (proposal(waiting).status == ProposalStatus.APPLIED)
    assert verify().ok


def test_keys_that_are_sealed_while_tokens_are_revoked_and_rotated_end_with_the_live_ones(
    app: Flask, agent: Agent
) -> None:
    with writing():
        made = [issue_token(Agent.lock(agent.id), by=COMMAND_LINE) for _ in range(4)]
    ids = [token.split("_")[1] for token in made]

    def act(name: str, public_id: str) -> object:
        with writing():
            locked = Agent.lock(agent.id)
            return {"revoke": revoke_token, "rotate": rotate_token}[name](locked, public_id, by=COMMAND_LINE)

    jobs = [lambda n=n: act("revoke", ids[n]) for n in range(2)]
    jobs += [lambda n=n: act("rotate", ids[n]) for n in (2, 3)]
    jobs += [lambda: provision_keys(agent.id)] * 2 + [lambda: authenticate(made[0])]
    found = at_once(app, *jobs)

    assert not [one for one in found if isinstance(one, Exception)], found
    provision_keys(agent.id)
    live = {MasterPublicKey(token.public_key).fingerprint for token in live_tokens(agent.id)}
    sealed = {reader for _, _, reader in readers(agent)}
    assert len(live) == 2
    assert live < sealed
    assert len(sealed) == 3
    assert verify().ok
