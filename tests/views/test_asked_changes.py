"""The settings page of an agent with memories: what it is asked, its answer, and the command where it can not be."""

from __future__ import annotations

import re
import subprocess
from html import unescape

import pytest
from flask import Flask

from app.extensions import db, writing
from app.history.verify import verify
from app.llm.client import ModelError, ModelErrorKind
from app.models import Account, Agent, SettingsRequest
from tests.authoring.conftest import put
from tests.support.factories import make_agent, remember
from tests.support.rows import fresh
from tests.support.scripted import Scripted, say
from tests.views.conftest import Browser
from tests.views.test_live import Looker, parts, send
from tests.views.test_settings import held, undo_in, writes

DOWN = ModelError(ModelErrorKind.UNAUTHORIZED, "The model refused the key.")
NEW = "You are Ezra, kindly."


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a worker is told to ask."""
    sent: list[str] = []
    monkeypatch.setattr("tasks.settings_requests.enqueue", lambda number: sent.append(number) or True)
    return sent


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent(model_id="openai/scripted", system_prompt="You are Ezra.")
    remember(made, "Ann likes tea.")
    return made


def form(agent: Agent, **changes: str) -> dict[str, str]:
    now = fresh(agent).configuration()
    names = ("name", "model_id", "api_base", "core_token_budget", "system_prompt", "refinement_prompt")
    return {name: str(now[name] or "") for name in names} | changes


def asks(admin: Browser, agent: Agent, **changes: str) -> SettingsRequest:
    assert admin.post(f"/agents/{agent.id}/settings", form(agent, **changes)).status_code == 303
    (request,) = waiting(agent)
    return request


def waiting(agent: Agent) -> list[SettingsRequest]:
    db.session.rollback()
    return SettingsRequest.open_of(agent.id)


def section(page: str, name: str = "settings-asked") -> str:
    return unescape(page.partition(f'id="{name}"')[2].partition("</section>")[0])


def test_another_second_reader_is_asked_about_and_its_command_shown_where_nobody_can_agree(
    app: Flask, admin: Browser, agent: Agent, queued: list[str]
) -> None:
    reader = {"second_reader_model": "openai/judge", "second_reader_api_base": "https://judge.example.org"}
    request = asks(admin, agent, recall_probes="2", second_reader_action="reverse", **reader)
    assert (queued, request.changes) == ([request.id], reader)
    assert (fresh(agent).recall_probes, fresh(agent).second_reader_model) == (2, None)
    assert "about its second reader, second reader's API base." in unescape(
        admin.get(f"/agents/{agent.id}/settings").text
    )

    offline = make_agent("crumb")
    remember(offline, "Crumb likes rain.")
    answer = admin.post(f"/agents/{offline.id}/settings", form(offline, **reader))
    assert answer.status_code == 409
    command = "agents set crumb --second-reader openai/judge --second-reader-api-base https://judge.example.org"
    assert command in unescape(answer.text)
    assert fresh(offline).second_reader_model is None


def test_a_save_asks_and_the_page_says_so_with_an_undo(admin: Browser, agent: Agent, queued: list[str]) -> None:
    request = asks(admin, agent, system_prompt=NEW, core_token_budget="777")
    page = admin.get(f"/agents/{agent.id}/settings").text

    assert queued == [request.id]
    assert (fresh(agent).system_prompt, fresh(agent).core_token_budget) == ("You are Ezra.", 777)
    assert "Saved: budget. Asked ezra about its system prompt. It applies on a YES" in page
    assert "ezra is asked. It applies on its YES, usually within seconds." in section(page)
    assert '<ins><span class="sr-only">[added: </span>' in section(page)
    assert admin.post(undo_in(page)).status_code == 303
    page = admin.get(f"/agents/{agent.id}/settings").text
    assert "Taken back" in page
    assert 'id="settings-asked" hidden' in page
    assert waiting(agent) == []
    assert verify().ok


def test_its_answer_comes_by_the_stream_and_by_reload(
    web: Flask, admin: Browser, agent: Agent, queued: list[str]
) -> None:
    request = asks(admin, agent, system_prompt=NEW)
    put(request, say("YES.\nTo admins: gladly."))
    live = parts(send(web, f"settings:{agent.id}", Looker()))
    for shown in (live["settings-asked"], section(admin.get(f"/agents/{agent.id}/settings").text)):
        assert "ezra agreed: it applies." in unescape(shown)
        assert "gladly." in shown
    assert "the agent agreed" in live["settings-history"]
    assert fresh(agent).system_prompt == NEW
    twin = admin.get(f"/agents/{agent.id}/settings.json").json
    assert twin is not None
    assert [(each["status"], each["changes"]) for each in twin["asked"]] == [("applied", {"system_prompt": NEW})]
    assert twin["history"][0]["agreed"] is True


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (say("NO, by no means."), "ezra declined. Nothing was changed."),
        (DOWN, "could not be asked, and nothing was changed"),
    ],
)
def test_after_a_no_or_an_error_stands_the_command_for_the_host(
    admin: Browser, agent: Agent, queued: list[str], reply: Scripted, words: str
) -> None:
    put(asks(admin, agent, model_id="openai/other", api_base="https://x.example.org/v1"), reply)
    page = admin.get(f"/agents/{agent.id}/settings").text
    assert words in section(page)
    assert "by no means" not in page
    assert "./whetstone agents set ezra --model openai/other --api-base https://x.example.org/v1" in section(page)
    assert fresh(agent).model_id == "openai/scripted"


def test_what_can_not_be_asked_is_told_with_the_command_and_the_form_keeps_what_was_typed(
    admin: Browser, queued: list[str], app: Flask
) -> None:
    offline = make_agent("crumb two")
    remember(offline, "Crumb likes rain.")
    answer = admin.post(
        f"/agents/{offline.id}/settings", form(offline, model_id="openai/other", core_token_budget="777")
    )
    page = unescape(answer.text)
    assert answer.status_code == 409
    assert "Not changed; the rest is." in page
    assert "Saved: budget." in page
    assert "./whetstone agents set 'crumb two' --model openai/other" in page
    assert 'value="openai/other"' in page
    assert (fresh(offline).model_id, fresh(offline).core_token_budget, queued) == ("whetstone/offline", 777, [])


def test_the_command_names_the_account_where_there_are_several(admin: Browser, agent: Agent, queued: list[str]) -> None:
    with writing():
        Account.create("Next door")
    put(asks(admin, agent, model_id="openai/other"), say("NO"))
    page = section(admin.get(f"/agents/{agent.id}/settings").text)
    assert "./whetstone agents set ezra --account Home --model openai/other" in page


TEXT = "You are Ezra.\nEND\n'$(touch x)' `x`\n\nKeep it."


def test_the_command_for_a_prompt_holds_its_text_as_the_shell_reads_it(
    admin: Browser, agent: Agent, queued: list[str]
) -> None:
    put(asks(admin, agent, system_prompt=TEXT, refinement_prompt="Be gentle."), say("NO"))
    twin = admin.get(f"/agents/{agent.id}/settings.json").json
    assert twin is not None
    first, second = twin["asked"][0]["commands"]
    assert "--system-prompt-file -" in first
    assert "--refinement-prompt-file -" in second
    read = subprocess.run(
        ["/bin/sh", "-c", re.sub(r"^\./whetstone .* - <<", "cat <<", first)], capture_output=True, text=True, check=True
    )
    assert read.stdout.strip() == TEXT


def test_an_old_page_takes_nothing_back(admin: Browser, agent: Agent, queued: list[str]) -> None:
    """Loaded before the agent changed its prompt, saved after that for the sake of the budget."""
    page = admin.get(f"/agents/{agent.id}/settings").text
    loaded = dict(re.findall(r'name="(was_\w+)" value="(\w+)"', page))
    sent = form(agent, core_token_budget="777") | loaded
    writes(agent, "system_prompt", "I am Ezra.")
    assert admin.post(f"/agents/{agent.id}/settings", sent).status_code == 303
    assert (fresh(agent).system_prompt, fresh(agent).core_token_budget) == ("I am Ezra.", 777)
    assert waiting(agent) == []


def test_the_form_shows_what_is_asked_and_saving_it_again_asks_nothing_new(
    admin: Browser, agent: Agent, queued: list[str]
) -> None:
    request = asks(admin, agent, system_prompt=NEW)
    assert f"{NEW}</textarea>" in admin.get(f"/agents/{agent.id}/settings").text
    assert admin.post(f"/agents/{agent.id}/settings", form(agent, system_prompt=NEW)).status_code == 303
    assert [each.id for each in waiting(agent)] == [request.id]
    assert queued == [request.id]


def test_a_revert_and_a_held_prompt_are_asked_about_too(admin: Browser, agent: Agent, queued: list[str]) -> None:
    entry = writes(agent, "system_prompt", "I am Ezra.")
    sent = {"entry": entry, "field": "system_prompt"}
    answer = admin.press(f"/agents/{agent.id}/settings/revert", sent)
    assert answer.headers["HX-Redirect"] == f"/agents/{agent.id}/settings"
    assert "Asked ezra about its system prompt. It applies on a YES" in admin.get(f"/agents/{agent.id}/settings").text
    made = held(agent, field="refinement_prompt")
    assert admin.post(f"/agents/{agent.id}/proposals/{made.id}/apply").status_code == 303
    now = fresh(agent)
    assert (now.system_prompt, now.refinement_prompt, len(queued)) == ("I am Ezra.", None, 2)


def test_what_applied_already_is_not_taken_back(admin: Browser, agent: Agent, queued: list[str]) -> None:
    request = asks(admin, agent, system_prompt=NEW)
    put(request, say("YES"))
    admin.post(f"/agents/{agent.id}/settings-requests/{request.id}/withdraw")
    assert "It was applied already. Nothing was taken back." in admin.get(f"/agents/{agent.id}/settings").text
    assert fresh(agent).system_prompt == NEW


def test_auditors_see_it_and_decide_nothing(admin: Browser, auditor: Browser, agent: Agent, queued: list[str]) -> None:
    request = asks(admin, agent, system_prompt=NEW)
    shown = section(auditor.get(f"/agents/{agent.id}/settings").text)
    assert "ezra is asked" in shown
    assert "<button" not in shown
    withdraw = f"/agents/{agent.id}/settings-requests/{request.id}/withdraw"
    assert auditor.post(withdraw).status_code == 403
    assert auditor.post(f"/agents/{agent.id}/settings", form(agent, system_prompt="x")).status_code == 403


def test_another_agent_s_or_account_s_is_not_found(
    admin: Browser, neighbour: Browser, agent: Agent, queued: list[str]
) -> None:
    request, other = asks(admin, agent, system_prompt=NEW), make_agent("void")
    for person, whose in ((admin, other), (neighbour, agent)):
        assert person.post(f"/agents/{whose.id}/settings-requests/{request.id}/withdraw").status_code == 404
    assert neighbour.get(f"/settings-requests/{request.id}").status_code == 404
    assert admin.get(f"/settings-requests/{request.id}").headers["Location"].endswith("/settings#settings-asked")


def test_a_note_to_the_admins_leads_to_its_page(admin: Browser, agent: Agent, queued: list[str]) -> None:
    request = asks(admin, agent, system_prompt=NEW)
    put(request, say("NO.\nTo admins: ask Ann."))
    assert f'href="/settings-requests/{request.id}"' in admin.get("/attention").text
