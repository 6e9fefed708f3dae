"""Models' keys are the worker's alone: the process that faces the network does not inherit them, nor does beat."""

from __future__ import annotations

import pytest

from app.config import Settings
from app.processes.startup import NOWHERE, _make_child

KEYS = {
    "OPENAI_API_KEY",
    "AZURE_API_KEY",
    "HF_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_SESSION_TOKEN",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "DATABRICKS_CLIENT_SECRET",
}
LISTED = {"OF_ADA", "OF_THE_READER", "OF_THE_SECOND_READER"}
NEEDED = {"PATH", "DATABASE_URL", "REDIS_URL", "PGPASSWORD", "WHETSTONE_SECRET_KEY", "TZ"}


@pytest.fixture
def all_set(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in KEYS | LISTED | NEEDED:
        monkeypatch.setenv(name, "a value")
    operators = {"safety_api_key_env": "OF_THE_READER", "second_reader_api_key_env": "OF_THE_SECOND_READER"}
    return settings.model_copy(update={"api_key_envs": ("OF_ADA",), **operators})


@pytest.mark.parametrize("part", ["web", "beat"])
def test_web_and_beat_inherit_no_key_of_a_model_and_all_else(all_set: Settings, part: str) -> None:
    inherited = set(_make_child(all_set, part, grace=1).environment)
    assert inherited & (KEYS | LISTED) == set()
    assert inherited >= NEEDED


@pytest.mark.parametrize("number", [1, 2])
def test_each_worker_inherits_them(all_set: Settings, number: int) -> None:
    child = _make_child(all_set, "worker", grace=1, number=number)
    assert set(child.environment) >= KEYS | LISTED | NEEDED
    assert child.environment.get("WHETSTONE_MASTER_KEY_FILE") != NOWHERE


def test_each_worker_has_a_name_and_a_log_of_its_own(settings: Settings) -> None:
    children = [_make_child(settings, "worker", grace=1, number=number) for number in (1, 2)]
    assert [(child.name, child.log.name, child.part) for child in children] == [
        ("worker", "worker.log", "worker"),
        ("worker-2", "worker-2.log", "worker"),
    ]
