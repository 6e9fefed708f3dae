"""The log as a file: the same lines as the command line's, safe for spreadsheets, and sent as it is read."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db, writing
from app.history import log
from app.history.log import LogEntry
from app.models import COMMAND_LINE, Action, Agent, AuditLog, record
from app.models.keyset import TimeCursor
from app.views.export import COLUMNS, FORMULA_STARTS, MOST_AT_ONCE
from tests.cli.conftest import Whetstone, whetstone  # noqa: F401 - a fixture
from tests.support.clock import FakeClock
from tests.support.factories import HOME, begin, make_agent, remember
from tests.support.pages import serving
from tests.support.processes import wait_for
from tests.views.conftest import Browser

KEYS = ["id", "at", "actor", "action", "agent", "refinement", "subject", "data", "hash", "previous_hash"]


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("ezra")
    remember(made, "Ann likes tea.", "Bob likes rum.")
    return made


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_json_lines_are_those_of_the_command_line(agent: Agent, auditor: Browser, whetstone: Whetstone) -> None:  # noqa: F811
    begin(agent).tool.execute("complete", summary="Done.")
    said = sorted(whetstone("audit", "--json").out.splitlines())

    answer = auditor.get("/audit.jsonl")

    assert answer.headers["Content-Type"] == "application/jsonl; charset=utf-8"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="audit.jsonl"'
    assert answer.headers["Cache-Control"] == "no-store"
    assert sorted(answer.text.splitlines()) == said
    assert all(list(line) == KEYS for line in lines(answer.text))


def test_entries_come_oldest_first(agent: Agent, auditor: Browser) -> None:
    moments = [(line["at"], line["id"]) for line in lines(auditor.get("/audit.jsonl").text)]

    assert moments == sorted(moments)
    assert len(moments) > 3


def test_csv_is_rfc_4180_and_says_the_same(agent: Agent, auditor: Browser) -> None:
    answer = auditor.get("/audit.csv")

    assert answer.headers["Content-Type"].startswith("text/csv")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="audit.csv"'
    assert answer.text.startswith(",".join(COLUMNS) + "\r\n")
    assert answer.text.count("\n") == answer.text.count("\r\n") == len(rows(answer.text)) + 1
    assert list(COLUMNS) == KEYS
    for row, line in zip(rows(answer.text), lines(auditor.get("/audit.jsonl").text), strict=True):
        assert row["id"] == str(line["id"])
        assert json.loads(row["data"]) == line["data"]
        assert (row["agent"], row["hash"]) == (line["agent"] or "", line["hash"])


@pytest.mark.parametrize(
    "name", ["=cmd|' /C calc'!A0", "+1+1", "-2", "@SUM(1)", "＝1", '=HYPERLINK("http://x","y")', 'quoted "name", here']
)
def test_no_cell_is_a_formula(app: Flask, auditor: Browser, name: str) -> None:
    make_agent(name)

    text = auditor.get("/audit.csv").text
    found = [row for row in rows(text) if row["agent"]]

    expected = f"'{name}" if name.startswith(FORMULA_STARTS) else name
    assert {row["agent"] for row in found} == {expected}
    assert all(not cell.startswith(FORMULA_STARTS) for row in csv.reader(io.StringIO(text)) for cell in row)
    assert {line["agent"] for line in lines(auditor.get("/audit.jsonl?action=agent_create").text)} == {name}


def test_tabs_and_line_ends_at_the_front_of_a_cell_are_made_text(agent: Agent, auditor: Browser) -> None:
    for subject in ("\t=1", "\r=1", "\n=1", "=1+1\r\n=2"):
        with writing():
            record(Action.AGENT_PAUSE, actor=COMMAND_LINE, of=Agent.lock(agent.id), subject=subject)

    found = [row["subject"] for row in rows(auditor.get("/audit.csv?action=agent_pause").text)]

    assert found == ["'\t=1", "'\r=1", "'\n=1", "'=1+1\r\n=2"]


def test_files_hold_what_the_filters_leave(agent: Agent, auditor: Browser) -> None:
    remember(make_agent("void"), "Void.")

    of_void = lines(auditor.get("/audit.jsonl?agent=void&from=2026-11-16&to=2026-11-16").text)
    of_ezra = auditor.get(f"/agents/{agent.id}/audit.jsonl?action=memory_create")

    assert [line["action"] for line in of_void] == ["agent_create", "memory_create"]
    assert [(line["agent"], line["action"]) for line in lines(of_ezra.text)] == [("ezra", "memory_create")]
    assert of_ezra.headers["Content-Disposition"] == f'attachment; filename="audit-agent-{agent.id}.jsonl"'
    assert rows(auditor.get(f"/agents/{agent.id}/audit.csv?actor=user").text) == []
    assert auditor.get("/audit.jsonl?actor=user:nobody@example.org").text == ""


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_log_of_many_batches_comes_whole_and_once(
    agent: Agent, auditor: Browser, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    clock.advance(hours=1)
    begin(agent).tool.execute("complete", summary="Done.")
    query = select(AuditLog.id).where(AuditLog.account_id == HOME).order_by(AuditLog.at, AuditLog.id)
    expected = list(db.session.scalars(query))
    monkeypatch.setattr(log, "BATCH", size)

    assert [line["id"] for line in lines(auditor.get("/audit.jsonl").text)] == expected
    assert [int(row["id"]) for row in rows(auditor.get("/audit.csv").text)] == expected


class Gate:
    """Holds every file after its first batch, until the test opens it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
        self._read, self._first = log.read_log_entries, first
        self.opened, self.reads = threading.Event(), 0
        monkeypatch.setattr(log, "read_log_entries", self._wait)
        monkeypatch.setattr(log, "BATCH", 2)

    def _wait(self, places: Sequence[TimeCursor]) -> list[LogEntry]:
        if places[0].id != self._first:
            assert self.opened.wait(timeout=30)
        self.reads += 1
        return self._read(places)


@pytest.fixture
def gate(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    oldest = db.session.scalars(select(AuditLog.id).order_by(AuditLog.at, AuditLog.id).limit(1)).one()
    made = Gate(monkeypatch, oldest)
    yield made
    made.opened.set()


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_the_first_bytes_arrive_before_the_last_are_read(web: Flask, auditor: Browser, gate: Gate, suffix: str) -> None:
    assert auditor.user is not None
    with serving(web) as site:
        headers = {"Cookie": site.cookie_of(auditor.user)}
        with httpx.stream("GET", f"{site.url}/audit.{suffix}", headers=headers, timeout=30) as answer:
            parts = answer.iter_bytes()
            first = next(parts)
            if suffix == "csv":
                assert first.startswith(b"id,at,actor")
                first = next(parts)
            assert gate.reads == 1
            assert first.count(b"agent_create") == 1
            gate.opened.set()
            rest = b"".join(parts)
        assert answer.status_code == 200
    assert gate.reads > 1
    assert b"user_create" in rest


def test_no_more_than_a_few_are_sent_at_once_and_each_frees_its_place(web: Flask, auditor: Browser, gate: Gate) -> None:
    assert auditor.user is not None
    with serving(web) as site, httpx.Client(timeout=30) as client, ExitStack() as held:
        held.callback(gate.opened.set)
        client.headers["Cookie"] = site.cookie_of(auditor.user)
        url = f"{site.url}/audit.jsonl"
        answers = [held.enter_context(client.stream("GET", url)) for _ in range(MOST_AT_ONCE)]
        assert [answer.status_code for answer in answers] == [200] * MOST_AT_ONCE

        refused, page = client.get(url), client.get(f"{site.url}/audit")

        assert (refused.status_code, page.status_code) == (429, 200)
        assert "As many files are being sent as this server sends at once. Try again in a minute." in refused.text
        gate.opened.set()
        assert all(answer.read() for answer in answers)
        wait_for(lambda: client.get(url).status_code == 200)


def test_a_visitor_who_leaves_frees_the_place(web: Flask, auditor: Browser, gate: Gate) -> None:
    assert auditor.user is not None
    with serving(web) as site, httpx.Client(timeout=30) as client:
        client.headers["Cookie"] = site.cookie_of(auditor.user)
        url = f"{site.url}/audit.csv"
        for _ in range(MOST_AT_ONCE):
            with client.stream("GET", url) as answer:
                assert answer.status_code == 200
        gate.opened.set()

        wait_for(lambda: client.get(url).status_code == 200)


def test_a_file_that_nobody_takes_to_its_end_frees_its_place(web: Flask, agent: Agent, auditor: Browser) -> None:
    for _ in range(3 * MOST_AT_ONCE):
        answer = auditor.get("/audit.csv")
        assert answer.status_code == 200
        answer.close()


def test_a_log_that_cant_be_read_is_an_error_and_no_empty_file(
    agent: Agent, auditor: Browser, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def breaks(*_: object) -> None:
        raise ValueError("a bad row")

    monkeypatch.setattr(log, "read_log_entries", breaks)

    answer = auditor.get("/audit.jsonl")

    assert answer.status_code == 500
    assert "Something went wrong" in answer.text
    assert "a bad row" not in answer.text + capfd.readouterr().err
