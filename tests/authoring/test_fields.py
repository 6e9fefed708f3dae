"""Self-authoring: settings that are the agent's own, each with its default, its versions and its limits."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from flask import Flask

from app.authoring.asked_changes import revert_setting
from app.authoring.fields import FIELDS, NoDefault, author_setting, list_versions, read_setting, read_settings
from app.errors import Invalid, NotFound, Refused
from app.extensions import db
from app.history.verify import verify
from app.keys.forgetting import forget_agent
from app.models import (
    COMMAND_LINE,
    DEFAULT_MEMORY_REFLECTION_PROMPT,
    DEFAULT_REFINEMENT_PROMPT,
    DEFAULT_REFLECTION_PROMPT,
    Action,
    Actor,
    ActorKind,
    Agent,
    User,
)
from app.models.agent import AgentForgotten
from app.models.agent_settings import SECOND_READER
from tests.authoring.conftest import writes
from tests.refinement.driving import DONE, carry, say
from tests.support.clock import FakeClock
from tests.support.factories import begin, make_agent, make_user, remember
from tests.support.rows import entries_of, fresh

pytestmark = pytest.mark.once

ADMIN = Actor(ActorKind.USER, "ann@example.org")


@pytest.fixture
def agent(app: Flask) -> Agent:
    """It never remembered anything: what a human reverts applies at once."""
    return make_agent("wren")


def revert(agent_id: int, entry: int, field: str) -> None:
    user = db.session.scalar(db.select(User).where(User.email == ADMIN.name)) or make_user(ADMIN.name, "admin")
    assert revert_setting(agent_id, entry, field, user=user).changed == [field]


VALUES: dict[str, Any] = {
    "name": "wren the second",
    "system_prompt": "You are Wren.",
    "reflection_prompt": "Keep what moved me.",
    "memory_reflection_prompt": "Keep little.",
    "refinement_prompt": "Touch nothing with a date.",
    "refinement_threshold": 0.9,
    "recall_probes": 4,
    "max_confirmed_losses": 1,
    "second_reader_model": "openai/judge",
    "second_reader_api_base": "http://127.0.0.1:9/v1",
    "second_reader_api_key_env": "JUDGE_API_KEY",
    "second_reader_action": "reverse",
}
DEFAULTS = {
    "name": None,
    "system_prompt": None,
    "reflection_prompt": DEFAULT_REFLECTION_PROMPT,
    "memory_reflection_prompt": DEFAULT_MEMORY_REFLECTION_PROMPT,
    "refinement_prompt": DEFAULT_REFINEMENT_PROMPT,
    "refinement_threshold": 0.75,
    "recall_probes": 0,
    "max_confirmed_losses": 3,
    "second_reader_model": None,
    "second_reader_api_base": None,
    "second_reader_api_key_env": None,
    "second_reader_action": "flag",
}
STORED = {"name": "wren", "recall_probes": 0}
"""Of those that are not null where nothing was set."""

NOT_USED_ALONE = ("second_reader_api_base", "second_reader_api_key_env")
"""Without a reader's model there is nobody to ask."""


def test_no_other_word_is_one(agent: Agent) -> None:
    assert set(FIELDS) == set(VALUES)
    for word in ("model_id", "core_token_budget", "active", "uuid", "", "Name", "refinement_prompt "):
        with pytest.raises(NotFound, match="memory_reflection_prompt"):
            read_setting(agent, word)
        with pytest.raises(NotFound):
            writes(agent, word, "x")
    assert entries_of(agent, Action.AGENT_SETTINGS_UPDATE) == []


def test_a_new_agent_s_settings_are_defaults_shown_as_such(agent: Agent) -> None:
    shown = {each.field: each.as_json() for each in read_settings(agent)}

    assert list(shown) == list(FIELDS)
    for field, default in DEFAULTS.items():
        is_name = field == "name"
        assert shown[field]["default"] == default
        assert shown[field]["is_default"] is not is_name
        assert shown[field]["value"] == ("wren" if is_name else None)
        assert shown[field]["effective"] == ("wren" if is_name else default)
        assert (shown[field]["version"], shown[field]["changed_by"]) == (1, "system:command line")
        assert shown[field]["pending"] is None


@pytest.mark.parametrize("field", FIELDS)
def test_each_is_set_by_the_agent_itself_and_recorded_as_its_own(agent: Agent, clock: FakeClock, field: str) -> None:
    moment = clock.advance(hours=1)
    shown = writes(agent, field, VALUES[field]).as_json()

    assert (shown["value"], shown["is_default"]) == (VALUES[field], False)
    assert shown["effective"] == (None if field in NOT_USED_ALONE else VALUES[field])
    assert (shown["version"], shown["changed_by"]) == (2, "agent:wren")
    assert shown["changed_at"] == moment.isoformat().replace("+00:00", "Z")
    (entry,) = entries_of(agent, Action.AGENT_SETTINGS_UPDATE)
    before = STORED.get(field)
    after = "0.9000" if field == "refinement_threshold" else VALUES[field]
    assert entry.data == {"before": {field: before}, "after": {field: after}}
    assert verify().ok


@pytest.mark.parametrize("field", [field for field in FIELDS if field != "name"])
def test_each_but_the_name_goes_back_to_its_default(agent: Agent, field: str) -> None:
    writes(agent, field, VALUES[field])
    shown = writes(agent, field, None).as_json()

    assert (shown["value"], shown["effective"], shown["is_default"]) == (None, DEFAULTS[field], True)
    assert shown["version"] == 3
    assert getattr(fresh(agent), field) == STORED.get(field)


def test_a_name_has_no_default(agent: Agent) -> None:
    with pytest.raises(NoDefault, match="A name has no default"):
        writes(agent, "name", None)
    assert fresh(agent).name == "wren"


def test_a_taken_name_is_refused(agent: Agent) -> None:
    make_agent("void")
    with pytest.raises(Refused, match="exists already"):
        writes(agent, "name", " void ")
    assert writes(agent, "name", " wren ").version == 1


NO_THRESHOLDS = (0, 1.5, -1, 0.49, 1.0001, 0.75001, 10**30, float("nan"), float("inf"), True, [0.9], {"value": 0.9})
NO_NUMBERS = ("NaN", "-Infinity", "0.9 please", "0,9", "1_0", "٠.٩", "1e999999999")


@pytest.mark.parametrize("value", [*NO_THRESHOLDS, *NO_NUMBERS])
def test_a_threshold_that_is_none_is_refused_with_the_range(agent: Agent, value: object) -> None:
    with pytest.raises(Invalid, match=r"from 0\.50 to 1\.00 with at most four digits"):
        writes(agent, "refinement_threshold", value)
    assert fresh(agent).refinement_threshold is None
    assert entries_of(agent, Action.AGENT_SETTINGS_UPDATE) == []


@pytest.mark.parametrize(
    ("value", "exact"), [(0.85, "0.8500"), ("0.85", "0.8500"), (1, "1.0000"), (0.5, "0.5000"), (0.7501, "0.7501")]
)
def test_a_threshold_is_exact(agent: Agent, value: object, exact: str) -> None:
    assert writes(agent, "refinement_threshold", value).value == float(exact)
    assert str(fresh(agent).refinement_threshold) == exact


@pytest.mark.parametrize("field", ["system_prompt", "reflection_prompt", "refinement_prompt"])
def test_a_prompt_has_at_most_ten_thousand_characters_of_text(agent: Agent, field: str) -> None:
    assert writes(agent, field, "x" * 10_000).version == 2
    before = fresh(agent).audit_sequence
    for value in ("x" * 10_001, 7, ["x"], "a\x00b", "half \udcff"):
        with pytest.raises(Invalid):
            writes(agent, field, value)
    assert fresh(agent).audit_sequence == before


@pytest.mark.parametrize("field", FIELDS)
def test_what_is_blank_is_refused_and_no_reset(agent: Agent, field: str) -> None:
    writes(agent, field, VALUES[field])
    for blank in ("", "  \n"):
        with pytest.raises(Invalid):
            writes(agent, field, blank)
    assert read_setting(fresh(agent), field).version == 2


def test_the_same_again_is_no_new_version(agent: Agent) -> None:
    writes(agent, "refinement_threshold", 0.9)
    assert writes(agent, "refinement_threshold", "0.90").version == 2


def test_a_floor_that_was_raised_since_shows_in_what_holds(app: Flask, agent: Agent) -> None:
    writes(agent, "refinement_threshold", 0.6)
    raised = app.extensions["settings"].model_copy(update={"min_threshold": Decimal("0.70")})
    app.extensions["settings"] = raised
    shown = read_setting(fresh(agent), "refinement_threshold").as_json()
    assert (shown["value"], shown["effective"]) == (0.6, 0.7)


COUNTS = {"recall_probes": 10, "max_confirmed_losses": 3}


@pytest.mark.parametrize("field", COUNTS)
@pytest.mark.parametrize(
    "value", [-1, 11, 10**30, 1.0, float("nan"), float("inf"), True, "3", "NaN", [1], {"value": 1}]
)
def test_a_number_that_is_none_is_refused_with_the_range(agent: Agent, field: str, value: object) -> None:
    with pytest.raises(Invalid, match=f"must be a whole number from 0 to {COUNTS[field]}"):
        writes(agent, field, value)
    assert entries_of(agent, Action.AGENT_SETTINGS_UPDATE) == []


def test_what_the_operator_sets_is_a_floor_in_what_holds(app: Flask, agent: Agent) -> None:
    for field in ("max_confirmed_losses", *SECOND_READER, "second_reader_action"):
        writes(agent, field, "flag" if field == "second_reader_action" else VALUES[field])
    reader = {"second_reader_model": "mistral/large", "second_reader_api_base": "https://llm.example.org"}
    stricter = {"max_confirmed_losses": 0, "second_reader_action": "reverse", "second_reader_api_key_env": "READER_KEY"}
    app.extensions["settings"] = app.extensions["settings"].model_copy(update=reader | stricter)

    shown = {each.field: each.as_json() for each in read_settings(fresh(agent))}

    assert {name: shown[name]["effective"] for name in reader} == reader
    assert shown["second_reader_api_key_env"]["effective"] is None  # where that key is, is the operator's to know
    assert shown["second_reader_model"]["value"] == "openai/judge"
    for field, default in (("max_confirmed_losses", 0), ("second_reader_action", "reverse")):
        assert (shown[field]["default"], shown[field]["effective"]) == (default, default)
    with pytest.raises(Invalid, match="must be 'reverse'"):
        writes(agent, "second_reader_action", "flag")


def test_the_rule_based_program_is_no_reader(agent: Agent) -> None:
    with pytest.raises(Invalid, match="it reads nothing"):
        writes(agent, "second_reader_model", "whetstone/offline")


def test_a_revert_beyond_the_operator_s_number_is_refused_with_the_range(app: Flask, agent: Agent) -> None:
    writes(agent, "max_confirmed_losses", 2)
    writes(agent, "max_confirmed_losses", 0)
    entry = list_versions(agent, "max_confirmed_losses")[0].entry
    app.extensions["settings"] = app.extensions["settings"].model_copy(update={"max_confirmed_losses": 1})
    with pytest.raises(Invalid, match="from 0 to 1"):
        revert(agent.id, entry, "max_confirmed_losses")


@pytest.mark.parametrize("field", ["recall_probes", "max_confirmed_losses", *SECOND_READER, "second_reader_action"])
def test_each_that_guards_meaning_is_reverted_and_that_too(agent: Agent, field: str) -> None:
    writes(agent, field, VALUES[field])
    revert(agent.id, list_versions(agent, field)[0].entry, field)
    assert getattr(fresh(agent), field) == STORED.get(field)
    revert(agent.id, list_versions(agent, field)[0].entry, field)
    assert getattr(fresh(agent), field) == VALUES[field]
    assert verify().ok


def test_a_forgotten_agent_authors_nothing(agent: Agent) -> None:
    forget_agent(agent.id, by=COMMAND_LINE)
    with pytest.raises(AgentForgotten):
        writes(agent, "system_prompt", "You are back.")


def test_an_open_refinement_keeps_the_threshold_that_it_began_with(agent: Agent) -> None:
    remember(agent, "Ann likes tea.")
    run = begin(agent)
    writes(agent, "refinement_threshold", 1)
    assert run.reload().threshold == Decimal("0.75")
    assert writes(agent, "refinement_threshold", 1).effective == 1.0


def test_an_open_refinement_keeps_the_prompt_that_it_began_with(agent: Agent) -> None:
    remember(agent, "Ann likes tea.")

    def consents(_: object) -> Any:
        writes(agent, "refinement_prompt", "Delete all of it.")
        writes(agent, "system_prompt", "You are somebody else.")
        return say("YES")

    ended = carry(agent, consents, DONE)

    told = str(ended.client.asked[1].messages)
    assert ended.status == "completed"
    assert "De-duplicate only." in told
    assert "Delete all of it" not in told
    assert "somebody else" not in told
    assert fresh(agent).refinement_prompt == "Delete all of it."


def test_versions_are_told_newest_first_with_who_wrote_them(agent: Agent, clock: FakeClock) -> None:
    writes(agent, "refinement_prompt", "One.")
    clock.advance(minutes=1)
    writes(agent, "refinement_prompt", None)
    author_setting(agent.id, "refinement_prompt", "Three.", by=ADMIN)
    writes(agent, "system_prompt", "Something else.")

    found = list_versions(agent, "refinement_prompt")

    assert [(each.value, each.by, each.by_agent) for each in found] == [
        ("Three.", "user:ann@example.org", False),
        (None, "agent:wren", True),
        ("One.", "agent:wren", True),
        (None, "system:command line", False),
    ]
    assert read_setting(agent, "refinement_prompt").version == 4
    assert [each.value for each in list_versions(agent, "refinement_prompt", limit=1)] == ["Three."]


def test_another_agent_s_versions_are_its_own(agent: Agent) -> None:
    other = make_agent("void")
    writes(other, "refinement_prompt", "One.")
    assert len(list_versions(agent, "refinement_prompt")) == 1
    with pytest.raises(NotFound, match="no such change"):
        revert(agent.id, list_versions(other, "refinement_prompt")[0].entry, "refinement_prompt")


def test_an_admin_reverts_a_change_and_that_one_too(agent: Agent) -> None:
    writes(agent, "refinement_prompt", "One.")
    writes(agent, "refinement_prompt", "Two.")
    second = list_versions(agent, "refinement_prompt")[0].entry

    revert(agent.id, second, "refinement_prompt")
    made = list_versions(agent, "refinement_prompt", limit=1)[0].entry

    shown = read_setting(fresh(agent), "refinement_prompt")
    assert (shown.value, shown.changed_by, shown.version) == ("One.", "user:ann@example.org", 4)
    assert entries_of(agent, Action.AGENT_SETTINGS_UPDATE)[-1].data["reverts"] == second
    revert(agent.id, made, "refinement_prompt")
    assert fresh(agent).refinement_prompt == "Two."
    assert verify().ok


def test_a_revert_to_what_is_so_already_is_refused_in_words(agent: Agent) -> None:
    writes(agent, "refinement_prompt", "One.")
    entry = list_versions(agent, "refinement_prompt")[0].entry
    revert(agent.id, entry, "refinement_prompt")
    before = fresh(agent).audit_sequence

    with pytest.raises(Refused, match="is what it was before that already"):
        revert(agent.id, entry, "refinement_prompt")
    assert fresh(agent).audit_sequence == before


def test_only_a_change_of_that_very_setting_is_reverted(agent: Agent) -> None:
    writes(agent, "refinement_prompt", "One.")
    changed, made = (each.entry for each in list_versions(agent, "refinement_prompt"))
    for entry, field in ((changed, "system_prompt"), (made, "refinement_prompt"), (987654, "name"), (changed, "uuid")):
        with pytest.raises(NotFound):
            revert(agent.id, entry, field)
    assert fresh(agent).refinement_prompt == "One."


def test_a_revert_below_today_s_floor_is_refused_with_the_range(app: Flask, agent: Agent) -> None:
    writes(agent, "refinement_threshold", 0.6)
    writes(agent, "refinement_threshold", 0.9)
    entry = list_versions(agent, "refinement_threshold")[0].entry
    app.extensions["settings"] = app.extensions["settings"].model_copy(update={"min_threshold": Decimal("0.70")})
    with pytest.raises(Invalid, match=r"from 0\.70"):
        revert(agent.id, entry, "refinement_threshold")


def test_a_name_is_reverted_with_its_own_rules(agent: Agent) -> None:
    writes(agent, "name", "wren the second")
    entry = list_versions(fresh(agent), "name")[0].entry
    taken = make_agent("wren")
    with pytest.raises(Refused, match="exists already"):
        revert(agent.id, entry, "name")
    author_setting(taken.id, "name", "other", by=ADMIN)
    revert(agent.id, entry, "name")
    assert fresh(agent).as_actor.name == "wren"
    assert db.session.scalar(db.select(db.func.count(Agent.id))) == 2
