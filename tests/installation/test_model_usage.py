"""Models in use: whose they are, what the month's calls came to, and which keys the workers have."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from flask import Flask

from app.extensions import db, now, writing
from app.installation.model_usage import ModelUsage, UsedModel
from app.models import Account, Agent, ModelCall
from app.models.model_call import ANSWERED, CallPurpose
from app.models.presence import WorkerPresence
from tests.support.clock import MONDAY, FakeClock
from tests.support.factories import HOME, make_agent


def called(agent: Agent, seconds: float, *, at: datetime = MONDAY, outcome: str = ANSWERED, model: str = "") -> None:
    tokens = {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100}
    with writing():
        db.session.add(
            ModelCall(
                account_id=agent.account_id,
                agent_id=agent.id,
                purpose=CallPurpose.CONSENT,
                model_id=model or agent.model_id,
                cost_usd=Decimal("0.01"),
                started_at=at,
                seconds=seconds,
                outcome=outcome,
                **tokens,
            )
        )


def worker(number: str, *names: str, seen: timedelta = timedelta(0)) -> None:
    at = now() - seen
    with writing():
        WorkerPresence(number, "host", 7, "0.2.0", at, at, 64, frozenset(names)).note()


def used(account_id: int = HOME) -> dict[str, UsedModel]:
    return {each.model_id: each for each in ModelUsage(account_id).models}


def test_a_month_s_calls_are_summed_by_model_and_timed_by_their_median(app: Flask) -> None:
    small, big = make_agent("small", model_id="openai/small"), make_agent("big", model_id="openai/big")
    make_agent("also small", model_id="openai/small")
    for seconds in (1.0, 9.0, 2.0):
        called(small, seconds)
    called(big, 4.0), called(big, 8.0, outcome="rate_limited"), called(big, 3.0, model="openai/retired")
    called(big, 99.0, at=MONDAY - timedelta(days=20))

    found = used()

    assert list(found) == ["openai/small", "openai/big", "openai/retired"]
    told = found["openai/small"]
    assert (told.agents, told.calls, told.failures, told.tokens, told.cost_words) == (2, 3, 0, 300, "$0.03")
    assert told.median_seconds == 2.0
    assert (found["openai/big"].calls, found["openai/big"].failures, found["openai/big"].median_seconds) == (2, 1, 6.0)
    assert (found["openai/retired"].agents, found["openai/retired"].calls) == (0, 1)


def test_of_another_account_nothing_is_counted(app: Flask) -> None:
    with writing():
        other = Account.create("Next door").id
    called(make_agent("theirs", account_id=other, model_id="openai/theirs"), 1.0)

    assert used() == {}
    assert list(used(other)) == ["openai/theirs"]


def test_a_key_is_there_where_every_worker_has_it_and_unknown_where_none_says_so(app: Flask, clock: FakeClock) -> None:
    make_agent("usual", model_id="openai/m"), make_agent("own", model_id="openai/m", api_key_env="TEAM_API_KEY")
    make_agent("here", model_id="ollama/m", api_base="http://127.0.0.1:11434"), make_agent("demo")
    make_agent("rare", model_id="rare/m")

    assert used()["openai/m"].key_words == "OPENAI_API_KEY unknown, TEAM_API_KEY unknown"
    worker("a", "OPENAI_API_KEY", "TEAM_API_KEY"), worker("b", "OPENAI_API_KEY")
    found = used()
    assert {key.name: key.is_there for key in found["openai/m"].keys} == {"OPENAI_API_KEY": True, "TEAM_API_KEY": False}
    assert found["openai/m"].lacks_key
    assert [found[name].key_words for name in ("ollama/m", "whetstone/offline", "rare/m")] == [
        *("none needed", "none needed", "unknown")
    ]
    clock.advance(minutes=5)
    worker("a", "OPENAI_API_KEY", "TEAM_API_KEY")
    assert not used()["openai/m"].lacks_key
