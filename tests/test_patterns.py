"""Regular expressions match the same on every Python that Whetstone runs on.

Before 3.11.5 a possessive group that fails after it took something, by a repeat or a lookahead in it, keeps what it
took (CPython's issue 106052): a token was cut wrong, and a rule that compares tokens refused what it should let pass.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import pytest

import app

parser: Any = importlib.import_module("re._parser")
opcodes: Any = importlib.import_module("re._constants")

ONE_CHARACTER = {opcodes.LITERAL, opcodes.NOT_LITERAL, opcodes.IN, opcodes.ANY}
REPEATS = {opcodes.MAX_REPEAT, opcodes.MIN_REPEAT, opcodes.POSSESSIVE_REPEAT}


def strays(pattern: str | bytes, flags: int = 0) -> bool:
    """Whether a possessive group in it can fail after it took something."""
    return any(
        _fails_late(inner[2])
        for operation, inner in _all_operations(parser.parse(pattern, flags))
        if operation is opcodes.POSSESSIVE_REPEAT
    )


def _fails_late(body: Any) -> bool:
    """Single characters may fail, as long as nothing but them stands before; what follows them may not fail at all."""
    if len(body) == 1 and body[0][0] in ONE_CHARACTER:
        return False
    only_characters = True
    for operation, inner in body:
        if operation in ONE_CHARACTER and only_characters:
            continue
        only_characters = False
        if not (operation in REPEATS and inner[0] == 0 and len(inner[2]) == 1 and inner[2][0][0] in ONE_CHARACTER):
            return True
    return False


def _all_operations(parsed: Any) -> Iterator[tuple[Any, Any]]:
    for operation, inner in parsed:
        yield operation, inner
        yield from _within(inner)


def _within(inner: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(inner, parser.SubPattern):
        yield from _all_operations(inner)
    elif isinstance(inner, list | tuple):
        for each in inner:
            yield from _within(each)


def _modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(app.__path__, "app."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def _patterns(value: object) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from _of_each(value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from _of_each(value)


def _of_each(values: Iterable[object]) -> Iterator[re.Pattern[Any]]:
    for value in values:
        yield from _patterns(value)


def test_no_pattern_of_the_product_depends_on_python_s_release() -> None:
    found = {
        (pattern.pattern, pattern.flags): module.__name__
        for module in _modules()
        for pattern in _of_each(list(vars(module).values()))
    }
    assert len(found) > 50
    assert [(name, pattern) for (pattern, flags), name in found.items() if strays(pattern, flags)] == []


@pytest.mark.parametrize(
    "pattern",
    [r"(?:[.,]\d++)*+x", r"(?:ab?c)++", r"(?:(?!```).)++", r"(?:(?<=\w)'\w*+){0,5}+", r"(?::\d{2})?+", r"(?:a|bc)?+"],
)
def test_a_group_that_fails_late_is_found(pattern: str) -> None:
    assert strays(pattern)


@pytest.mark.parametrize(
    "pattern", [r"\d++", r"(?:[.,]\d\d*+)*+x", r"(?:\(\))?+", r"(?::\d\d)?+", r"(?:a[bc]*+)*+", r"(a|b)+c"]
)
def test_one_that_can_not_is_left_alone(pattern: str) -> None:
    assert not strays(pattern)
