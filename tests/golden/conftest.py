"""One scene that has something of everything, and golden files that say what its every form looks like.

A form is compared with ids, times, hashes and secrets replaced. After a change on purpose: `--snapshot-update`, and the
difference is read in the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.json import JSONSnapshotExtension
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from app.extensions import db
from app.grants.request import WantedException
from app.models import AccessGrant, Agent, GrantCategory, Refinement
from tests.golden.replaced import replaced, replaced_in_text
from tests.grants.conftest import put
from tests.support.clock import FakeClock
from tests.support.life import Life, live
from tests.support.scripted import say
from tests.views.conftest import Browser, browser
from tests.views.site import Subject, make_subject

Compare = Callable[[Mapping[str, Any]], None]


@dataclass
class Scene:
    """`life` has refinements of all ends; `subject` something of each kind that an address can name; `looks` are the
    owner's live exceptions, by their scope."""

    life: Life
    subject: Subject
    owner: Browser
    looks: dict[str, AccessGrant]

    @property
    def agents(self) -> dict[str, Agent]:
        return {"life": self.life.agent, "subject": self.subject.agent}

    def refinements(self) -> dict[str, Refinement]:
        """By what became of them, and their number among those."""
        found = db.session.scalars(select(Refinement)).all()
        named: dict[str, Refinement] = {}
        for each in sorted(found, key=lambda refinement: refinement.requested_at):
            alike = sum(name.startswith(f"{each.status}-") for name in named)
            named[f"{each.status}-{alike + 1}"] = each
        return named


class TickingClock(FakeClock):
    """A microsecond between any two looks, so that everything has its order."""

    def now(self) -> datetime:
        return self.advance(microseconds=1)


@pytest.fixture
def clock() -> TickingClock:
    return TickingClock()


@pytest.fixture
def scene(app: Flask, web: Flask) -> Scene:
    life, subject = live(), make_subject()
    owner = browser(web, "owner")
    assert owner.user is not None
    wishes = {
        "ledger": WantedException(GrantCategory.DEBUGGING, "It repeats itself.", 15),
        "history": WantedException(GrantCategory.DEBUGGING, "What did it remove?", 15, life.refinement.id),
    }
    looks = {
        scope: put(life.agent, owner.user, say("YES. You asked kindly."), wish=wish)[0]
        for scope, wish in wishes.items()
    }
    return Scene(life, subject, owner, looks)


class TextExtension(SingleFileSnapshotExtension):
    """One file of plain text a form."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


def comparing(stored: SnapshotAssertion, replace: Callable[[Any], Any]) -> Compare:
    """Compares forms, by name, with the golden files of a test."""

    def compare(forms: Mapping[str, Any]) -> None:
        for name, form in forms.items():
            assert replace(form) == stored(name=name), name

    return compare


@pytest.fixture
def as_json(snapshot: SnapshotAssertion) -> Compare:
    return comparing(snapshot.use_extension(JSONSnapshotExtension), replaced)


@pytest.fixture
def as_text(snapshot: SnapshotAssertion) -> Compare:
    return comparing(snapshot.use_extension(TextExtension), replaced_in_text)
