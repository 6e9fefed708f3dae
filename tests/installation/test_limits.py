"""Limits: every setting is told with its meaning and where it comes from, the host's own to its operator; no secret."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from app.config import Settings, load_settings
from app.installation import limits
from app.installation.limits import GROUPS, HOST, Limit, limits_as_json, read_limits

SECRET = "hunter2/with@signs"


def all_limits(settings: Settings, *, with_host: bool = True) -> dict[str, Limit]:
    return {each.name: each for group in read_limits(settings, with_host=with_host) for each in group.limits}


def test_every_setting_is_told_once_with_its_meaning_and_its_source() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped)) and set(grouped) <= set(Settings.model_fields)

    found = all_limits(load_settings(max_turns=12, models="openai/*,ollama/*", secure_cookies=True))

    assert len(found) == len(Settings.model_fields)
    assert all(each.meaning for each in found.values())
    turns, deadline = found["WHETSTONE_MAX_TURNS"], found["WHETSTONE_DEADLINE_SECONDS"]
    assert (turns.value, turns.words, turns.source, turns.default) == (12, "12", "environment", "30")
    assert (deadline.value, deadline.words, deadline.source) == (900, "900 s", "default")
    assert found["WHETSTONE_MODELS"].value == ["openai/*", "ollama/*"]
    assert found["WHETSTONE_MIN_THRESHOLD"].words == "50%"
    assert found["WHETSTONE_SECURE_COOKIES"].words == "on"
    assert found["WHETSTONE_SECOND_READER_MODEL"].words == "off"


def test_the_host_s_own_settings_are_for_its_operator() -> None:
    told = all_limits(load_settings(), with_host=False)

    assert "WHETSTONE_MAX_MUTATIONS" in told
    assert not {"DATABASE_URL", "REDIS_URL", "WHETSTONE_DATA_DIR", "WHETSTONE_MASTER_KEY_FILE"} & told.keys()
    assert [group.title for group in read_limits(load_settings(), with_host=True)][-1] == HOST


@pytest.mark.parametrize("with_host", [True, False])
def test_no_password_is_told_wherever_it_stands_in_an_address(with_host: bool) -> None:
    addresses = {
        "database_url": f"postgresql://me:{SECRET}@db.example/x?sslpassword=hunter2",
        "redis_url": f"rediss://:{SECRET}@cache.example:6379/0",
        "checkpoint_url": f"https://u:{SECRET}@log.example/in?token={SECRET}",
        "second_reader_api_base": f"https://u:{SECRET}@models.example/v1",
        "safety_api_base": f"https://models.example/v1?key={SECRET}",
    }
    groups = read_limits(load_settings(**addresses), with_host=with_host)

    said = json.dumps(limits_as_json(groups)) + repr(groups)
    assert "hunter2" not in said and "signs" not in said
    assert "models.example/v1" in said
    assert ("db.example/x" in said) == with_host


def test_a_setting_that_is_a_secret_is_only_told_to_be_set() -> None:
    """None is today; one that is added is masked by its name."""
    assert [limits._is_secret(name) for name in ("smtp_password", "webhook_secret", "api_token")] == [True] * 3
    assert not any(limits._is_secret(name) for name in ("max_model_tokens", "api_key_envs", "master_key_file"))
    assert limits._words("smtp_password", SECRET) == "set, not shown"
    assert limits._plain_value("smtp_password", SECRET) is None


def test_shares_and_money_are_told_as_people_write_them() -> None:
    given = {"min_threshold": Decimal("0.6250"), "default_threshold": Decimal("0.8"), "erosion_floor": "off"}
    found = all_limits(load_settings(**given))

    assert [found[f"WHETSTONE_{name}"].words for name in ("MIN_THRESHOLD", "DEFAULT_THRESHOLD", "EROSION_FLOOR")] == [
        *("62.50%", "80%", "off")
    ]
    assert found["WHETSTONE_MAX_COST_USD"].words == "5 US dollars"
    assert found["WHETSTONE_MAX_MODEL_TOKENS"].words == "1,000,000 tokens"
