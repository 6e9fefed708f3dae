"""A night of an installation: many agents due on Monday at four, the model server of some of them broken.

For a test and for `benchmarks/night.py`. What is due is found by the sweep, and carried as a worker's task carries it.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from flask import Flask
from pydantic import SecretStr

from app.asking.calls import Dependencies
from app.extensions import db, now
from app.llm.litellm import LiteLLMClients
from app.models import COMMAND_LINE, ChannelType, NoticeKind
from app.notices import outbox
from app.notices.channels import create_channel
from app.refinement.process import run_refinement
from app.refinement.sweep import find_lost_starts, sweep_weekly
from tests.support.clock import FakeClock
from tests.support.factories import HOME, make_agent, remember
from tests.support.model_server import ModelServer, Scripted, ServedRequest, ServerReply, error, text, tool_call
from tests.support.receivers import MailReceiver

WORKERS = 2
"""Threads of the worker."""

MODEL = "openai/night"
BROKEN: Scripted = error(500)


def agree(request: ServedRequest) -> ServerReply:
    """What a model says that agrees, and finds nothing to do."""
    return tool_call("complete_refinement", summary="Done.") if request.body.get("tools") else text("YES")


@dataclass
class Night:
    """`model` is the server by which those agents speak that shall fail; the others need none."""

    app: Flask
    clock: FakeClock
    model: ModelServer

    def make_agents(self, count: int, *, failing: int) -> None:
        """Agents with memories, all due."""
        for number in range(count):
            name = f"agent {number:04}"
            own = number < failing
            agent = make_agent(name, model_id=MODEL, api_base=self.model.base_url) if own else make_agent(name)
            remember(agent, "Ann likes tea.", "Bob likes rum.")

    def add_channel(self, mail: MailReceiver, to: str) -> None:
        """By e-mail, for failures."""
        told = {"smtp_url": SecretStr(mail.url), "smtp_from": "whetstone@example.org"}
        self.app.extensions["settings"] = self.app.extensions["settings"].model_copy(update=told)
        create_channel(HOME, ChannelType.EMAIL, name="On call", to=to, kinds=(NoticeKind.FAILED,), by=COMMAND_LINE)

    def begin(self) -> list[str]:
        """The scheduled tick; ids of what it started."""
        return sweep_weekly(self.clock.now())

    def carry(self, refinements: Iterable[str]) -> None:
        """As a worker does, a few at once."""
        db.session.rollback()
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="night") as pool:
            list(pool.map(partial(_carry, self.app), refinements))
        db.session.expire_all()

    def carry_waiting(self) -> None:
        """What was started by hand: here no broker brings it, so it is found after a minute."""
        db.session.rollback()
        self.clock.advance(seconds=90)
        self.carry(find_lost_starts())

    def tell(self) -> None:
        """What the worker's notices thread does every few seconds, for two minutes."""
        end = now().timestamp() + 120
        while now().timestamp() < end:
            self.clock.advance(seconds=4)
            outbox.look()
            for notice in outbox.find_due(away=False):
                outbox.deliver(notice)
        db.session.expire_all()


def _carry(app: Flask, refinement_id: str) -> None:
    with app.app_context():
        run_refinement(refinement_id, Dependencies(LiteLLMClients(), pause=lambda _: None))
