"""The audit log's pages: who did what when, filtered by the address, folded, blind, the same for all who may."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask
from sqlalchemy import func, select

from app.events.topics import Topic
from app.extensions import db, end_reading, writing
from app.history.plan import Target
from app.history.undo import roll_back
from app.models import COMMAND_LINE, Account, Action, Actor, ActorKind, Agent, AuditLog, Event, Refinement, record
from app.models.folded_refinement import FOLDED_REFINEMENT
from app.models.tally import Tally
from app.views.filters import FilterForm
from app.views.shown import log as shown_log
from tests.support.clock import FakeClock
from tests.support.factories import HOME, Running, begin, make_agent, remember
from tests.views.conftest import PASSWORD, Browser
from tests.views.test_live import Looker, parts, send, squeeze

KEYS = {"id", "at", "actor", "action", "agent", "refinement", "subject", "data", "hash", "previous_hash"}
SEALS = re.compile(r"entry (\d+), hash")


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("ezra")
    remember(made, "Ann likes tea.", "Ann likes tea.", "Bob likes rum and other things that are longer.", "Cy sails.")
    return made


@pytest.fixture
def run(agent: Agent, clock: FakeClock) -> Running:
    """A completed refinement that removed duplicates, deleted one memory and tightened another."""
    clock.advance(minutes=1)
    made = begin(agent, deduplicate=True)
    clock.advance(minutes=1)
    made.tool.execute("update", id=3, content="Bob likes rum and other longer things, as ever.")
    made.tool.execute("complete", summary="Done.")
    return made


def texts(page: str) -> str:
    """What a person reads."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", page)))


def seals(page: str) -> list[int]:
    """The entries that stand on a page for themselves, from top to bottom."""
    return [int(number) for number in SEALS.findall(page)]


def address_of(page: str, words: str) -> str:
    """Where the link with these words leads."""
    found = re.findall(rf'<a [^>]*href="([^"]+)"[^>]*>{words}</a>', page)
    assert len(found) == 1, (words, found)
    return unescape(found[0])


# Words


def test_an_action_of_a_later_version_is_shown_by_its_name(agent: Agent, admin: Browser) -> None:
    with writing():
        record("memory_dream", actor=COMMAND_LINE, of=Agent.lock(agent.id), data={"seen": 3})  # type: ignore[arg-type]

    assert "memory dream" in texts(admin.get("/audit").text)
    assert admin.get("/audit.jsonl").text.count("memory_dream") == 1


# What stands in a row


def test_an_entry_says_who_did_what_when_and_about_what(agent: Agent, admin: Browser) -> None:
    admin.press(f"/agents/{agent.id}/pause")
    entry = db.session.scalars(select(AuditLog).where(AuditLog.action == Action.AGENT_PAUSE)).one()

    page = admin.get("/audit").text
    row = re.search(rf'<li id="entry-{entry.id}".*?</li>\s*</ul>.*?</li>', page, re.S)

    assert row is not None
    said = texts(row[0])
    assert "Paused the agent ezra by admin-1@example.org" in said
    assert f"entry {entry.id}, hash {entry.hash.hex()[:10]}" in said
    assert entry.hash.hex() in row[0]
    assert "04:00:00" in said
    assert f'href="/agents/{agent.id}/audit"' in row[0]
    assert f'href="/audit?actor=user:{admin.user.email}"' in unescape(row[0]).replace("%40", "@")  # type: ignore[union-attr]
    assert "Monday 16 November 2026 UTC" in texts(page)


def test_settings_are_facts_and_prompts_open(agent: Agent, admin: Browser) -> None:
    long = "Be <b>brief</b>. " * 40
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, core_token_budget=900, system_prompt=long)

    page = admin.get(f"/audit?action={Action.AGENT_SETTINGS_UPDATE}").text

    assert "core token budget 5000 → 900" in texts(page)
    assert f"system prompt: 7 → {len(long.strip())} characters" in texts(page)
    assert "<b>" not in page
    assert "&lt;b&gt;brief" in page


def test_many_ids_are_counted_and_open(agent: Agent, admin: Browser) -> None:
    with writing():
        record(
            Action.DEDUP, actor=COMMAND_LINE, of=Agent.lock(agent.id), data={"removed": list(range(40)), "stays": []}
        )

    said = texts(admin.get(f"/audit?action={Action.DEDUP}").text)

    assert "removed: 40 values 0, 1, 2" in said
    assert "stays" not in said


# Folding


def test_the_entries_of_a_refinement_are_one_row_at_the_newest_of_them(run: Running, admin: Browser) -> None:
    ids = db.session.scalars(select(AuditLog.id).where(AuditLog.refinement_id == run.refinement.id)).all()

    page = admin.get("/audit").text
    said = texts(page)

    assert not set(seals(page)) & set(ids)
    assert page.count(f'<li id="fold-{run.refinement.id}"') == 1
    assert f"{len(ids)} entries" in said
    assert "completed" in said
    assert run.reload().machine_line in said
    assert "started by Command line" in said
    assert page.index("fold-") < page.index(f"entry-{min(ids) - 1}")
    folded = [row for row in admin.get("/audit.json").json["entries"] if row["fold"]]  # type: ignore[index]
    assert [row["id"] for row in folded] == [max(ids)]
    assert folded[0]["fold"] == {
        "refinement": run.refinement.id,
        "status": "completed",
        "line": run.reload().machine_line,
        "entries": len(ids),
    }


def test_a_fold_opens_to_its_entries_newest_first(run: Running, auditor: Browser) -> None:
    ids = db.session.scalars(select(AuditLog.id).where(AuditLog.refinement_id == run.refinement.id)).all()

    opened = auditor.get(f"/audit/refinements/{run.refinement.id}").text

    assert seals(opened) == sorted(ids, reverse=True)
    assert "Shortened a memory memory 3 by ezra" in texts(opened)
    assert f'hx-get="/audit/refinements/{run.refinement.id}"' in auditor.get("/audit").text


def test_without_scripts_a_fold_leads_to_its_entries(run: Running, auditor: Browser) -> None:
    page = auditor.get("/audit").text

    flat = auditor.get(address_of(page, "Show them on a page of their own")).text

    assert "fold-" not in flat
    assert len(seals(flat)) == db.session.scalar(
        select(func.count()).where(AuditLog.refinement_id == run.refinement.id)
    )


def test_a_fold_of_very_many_entries_names_the_page_with_all_of_them(
    run: Running, auditor: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_log, "OPENED", 2)

    opened = auditor.get(f"/audit/refinements/{run.refinement.id}").text

    assert len(seals(opened)) == 2
    assert address_of(opened, "All of them, on a page of their own") == f"/audit?refinement={run.refinement.id}"


@pytest.mark.parametrize("query", ["action=memory_refinement_update", "actor=agent", "actor=agent:ezra"])
def test_filters_that_pick_single_entries_show_them_flat(run: Running, auditor: Browser, query: str) -> None:
    page = auditor.get(f"/audit?{query}").text

    assert "fold-" not in page
    assert "Shortened a memory" in texts(page)


@pytest.mark.parametrize("query", ["", "from=2026-11-16", "agent=ezra", "from=2026-11-16&to=2026-11-16&agent=ezra"])
def test_days_and_agents_keep_the_folds(run: Running, auditor: Browser, query: str) -> None:
    assert f'id="fold-{run.refinement.id}"' in auditor.get(f"/audit?{query}").text


# Filters


def test_each_filter_leaves_what_it_says(run: Running, admin: Browser, clock: FakeClock) -> None:
    clock.advance(days=2)
    admin.press(f"/agents/{run.agent.id}/pause")
    remember(make_agent("void"), "Void.")
    email = admin.user.email  # type: ignore[union-attr]

    def found(query: str) -> list[tuple[str, str | None]]:
        return [(e["action"], e["agent"]) for e in admin.get(f"/audit.json?{query}").json["entries"]]  # type: ignore[index]

    assert {agent for _, agent in found("agent=void")} == {"void"}
    assert found(f"agent={run.agent.id}") == found("agent=ezra") != []
    assert found(f"actor=user:{email}") == [("agent_pause", "ezra")]
    assert found("action=memory_dedup") == [("memory_dedup", "ezra")]
    for begin_of_id in (run.refinement.id, run.refinement.id[:8].upper(), run.refinement.id[:-1]):
        assert {row["refinement"] for row in flat(admin, f"refinement={begin_of_id}")} == {run.refinement.id}
    assert {action for action, _ in found("from=2026-11-18&to=2026-11-18")} == {
        "agent_pause",
        "agent_create",
        "memory_create",
    }
    assert "agent_pause" not in {action for action, _ in found("from=2026-11-16&to=2026-11-17&agent=ezra")}
    assert found("action=memory_dedup&agent=void") == []


def flat(person: Browser, query: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = person.get(f"/audit.json?{query}").json["entries"]  # type: ignore[index]
    return found


def test_a_filter_by_refinement_shows_its_rollback_with_a_way_to_it(run: Running, admin: Browser) -> None:
    undo = roll_back(Target.refinement(run.refinement.id), by=COMMAND_LINE).rollback
    assert undo is not None

    page = admin.get(f"/audit?refinement={run.refinement.id}").text

    assert seals(page)[0] == undo.entry_id
    row = texts(page.split('<li id="entry-')[1])
    assert f"Rolled back by the Time Machine rollback {undo.id[:8]} of refinement {run.refinement.id[:8]}" in row


def test_what_is_filtered_stays_in_the_address(run: Running, admin: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_log, "ROWS", 1)
    query = "agent=ezra&actor=agent&from=2026-11-01&to=2026-11-30"

    page = admin.get(f"/audit?{query}").text

    kept = parse_qs(urlsplit(address_of(page, "Older")).query)
    assert kept.pop("before")
    assert kept == parse_qs(query)
    for suffix in ("csv", "jsonl"):
        assert f'href="/audit.{suffix}?agent=ezra&amp;actor=agent&amp;from=2026-11-01&amp;to=2026-11-30"' in page
    assert '<option value="agent" selected>' in page
    assert re.search(r'value="ezra"[^>]*name="agent"', page)
    assert re.search(r'value="2026-11-01"[^>]*name="from"', page)
    assert address_of(page, "Clear") == "/audit"
    assert re.search(r'<form [^>]*method="get" action="/audit"', page)


def test_an_actor_who_is_in_no_list_stays_chosen(agent: Agent, admin: Browser) -> None:
    page = admin.get("/audit?actor=agent:ezra").text

    assert '<option value="agent:ezra" selected>ezra</option>' in page


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("agent=nobody", "There is no agent 'nobody' in this account."),
        ("agent=987654321987654321", "There is no agent '987654321987654321' in this account."),
        ("actor=everyone", "Nobody is called 'everyone' here."),
        ("action=burn", "The log knows no action 'burn'."),
        ("refinement=123", "or at least the first 8 characters of it."),
        ("refinement=%25%25%25%25%25%25%25%25", "Type a refinement's id"),
        ("refinement=________", "Type a refinement's id"),
        ("refinement=00000000", "There is no such refinement in this account."),
        ("refinement=00000000-0000-4000-8000-000000000000", "There is no such refinement in this account."),
        ("from=yesterday", "'yesterday' is no day. Write it like 2026-11-30"),
        ("to=2026-02-30", "'2026-02-30' is no day."),
        ("from=2026-11-30&to=2026-11-01", "The last day is before the first one."),
        ("agent=%00", "it is too long, or holds characters that can't be seen"),
        (f"actor=user:{'x' * 400}", "it is too long, or holds characters that can't be seen"),
    ],
)
def test_a_filter_that_cant_be_used_is_answered_in_a_sentence(
    agent: Agent, auditor: Browser, query: str, sentence: str
) -> None:
    page = auditor.get(f"/audit?{query}")
    twin, csv, lines = (auditor.get(f"/audit.{suffix}?{query}") for suffix in ("json", "csv", "jsonl"))

    assert page.status_code == 200
    assert sentence in texts(page.text)
    assert "Nothing was looked for" in page.text
    assert "JSON Lines" not in page.text
    assert seals(page.text) == []
    assert (twin.status_code, csv.status_code, lines.status_code) == (422, 422, 422)
    assert sentence in twin.json["detail"]  # type: ignore[index]
    assert auditor.get(f"/audit/newer?{query}&than=2026-01-01T00:00:00Z~1").text.strip() == ""


HOSTILE = [
    "' OR 1=1 --",
    "'; DROP TABLE audit_log; --",
    '" OR ""="',
    "%",
    "_____",
    "ez%",
    "{{ 7*7 }}",
    "<script>alert(1)</script>",
    "\u202eezra",
    "\x00",
    "\ud83d",
    "١٢",
    "1_0",
    "-1",
    str(2**63),
    "9" * 5000,
    "2026-11-16T00:00:00Z",
    "9999-12-31",
    "0001-01-01",
    "user:",
    "agent:' OR actor LIKE '%",
    "system:%",
]


@pytest.mark.parametrize("name", ["agent", "actor", "action", "refinement", "from", "to", "before", "after", "than"])
def test_whatever_stands_in_the_address_it_only_filters(agent: Agent, auditor: Browser, name: str) -> None:
    everything = len(flat(auditor, ""))
    for text in HOSTILE:
        query = {name: text.encode("utf-8", "surrogatepass")}
        for path in ("/audit", f"/agents/{agent.id}/audit"):
            page = auditor.get(path, query_string=query)
            assert page.status_code == 200, text
            assert "<script>alert" not in page.text
        assert auditor.get("/audit.csv", query_string=query).status_code in (200, 422), text
        twin = auditor.get("/audit.json", query_string=query)
        assert twin.status_code in (200, 422), text
        if twin.status_code == 200 and name in ("agent", "action", "refinement"):
            assert twin.json["entries"] == [], text  # type: ignore[index]
    assert len(flat(auditor, "")) == everything


def test_the_last_and_the_first_day_that_there_are_do_no_harm(agent: Agent, auditor: Browser) -> None:
    assert len(flat(auditor, "from=0001-01-01&to=9999-12-31")) == len(flat(auditor, ""))
    assert flat(auditor, "from=9999-12-31") == flat(auditor, "to=0001-01-01") == []


# Pages


def test_older_and_newer_lead_through_everything_and_back(
    run: Running, auditor: Browser, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_log, "ROWS", 3)
    for _ in range(10):
        clock.advance(minutes=5)
        sign_in(run.agent)
    down = walk(auditor, "/audit?actor=system", "Older")
    up = walk(auditor, down[-1][0], "Newer")

    assert len(down) > 4
    shown = [number for _, page in down for number in seals(page)]
    assert len(shown) == len(set(shown))
    everything = select(AuditLog.id).where(AuditLog.actor_kind == "system", AuditLog.account_id == HOME)
    assert shown == list(db.session.scalars(everything.order_by(AuditLog.at.desc(), AuditLog.id.desc())))
    assert seals(up[-1][1]) == shown[:3]
    assert set(shown) == {number for _, page in up for number in seals(page)}
    assert seals(auditor.get(address_of(down[2][1], "Newest")).text) == shown[:3]


def walk(person: Browser, path: str, words: str) -> list[tuple[str, str]]:
    """Addresses and pages, as somebody who follows one link sees them."""
    found = []
    while path:
        page = person.get(path).text
        found.append((path, page))
        path = address_of(page, words) if f">{words}</a>" in page else ""
    return found


def sign_in(agent: Agent) -> None:
    with writing():
        record(Action.SIGN_IN, actor=COMMAND_LINE, of=Account.lock(agent.account_id), subject="user:1")


def test_beyond_the_newest_there_is_the_newest_page(run: Running, auditor: Browser) -> None:
    newest = auditor.get("/audit").text
    twin = auditor.get("/audit.json").json

    beyond = auditor.get("/audit?after=2999-01-01T00:00:00Z~5").text

    assert twin["next_after"] is None  # type: ignore[index]
    assert seals(beyond) == seals(newest)


def test_a_page_that_looked_at_enough_says_so_and_how_to_go_on(
    run: Running, auditor: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.history.log.LOOKED_AT", 3)

    page = auditor.get("/audit?actor=system:nobody&to=2026-11-16").text

    assert "Nothing yet that fits" in page
    assert "before=" in address_of(page, "Look further back")


def test_empty_pages_say_what_to_do_next(agent: Agent, auditor: Browser) -> None:
    page = auditor.get("/audit?action=memory_promote").text

    assert "No entry fits" in page
    assert address_of(page, "Show all entries") == "/audit"
    assert address_of(auditor.get(f"/agents/{agent.id}/audit?actor=user").text, "Show all entries").endswith("/audit")


# The log of one agent


def test_an_agents_page_shows_its_log_only_and_stands_under_agents(run: Running, auditor: Browser) -> None:
    remember(make_agent("void"), "Void.")

    page = auditor.get(f"/agents/{run.agent.id}/audit").text
    twin = auditor.get(f"/agents/{run.agent.id}/audit.json").json

    assert twin["agent"] == "ezra"  # type: ignore[index]
    assert {entry["agent"] for entry in twin["entries"]} == {"ezra"}  # type: ignore[index]
    assert "Created the account" not in page.split('id="audit-live"')[1]
    assert re.search(r'href="/agents" aria-current="page"', page)
    assert re.search(rf'href="/agents/{run.agent.id}/audit" aria-current="page">Audit', page)
    assert 'name="agent"' not in page
    assert "--agent ezra" in page


def test_the_agent_cant_be_left_by_a_filter(run: Running, auditor: Browser) -> None:
    remember(make_agent("void"), "Void.")

    twin = auditor.get(f"/agents/{run.agent.id}/audit.json?agent=void").json

    assert {entry["agent"] for entry in twin["entries"]} == {"ezra"}  # type: ignore[index]


# Who may


def test_every_page_has_a_way_to_the_log(agent: Agent, auditor: Browser) -> None:
    assert re.search(r'href="/audit"[^>]*>.*?Audit', auditor.get("/").text)
    assert re.search(r'href="/audit" aria-current="page"', auditor.get("/audit").text)
    assert f'href="/agents/{agent.id}/audit"' in auditor.get(f"/agents/{agent.id}").text
    assert "./whetstone audit" in auditor.get("/audit").text


def test_another_account_sees_its_own_log_and_nothing_of_this_one(run: Running, neighbour: Browser) -> None:
    theirs = {entry["id"] for entry in flat(neighbour, "")}
    mine = set(db.session.scalars(select(AuditLog.id).where(AuditLog.account_id == HOME)))

    assert not theirs & mine
    for path in ("", ".json", ".csv", ".jsonl", "/newer"):
        answer = neighbour.get(f"/agents/{run.agent.id}/audit{path}")
        assert (answer.status_code, neighbour.get(f"/agents/987654/audit{path}").status_code) == (404, 404), path
        assert "ezra" not in answer.text
    for suffix in ("", ".json", ".csv", ".jsonl"):
        said = neighbour.get(f"/audit{suffix}").text
        assert "ezra" not in said
        assert run.refinement.id not in said
    for query in ("agent=ezra", f"agent={run.agent.id}", f"refinement={run.refinement.id}"):
        assert neighbour.get(f"/audit.json?{query}").status_code == 422
    assert neighbour.get(f"/audit/refinements/{run.refinement.id}").status_code == 404
    emails = set(re.findall(r"[\w-]+@[\w.]+", neighbour.get("/audit").text))
    assert emails == {neighbour.user.email}  # type: ignore[union-attr]


def test_an_operator_without_a_role_here_reads_nothing(agent: Agent, operator: Browser) -> None:
    for path in ("/audit", "/audit.json", "/audit.csv", "/audit.jsonl", f"/agents/{agent.id}/audit"):
        assert operator.get(path).status_code == 403, path


# Undo


def test_admins_find_the_undo_of_what_changed_memories_and_auditors_do_not(
    run: Running, admin: Browser, auditor: Browser, web: Flask
) -> None:
    for path in (f"/audit/refinements/{run.refinement.id}", f"/audit?refinement={run.refinement.id}"):
        opened = admin.get(path).text
        changed = db.session.scalars(
            select(AuditLog).where(AuditLog.refinement_id == run.refinement.id, AuditLog.action != Action.DEDUP)
        )
        for entry in changed:
            row = opened[opened.index(f'id="entry-{entry.id}"') :].split('<li id="entry-')[0]
            wrote = entry.action in (Action.REFINEMENT_UPDATE, Action.REFINEMENT_COMPLETE)
            assert (f'href="/audit/{entry.id}/rollback"' in row) is wrote, entry.action
        assert ">Undo</a>" not in auditor.get(path).text


# Live


@pytest.mark.parametrize("of_agent", [False, True])
def test_what_the_stream_sends_stands_so_on_the_first_page(
    run: Running, web: Flask, admin: Browser, of_agent: bool
) -> None:
    topic, path = (f"audit:{run.agent.id}", f"/agents/{run.agent.id}/audit") if of_agent else ("audit", "/audit")
    page = squeeze(admin.get(path).text)

    found = parts(send(web, topic, Looker()))

    assert list(found) == ["audit-live"]
    assert squeeze(found["audit-live"]) in page
    newest = db.session.scalar(select(func.max(Event.id)))
    assert f"topic={topic.replace(':', '%3A')}&amp;after={newest}" in page


def test_auditors_are_sent_no_way_to_undo(run: Running, web: Flask) -> None:
    remember(run.agent, "One more.")

    assert ">Undo</a>" in send(web, "audit", Looker())
    assert ">Undo</a>" not in send(web, "audit", Looker(roles=frozenset({"auditor"})))


@pytest.mark.parametrize("query", ["actor=user", "from=2026-11-01", "before=2026-11-16T04:00:30Z~99"])
def test_filtered_and_older_pages_keep_their_rows_and_ask_for_newer_ones(
    run: Running, auditor: Browser, clock: FakeClock, query: str
) -> None:
    clock.at = datetime(2090, 1, 1, tzinfo=UTC)
    by_a_person(run.agent, times=1)
    page = auditor.get(f"/audit?{query}").text
    asks = re.search(r'<div id="audit-newer"[^>]* hx-get="([^"]+)"', page)

    assert asks is not None
    assert 'id="audit-live"' not in page
    address = unescape(asks[1])
    assert auditor.get(address).text.strip() == ""
    clock.advance(hours=1)
    by_a_person(run.agent, times=3)
    newer = auditor.get(address).text
    assert "3 newer entries." in texts(newer)
    kept = "" if query.startswith("before") else f"?{query}"
    assert address_of(newer, "Show the newest") == f"/audit{kept}"


def by_a_person(agent: Agent, times: int) -> None:
    for _ in range(times):
        with writing():
            record(Action.AGENT_PAUSE, actor=Actor(ActorKind.USER, "ann@example.org"), of=Agent.lock(agent.id))


def test_what_does_not_fit_is_no_news_and_very_much_is_not_counted(
    run: Running, auditor: Browser, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"/audit/newer?action={Action.AGENT_PAUSE}&than=2026-11-16T05:00:00Z~1"
    clock.advance(hours=2)
    sign_in(run.agent)
    assert auditor.get(address).text.strip() == ""

    monkeypatch.setattr(shown_log, "MOST_NEWER", 2)
    monkeypatch.setattr("app.views.audit.MOST_NEWER", 2)
    by_a_person(run.agent, times=4)
    assert "2+ newer entries." in texts(auditor.get(address).text)


def test_the_first_page_needs_no_word_about_newer_ones(agent: Agent, auditor: Browser) -> None:
    page = auditor.get("/audit").text

    assert 'id="audit-live"' in page
    assert "audit-newer" not in page


def test_sign_ins_wake_the_pages_too(web: Flask, stranger: Browser, admin: Browser) -> None:
    topic = Topic.parse("audit")
    assert topic is not None
    seen, email = topic.newest(HOME) or 0, admin.user.email  # type: ignore[union-attr]

    stranger.post("/sign-in", {"email": email, "password": "wrong"})
    end_reading()
    failed = topic.newest(HOME, seen)
    stranger.post("/sign-in", {"email": email, "password": PASSWORD})
    end_reading()
    signed_in = topic.newest(HOME, failed or 0)

    assert failed is not None
    assert signed_in is not None
    kinds = db.session.scalars(select(Event.kind).where(Event.id > seen).order_by(Event.id)).all()
    assert kinds == ["account.sign_in_failed", "account.sign_in"]
    assert "Sign-in failed" in send(web, "audit", Looker())
    assert topic.newest(HOME + 999) is None


def test_topics_of_the_log_belong_to_their_account(agent: Agent) -> None:
    mine, everything = Topic.parse(f"audit:{agent.id}"), Topic.parse("audit")

    assert mine is not None
    assert everything is not None
    assert (mine.belongs_to(HOME), mine.belongs_to(HOME + 1)) == (True, False)
    assert everything.belongs_to(HOME)
    assert Topic.parse("audit:") is Topic.parse("audit:x") is Topic.parse("audit:0") is None


# The twin


def test_the_twin_says_the_same_page(run: Running, auditor: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_log, "ROWS", 2)
    twin = auditor.get("/audit.json?actor=system").json
    assert twin is not None

    assert [entry["id"] for entry in twin["entries"]] == seals(auditor.get("/audit?actor=system").text)
    assert all(set(entry) == KEYS | {"words", "fold", "receipt"} for entry in twin["entries"])
    rest = auditor.get("/audit.json", query_string={"actor": "system", "before": twin["next_before"]}).json
    assert rest is not None
    assert not {e["id"] for e in twin["entries"]} & {e["id"] for e in rest["entries"]}
    again = auditor.get("/audit.json", query_string={"actor": "system", "after": rest["next_after"]}).json
    assert again == twin


def test_a_fold_says_of_its_refinement_what_the_refinement_says(web: Flask, agent: Agent, run: Running) -> None:
    """The row is read plainly: every figure and every word is the object's own, and nothing else is at hand."""
    said = (
        *FOLDED_REFINEMENT,
        "is_open",
        *(name for name, value in vars(Tally).items() if isinstance(value, property)),
    )
    other = make_agent("mina")
    remember(other, "Ann likes tea.", "Bob likes rum.")
    begin(other)
    with web.test_request_context("/audit"):
        folds = [row.fold for row in shown_log.Log(FilterForm.read(HOME, {})).rows if row.fold]
        assert {fold.refinement.agent_id for fold in folds} == {agent.id, other.id}
        for fold in folds:
            refinement = db.session.get_one(Refinement, fold.refinement.id)
            for name in said:
                assert getattr(fold.refinement, name) == getattr(refinement, name), name
            mine = AuditLog.refinement_id == refinement.id
            assert fold.entries == db.session.scalar(select(func.count()).select_from(AuditLog).where(mine))
        with pytest.raises(AttributeError):
            getattr(folds[0].refinement, "summary")  # noqa: B009 - no type has it
