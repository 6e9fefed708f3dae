"""Leaves that are committed, and not yet in the copy outside the database: nobody waits for a disk within a
transaction, and nothing of what the copy proves is lost for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from flask import Flask

from app.extensions import after_commit, db, writing
from app.keys.agent_keys import open_keys
from app.models import Agent, StatementKind
from app.models.appending import append_statement
from app.models.checked_leaves import CheckedLeaf
from app.models.declaring import declare
from app.models.log_leaves import FoundLeaf, log_size
from app.models.statement import Statement
from app.models.statement_errors import LogBroken
from app.models.statement_log import StatementLog, current_of, statement_log
from app.silo.logcopy import LogCopyUnwritable
from tests.support.factories import make_agent
from tests.support.tampering import tamper


@pytest.fixture
def agents(app: Flask) -> tuple[Agent, Agent]:
    return make_agent("wren"), make_agent("crow")


def say_no(agent: Agent, subject: str) -> None:
    declare(StatementKind.CONSENT, Agent.lock(agent.id), subject, {"granted": False})


def state(agent: Agent, subject: str) -> None:
    with writing():
        say_no(agent, subject)


def newly_read() -> StatementLog:
    """As another process of this machine knows it now."""
    return StatementLog(statement_log().copy.path.parent, statement_log().keys.verifier.public)


@contextmanager
def another_process(app: Flask) -> Iterator[StatementLog]:
    mine = app.extensions["statement_log"]
    app.extensions["statement_log"] = other = newly_read()
    try:
        yield other
    finally:
        app.extensions["statement_log"] = mine


def state_elsewhere(app: Flask, agent: Agent, subject: str) -> None:
    """Another process has committed it, and not yet written its copy."""
    with another_process(app) as other, pytest.MonkeyPatch.context() as patch:
        patch.setattr(other.checked, "write_ahead", lambda: None)
        state(agent, subject)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each time that a disk was waited for, whether the session was within a transaction."""
    found, real = list[bool](), os.fsync

    def sync(descriptor: int) -> None:
        found.append(bool(db.session().info.get("writing")))
        real(descriptor)

    monkeypatch.setattr("app.silo.logcopy.os.fsync", sync)
    return found


def test_nobody_waits_for_a_disk_within_a_transaction(
    app: Flask, agents: tuple[Agent, Agent], syncs: list[bool]
) -> None:
    wren, crow = agents
    size = statement_log().copy.size
    state_elsewhere(app, crow, "change:elsewhere")
    state(wren, "change:here")

    assert syncs and not any(syncs)
    assert statement_log().copy.size == size + 2
    assert newly_read().copy.size == size + 2


def test_what_was_only_read_is_written_behind_the_transaction(
    app: Flask, agents: tuple[Agent, Agent], syncs: list[bool]
) -> None:
    wren, crow = agents
    size = statement_log().copy.size
    state_elsewhere(app, crow, "change:elsewhere")
    with writing():
        open_keys(Agent.lock(wren.id))
        assert statement_log().copy.size == size

    assert syncs and not any(syncs)
    assert newly_read().copy.size == size + 1


def test_who_only_reads_writes_it_before(app: Flask, agents: tuple[Agent, Agent], syncs: list[bool]) -> None:
    """As a web process does: there is no transaction of its own, behind which it could."""
    wren, crow = agents
    size = statement_log().copy.size
    state_elsewhere(app, crow, "change:elsewhere")
    assert current_of(wren.id, wren.uuid, size + 1).consents == {}
    assert (statement_log().copy.size, newly_read().copy.size) == (size + 1, size + 1)
    assert syncs


def test_what_another_process_has_just_stated_of_an_agent_counts_at_once(
    app: Flask, agents: tuple[Agent, Agent]
) -> None:
    wren, _ = agents
    size = statement_log().copy.size
    state_elsewhere(app, wren, "change:elsewhere")
    with writing():
        assert "change:elsewhere" in current_of(wren.id, wren.uuid, size + 1).consents
        say_no(wren, "change:here")
        assert {"change:elsewhere", "change:here"} <= current_of(wren.id, wren.uuid).consents.keys()


def test_who_waited_finds_that_others_wrote_his_too(agents: tuple[Agent, Agent], syncs: list[bool]) -> None:
    log = statement_log()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log.checked, "write_ahead", lambda: None)
        for number in range(5):
            state(agents[number % 2], f"change:{number}")
    before = log.copy.size
    log.checked.write_ahead()
    once = len(syncs)
    log.checked.write_ahead()

    assert (log.copy.size, len(syncs)) == (before + 5, once)
    assert newly_read().copy.size == before + 5


def test_it_is_durable_in_the_database_before_the_copy_names_it(
    agents: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, log = list[int](), statement_log()
    monkeypatch.setattr("app.models.checked_leaves.make_durable", lambda: sizes.append(log.copy.size))
    size = log.copy.size
    state(agents[0], "change:one")

    assert (sizes, log.copy.size) == ([size], size + 1)


def test_the_whole_log_is_in_the_copy_for_who_looks_at_all_of_it(
    agents: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = statement_log()
    with monkeypatch.context() as patch:
        patch.setattr(log.checked, "write_ahead", lambda: None)
        state(agents[0], "change:one")
    size = log.copy.size
    log.catch_up()
    assert log.copy.size == size + 1


@pytest.mark.parametrize(
    ("change", "values"), [("leaf = :other", {"other": b"other"}), ("kind = 'model'", {})], ids=["leaf", "kind"]
)
def test_a_leaf_that_is_forged_meanwhile_is_seen_before_anything_follows_it(
    app: Flask, agents: tuple[Agent, Agent], change: str, values: dict[str, bytes]
) -> None:
    wren, crow = agents
    state_elsewhere(app, crow, "change:elsewhere")
    last = "position = (SELECT max(position) FROM log_leaves)"
    assert tamper(f"UPDATE log_leaves SET {change} WHERE {last}", **values)
    with pytest.raises(LogBroken), writing():
        open_keys(Agent.lock(wren.id))
    with pytest.raises(LogBroken):
        state(wren, "change:here")


@pytest.mark.parametrize("is_written", [True, False])
def test_a_log_that_was_cut_meanwhile_is_not_appended_to(agents: tuple[Agent, Agent], is_written: bool) -> None:
    log, (wren, _) = statement_log(), agents
    with pytest.MonkeyPatch.context() as patch:
        if not is_written:
            patch.setattr(log.checked, "write_ahead", lambda: None)
        state(wren, "change:one")
    tamper("DELETE FROM log_leaves WHERE position = (SELECT max(position) FROM log_leaves)")
    for _ in range(2):
        with pytest.raises(LogBroken, match="it ends at leaf"):
            state(wren, "change:two")
        with pytest.raises(LogBroken, match="it ends at leaf"), writing():
            open_keys(Agent.lock(wren.id))


def full_disk(*_: Any) -> int:
    raise OSError(28, "No space left on device")


def test_where_the_copy_can_not_be_written_nothing_more_is_appended_or_opened(
    agents: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, (wren, crow), size = statement_log(), agents, statement_log().copy.size
    with monkeypatch.context() as patch:
        patch.setattr("app.silo.logcopy.os.pwrite", full_disk)
        with pytest.raises(LogCopyUnwritable):
            state(wren, "change:one")  # it is committed
        for _ in range(2):
            with pytest.raises(LogCopyUnwritable):
                state(crow, "change:two")
            with pytest.raises(LogCopyUnwritable), writing():
                open_keys(Agent.lock(crow.id))
    state(crow, "change:three")

    assert log.copy.size == newly_read().copy.size == size + 2
    assert list(current_of(crow.id, crow.uuid).consents) == ["change:three"]


def test_a_copy_that_was_moved_aside_is_begun_anew(agents: tuple[Agent, Agent]) -> None:
    """As `restore accept` does in another process, while this one has leaves to write."""
    log, (wren, crow) = statement_log(), agents
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log.checked, "write_ahead", lambda: None)
        state(wren, "change:one")
    newly_read().copy.archive("before")
    newly_read().catch_up()
    state(crow, "change:two")

    assert newly_read().copy.size == log.copy.size
    assert "change:one" in current_of(wren.id, wren.uuid).consents


def test_a_leaf_that_another_process_writes_down_first_is_durable_too(
    agents: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, other = list[int](), newly_read()
    monkeypatch.setattr("app.models.checked_leaves.make_durable", lambda: sizes.append(newly_read().copy.size))
    size = other.copy.size
    with writing():
        after_commit(other.catch_up)  # it looks between the commit and what this process does behind it
        say_no(Agent.lock(agents[0].id), "change:one")

    assert sizes[0] == size
    assert newly_read().copy.size == size + 1


def test_a_copy_names_no_leaf_that_is_to_be_kept_whole_and_is_not(
    agents: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, kept = statement_log(), len(statement_log().checked.kept.read())
    with monkeypatch.context() as patch:
        patch.setattr("app.silo.keptnotes.os.write", full_disk)
        with pytest.raises(OSError, match="No space"), writing():
            append_statement(StatementKind.ERASURE, "memory:1", {})
        with pytest.raises(OSError, match="No space"):
            log.catch_up()
    log.catch_up()

    assert len(log.checked.kept.read()) == kept + 1


def test_what_a_rolled_back_transaction_read_is_written_to_no_copy_that_took_the_place_of_that_one(
    app: Flask, agents: tuple[Agent, Agent]
) -> None:
    log, (wren, crow) = statement_log(), agents
    state_elsewhere(app, crow, "change:elsewhere")
    with pytest.raises(ZeroDivisionError), writing():
        open_keys(Agent.lock(wren.id))
        raise ZeroDivisionError
    newly_read().catch_up()
    tamper("DELETE FROM log_leaves WHERE position = (SELECT max(position) FROM log_leaves)")  # a backup is put back
    newly_read().copy.archive("before")  # and accepted, in another process
    newly_read().catch_up()

    log.catch_up()
    assert newly_read().copy.size == log.copy.size == log_size(db.session)


def test_who_only_read_what_can_not_be_written_has_done_his_own(
    app: Flask, agents: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    (wren, crow), done = agents, list[str]()
    state_elsewhere(app, crow, "change:elsewhere")
    with monkeypatch.context() as patch:
        patch.setattr("app.silo.logcopy.os.pwrite", full_disk)
        with writing():
            agent = Agent.lock(wren.id)
            open_keys(agent)
            agent.paused = True
            after_commit(lambda: done.append("told"))
        assert done == ["told"]
        with pytest.raises(LogCopyUnwritable), writing():
            open_keys(Agent.lock(wren.id))

    assert db.session.get_one(Agent, wren.id, populate_existing=True).paused


@pytest.mark.parametrize("stays_full", [True, False])
def test_a_reader_misses_nothing_that_another_fails_to_write_at_that_moment(
    app: Flask, agents: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch, stays_full: bool
) -> None:
    (wren, _), checked = agents, statement_log().checked
    state_elsewhere(app, wren, "change:elsewhere")
    real = checked.has_ahead

    def has_ahead(agent: str) -> bool:
        with monkeypatch.context() as patch:
            patch.setattr("app.silo.logcopy.os.pwrite", full_disk)
            checked.write_of_others()
        if stays_full:
            monkeypatch.setattr("app.silo.logcopy.os.pwrite", full_disk)
        return real(agent)

    monkeypatch.setattr(checked, "has_ahead", has_ahead)
    with pytest.raises(LogCopyUnwritable) if stays_full else nullcontext(), writing() as session:
        assert list(current_of(wren.id, wren.uuid, log_size(session)).consents) == ["change:elsewhere"]


def test_nothing_is_added_behind_what_another_fails_to_write_at_that_moment(
    app: Flask, agents: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, (wren, crow) = statement_log(), agents
    state_elsewhere(app, crow, "change:first")
    with monkeypatch.context() as patch, writing() as session:
        patch.setattr(log.checked, "write_ahead", lambda: None)
        log.keep_up(log_size(session))
        session.info["after_commit"].clear()
    state_elsewhere(app, wren, "change:second")
    real = log.keys.check_leaf

    def check_leaf(leaf: FoundLeaf) -> Statement | None:
        with monkeypatch.context() as patch:
            patch.setattr("app.silo.logcopy.os.pwrite", full_disk)
            log.checked.write_of_others()
        return real(leaf)

    monkeypatch.setattr(log.keys, "check_leaf", check_leaf)
    with writing() as session:
        assert list(current_of(wren.id, wren.uuid, log_size(session)).consents) == ["change:second"]
    assert newly_read().copy.size == log.copy.size == log_size(db.session)


def test_who_stated_what_can_not_be_written_is_told(
    app: Flask, agents: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    (wren, crow), size = agents, statement_log().copy.size
    state_elsewhere(app, crow, "change:elsewhere")
    with monkeypatch.context() as patch:
        patch.setattr("app.silo.logcopy.os.pwrite", full_disk)
        with pytest.raises(LogCopyUnwritable):
            state(wren, "change:here")
    statement_log().catch_up()

    assert newly_read().copy.size == size + 2
    assert "change:here" in current_of(wren.id, wren.uuid).consents


@pytest.mark.parametrize("stays_full", [True, False])
def test_who_stated_what_another_fails_to_write_for_him_is_told_or_writes_it_himself(
    agents: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch, stays_full: bool
) -> None:
    (wren, _), log, size = agents, statement_log(), statement_log().copy.size
    real = log.checked.add

    def add(leaves: Sequence[CheckedLeaf]) -> None:
        real(leaves)
        with monkeypatch.context() as patch:
            patch.setattr("app.silo.logcopy.os.pwrite", full_disk)
            log.checked.write_of_others()
        if stays_full:
            monkeypatch.setattr("app.silo.logcopy.os.pwrite", full_disk)

    monkeypatch.setattr(log.checked, "add", add)
    with pytest.raises(LogCopyUnwritable) if stays_full else nullcontext():
        state(wren, "change:here")

    assert newly_read().copy.size == size + (not stays_full)
