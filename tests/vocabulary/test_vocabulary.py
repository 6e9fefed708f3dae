"""One vocabulary: every member of an enum has its words there, and no template and no module has another table."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

import pytest
from flask import Flask
from jinja2 import nodes

from app.config import ROOT
from app.llm.client import RETRIED, ModelErrorKind
from app.models import (
    OPEN_STATES,
    Action,
    AttentionKind,
    GrantCategory,
    GrantStatus,
    IntakeStatus,
    Mode,
    ProposalStatus,
    RollbackKind,
    Status,
    TokenRequestStatus,
    Trigger,
)
from app.values.refinement_states import WaitsFor
from app.views.icons import DRAWINGS
from app.vocabulary import (
    ACTIONS,
    ATTENTION_KINDS,
    GRANT_CATEGORIES,
    GRANT_STATUSES,
    INTAKE_STATUSES,
    MODES,
    PROPOSAL_STATUSES,
    ROLLBACKS,
    STATUSES,
    TOKEN_REQUEST_STATUSES,
    TRIGGERS,
    WAITS,
)
from app.vocabulary.progress import attempt_failure

TABLES = {
    Action: ACTIONS,
    AttentionKind: ATTENTION_KINDS,
    GrantCategory: GRANT_CATEGORIES,
    GrantStatus: GRANT_STATUSES,
    IntakeStatus: INTAKE_STATUSES,
    Mode: MODES,
    ProposalStatus: PROPOSAL_STATUSES,
    RollbackKind: ROLLBACKS,
    Status: STATUSES,
    TokenRequestStatus: TOKEN_REQUEST_STATUSES,
    Trigger: TRIGGERS,
    WaitsFor: WAITS,
}

RULES = {
    ("app/cli/grant_acts.py", "GrantStatus"): "which hint follows an answer",
    ("app/cli/grant_acts.py", "TokenRequestStatus"): "its words are members of GrantStatus, too",
    ("app/history/steps.py", "Action"): "which step an entry is, and how it is read",
    ("app/models/attention.py", "AttentionKind"): "a line is made of the refinement's counts",
    ("app/views/shown/refinement.py", "Status"): "what an end means depends on what was done, too",
}
"""Where a module tells the members of an enum apart, and why that is no table of words."""


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_every_member_has_its_words(kind: type[StrEnum]) -> None:
    assert set(TABLES[kind]) == set(kind)
    assert all(TABLES[kind][member].words for member in kind)


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_every_term_has_words_for_people_and_an_icon_and_a_tone_that_exist(kind: type[StrEnum]) -> None:
    tones = (ROOT / "static/css/tokens.css").read_text()
    for term in TABLES[kind].values():
        assert "_" not in term.words
        assert not term.icon or term.icon in DRAWINGS
        assert f".tone-{term.tone} " in tones


@pytest.mark.parametrize("status", Status)
def test_every_status_says_what_it_means(status: Status) -> None:
    term = STATUSES[status]
    assert term.icon and term.meaning
    assert bool(term.nothing_yet) == (status in OPEN_STATES)
    assert bool(term.ending and term.headline) == (status not in OPEN_STATES)


@pytest.mark.parametrize("kind", sorted(RETRIED))
def test_every_failure_that_is_worth_another_attempt_is_told_in_words(kind: ModelErrorKind) -> None:
    assert attempt_failure(kind, None).startswith("the model")
    assert attempt_failure(kind, 503).endswith(" (HTTP 503)")


@pytest.mark.parametrize("kind", RollbackKind)
def test_every_kind_of_rollback_has_its_page_its_answer_and_its_note(kind: RollbackKind) -> None:
    term = ROLLBACKS[kind]
    assert all((term.title, term.button, term.lead, term.done, term.taken_back, term.told))


def test_no_template_has_a_table_of_its_own(web: Flask) -> None:
    assert [*_in_templates(web)] == []


def test_no_module_has_a_table_of_its_own() -> None:
    found = {place for path in sorted((ROOT / "app").rglob("*.py")) for place in _in_module(path)}
    assert found == set(RULES)


def _in_templates(app: Flask) -> Iterator[tuple[str, str]]:
    """Dictionaries by two members of an enum, and comparisons with two of them."""
    for name in app.jinja_env.list_templates(extensions=["html"]):
        source = app.jinja_env.loader.get_source(app.jinja_env, name)[0]  # type: ignore[union-attr]
        tree = app.jinja_env.parse(source)
        dictionaries = [{pair.key.value for pair in found.items if isinstance(pair.key, nodes.Const)}
                        for found in tree.find_all(nodes.Dict)]  # fmt: skip
        compared = [
            operand.expr.value
            for found in tree.find_all(nodes.Compare)
            if "status" in _last_name(found.expr)
            for operand in found.ops
            if isinstance(operand.expr, nodes.Const)
        ]
        for values in (*dictionaries, {*compared}):
            yield from ((name, kind.__name__) for kind in TABLES if len(values) > 1 and values <= {*kind})


def _last_name(node: nodes.Node) -> str:
    return str(getattr(node, "attr", getattr(node, "name", "")))


def _in_module(path: Path) -> Iterator[tuple[str, str]]:
    """Dictionaries and `match` statements by the members of an enum, with texts for people."""
    place = path.relative_to(ROOT).as_posix()
    if place.startswith("app/vocabulary/"):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        keys, texts = _table(node)
        for kind in TABLES:
            if len(keys) > 1 and texts and all(_is_member(key, kind) for key in keys):
                yield place, kind.__name__


def _table(node: ast.AST) -> tuple[list[ast.expr], list[str]]:
    """What it tells apart, and the texts that follow; of statements, those that are no plain names."""
    if isinstance(node, ast.Dict):
        return [key for key in node.keys if key is not None], [*_texts(node.values)]
    if isinstance(node, ast.Match):
        patterns = [each for case in node.cases for each in ast.walk(case.pattern)]
        texts = [text for case in node.cases for text in _texts(case.body) if " " in text]
        return [each.value for each in patterns if isinstance(each, ast.MatchValue)], texts
    return [], []


def _texts(found: Sequence[ast.AST]) -> Iterator[str]:
    for node in (each for part in found for each in ast.walk(part)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _is_member(node: ast.expr, kind: type[StrEnum]) -> bool:
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == kind.__name__
    return isinstance(node, ast.Constant) and node.value in set(kind)
