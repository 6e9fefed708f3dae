"""Models' keys are the worker's alone: the process that faces the network does not inherit them, nor does beat."""

from __future__ import annotations

import pytest

from app.config import Settings
from app.processes.startup import _make_child

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


def test_the_worker_inherits_them(all_set: Settings) -> None:
    assert set(_make_child(all_set, "worker", grace=1).environment) >= KEYS | LISTED | NEEDED
