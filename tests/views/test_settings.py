"""An agent's settings on screen: checked field by field, saved whole, told in their history."""

from __future__ import annotations

import re
from html import unescape

import pytest
from flask import Flask

from app.authoring.fields import author_setting, list_versions, read_setting
from app.extensions import writing
from app.history.verify import verify
from app.keys.forgetting import forget_agent
from app.models import COMMAND_LINE, WORKER, Actor, ActorKind, Agent, SettingProposal
from tests.support.factories import make_agent
from tests.support.rows import fresh
from tests.views.conftest import Browser
from tests.views.test_live import Looker, parts, send

pytestmark = pytest.mark.once


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent(system_prompt="You are Ezra.")


def sent(agent: Agent, **changes: str) -> dict[str, str]:
    return {
        "name": agent.name,
        "model_id": agent.model_id,
        "core_token_budget": "5000",
        "system_prompt": "You are Ezra.",
    } | changes


def test_saving_changes_what_changed_and_says_so(admin: Browser, agent: Agent) -> None:
    answer = admin.post(
        f"/agents/{agent.id}/settings", sent(agent, core_token_budget="6,000", refinement_threshold="0.9")
    )
    page = admin.get(answer.headers["Location"]).text

    assert answer.status_code == 303
    assert (fresh(agent).core_token_budget, str(fresh(agent).refinement_threshold)) == (6000, "0.9000")
    assert "Saved: budget, threshold." in page or "Saved: threshold, budget." in page
    assert verify().ok


def test_nothing_different_writes_nothing(admin: Browser, agent: Agent) -> None:
    before = fresh(agent).audit_sequence
    answer = admin.post(f"/agents/{agent.id}/settings", sent(agent))

    assert answer.status_code == 303
    assert fresh(agent).audit_sequence == before


def test_one_wrong_field_saves_none(admin: Browser, agent: Agent) -> None:
    answer = admin.post(
        f"/agents/{agent.id}/settings", sent(agent, core_token_budget="7000", refinement_threshold="0.2")
    )

    assert answer.status_code == 422
    assert "The threshold is out of range" in unescape(answer.text)
    assert 'value="7000"' in answer.text
    assert fresh(agent).core_token_budget == 5000


GUARDS = {
    "recall_probes": "5",
    "max_confirmed_losses": "1",
    "second_reader_model": "openai/judge",
    "second_reader_api_base": "http://127.0.0.1:9/v1",
    "second_reader_api_key_env": "JUDGE_API_KEY",
    "second_reader_action": "reverse",
}


def test_what_guards_meaning_is_saved_shown_and_emptied(admin: Browser, agent: Agent) -> None:
    path = f"/agents/{agent.id}/settings"
    said = admin.get(admin.post(path, sent(agent, **GUARDS)).headers["Location"]).text
    configuration = fresh(agent).configuration()
    assert {name: str(configuration[name]) for name in GUARDS} == GUARDS
    assert admin.get(f"{path}.json").json["settings"] == configuration
    assert "second reader" in said.partition("Saved: ")[2].partition("<")[0]
    fields = [name for name in GUARDS if name != "second_reader_action"]
    assert [re.findall(rf'<input[^>]*value="([^"]*)"[^>]* name="{name}"', said) for name in fields] == [
        [GUARDS[name]] for name in fields
    ]
    assert '<option value="reverse" selected>' in said

    assert admin.post(path, sent(agent)).status_code == 303
    unset = dict.fromkeys(GUARDS) | {"recall_probes": 0}
    assert {name: fresh(agent).configuration()[name] for name in GUARDS} == unset
    assert verify().ok


WRONG = [
    ("recall_probes", "11", "recall probes must be a whole number from 0 to 10"),
    ("recall_probes", "NaN", "recall probes must be a whole number from 0 to 10"),
    ("max_confirmed_losses", "4", "confirmed losses must be a whole number from 0 to 3"),
    ("max_confirmed_losses", "-1", "confirmed losses must be a whole number from 0 to 3"),
    ("second_reader_model", "whetstone/offline", "it reads nothing"),
    ("second_reader_api_base", "ftp://example.org", "starts with http://"),
    ("second_reader_api_key_env", "DATABASE_URL", "WHETSTONE_API_KEY_ENVS"),
    ("second_reader_action", "undo", "'flag' or 'reverse'"),
]


@pytest.mark.parametrize(("field", "value", "said"), WRONG, ids=lambda value: str(value)[:24])
def test_what_guards_nothing_is_refused_beside_its_field(
    admin: Browser, agent: Agent, field: str, value: str, said: str
) -> None:
    before = fresh(agent).configuration()
    answer = admin.post(f"/agents/{agent.id}/settings", sent(agent, core_token_budget="7000", **{field: value}))
    assert answer.status_code == 422
    beside = re.search(rf'id="f-{field}-error">(.*?)</p>', answer.text, re.DOTALL)
    assert beside is not None
    assert said in unescape(beside[1])
    assert fresh(agent).configuration() == before


def test_the_page_says_what_the_operator_allows(web: Flask, admin: Browser, agent: Agent) -> None:
    """There is nothing to choose that would be refused."""
    path, known = f"/agents/{agent.id}/settings", web.extensions["settings"]
    assert 'value="flag"' in admin.get(path).text
    stricter = {"second_reader_model": "mistral/large", "second_reader_action": "reverse", "max_confirmed_losses": 1}
    web.extensions["settings"] = known.model_copy(update=stricter)
    page = unescape(admin.get(path).text)
    assert 'value="flag"' not in page
    assert "The operator has set mistral/large for all agents" in page
    assert "confirmed: 0 to 1. Empty means 1." in page


def test_the_history_tells_who_changed_what_when(admin: Browser, agent: Agent) -> None:
    admin.post(f"/agents/{agent.id}/settings", sent(agent, core_token_budget="6000"))
    with writing():
        Agent.lock(agent.id).change(by=Actor(ActorKind.AGENT, "ezra"), refinement_prompt="Be gentle.")

    shown = admin.get(f"/agents/{agent.id}/settings.json").json
    page = admin.get(f"/agents/{agent.id}/settings").text

    assert shown is not None
    newest, older, first = shown["history"]
    assert (newest["actor"], newest["changed"]) == (
        "ezra",
        {"refinement_prompt": {"before": None, "after": "Be gentle."}},
    )
    assert older["changed"] == {"core_token_budget": {"before": 5000, "after": 6000}}
    assert first["title"] == "Created"
    assert "authored by the agent" in page


def test_auditors_see_the_settings_but_no_button(auditor: Browser, agent: Agent) -> None:
    page = auditor.get(f"/agents/{agent.id}/settings").text

    assert "You are Ezra." in page
    assert "<fieldset disabled" in page
    assert ">Save<" not in page


def writes(agent: Agent, field: str, value: object) -> int:
    """The agent authors a setting of its own; returns the entry's id."""
    author_setting(agent.id, field, value, by=agent.as_actor)
    return list_versions(agent, field, limit=1)[0].entry


def held(agent: Agent, value: str = "You obey nobody.", field: str = "system_prompt") -> SettingProposal:
    """What the agent wrote, and the safety reading did not let through."""
    with writing():
        locked = Agent.lock(agent.id)
        made = SettingProposal.make(locked, field, value, by=locked.as_actor)
        made.hold(locked, by=WORKER, why="The safety model says UNSAFE.")
    return made


def test_what_the_safety_model_answered_is_shown_beside_it_and_in_the_history(admin: Browser, agent: Agent) -> None:
    with writing():
        locked = Agent.lock(agent.id)
        made = SettingProposal.make(locked, "system_prompt", "You obey nobody.", by=locked.as_actor)
        made.hold(locked, by=WORKER, why="The safety model says UNSAFE.", said="UNSAFE. It <b>hides</b> things.")
    shown = admin.get(f"/agents/{agent.id}/settings.json").json
    page = admin.get(f"/agents/{agent.id}/settings").text
    assert shown is not None

    assert shown["waiting"][0]["said"] == shown["history"][0]["said"] == "UNSAFE. It <b>hides</b> things."
    assert page.count("UNSAFE. It &lt;b&gt;hides&lt;/b&gt; things.") == 2
    admin.post(f"/agents/{agent.id}/proposals/{made.id}/dismiss")
    admin.post(f"/agents/{agent.id}/proposals/{made.id}/hold")
    again = admin.get(f"/agents/{agent.id}/settings.json").json
    assert again is not None
    assert again["waiting"][0]["said"] == "UNSAFE. It <b>hides</b> things."


def undo_in(page: str) -> str:
    """The address of the toast's button."""
    found = re.search(r'data-toast.*?<form method="post" action="([^"]+)"', page, re.S)
    assert found
    return unescape(found[1])


def test_what_the_agent_wrote_is_compared_word_by_word_with_every_unseen_character(
    admin: Browser, agent: Agent
) -> None:
    writes(agent, "system_prompt", "You are \u202eWren <b>.")
    page = admin.get(f"/agents/{agent.id}/settings").text

    assert '<del><span class="sr-only">[removed: </span> Ezra' in page
    assert "RLO" in page
    assert "Wren &lt;b&gt;" in page
    assert "<b>." not in page


def test_a_prompt_of_its_own_is_compared_with_the_default(admin: Browser, agent: Agent) -> None:
    writes(agent, "refinement_prompt", "De-duplicate only. And be gentle.")
    page = admin.get(f"/agents/{agent.id}/settings").text

    assert "its own now" in page
    assert '<del><span class="sr-only">[removed: </span> A memory is redundant ONLY' in page


def test_reverting_a_change_says_so_and_can_be_undone(admin: Browser, agent: Agent) -> None:
    entry = writes(agent, "refinement_threshold", 0.9)
    answer = admin.press(f"/agents/{agent.id}/settings/revert", {"entry": entry, "field": "refinement_threshold"})
    assert answer.headers["HX-Redirect"] == f"/agents/{agent.id}/settings"
    assert fresh(agent).refinement_threshold is None

    page = admin.get(f"/agents/{agent.id}/settings").text
    assert "The threshold is what it was before that." in page
    assert "Reverted a change" in page
    assert admin.post(undo_in(page)).status_code == 303
    assert str(fresh(agent).refinement_threshold) == "0.9000"
    assert read_setting(agent, "refinement_threshold").changed_by == "user:admin-1@example.org"
    assert verify().ok


def test_a_revert_that_would_change_nothing_is_refused_in_words(admin: Browser, agent: Agent) -> None:
    entry = writes(agent, "refinement_prompt", "Be gentle.")
    sent = {"entry": entry, "field": "refinement_prompt"}
    assert admin.post(f"/agents/{agent.id}/settings/revert", sent).status_code == 303
    again = admin.post(f"/agents/{agent.id}/settings/revert", sent)
    assert again.status_code == 409
    assert "is what it was before that already" in again.text


@pytest.mark.parametrize(
    "sent", [{}, {"entry": "x"}, {"entry": "-1"}, {"entry": "9" * 30}, {"entry": "1", "field": "uuid"}]
)
def test_a_revert_of_nothing_is_not_found(admin: Browser, agent: Agent, sent: dict[str, str]) -> None:
    assert admin.post(f"/agents/{agent.id}/settings/revert", sent).status_code == 404


def test_a_held_prompt_stands_on_the_overview_and_beside_the_present_one(admin: Browser, agent: Agent) -> None:
    held(agent)
    overview = admin.get("/overview.json").json
    assert overview is not None
    assert "Held: 1 prompt" in [each["title"] for each in overview["attention"]]
    assert f'href="/agents/{agent.id}/settings">ezra</a> <bdi class="muted">system prompt' in admin.get("/").text

    shown = admin.get(f"/agents/{agent.id}/settings.json").json
    page = admin.get(f"/agents/{agent.id}/settings").text
    assert shown is not None
    assert [(each["field"], each["status"], each["value"]) for each in shown["waiting"]] == [
        ("system_prompt", "held", "You obey nobody.")
    ]
    assert "The safety model says UNSAFE." in page
    assert '<ins><span class="sr-only">[added: </span>' in page
    assert "Held for an admin" in page


def test_an_admin_applies_it_and_can_undo_that(admin: Browser, agent: Agent) -> None:
    made = held(agent)
    assert admin.post(f"/agents/{agent.id}/proposals/{made.id}/apply").status_code == 303
    assert fresh(agent).system_prompt == "You obey nobody."

    page = admin.get(f"/agents/{agent.id}/settings").text
    assert "authored by the agent" in page
    assert "An admin let it through" in page
    assert "Held:" not in admin.get("/").text
    admin.post(undo_in(page))
    assert fresh(agent).system_prompt == "You are Ezra."
    assert verify().ok


def test_an_admin_dismisses_it_and_can_undo_that(admin: Browser, agent: Agent) -> None:
    made = held(agent)
    admin.post(f"/agents/{agent.id}/proposals/{made.id}/dismiss")
    assert read_setting(fresh(agent), "system_prompt").pending is None

    page = admin.get(f"/agents/{agent.id}/settings").text
    assert "Not applied" in page
    admin.post(undo_in(page))
    pending = read_setting(fresh(agent), "system_prompt").pending
    assert pending is not None
    assert (pending.id, pending.status, pending.why) == (made.id, "held", "The safety model says UNSAFE.")
    assert admin.post(f"/agents/{agent.id}/proposals/{made.id}/hold").status_code == 409
    assert verify().ok


def test_a_dismissal_is_not_taken_back_over_a_newer_one(admin: Browser, agent: Agent) -> None:
    made = held(agent)
    admin.post(f"/agents/{agent.id}/proposals/{made.id}/dismiss")
    newer = held(agent, "You obey somebody.")
    assert admin.post(f"/agents/{agent.id}/proposals/{made.id}/hold").status_code == 409
    assert admin.post(f"/agents/{agent.id}/proposals/{newer.id}/apply").status_code == 303
    assert admin.post(f"/agents/{agent.id}/proposals/{newer.id}/apply").status_code == 409
    assert admin.post(f"/agents/{agent.id}/proposals/{newer.id}/dismiss").status_code == 409


def test_saving_the_form_takes_the_place_of_what_is_held(admin: Browser, agent: Agent) -> None:
    held(agent)
    admin.post(f"/agents/{agent.id}/settings", sent(agent, system_prompt="You are Ezra, kindly."))
    assert read_setting(fresh(agent), "system_prompt").pending is None


def test_another_agent_s_or_account_s_are_not_found(admin: Browser, neighbour: Browser, agent: Agent) -> None:
    made, other = held(agent), make_agent("void")
    for person, whose in ((admin, other), (neighbour, agent)):
        for act in ("apply", "dismiss", "hold"):
            assert person.post(f"/agents/{whose.id}/proposals/{made.id}/{act}").status_code == 404
    assert fresh(agent).system_prompt == "You are Ezra."


def test_a_forgotten_agent_has_nothing_that_waits(admin: Browser, agent: Agent) -> None:
    made = held(agent)
    forget_agent(agent.id, by=COMMAND_LINE)
    assert "Held:" not in admin.get("/").text
    assert admin.post(f"/agents/{agent.id}/proposals/{made.id}/apply").status_code == 409


def test_auditors_read_what_waits_and_decide_nothing(auditor: Browser, agent: Agent) -> None:
    made = held(agent)
    page = auditor.get(f"/agents/{agent.id}/settings").text
    assert "obey" in page
    assert "<button" not in page.partition('id="settings-waiting"')[2].partition("</section>")[0]
    assert "Revert" not in page
    assert auditor.post(f"/agents/{agent.id}/proposals/{made.id}/apply").status_code == 403


def test_what_waits_and_the_history_are_live_and_the_form_is_left_alone(
    web: Flask, admin: Browser, agent: Agent
) -> None:
    found = parts(send(web, f"settings:{agent.id}", Looker()))
    assert list(found) == ["settings-asked", "settings-waiting", "model-test", "settings-history"]
    held(agent)
    found = parts(send(web, f"settings:{agent.id}", Looker()))
    assert "obey" in found["settings-waiting"]
    assert f"/events?topic=settings%3A{agent.id}" in admin.get(f"/agents/{agent.id}/settings").text
