"""`whetstone agents`: what it makes, shows and changes, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from flask import Flask

from app.extensions import SystemClock, db, writing
from app.keys.agent_keys import open_keys
from app.models import Account, Agent, AgentToken
from app.models.key import AgentKey
from app.silo import hash_token, parse_token
from tests.cli.conftest import Whetstone
from tests.support.clock import FakeClock
from tests.support.factories import begin, make_agent, remember

OFFLINE = ("--model", "whetstone/offline")


def test_create_answers_with_id_name_and_a_token_that_opens_the_agents_keys(app: Flask, whetstone: Whetstone) -> None:
    made = whetstone("agents", "create", "ezra", *OFFLINE, "--json")

    assert made.status == 0
    assert set(made.json) == {"id", "name", "token"}
    agent = db.session.get_one(Agent, made.json["id"])
    token = db.session.scalars(db.select(AgentToken).where(AgentToken.agent_id == agent.id)).one()
    assert token.token_hash == hash_token(made.json["token"])
    parsed = parse_token(made.json["token"])
    assert parsed is not None
    mine = open_keys(agent, parsed[1])
    assert mine.content_hash("tea") == open_keys(agent).content_hash("tea")


def test_create_takes_every_setting(app: Flask, whetstone: Whetstone, tmp_path: Path) -> None:
    prompt = tmp_path / "who.txt"
    prompt.write_text("You are Ezra. Ünd so.\n")

    made = whetstone(
        "agents", "create", "ezra", "--model", "openai/small", "--api-base", "http://127.0.0.1:9/v1",
        "--api-key-env", "MY_KEY", "--budget", "900", "--threshold", "0.9", "--system-prompt-file", str(prompt),
        "--json",
    )  # fmt: skip

    agent = db.session.get_one(Agent, made.json["id"])
    assert (agent.model_id, agent.api_base, agent.api_key_env) == ("openai/small", "http://127.0.0.1:9/v1", "MY_KEY")
    assert (agent.core_token_budget, str(agent.refinement_threshold)) == (900, "0.9000")
    assert agent.system_prompt == "You are Ezra. Ünd so."


GUARDS = (
    *("--recall-probes", "5", "--max-confirmed-losses", "1", "--second-reader", "openai/judge"),
    *("--second-reader-api-base", "http://127.0.0.1:9/v1", "--second-reader-api-key-env", "JUDGE_API_KEY"),
    *("--second-reader-action", "reverse"),
)
GUARDED = {
    "recall_probes": 5,
    "max_confirmed_losses": 1,
    "effective_max_confirmed_losses": 1,
    "second_reader_model": "openai/judge",
    "second_reader_api_base": "http://127.0.0.1:9/v1",
    "second_reader_api_key_env": "JUDGE_API_KEY",
    "second_reader_action": "reverse",
}
UNGUARDED = dict.fromkeys(GUARDED) | {"recall_probes": 0, "effective_max_confirmed_losses": 3}


def test_what_guards_meaning_is_set_shown_and_unset(app: Flask, whetstone: Whetstone) -> None:
    def shown() -> dict[str, object]:
        told = whetstone("agents", "show", "ezra", "--json").json
        return {name: told[name] for name in GUARDED}

    assert whetstone("agents", "create", "ezra", *OFFLINE, *GUARDS).status == 0
    assert shown() == GUARDED
    said = whetstone("agents", "show", "ezra").out
    assert "at most 1 a refinement" in said
    assert "openai/judge (its own); a refinement of which not all is kept is reversed" in said

    undone = whetstone(
        *("agents", "set", "ezra", "--recall-probes", "0", "--max-confirmed-losses", "default", "--json"),
        *("--second-reader", "", "--second-reader-api-base", "", "--second-reader-api-key-env", ""),
        *("--second-reader-action", "default"),
    )
    assert undone.json["changed"]["max_confirmed_losses"] == {"before": 1, "after": None}
    assert shown() == UNGUARDED
    assert re.search(r"second reader +none", whetstone("agents", "show", "ezra").out)
    assert whetstone("agents", "set", "ezra", *GUARDS).status == 0
    assert shown() == GUARDED


def test_people_see_the_token_once_and_what_to_do_next(whetstone: Whetstone) -> None:
    said = whetstone("agents", "create", "Ezra the Second", *OFFLINE)

    assert re.search(r"whet_[0-9a-f]{16}_\S{43}", said.out)
    assert "memories import FILE --agent 'Ezra the Second'" in said.out
    assert "whet_" not in whetstone("agents", "show", "Ezra the Second").out


@pytest.mark.parametrize("threshold", ["NaN", "1.5", "abc", "0.49", "inf", "-1", "0.75001"])
def test_a_threshold_out_of_range_is_wrong_usage_and_makes_nothing(
    app: Flask, whetstone: Whetstone, threshold: str
) -> None:
    said = whetstone("agents", "create", "ezra", *OFFLINE, f"--threshold={threshold}")

    assert said.status == 2
    assert "from 0.50 to 1.00" in said.err
    assert db.session.scalars(db.select(Agent)).all() == []
    assert db.session.scalars(db.select(AgentKey)).all() == []


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--budget", "0"), "budget"),
        (("--recall-probes", "11"), "from 0 to 10"),
        (("--recall-probes", "nan"), "not a valid integer"),
        (("--max-confirmed-losses", "4"), "from 0 to 3"),
        (("--max-confirmed-losses", "NaN"), "from 0 to 3"),
        (("--max-confirmed-losses", "1.0"), "from 0 to 3"),
        (("--second-reader", "whetstone/offline"), "reads nothing"),
        (("--second-reader-api-base", "ftp://x"), "http://"),
        (("--second-reader-api-key-env", "DATABASE_URL"), "WHETSTONE_API_KEY_ENVS"),
        (("--second-reader-action", "undo"), "'flag' or 'reverse'"),
        (("--budget", "many"), "not a valid integer"),
        (("--api-base", "ftp://x"), "http://"),
        (("--api-key-env", "sk-12-34"), "NAME"),
        (("--api-key-env", "DATABASE_URL"), "WHETSTONE_API_KEY_ENVS"),
        (("--system-prompt-file", "/nowhere/at/all"), "does not exist"),
    ],
)
def test_other_wrong_options_are_wrong_usage_too(whetstone: Whetstone, options: tuple[str, ...], word: str) -> None:
    said = whetstone("agents", "create", "ezra", *OFFLINE, *options)

    assert said.status == 2
    assert word in said.err


def test_a_name_that_is_taken_is_refused(whetstone: Whetstone) -> None:
    whetstone("agents", "create", "ezra", *OFFLINE)

    again = whetstone("agents", "create", " ezra ", *OFFLINE, "--json")

    assert again.status == 3
    assert "exists already" in again.error["message"]
    assert again.out == ""


@pytest.mark.parametrize("name", ["", "   ", "x" * 81, "a\u200bb", "half \udcff"])
def test_a_name_that_can_not_be_one_is_wrong_usage(whetstone: Whetstone, name: str) -> None:
    assert whetstone("agents", "create", name, *OFFLINE).status == 2


def test_show_says_what_programs_rely_on(
    app: Flask, whetstone: Whetstone, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a Tuesday: within the hour before the weekly sweep, that is what starts the agent."""
    at = clock.advance(days=1)
    monkeypatch.setattr(SystemClock, "now", lambda _: at)
    agent = make_agent("ezra", core_token_budget=10)
    remember(agent, "Ann likes tea, and rum, and long walks by the sea.")

    shown = whetstone("agents", "show", "ezra", "--json").json

    assert shown | {"core_token_usage": 13, "core_count": 1, "journal_count": 0, "core_token_budget": 10} == shown
    assert (shown["name"], shown["model_id"]) == ("ezra", "whetstone/offline")
    assert (shown["refinement_threshold"], shown["effective_refinement_threshold"]) == (None, 0.75)
    assert (shown["active"], shown["paused"], shown["needs_refinement"]) == (True, False, True)
    assert (shown["last_refinement_at"], shown["open_refinement"]) == (None, None)
    assert shown["next_due_words"] == "Next run within 1 hour (3 tokens over budget)."
    assert "Next run within 1 hour (3 tokens over budget)." in whetstone("agents", "show", "ezra").out


def test_show_names_the_open_refinement(app: Flask, whetstone: Whetstone) -> None:
    agent = make_agent("ezra")
    remember(agent, "Ann likes tea.")
    running = begin(agent)

    assert whetstone("agents", "show", "ezra", "--json").json["open_refinement"] == running.refinement.id


def test_an_agent_with_nothing_changeable_needs_no_refinement(app: Flask, whetstone: Whetstone) -> None:
    remember(make_agent("ezra", core_token_budget=1), "Ann likes tea.", constitutional=True)
    make_agent("empty")

    assert [each["needs_refinement"] for each in whetstone("agents", "list", "--json").json] == [False, False]


def test_list_of_none_says_what_to_do(whetstone: Whetstone) -> None:
    said = whetstone("agents", "list")

    assert said.status == 0
    assert "agents create" in said.out
    assert whetstone("agents", "list", "--json").json == []


def test_set_changes_prints_and_records_what_it_was(app: Flask, whetstone: Whetstone, tmp_path: Path) -> None:
    agent = make_agent("ezra", refinement_prompt="Mine.")
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")

    said = whetstone(
        "agents", "set", "ezra", "--name", "Ezra II", "--threshold", "0.8", "--inactive",
        "--refinement-prompt-file", str(empty), "--json",
    )  # fmt: skip

    assert said.json["changed"]["refinement_threshold"] == {"before": None, "after": "0.8000"}
    assert set(said.json["changed"]) == {"name", "refinement_threshold", "active", "refinement_prompt"}
    after = db.session.get_one(Agent, agent.id, populate_existing=True)
    assert (after.name, after.active, after.refinement_prompt) == ("Ezra II", False, None)
    entry = whetstone("audit", "--agent", "Ezra II", "--last", "1", "--json").lines[0]
    assert (entry["action"], entry["data"]["before"]["name"]) == ("agent_settings_update", "ezra")


def test_set_goes_back_to_the_default_threshold(app: Flask, whetstone: Whetstone) -> None:
    make_agent("ezra", refinement_threshold="0.9")

    said = whetstone("agents", "set", "ezra", "--threshold", "default")

    assert "0.9000 → default" in said.out
    assert whetstone("agents", "show", "ezra", "--json").json["refinement_threshold"] is None


def test_set_of_what_is_so_already_changes_and_records_nothing(app: Flask, whetstone: Whetstone) -> None:
    make_agent("ezra")
    before = whetstone("audit", "--json").out

    assert "Nothing changed" in whetstone("agents", "set", "ezra", "--active").out
    assert whetstone("audit", "--json").out == before


def test_set_without_an_option_or_with_a_taken_name_is_refused(app: Flask, whetstone: Whetstone) -> None:
    make_agent("ezra")
    make_agent("void")

    assert whetstone("agents", "set", "ezra").status == 2
    assert whetstone("agents", "set", "ezra", "--name", "void", "--budget", "7").status == 3
    assert whetstone("agents", "show", "ezra", "--json").json["core_token_budget"] == 5000


def test_pause_and_resume_take_several_or_all(app: Flask, whetstone: Whetstone) -> None:
    for name in ("ezra", "void", "evie"):
        make_agent(name)

    assert "Paused evie, ezra" in whetstone("agents", "pause", "evie", "ezra").out.replace("ezra, evie", "evie, ezra")
    assert whetstone("agents", "pause", "--all").out.splitlines()[0] == "Paused void."
    assert {each["paused"] for each in whetstone("agents", "list", "--json").json} == {True}
    assert whetstone("agents", "resume", "void", "--json").json["changed"] is True
    assert whetstone("agents", "resume", "void", "--json").json["changed"] is False


def test_pausing_one_that_is_not_there_pauses_none(app: Flask, whetstone: Whetstone) -> None:
    make_agent("ezra")

    assert whetstone("agents", "pause", "ezra", "nobody").status == 1
    assert whetstone("agents", "pause").status == 2
    assert whetstone("agents", "show", "ezra", "--json").json["paused"] is False


def test_an_unknown_agent_is_named_and_so_is_the_way_to_the_others(whetstone: Whetstone) -> None:
    for arguments in (
        ("agents", "show", "nobody"),
        ("agents", "set", "nobody", "--budget", "7"),
        ("memories", "list", "nobody"),
        ("memories", "import", "-", "--agent", "nobody"),
        ("refine", "nobody"),
        ("refinements", "list", "--agent", "nobody"),
        ("audit", "--agent", "nobody"),
        ("verify", "--agent", "nobody"),
    ):
        said = whetstone(*arguments, "--json")
        assert said.status == 1, arguments
        assert said.out == "", arguments
        assert said.error["code"] == "not_found", arguments
        assert "'nobody'" in said.error["message"], arguments
        assert "agents list" in said.error["message"], arguments


def test_an_agent_of_another_account_is_pointed_at(app: Flask, whetstone: Whetstone) -> None:
    with writing():
        account = Account.create("Other Place")
    make_agent("ezra", account_id=account.id)

    said = whetstone("agents", "show", "ezra")

    assert said.status == 1
    assert "--account 'Other Place'" in said.err
    assert whetstone("agents", "show", "ezra", "--account", "Other Place").status == 0


def test_an_unknown_account_is_refused_with_the_names_of_all(whetstone: Whetstone) -> None:
    said = whetstone("agents", "list", "--account", "Nowhere")

    assert said.status == 1
    assert "There are: Home." in said.err


def test_list_filters_and_sorts_as_the_page_does(app: Flask, whetstone: Whetstone) -> None:
    small, large = make_agent("ann"), make_agent("bob", core_token_budget=1)
    remember(small, "Ann likes tea.")
    remember(large, "Bob likes rum, and a good deal of it.")

    def names(*options: str) -> list[str]:
        return [each["name"] for each in whetstone("agents", "list", *options, "--json").json]

    assert names() == ["ann", "bob"]
    assert names("--sort", "-memory") == ["bob", "ann"]
    assert names("--state", "over_budget") == ["bob"]
    assert names("--query", "AN", "--due", "week") == ["ann"]
    assert names("--outcome", "failed") == []
    assert "match" in whetstone("agents", "list", "--outcome", "failed").out
    refused = whetstone("agents", "list", "--due", "soon", "--json")
    assert refused.status == 2
    assert "There are: hour, day, week, none." in refused.error["message"]
