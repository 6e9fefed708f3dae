"""`schedule`, `limits` and `models list`: the twins of the pages under /settings."""

from __future__ import annotations

import pytest
from flask import Flask

from tests.cli.conftest import Whetstone
from tests.support.factories import make_agent, remember


def test_the_schedule_in_words_and_what_another_would_mean(whetstone: Whetstone, app: Flask) -> None:
    remember(make_agent(), "Ann likes tea.")

    said = whetstone("schedule")
    assert "Every Monday at 04:00 UTC (0 4 * * 1)" in said.out
    assert "the default; WHETSTONE_SCHEDULE changes it" in said.out
    found = whetstone("schedule", "--json").json
    assert (len(found["next_runs"]), found["next_runs"][0]["due"], found["source"]) == (5, 1, "default")
    tried = whetstone("schedule", "--try", "5 5 * * *", "--json").json
    assert (tried["words"], tried["crontab"]) == ("Every day at 05:05 UTC", "5 5 * * *")


@pytest.mark.parametrize(("crontab", "why"), [("soon", "five fields"), ("0 0 */15 2 MON#2", "never runs")])
def test_what_is_no_crontab_is_wrong_usage(whetstone: Whetstone, crontab: str, why: str) -> None:
    said = whetstone("schedule", "--try", crontab)

    assert (said.status, said.out) == (2, "")
    assert why in said.err


def test_limits_say_where_they_come_from_and_no_password(whetstone: Whetstone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHETSTONE_MAX_TURNS", "12")
    monkeypatch.setenv("REDIS_URL", "redis://:hunter2@cache.example/0")

    said, found = whetstone("limits"), whetstone("limits", "--json").json

    limits = {each["name"]: each for group in found["groups"] for each in group["limits"]}
    assert (limits["WHETSTONE_MAX_TURNS"]["value"], limits["WHETSTONE_MAX_TURNS"]["source"]) == (12, "environment")
    assert limits["WHETSTONE_MAX_MUTATIONS"]["source"] == "default"
    assert "cache.example" in said.out and "hunter2" not in said.out + str(found)


def test_models_in_use_are_listed(whetstone: Whetstone, app: Flask) -> None:
    assert "No agent has a model yet" in whetstone("models", "list").out
    make_agent(model_id="openai/m")

    assert "OPENAI_API_KEY unknown" in whetstone("models", "list").out
    told = whetstone("models", "list", "--json").json["models"]
    assert [(each["model_id"], each["agents"], each["keys"]) for each in told] == [
        ("openai/m", 1, [{"variable": "OPENAI_API_KEY", "set": None}])
    ]
