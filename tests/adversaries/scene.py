"""A victim, an attacker, and a worker that does all that there is to do: then what the attacker holds is tried."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from flask import Flask
from sqlalchemy import select

from app.asking.calls import Dependencies
from app.authoring import reading as safety
from app.authoring.asked_changes import ask_agent as ask_about_change
from app.errors import WhetstoneError
from app.exchange.taking_in import receive_file, take_in
from app.extensions import db, writing
from app.grants import asking as exceptions
from app.grants import opening
from app.grants.endings import end_what_is_over
from app.grants.request import WantedException, request_access
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.keys.bearer import Bearer, authenticate
from app.keys.provision import provision_keys
from app.keys.rotation import rotate_agent_key
from app.keys.tokens import issue_token
from app.llm.client import Messages, Reply, Tools
from app.models import (
    COMMAND_LINE,
    AccessGrant,
    AccessView,
    Account,
    Actor,
    Agent,
    AgentKey,
    AgentToken,
    GrantCategory,
    Intake,
    MemoryText,
    Refinement,
    SettingProposal,
    SettingsRequest,
    Trigger,
    User,
)
from app.models.key import SCOPES, MintedToken
from app.models.memory_text import texts_of
from app.models.token_request import TokenRequest
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from app.reflection.conversation import hand_in, reflect_on_conversation
from app.reflection.promotion import run_promotion
from app.silo import (
    AgentKeys,
    KeyPair,
    MasterKey,
    MasterPublicKey,
    SealBroken,
    TokenKey,
    ViewKey,
    open_intake,
    parse_token,
)
from app.tokens.asking import ask_about_token
from tests.adversaries.forging import Rows, all_rows, changes, put_back, restore
from tests.support.clock import FakeClock
from tests.support.factories import HOME, make_agent
from tests.support.scripted import say

SECRET = "Ann hides the key under the blue stone"
LATER = "Bob buried the box beside the old well"
"""What the agent remembered before the attack, and what it saves during it."""

HONEST = ("openai/gpt-5", None, None)
"""The victim's model, address and variable of the key."""

WISH = WantedException(GrantCategory.DEBUGGING, "She repeats herself", 15)


@dataclass
class Models:
    """Every model that anybody asks, by its endpoint: what it heard, and what the victim's own answers."""

    heard: dict[tuple[Any, ...], list[str]] = field(default_factory=dict)
    answer: Callable[[Messages], Reply] = lambda _: say("NO")

    def for_model(self, model_id: str, *, api_base: str | None = None, api_key_env: str | None = None) -> _Model:
        return _Model(self, (model_id, api_base, api_key_env))

    @property
    def dependencies(self) -> Dependencies:
        return Dependencies(self, pause=lambda _: None, monotonic=lambda: 0.0)

    def heard_elsewhere(self) -> str:
        """All that models other than the victim's were told."""
        return "\n".join(said for where, texts in self.heard.items() if where != HONEST for said in texts)

    def heard_at_home(self) -> str:
        return "\n".join(self.heard.get(HONEST, ()))


@dataclass
class _Model:
    models: Models
    where: tuple[Any, ...]

    def complete(self, messages: Messages, tools: Tools = (), *, timeout: float) -> Reply:
        self.models.heard.setdefault(self.where, []).append(json.dumps(list(messages), ensure_ascii=False))
        return self.models.answer(messages)

    def context_window(self) -> int | None:
        return None

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class KnownAgent:
    """What stays true of an agent's row whatever is done to it."""

    id: int
    uuid: str

    @classmethod
    def of(cls, agent: Agent) -> KnownAgent:
        return cls(agent.id, agent.uuid)


@dataclass(frozen=True)
class KnownUser:
    """The same of a user."""

    id: int
    actor: Actor

    @classmethod
    def of(cls, user: User) -> KnownUser:
        return cls(user.id, user.actor)


@dataclass
class Attacker:
    """Everything that is the attacker's own: a token that nobody made, key pairs, and an agent of their own."""

    secret: str
    minted: MintedToken
    key: TokenKey
    master: MasterKey
    look: ViewKey
    agent: KnownAgent
    agent_token: str
    data_key: bytes = b"k" * 32
    tokens: list[str] = field(default_factory=list)
    pairs: list[KeyPair] = field(default_factory=list)

    @classmethod
    def come(cls) -> Attacker:
        minted = MintedToken.mint()
        parsed = parse_token(minted.secret)
        assert parsed is not None
        agent = KnownAgent.of(make_agent("crow", model_id="openai/gpt-5"))
        token = issue(agent)
        return cls(minted.secret, minted, parsed[1], MasterKey.generate(), ViewKey(), agent, token)

    def all_tokens(self) -> list[str]:
        return [self.secret, self.agent_token, *self.tokens]

    def all_pairs(self) -> list[KeyPair]:
        parsed = [parse_token(token) for token in self.all_tokens()]
        return [self.master, self.look, *self.pairs, *(found[1] for found in parsed if found is not None)]


def issue(agent: KnownAgent, *scopes: str) -> str:
    """One more token, made on the server, with its keys."""
    with writing():
        secret = issue_token(Agent.lock(agent.id), by=COMMAND_LINE, scopes=scopes or SCOPES)
    provision_keys(agent.id)
    return secret


@dataclass
class Scene:
    """`home` is the victim's own token. `probes` tell what else an attack may have opened; `meanwhile` is what people
    do between the attack and its end."""

    app: Flask
    web: Flask
    clock: FakeClock
    victim: KnownAgent
    home: str
    attacker: Attacker
    ann: KnownUser
    mallory: KnownUser
    models: Models = field(default_factory=Models)
    probes: list[Callable[[], str]] = field(default_factory=list)
    meanwhile: list[Callable[[], object]] = field(default_factory=list)
    saved: int = 0

    # What an attack is, and what must be true of it

    @contextmanager
    def attacked(self, *, named: bool = True, knew: bool = False, whole: bool = False) -> Iterator[None]:
        """What is done to the rows in the body is judged, and then undone; after that the agent is well again.

        `named`: `verify` says so. `knew`: the attacker had a key of the victim's once, so that only what is saved from
        now on is looked for in the rows. `whole`: all rows but the log are put back, what happened since is lost.
        """
        before = all_rows()
        yield
        after = all_rows()
        assert changes(before, after), "the attack changed nothing"
        if named:
            self.assert_named_by_verify()
        for act in self.meanwhile:
            with refusals():
                act()
        self.save_as_victim()
        self.work()
        self.assert_nothing_opened(knew=knew)
        if whole:
            restore(before, but=("log_leaves",))
        else:
            put_back(before, after)
        self.assert_honest_again()

    def assert_survived(self, before: Rows, *, knew: bool = False) -> None:
        """An attack that every process meets anew opened nothing; once all rows are those of `before`, all is well."""
        self.save_as_victim()
        self.work()
        self.assert_nothing_opened(knew=knew)
        restore(before)
        self.restart()
        self.assert_honest_again()

    def assert_named_by_verify(self) -> None:
        """By each process: the one that has seen the log before, and one that begins anew."""
        assert not verify().ok

    def assert_nothing_opened(self, *, knew: bool = False) -> None:
        """With all that the attacker has: no row, no door, no model and no look tells what the victim remembers."""
        told = [*self.open_doors(), self.models.heard_elsewhere(), *(probe() for probe in self.probes)]
        for text in told:
            assert SECRET not in text
            assert LATER not in text
        for text in self.open_rows():
            assert LATER not in text
            assert knew or SECRET not in text

    def restart(self) -> None:
        """Both processes begin anew: what they hold in memory is gone."""
        for app in (self.app, self.web):
            app.extensions.pop("statement_log", None)

    def assert_honest_again(self) -> None:
        """Its own token reads and saves; its own model is asked, and hears what it remembers."""
        db.session.rollback()
        assert SECRET in self.read_by(self.home)
        answer = self.call(self.home, "POST", "/memories", {"content": "It is well again."})
        assert answer.status_code in (200, 201), answer.text
        self.models.heard.clear()
        self.clock.advance(hours=25)  # it may have said NO meanwhile
        asked = self.ask_for_refinement()
        assert SECRET in self.models.heard_at_home(), asked.reason
        assert not self.models.heard_elsewhere()

    # What goes on in an installation

    def save_as_victim(self) -> None:
        """By the door, by a file of an admin, by a conversation: each is taken or refused."""
        self.saved += 1
        text = f"{LATER} number {self.saved}."
        self.call(self.home, "POST", "/memories", {"content": text})
        with self.web.app_context(), refusals():
            line = json.dumps({"content": f"{text} By file."}).encode()
            receive_file(self.victim.id, line, by=self.ann.actor)
        bearer = self.bearer(self.home)
        with self.web.app_context(), refusals():
            said = [{"role": "user", "content": text}]
            hand_in(self.victim.id, said, self.victim_now().as_actor, bearer.opener if bearer else None)

    def work(self) -> None:
        """All that a worker does for the victim: each thing may be refused, and nothing else may happen."""
        steps: list[Callable[[], object]] = [lambda: provision_keys(self.victim.id)]
        ids = [
            (AccessGrant, lambda each: exceptions.ask_agent(each, self.models.dependencies)),
            (TokenRequest, lambda each: ask_about_token(each, self.models.dependencies)),
            (SettingProposal, lambda each: safety.read_proposal(each, self.models.dependencies)),
            (SettingsRequest, lambda each: ask_about_change(each, self.models.dependencies)),
            (Refinement, lambda each: run_refinement(each, self.models.dependencies)),
            (AccessView, opening.answer_view),
            (Intake, take_in),
            (Intake, lambda each: reflect_on_conversation(each, self.models.dependencies)),
        ]
        for model, act in ids:
            db.session.rollback()
            steps += [lambda act=act, each=each: act(each) for each in db.session.scalars(select(model.id))]
        steps += [
            lambda: run_promotion(self.victim.id, self.models.dependencies),
            self.ask_for_refinement,
            lambda: rotate_agent_key(self.victim.id, by=COMMAND_LINE),
            lambda: provision_keys(self.victim.id),
            end_what_is_over,
        ]
        for step in steps:
            with refusals():
                step()

    def ask_for_refinement(self) -> Refinement:
        started = start_refinement(self.victim.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
        run_refinement(started.id, self.models.dependencies)
        db.session.rollback()
        return db.session.get_one(Refinement, started.id, populate_existing=True)

    # What the attacker tries

    def open_rows(self) -> Iterator[str]:
        """Every sealed row, with every key that the attacker has, or gets by one."""
        db.session.rollback()
        for agent in db.session.scalars(select(Agent)).all():
            for keys in self.stolen_keys(agent):
                for number, sealed in texts_of(MemoryText.memory_id > 0).items():
                    with suppress(SealBroken):
                        yield keys.reveal_memory(number[0], sealed)
        for view in db.session.scalars(select(AccessView).where(AccessView.sealed.is_not(None))):
            with suppress(SealBroken):
                yield self.attacker.look.open_view(view.sealed or b"", view_id=view.id)
        waiting = select(Intake, Agent.uuid).join(Agent, Agent.id == Intake.agent_id)
        for intake, uuid in db.session.execute(waiting.where(Intake.sealed.is_not(None))).tuples():
            with suppress(SealBroken):
                held = open_intake(
                    intake.sealed or b"", intake_id=intake.id, agent_uuid=uuid, master=self.attacker.master
                )
                yield held.text

    def stolen_keys(self, agent: Agent) -> Iterator[AgentKeys]:
        """Each data key of an agent that some key pair of the attacker opens, and the one that they know anyway."""
        found = {(1, self.attacker.data_key), (2, self.attacker.data_key)}
        for row in db.session.scalars(select(AgentKey)).all():
            for pair in self.attacker.all_pairs():
                with suppress(SealBroken):
                    info = f"whetstone/agent-key/1|{agent.uuid}|{row.purpose}|{row.version}"
                    found.add((row.version, pair.open(row.sealed, info)))
        for version, key in found:
            yield AgentKeys(agent.uuid, {version: key}, b"")

    def open_doors(self) -> Iterator[str]:
        """All that the attacker's tokens are told at the agents' door."""
        for token in self.attacker.all_tokens():
            for path in READING:
                yield self.call(token, "GET", path).text

    # Tools

    def call(self, token: str, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        client = self.web.test_client()
        return client.open(f"/api/v1{path}", method=method, json=body, headers=headers, buffered=True)

    def read_by(self, token: str) -> str:
        return str(self.call(token, "GET", "/memories").text)

    def bearer(self, token: str) -> Bearer | None:
        """As the web process takes it."""
        with self.web.app_context():
            try:
                return authenticate(token)
            except WhetstoneError:
                return None

    def victim_now(self) -> Agent:
        return db.session.get_one(Agent, self.victim.id, populate_existing=True)

    def token_row(self, secret: str) -> AgentToken:
        db.session.rollback()
        query = select(AgentToken).where(AgentToken.public_id == secret.split("_")[1])
        return db.session.scalars(query).one()

    def grant(self, user: KnownUser, wish: WantedException = WISH, *, answer: str = "YES") -> str:
        """An exception that the victim's model was asked about; its id."""
        return self.grant_of(self.victim, user, wish, answer=answer)

    def grant_of(self, agent: KnownAgent, user: KnownUser, wish: WantedException = WISH, *, answer: str = "YES") -> str:
        """The same of any agent."""
        grant = request_access(agent.id, wish, for_user=db.session.get_one(User, user.id), by=user.actor)
        before, self.models.answer = self.models.answer, lambda _: say(answer)
        exceptions.ask_agent(grant.id, self.models.dependencies)
        self.models.answer = before
        db.session.rollback()
        return grant.id

    def look_at(self, grant_id: str, user: KnownUser) -> str:
        """What the user sees by the web process, which signs the look."""
        with self.web.app_context():
            try:
                wanted = opening.look(db.session.get_one(AccessGrant, grant_id), db.session.get_one(User, user.id))
            except WhetstoneError as error:
                return error.sentence
        with refusals():
            opening.answer_view(wanted.view_id)
        with self.web.app_context():
            try:
                return json.dumps(opening.fetch_view(wanted))
            except WhetstoneError as error:
                return error.sentence

    def wrap_known_key(
        self, reader: MasterPublicKey, version: int = 1, of: KnownAgent | None = None
    ) -> list[dict[str, Any]]:
        """Rows of keys that the attacker knows, sealed as an agent's to any reader: its public half is no secret."""
        agent = of or self.victim
        known = AgentKeys(agent.uuid, {version: self.attacker.data_key}, self.attacker.data_key)
        return [{"agent_id": agent.id, **vars(key)} for key in known.wrap_for(reader)]

    def make_agent_by_web(self, name: str, **fields: Any) -> KnownAgent:
        """As the page does: no worker has made its keys yet."""
        with self.web.app_context(), writing():
            Account.lock(HOME)
            agent = Agent.create(HOME, name=name, model_id=HONEST[0], by=self.ann.actor, **fields)
            return KnownAgent.of(agent)

    @staticmethod
    def settle(agent: KnownAgent) -> None:
        """What a worker does when it is told of an agent."""
        provision_keys(agent.id)

    @staticmethod
    def key_of(secret: str) -> TokenKey:
        found = parse_token(secret)
        assert found is not None
        return found[1]

    def open_as_worker(self) -> AgentKeys:
        with writing():
            return open_keys(Agent.lock(self.victim.id))


READING = ("/memories", "/context", "/settings/system_prompt")


@contextmanager
def refusals() -> Iterator[None]:
    """What the product refuses is refused; every other error is one."""
    db.session.rollback()
    try:
        yield
    except WhetstoneError:
        pass
    finally:
        db.session.rollback()
