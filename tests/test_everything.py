"""The checksum by which tests see that nothing was changed: it knows of every change, and of none that was not."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import text

from app.extensions import WRITES, db
from tests.support.everything import everything
from tests.support.factories import make_agent, remember
from tests.support.tampering import tamper

CHANGES = {
    "a row more": "INSERT INTO marks (name, value, at) VALUES ('x', '1', CURRENT_TIMESTAMP)",
    "a row less": "DELETE FROM log_leaves WHERE position = 0",
    "a word": "UPDATE agents SET name = 'wren'",
    "a byte": "UPDATE audit_log SET hash = previous_hash WHERE sequence = 2",
    "nothing where something was": "UPDATE accounts SET name = ''",
    "two columns that change places": "UPDATE agents SET name = model_id, model_id = name",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_it_knows_of(app: Flask, change: str) -> None:
    remember(make_agent(), "One.", "Two.")
    before = everything()
    assert everything() == before

    assert tamper(change)

    assert everything() != before


def test_it_is_the_same_again_when_all_is_as_it_was(app: Flask) -> None:
    make_agent()
    before = everything()
    tamper("UPDATE agents SET name = 'wren'")
    assert everything() != before
    tamper("UPDATE agents SET name = 'ezra'")
    assert everything() == before


def test_what_is_not_committed_is_no_change_yet(app: Flask) -> None:
    make_agent()
    before = everything()
    with db.engine.connect().execution_options(**WRITES) as connection:
        connection.execute(text("UPDATE agents SET name = 'wren'"))
        assert everything() == before
        connection.commit()
    assert everything() != before


def test_a_column_can_be_left_out(app: Flask) -> None:
    make_agent()
    before, but_names = everything(), everything("name")
    tamper("UPDATE agents SET name = 'wren'")
    assert everything() != before
    assert everything("name") == but_names
