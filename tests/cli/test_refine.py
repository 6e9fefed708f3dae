"""`whetstone refine` and `refinements`: what is started, what is watched, what the exit status says."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace

import pytest
from flask import Flask

from app.cli.refinement_facts import step_line
from app.extensions import db, writing
from app.history.timeline_row import TimelineRow
from app.llm.client import ModelError, ModelErrorKind, Reply
from app.models import Agent, Refinement, Status
from tests.cli.conftest import Said, Whetstone
from tests.support.clock import FakeClock
from tests.support.factories import begin, ledger, make_agent, remember
from tests.support.scripted import Scripted, ScriptedClient, ScriptedClients, call, say
from tests.support.workers import Worker, broker_of

CANARY = "The canary sang at dawn, and the whole street woke up and listened to it."
DONE = call("complete_refinement", summary=CANARY)
JUST_UNDER = TimelineRow(
    "operation", "trash", "Deleted", datetime.now(UTC), ids=(3,), tokens=(9, 0), retention=Decimal("0.7499")
)


@pytest.fixture
def clock() -> FakeClock:
    """The command goes by the system's clock; so does the test."""
    return FakeClock(datetime.now(UTC))


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("ezra")
    remember(made, *(f"{CANARY} {mark}" for mark in "-.,;:!?*"), f"{CANARY} *")
    return made


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedClient]:
    """What the agent's model replies, in place of what LiteLLM would reach."""

    def script(*replies: Scripted) -> ScriptedClient:
        client = ScriptedClient(*replies)
        monkeypatch.setattr("app.cli.refine.LiteLLMClients", lambda: ScriptedClients(client))
        return client

    return script


def ids_of(agent: Agent) -> list[int]:
    return [row[0] for row in ledger(agent)]


def test_refused_calls_are_told_with_their_kinds(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient]
) -> None:
    wrong = [call("delete_memory", id=10**9 + number % 2, carried_by=1) for number in range(9)]
    model(say("YES"), *wrong, DONE)
    line = "5 of 5 calls were refused: this model may not be able to refine (5 unknown memory)"

    waited = whetstone("refine", "ezra", "--wait")

    assert waited.status == 1
    assert "the model repeated a refused call" in waited.out
    assert line in waited.out
    number = whetstone("refinements", "list", "--json").json[0]["id"]
    assert line in whetstone("refinements", "show", number).out
    shown = whetstone("refinements", "show", number, "--json").json
    assert (shown["calls"], shown["stats"]["refused"]) == (5, {"unknown_memory": 5})


def test_without_a_worker_it_does_the_work_itself(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient]
) -> None:
    first, second, *_ = ids_of(agent)
    deletion = call("delete_memory", id=first, carried_by=second)
    model(say("YES. " + CANARY), deletion, call("protect_memory", id=second), DONE)

    said = whetstone("refine", "ezra", "--wait", "--json")

    assert said.status == 0
    done = said.json
    assert (done["status"], done["mode"], done["mutations"], done["turns"]) == ("completed", "full", 1, 3)
    assert done["stats"] == {
        "consolidated": 0,
        "updated": 0,
        "deleted": 1,
        "protected": 1,
        "deduplicated": 1,
        "refused": {},
        "specifics": {"checked": 3, "missing": 0, "restored": 0, "confirmed": 0},
        "memories_merged": 0,
        "memories_before": done["stats"]["memories_after"] + 2,
        "memories_after": done["stats"]["memories_after"],
    }
    assert (done["threshold"], done["mass_before"] - done["mass_after"]) == (0.75, 19)
    assert done["retention"] == pytest.approx(0.875)
    assert whetstone("verify", "--json").json["ok"] is True
    assert CANARY not in said.out + said.err


def test_people_see_every_step_as_it_happens(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient], capfd: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = ids_of(agent)
    seen: list[str] = []

    def look_then_complete(_: object) -> Reply:
        seen.append(capfd.readouterr().out)
        return DONE

    model(say("YES"), call("delete_memory", id=first, carried_by=second), call("burn", id=1), look_then_complete)

    said = whetstone("refine", "ezra", "--wait")

    before_the_end = [line.split("  ", 2)[-1].strip() for line in seen[0].splitlines()]
    told = [re.split("  | · ", text)[0] for text in before_the_end]
    assert "1 exact duplicate removed · matched by hash, content not read · 19 → 0 tokens" in before_the_end
    assert (
        told.index("The agent said YES")
        < told.index("Deleted")
        < told.index("Refused: `burn` is not an available function")
    )
    assert any(f"{first} " in text and "19 → 0 tokens" in text and "87.5% kept" in text for text in before_the_end)
    assert "Completed: 1 deleted, 1 deduplicated" in said.out
    assert CANARY not in seen[0] + said.out + said.err


def test_it_says_what_it_waits_for_and_follows_an_open_one_to_its_end(
    agent: Agent, whetstone: Whetstone, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, agent_id = begin(agent).refinement.id, agent.id

    def end_meanwhile(_: float) -> None:
        with writing():
            Refinement.lock(number).end(Agent.lock(agent_id), Status.COMPLETED)

    monkeypatch.setattr("app.cli.follow.time", SimpleNamespace(sleep=end_meanwhile, monotonic=time.monotonic))
    shown, told = whetstone("refinements", "show", number), whetstone("refinements", "show", number, "--json").json

    assert "  now       Turn 1: the model is thinking · " in shown.out
    assert f"refinements show {number[:8]} --follow" in shown.out
    assert (told["now"]["waits_for"], told["now"]["turn"]) == ("turn", 1)
    followed = whetstone("refinements", "show", number, "--follow")
    assert "Completed: no change" in followed.out
    assert "Queued" in followed.out
    assert "  now " not in whetstone("refinements", "show", number, "--follow").out


def test_what_was_kept_after_a_step_never_rounds_up_to_the_limit() -> None:
    told = step_line(JUST_UNDER, Decimal("0.75"))

    assert told.endswith("74.9% kept")


@pytest.mark.parametrize(
    ("replies", "status", "exit_status"),
    [
        ([say("Oui")], "declined", 3),
        ([ModelError(ModelErrorKind.UNAUTHORIZED, "The model server refused the key (401).")], "failed", 1),
        ([say("YES"), say("Hm."), say("Hm.")], "unfinished", 1),
    ],
)
def test_every_end_has_its_exit_status(
    agent: Agent,
    whetstone: Whetstone,
    model: Callable[..., ScriptedClient],
    replies: list[Scripted],
    status: str,
    exit_status: int,
) -> None:
    model(*replies)

    said = whetstone("refine", "ezra", "--wait", "--json")

    assert (said.json["status"], said.status) == (status, exit_status)


def test_failures_are_listed_with_their_reason_until_the_next_run(
    agent: Agent, whetstone: Whetstone, clock: FakeClock, model: Callable[..., ScriptedClient]
) -> None:
    model(ModelError(ModelErrorKind.UNAUTHORIZED, "The model openai/big refused the key (HTTP 401)."))
    failed = whetstone("refine", "ezra", "--wait", "--json").json

    assert "The model openai/big refused the key (HTTP 401)." in whetstone("refinements", "list", "--failed").out
    assert [each["id"] for each in whetstone("refinements", "list", "--failed", "--json").json] == [failed["id"]]
    clock.advance(hours=1)
    whetstone("refine", "ezra", "--mode", "dedup_only", "--wait")
    assert whetstone("refinements", "list", "--failed", "--json").json == []


def test_a_rollback_exits_with_3_and_leaves_the_ledger_as_it_was(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient]
) -> None:
    whetstone("refine", "ezra", "--mode", "dedup_only", "--wait")
    before = ledger(agent)
    model(say("YES"), *(call("delete_memory", id=row[0], carried_by=before[3][0]) for row in before[:3]), say("Oh."))

    said = whetstone("refine", "ezra", "--wait", "--json")

    assert (said.json["status"], said.status) == ("rolled_back", 3)
    assert [row[:5] for row in ledger(agent)] == [row[:5] for row in before]


def test_what_nobody_expected_ends_as_interrupted_and_is_told(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient]
) -> None:
    def break_down(_: object) -> Reply:
        raise ValueError(CANARY)

    model(break_down)

    said = whetstone("refine", "ezra", "--wait", "--json")

    assert (said.json["status"], said.status) == ("interrupted", 1)
    assert "ValueError" in said.err
    assert CANARY not in said.out + said.err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_the_refinement_and_keeps_its_valid_changes(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient], how: signal.Signals
) -> None:
    first, second, *_ = ids_of(agent)

    def press(_: object) -> Reply:
        signal.raise_signal(how)
        raise AssertionError("it went on")

    model(say("YES"), call("delete_memory", id=first, carried_by=second), press)
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores Ctrl-C

    said = whetstone("refine", "ezra", "--wait", "--json")
    signal.signal(signal.SIGINT, inherited)

    assert (said.json["status"], said.json["mutations"], said.status) == ("stopped", 1, 1)
    assert first not in ids_of(agent)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert whetstone("verify", "--json").json["ok"] is True


def test_dedup_only_needs_neither_consent_nor_model(agent: Agent, whetstone: Whetstone) -> None:
    said = whetstone("refine", "ezra", "--mode", "dedup_only", "--wait", "--json")

    assert (said.status, said.json["status"], said.json["mode"]) == (0, "completed", "dedup_only")
    assert (said.json["stats"]["deduplicated"], said.json["mutations"]) == (1, 0)


def test_without_wait_and_broker_it_waits_in_the_database_and_says_so(agent: Agent, whetstone: Whetstone) -> None:
    said = whetstone("refine", "ezra", "--json")

    assert (said.status, said.json["status"]) == (0, "queued")
    assert "The task queue did not accept it" in said.err
    assert "whetstone refinements stop" in said.err


def test_a_second_refinement_is_refused_with_the_id_of_the_first(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient]
) -> None:
    first = whetstone("refine", "ezra", "--json").json["id"]

    for arguments in (("refine", "ezra"), ("refine", "ezra", "--wait"), ("refine", "ezra", "--mode", "dedup_only")):
        said = whetstone(*arguments, "--json")
        assert said.status == 3
        assert said.out == ""
        assert said.error["code"] == "already_running"
        assert "Already running" in said.error["message"]
        assert first in said.error["message"]
    assert len(whetstone("refinements", "list", "--json").json) == 1


def test_an_agent_without_core_memories_is_refused(app: Flask, whetstone: Whetstone) -> None:
    make_agent("void")

    said = whetstone("refine", "void", "--wait", "--json")

    assert (said.status, said.error["code"]) == (3, "ledger_empty")


def test_after_a_no_it_does_not_ask_again(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient]
) -> None:
    model(say("NO, not today."))
    whetstone("refine", "ezra", "--wait")

    said = whetstone("refine", "ezra", "--wait", "--json")

    assert (said.status, said.error["code"]) == (3, "declined_recently")


def test_what_a_dead_worker_left_open_does_not_block_the_next(agent: Agent, whetstone: Whetstone) -> None:
    left = begin(agent)
    assert left.refinement.heartbeat_at is None

    said = whetstone("refine", "ezra", "--mode", "dedup_only", "--wait", "--json")

    assert said.json["status"] == "completed"
    assert left.reload().status == Status.INTERRUPTED


def test_refinements_are_listed_newest_first_and_found_by_the_beginning_of_their_id(
    agent: Agent, whetstone: Whetstone
) -> None:
    first = whetstone("refine", "ezra", "--mode", "dedup_only", "--wait", "--json").json["id"]
    second = whetstone("refine", "ezra", "--json").json["id"]

    assert [each["id"] for each in whetstone("refinements", "list", "--json").json] == [second, first]
    assert [each["id"] for each in whetstone("refinements", "list", "--open", "--json").json] == [second]
    assert whetstone("refinements", "list", "--agent", "ezra", "--limit", "1", "--json").json[0]["agent"] == "ezra"
    shown = whetstone("refinements", "show", first[:8], "--json").json
    assert shown["id"] == first
    assert [step["step"] for step in shown["steps"]] == ["queued", "begun", "deduplicated", "ended"]
    assert first[:8] in whetstone("refinements", "list").out
    assert "1 exact duplicate removed" in whetstone("refinements", "show", first).out


def test_the_list_takes_the_filters_and_orders_of_the_page(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient]
) -> None:
    model(ModelError(ModelErrorKind.UNAUTHORIZED, "The model refused."))
    failed = whetstone("refine", "ezra", "--wait", "--json").json["id"]
    done = whetstone("refine", "ezra", "--mode", "dedup_only", "--wait", "--json").json["id"]

    def ids(*options: str) -> list[str]:
        return [each["id"] for each in whetstone("refinements", "list", *options, "--json").json]

    assert ids("--status", "failed,completed", "--sort=-started") == [failed, done]
    assert ids("--status", "failed", "--agent", str(agent.id), "--trigger", "admin", "--mode", "full") == [failed]
    assert ids("--model", agent.model_id, "--from", "2020-01-01", "--to", "2099-01-01", "--sort", "changes") == ids()
    assert ids("--reason", db.session.get_one(Refinement, failed).failure or "") == [failed]
    assert ids("--limit", "1") == [done]
    assert ids("--before", done[:8]) == [failed]
    assert ids("--needs", "attention") == []
    assert "None is like this." in whetstone("refinements", "list", "--model", "none/such").out
    (told,) = whetstone("refinements", "list", "--status", "completed", "--json").json
    assert (told["agent_id"], told["model_id"], told["needs_attention"]) == (agent.id, agent.model_id, False)


@pytest.mark.parametrize(
    ("options", "status", "sentence"),
    [
        (("--status", "open"), 2, "--status: There is no status 'open'."),
        (("--from", "yesterday"), 2, "--from: 'yesterday' is no day."),
        (("--needs", "love"), 2, "--needs: Refinements can need 'attention' and nothing else."),
        (("--sort", "colour"), 2, "There is no order 'colour'."),
        (("--agent", "nobody"), 1, "There is no agent named 'nobody'"),
        (("--before", "00000000"), 1, "There is no refinement '00000000'"),
    ],
)
def test_a_filter_that_can_not_be_used_is_refused_in_words(
    whetstone: Whetstone, agent: Agent, options: tuple[str, ...], status: int, sentence: str
) -> None:
    said = whetstone("refinements", "list", *options)

    assert (said.status, sentence in said.err) == (status, True)


@pytest.mark.parametrize("number", ["00000000", "00000000-0000-4000-8000-000000000000", "%", "abc", "zzzzzzzz", ""])
def test_a_refinement_that_is_not_there_is_not_found(whetstone: Whetstone, number: str) -> None:
    for command in ("show", "stop"):
        said = whetstone("refinements", command, number, "--json")
        assert (said.status, said.error["code"]) == (1, "not_found")


def test_stop_ends_a_queued_one_at_once_and_leaves_an_ended_one_alone(agent: Agent, whetstone: Whetstone) -> None:
    number = whetstone("refine", "ezra", "--json").json["id"]

    assert whetstone("refinements", "stop", number, "--json").json["status"] == "stopped"
    again = whetstone("refinements", "stop", number)
    assert again.status == 0
    assert "had ended already (stopped)" in again.out


def test_stop_of_a_running_one_waits_for_its_next_change(agent: Agent, whetstone: Whetstone) -> None:
    running = begin(agent)
    with writing():
        Refinement.lock(running.refinement.id).heartbeat_at = datetime.now(UTC)

    said = whetstone("refinements", "stop", running.refinement.id)

    assert "before its next change" in said.out
    first, second, *_ = ids_of(agent)
    assert running.tool.execute("delete", id=first, carried_by=second)["type"] == "error"


def test_sweep_starts_what_is_due_once(agent: Agent, whetstone: Whetstone) -> None:
    make_agent("paused one")
    whetstone("agents", "pause", "paused one")

    first = whetstone("sweep", "--json")

    assert first.status == 0
    assert len(first.json["started"]) == 1
    assert "The task queue did not accept them" in first.err
    assert whetstone("sweep", "--weekly", "--json").json == {"started": []}
    assert "Nothing is due" in whetstone("sweep").out


def test_sweep_over_budget_takes_only_those(app: Flask, whetstone: Whetstone) -> None:
    remember(make_agent("light"), CANARY)
    heavy = make_agent("heavy", core_token_budget=1)
    remember(heavy, CANARY)

    started = whetstone("sweep", "--over-budget", "--json").json["started"]

    assert [db.session.get_one(Refinement, number).agent_id for number in started] == [heavy.id]


@pytest.mark.slow
class TestWithAWorker:
    """Beside a real broker and a real worker process."""

    @pytest.fixture
    def worker(self, app: Flask, whetstone: Whetstone) -> Iterator[Worker]:
        from tasks.refinement import worker_answers
        from tests.support.processes import wait_for

        settings = app.extensions["settings"]
        with broker_of(settings), Worker(settings, ("--concurrency", "2")) as started:
            wait_for(lambda: worker_answers(0.5), seconds=60)
            yield started

    def test_it_is_carried_by_the_worker_and_watched_to_its_end(
        self, agent: Agent, whetstone: Whetstone, worker: Worker
    ) -> None:
        said: Said = whetstone("refine", "ezra", "--wait")

        assert said.status == 0
        assert "The agent said YES" in said.out
        assert "Completed: 1 deduplicated" in said.out
        refinement = db.session.scalars(db.select(Refinement)).one()
        assert refinement.model_id == "whetstone/offline"
        assert "litellm" not in said.err

    def test_without_wait_the_worker_gets_it(self, agent: Agent, whetstone: Whetstone, worker: Worker) -> None:
        from tests.support.processes import wait_for

        said = whetstone("refine", "ezra", "--mode", "dedup_only", "--json")

        assert (said.status, said.err) == (0, "")
        number = said.json["id"]
        wait_for(lambda: whetstone("refinements", "show", number, "--json").json["status"] == "completed", seconds=60)
