"""The demo: two agents with believable ledgers of our own writing, which `whetstone/offline` refines without any key.

Each ledger holds exact duplicates, memories that stand whole inside another one, and near-duplicates that must stay.
Its model answers at once, and a refinement would be over before its page is open: so the demo has a pace of its own.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from flask import current_app
from sqlalchemy import select

from app import security
from app.config import OFFLINE_MODEL
from app.errors import Refused
from app.exchange.draft import Draft
from app.exchange.file_text import parse_lines
from app.exchange.importing import write_memories
from app.extensions import db, now, reading, writing
from app.keys.agent_keys import make_keys
from app.llm.client import Messages, ModelClient, ModelClients, Reply, Tools
from app.models import Account, Actor, Agent, Intake, IntakeStatus, Refinement
from app.models.agent_settings import operator_settings
from app.models.master_key import holds_master_key
from app.models.user import ADMIN

ACCOUNT = "Demo"
EMAIL = "demo@whetstone.local"

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Character:
    """One demo agent. `budget` in tokens; its ledger is `<file>.jsonl`, dated in days before today."""

    name: str
    file: str
    budget: int
    system_prompt: str


CHARACTERS = (
    Character(
        "Wren",
        "wren",
        5000,
        "You are Wren, the companion of Marta Oyelaran, who repairs cellos and violas in Ghent. You are calm, "
        "attentive and honest; you remember what matters to her and to the people around her.",
    ),
    Character(
        "Crumb",
        "crumb",
        900,
        "You are Crumb. You run the order book of the bakery Oven & Vine: deliveries, allergens, promises. You are "
        "exact, friendly and brief.",
    ),
)


@dataclass(frozen=True)
class Demo:
    """What there is now. `made` says whether it was made just now. An account of its own has a user, whose password is
    shown once; in any other, its own users sign in.
    """

    account: Account
    agents: tuple[Agent, ...]
    email: str | None = None
    password: str = ""
    made: bool = False


class DemoNameTaken(Refused):
    """There is an account named Demo that is not the demo."""

    code = "name_taken"
    outcome = "Nothing was made."


def make_demo(by: Actor) -> Demo:
    """An account of its own with an admin and both agents, in one transaction; or the one that is there already."""
    if "security" not in current_app.extensions:
        security.init_app(current_app._get_current_object(), views=False)  # type: ignore[attr-defined]
    password = secrets.token_urlsafe(12)
    ledgers = _read_ledgers()
    with writing():
        there = db.session.scalar(select(Account).where(Account.name == ACCOUNT))
        if there is None:
            account = Account.create(ACCOUNT, is_demo=True, by=by)
            security.create_user(account, EMAIL, password, roles=(ADMIN,), by=by)
            return Demo(account, _make_agents(account, ledgers, by), EMAIL, password, made=True)
        if not there.is_demo:
            raise DemoNameTaken
        agents = db.session.scalars(select(Agent).where(Agent.account_id == there.id).order_by(Agent.id))
        return Demo(there, tuple(agents), EMAIL)


def make_demo_in(account: Account, by: Actor) -> Demo:
    """Both agents in an account that is there."""
    before = set(db.session.scalars(select(Agent.id).where(Agent.account_id == account.id)))
    agents = make_demo_agents(account.id, by)
    return Demo(account, agents, made=any(agent.id not in before for agent in agents))


def make_demo_agents(account_id: int, by: Actor) -> tuple[Agent, ...]:
    """Both agents in this account, in one transaction; those that are there already stay as they are.

    The web process, which may state no keys, hands their memories in: `find_waiting` names what a worker takes in.
    """
    ledgers = _read_ledgers()
    with writing():
        return _make_agents(Account.lock(account_id), ledgers, by)


def read_drafts(character: Character) -> list[Draft]:
    """The ledger of one of them, its dates counted back from now."""
    return parse_lines(_read_lines(character))


def _read_lines(character: Character) -> list[str]:
    lines = (_FOLDER / f"{character.file}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.dumps(_dated_line(json.loads(line))) for line in lines]


def clients_with_pace(
    clients: ModelClients, agent: Agent, seconds: float, sleep: Callable[[float], None] = time.sleep
) -> ModelClients:
    """These clients; for an agent as the demo made it, with so many seconds before each answer."""
    made = {(each.name, OFFLINE_MODEL, each.system_prompt) for each in CHARACTERS}
    is_made = (agent.name, agent.model_id, agent.system_prompt) in made
    return _Paced(clients, seconds, sleep) if seconds and is_made else clients


def paced_clients(refinement_id: str, clients: ModelClients) -> ModelClients:
    """Of one refinement, as this installation's settings want it. Leaves no transaction open."""
    query = select(Agent).join(Refinement, Refinement.agent_id == Agent.id).where(Refinement.id == refinement_id)
    with reading() as session:
        agent = session.scalar(query)
        return clients_with_pace(clients, agent, operator_settings().demo_pace_seconds) if agent else clients


def _dated_line(line: dict[str, object]) -> dict[str, object]:
    days = timedelta(days=int(str(line.pop("days_ago"))))
    return line | {"created_at": (now() - days).isoformat()}


def _read_ledgers() -> list[list[Draft]]:
    """Of all characters; before a transaction begins."""
    return [read_drafts(character) for character in CHARACTERS]


def _make_agents(account: Account, ledgers: list[list[Draft]], by: Actor) -> tuple[Agent, ...]:
    pairs = zip(CHARACTERS, ledgers, strict=True)
    return tuple(_make_agent(account, character, ledger, by) for character, ledger in pairs)


def _make_agent(account: Account, character: Character, ledger: list[Draft], by: Actor) -> Agent:
    there = db.session.scalar(select(Agent).where(Agent.account_id == account.id, Agent.name == character.name))
    if there is not None:
        return there
    agent = Agent.create(
        account.id,
        name=character.name,
        model_id=OFFLINE_MODEL,
        by=by,
        system_prompt=character.system_prompt,
        core_token_budget=character.budget,
    )
    if holds_master_key():
        write_memories(agent, ledger, keys=make_keys(agent), by=by, name="demo")
    else:
        Intake.receive(agent, "\n".join(_read_lines(character)), by=by, name="demo")
    return agent


def find_waiting(agents: Sequence[Agent]) -> list[str]:
    """Ids of what was handed in for these agents, and no worker has taken in yet."""
    mine = (Intake.agent_id.in_([agent.id for agent in agents]), Intake.status == IntakeStatus.WAITING)
    with reading() as session:
        return list(session.scalars(select(Intake.id).where(*mine).order_by(Intake.created_at)))


@dataclass(frozen=True)
class _Paced:
    clients: ModelClients
    seconds: float
    sleep: Callable[[float], None]

    def for_model(self, model_id: str, *, api_base: str | None = None, api_key_env: str | None = None) -> ModelClient:
        client = self.clients.for_model(model_id, api_base=api_base, api_key_env=api_key_env)
        return _PacedClient(client, self.seconds, self.sleep)


@dataclass(frozen=True)
class _PacedClient:
    client: ModelClient
    seconds: float
    sleep: Callable[[float], None]

    def complete(self, messages: Messages, tools: Tools = (), *, timeout: float) -> Reply:
        self.sleep(min(self.seconds, timeout))
        return self.client.complete(messages, tools, timeout=timeout)

    def context_window(self) -> int | None:
        return self.client.context_window()

    def close(self) -> None:
        self.client.close()
