"""A read scope: one moment while it lasts, and no transaction behind it, however it ends."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db, reading, writing
from app.models import Account, Agent
from tests.support.factories import make_agent


def test_no_transaction_is_open_behind_it(app: Flask) -> None:
    make_agent("ezra")
    with reading() as session:
        assert session.scalars(select(Agent.name)).all() == ["ezra"]
        assert session.in_transaction()
    assert not db.session().in_transaction()

    with pytest.raises(ValueError, match="meanwhile"), reading() as session:
        session.scalars(select(Agent.name)).all()
        raise ValueError("meanwhile")
    assert not db.session().in_transaction()


def test_within_a_write_transaction_it_is_refused_before_it_could_end_that(app: Flask) -> None:
    with writing() as session:
        Account.lock(1).name = "Home of all"
        session.flush()
        with pytest.raises(RuntimeError, match="within a write transaction"), reading():
            pass

    assert db.session.scalars(select(Account.name)).all() == ["Home of all"]
