"""The demo: two believable ledgers that can be refined at once, made once."""

from __future__ import annotations

import subprocess
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from flask import Flask
from flask_security import verify_password

from app import security
from app.asking.calls import Dependencies
from app.config import Settings
from app.demo import CHARACTERS, clients_with_pace, make_demo, make_demo_agents, read_drafts
from app.exchange.importing import Draft
from app.extensions import db, writing
from app.history.verify import verify
from app.llm.offline import LedgerMemory, certain_deletions, split_units
from app.models import COMMAND_LINE, Account, Agent, MemoryType, Refinement, Trigger, User
from app.processes.datadir import check_data_dir, hold_data_dir, running_address
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from app.values.token_mass import estimate_tokens
from tests.cli.conftest import Whetstone
from tests.support.factories import make_agent
from tests.support.scripted import ScriptedClient, ScriptedClients, say

pytestmark = pytest.mark.once


def ledger_of(name: str) -> list[Draft]:
    character = next(each for each in CHARACTERS if each.name == name)
    return [draft for draft in read_drafts(character) if draft.type is MemoryType.CORE]


def without_copies(drafts: list[Draft]) -> list[LedgerMemory]:
    """What is left after exact duplicates, as the offline model sees it."""
    kept: dict[str, Draft] = {}
    for draft in sorted(drafts, key=lambda each: str(each.origin_at)):
        kept.setdefault(unicodedata.normalize("NFC", draft.content.strip().lower()), draft)
    return [
        LedgerMemory(
            number, estimate_tokens(each.content), split_units(each.content), frozenset(each.tags), each.constitutional
        )
        for number, each in enumerate(kept.values())
    ]


def test_it_makes_an_account_with_two_agents_and_an_admin(app: Flask, whetstone: Whetstone) -> None:
    said = whetstone("demo", "--own-account", "--json")

    assert said.status == 0
    assert said.json["made"] is True
    account = db.session.scalars(db.select(Account).where(Account.is_demo)).one()
    agents = db.session.scalars(db.select(Agent).where(Agent.account_id == account.id).order_by(Agent.id)).all()
    assert [each["id"] for each in said.json["agents"]] == [agent.id for agent in agents]
    assert {agent.model_id for agent in agents} == {"whetstone/offline"}
    assert all(agent.system_prompt for agent in agents)
    admin = db.session.scalars(db.select(User).where(User.account_id == account.id)).one()
    assert admin.email == said.json["email"]
    security.init_app(app, views=False)
    assert verify_password(said.json["password"], admin.password)
    assert verify(None).ok


def test_run_twice_it_says_so_and_changes_nothing(app: Flask, whetstone: Whetstone) -> None:
    first = whetstone("demo", "--own-account", "--json").json
    before = whetstone("audit", "--account", "Demo", "--json").out

    again = whetstone("demo", "--own-account", "--json").json

    assert (again["made"], again["agents"]) == (False, first["agents"])
    assert "password" not in again
    assert whetstone("audit", "--account", "Demo", "--json").out == before
    assert "has them already" in whetstone("demo", "--own-account").out


def test_it_puts_two_agents_into_the_first_account_once(app: Flask, whetstone: Whetstone) -> None:
    first = whetstone("demo", "--json").json
    told = whetstone("demo")
    again = whetstone("demo", "--json").json

    assert (first["made"], first["account"], first["email"], "password" in first) == (True, "Home", None, False)
    assert (again["made"], again["agents"]) == (False, first["agents"])
    assert "has them already; nothing was made or changed" in told.out
    assert "./whetstone refine Wren --wait" in told.out
    assert {agent.account_id for agent in db.session.scalars(db.select(Agent))} == {1}
    assert db.session.scalars(db.select(Account).where(Account.is_demo)).all() == []
    assert verify(None).ok


def test_what_is_in_the_first_account_already_stays_as_it_is(app: Flask, whetstone: Whetstone) -> None:
    with writing():
        mine = Agent.create(Account.lock(1).id, name="Wren", model_id="openai/mine", by=COMMAND_LINE)
    said = whetstone("demo", "--json").json

    assert (said["made"], said["agents"][0]["id"]) == (True, mine.id)
    wren = db.session.get_one(Agent, mine.id, populate_existing=True)
    assert (wren.model_id, wren.core_count) == ("openai/mine", 0)


def test_only_the_demo_s_own_agents_take_their_time(app: Flask) -> None:
    slept: list[float] = []
    (wren, _), other = make_demo_agents(1, COMMAND_LINE), make_agent("ezra")
    clients = ScriptedClients(ScriptedClient(say("YES"), say("YES")))

    client = clients_with_pace(clients, wren, 1.0, slept.append).for_model("whetstone/offline")
    assert client.complete([], timeout=30).text == "YES"
    client.complete([], timeout=0.25)
    client.close()
    assert slept == [1.0, 0.25]
    assert clients_with_pace(clients, other, 1.0) is clients
    assert clients_with_pace(clients, wren, 0) is clients
    wren.system_prompt = "You are somebody else now."
    assert clients_with_pace(clients, wren, 1.0) is clients
    db.session.rollback()


def test_an_account_of_that_name_that_is_no_demo_is_left_alone(app: Flask, whetstone: Whetstone) -> None:
    with writing():
        Account.create("Demo")

    assert whetstone("demo", "--own-account").status == 3
    assert db.session.scalars(db.select(Agent)).all() == []


def test_people_are_told_how_to_sign_in_and_what_to_try(whetstone: Whetstone) -> None:
    said = whetstone("demo", "--own-account")

    assert "demo@whetstone.local" in said.out
    assert "shown only this once" in said.out
    assert "refine Wren --account Demo --wait" in said.out


def test_it_names_the_address_of_the_installation_that_runs_on_the_data_dir(
    whetstone: Whetstone, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHETSTONE_PORT", "8077")
    check_data_dir(settings)

    assert (
        "Sign in at http://127.0.0.1:8077 (once `./whetstone up` runs) as demo@"
        in whetstone("demo", "--own-account").out
    )
    with hold_data_dir(settings, "http://127.0.0.1:8123"):
        assert "Sign in at http://127.0.0.1:8123 as demo@" in whetstone("demo", "--own-account").out
        assert whetstone("demo", "--own-account", "--json").json["address"] == "http://127.0.0.1:8123"
    assert whetstone("demo", "--own-account", "--json").json["address"] == "http://127.0.0.1:8077"


def test_a_process_that_was_killed_runs_at_no_address(settings: Settings) -> None:
    check_data_dir(settings)
    ended = subprocess.Popen(("true",))
    ended.wait()
    (settings.run_dir / "up.lock").write_text(f"process {ended.pid}, http://127.0.0.1:8123")

    assert running_address(settings) is None


def test_it_brings_a_new_installation_to_life(
    whetstone: Whetstone, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settings.database_url:
        pytest.skip("an empty SQLite database is enough to see it")
    monkeypatch.setenv("WHETSTONE_DATA_DIR", str(tmp_path / "new"))

    said = whetstone("demo", "--own-account", "--json")

    assert (said.status, said.json["made"]) == (0, True)
    assert str(tmp_path / "new") in said.err
    assert whetstone("refine", "Crumb", "--account", "Demo", "--mode", "dedup_only", "--wait").status == 0


def test_the_agents_can_be_put_into_an_account_that_is_there(app: Flask) -> None:
    agents = make_demo_agents(1, COMMAND_LINE)

    assert [agent.name for agent in agents] == ["Wren", "Crumb"]
    assert {agent.account_id for agent in agents} == {1}
    assert [agent.id for agent in make_demo_agents(1, COMMAND_LINE)] == [agent.id for agent in agents]
    assert verify(None).ok


def test_the_agents_can_be_made_without_the_private_key(app: Flask) -> None:
    app.extensions.pop("master_key")

    assert [agent.name for agent in make_demo_agents(1, COMMAND_LINE)] == ["Wren", "Crumb"]


def test_one_of_them_is_over_its_budget_and_both_have_something_to_do(app: Flask) -> None:
    wren, crumb = make_demo(COMMAND_LINE).agents

    assert (wren.is_over_budget, crumb.is_over_budget) == (False, True)
    assert wren.has_changeable_memories()
    assert crumb.has_changeable_memories()


@pytest.mark.parametrize(("name", "about"), [("Wren", 60), ("Crumb", 40)])
def test_each_ledger_holds_what_a_refinement_needs_to_be_seen(app: Flask, name: str, about: int) -> None:
    drafts = ledger_of(name)
    contents = Counter(draft.content.strip().lower() for draft in drafts)
    certain = certain_deletions(without_copies(drafts))
    dates = sorted(draft.origin_at for draft in drafts if draft.origin_at)

    assert abs(len(drafts) - about) <= 5
    assert 3 <= sum(contents.values()) - len(contents) <= 6
    assert 3 <= len(certain) <= 8
    assert sum(draft.constitutional for draft in drafts) >= 2
    assert any({"audio", "somatic", "voice"} & set(draft.tags) for draft in drafts)
    assert (dates[-1] - dates[0]).days > 120


@pytest.mark.parametrize(
    ("name", "word"),
    [("Wren", "angry"), ("Wren", "hurt"), ("Wren", "six weeks"), ("Wren", "eight weeks"), ("Wren", "grade two"),
     ("Crumb", "forty rolls"), ("Crumb", "sixty rolls"), ("Crumb", "furious"), ("Crumb", "frightened")],
)  # fmt: skip
def test_near_duplicates_with_another_number_or_feeling_stay(app: Flask, name: str, word: str) -> None:
    entries = without_copies(ledger_of(name))
    going = certain_deletions(entries)

    carrying = [entry for entry in entries if word in " ".join(entry.units)]
    assert carrying
    assert not {entry.id for entry in carrying} & set(going)


@pytest.mark.slow
def test_both_refine_with_the_offline_model_and_no_key(app: Flask) -> None:
    from app.llm.litellm import LiteLLMClients

    for agent in make_demo(COMMAND_LINE).agents:
        refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
        run_refinement(refinement.id, Dependencies(LiteLLMClients()))
        done = db.session.get_one(Refinement, refinement.id, populate_existing=True)
        assert (done.status, done.deduplicated > 2, done.deleted > 2) == ("completed", True, True)
        assert not db.session.get_one(Agent, agent.id, populate_existing=True).is_over_budget
    assert verify(None).ok
