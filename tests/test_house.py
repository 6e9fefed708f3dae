"""How the house is kept: each class has a name of its own, and imports stand at the top of modules."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.config import ROOT

IMPORTED_LATE = {
    "app/__init__.py": "every small command imports this package",
    "app/cli/__init__.py": "so that --help answers at once, and a crash is told even where little can be imported",
    "app/cli/processes.py": "web, worker and beat load everything, behind the settings that they are given",
    "app/events/broker.py": "the redis client, for those who send or listen",
    "app/extensions.py": "Flask-Migrate loads Alembic, which hardly any process needs",
    "app/setup.py": "Flask-Migrate loads Alembic, which hardly any process needs",
    "app/llm/litellm.py": "LiteLLM takes seconds: only who asks a model loads it",
    "app/models/agent.py": "agents and their memories know each other",
    "app/models/attention.py": "attention items and refinements know each other",
}
MOST_IMPORTED_LATE = 30


def modules() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("app", "tasks"):
        for path in sorted(Path(ROOT, folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def imports_within_functions(tree: ast.Module) -> set[int]:
    """Their lines."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = [node for function in functions for node in ast.walk(function)]
    return {node.lineno for node in inner if isinstance(node, ast.Import | ast.ImportFrom)}


def test_no_two_classes_have_one_name() -> None:
    named = Counter(node.name for _, tree in modules() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert named
    assert [name for name, count in named.items() if count > 1] == []


def test_what_is_imported_late_has_a_reason() -> None:
    late = {path: len(imports_within_functions(tree)) for path, tree in modules()}
    assert {path for path, count in late.items() if count} == set(IMPORTED_LATE)
    assert sum(late.values()) <= MOST_IMPORTED_LATE


def words_of(node: ast.AST) -> str:
    return "".join(
        part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )


def test_a_refusal_says_in_its_outcome_what_became_of_the_data() -> None:
    """REST and MCP add "Nothing was written." where `outcome` is empty: said in the message, it would be said twice."""
    trees = dict(modules())
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    refusals = {"Invalid", "NotFound", "Refused"}
    for _ in range(5):
        refusals |= {
            node.name for node in classes if {base.id for base in node.bases if isinstance(base, ast.Name)} & refusals
        }
    assert len(refusals) > 20
    calls = [
        (path, node)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in refusals and node.args
    ]
    assert len(calls) > 50
    said = "nothing was", "nothing new was"
    assert [
        (path, call.lineno) for path, call in calls if any(each in words_of(call.args[0]).lower() for each in said)
    ] == []
    docs = [
        node.name
        for node in classes
        if node.name in refusals and "nothing was" in (ast.get_docstring(node) or "").lower()
    ]
    assert docs == []


def test_every_planted_fault_still_has_its_place() -> None:
    """Else `python -m benchmarks.planted_faults` would pass over it."""
    faults = tomllib.loads((ROOT / "benchmarks" / "planted_faults.toml").read_text())["fault"]
    assert len(faults) > 200
    texts = {fault["file"]: (ROOT / fault["file"]).read_text() for fault in faults}
    assert [fault["id"] for fault in faults if texts[fault["file"]].count(fault["old"]) != 1] == []


@pytest.mark.parametrize("path", sorted((ROOT / "static/css").glob("*.css")), ids=lambda path: path.name)
def test_a_stylesheet_closes_what_it_opens(path: Path) -> None:
    """All of them are one bundle: a brace left open in one takes the rules of the next with it."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    assert text.count("{") == text.count("}")
