"""The documentation names what there is."""

from __future__ import annotations

import re

from app.config import ROOT, Settings


def test_every_setting_stands_in_the_one_documented_place() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    for name, field in Settings.model_fields.items():
        variable = name.upper() if name in ("database_url", "redis_url") else f"WHETSTONE_{name.upper()}"
        row = next((line for line in text.splitlines() if line.startswith(f"| `{variable}` |")), "")
        assert field.description, f"{variable} has no description"
        assert field.description in row, f"{variable} is not described in docs/operations.md"


def test_every_dependency_has_its_reason() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().lower()
    declared = re.findall(r'^    "([a-z0-9-]+)', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    for name in declared:
        words = {name, name.removesuffix("-python"), name.split("-")[0] if name == "axe-playwright-python" else name}
        assert any(word in text for word in words), f"{name} has no line in docs/architecture.md"


def test_every_command_of_the_readme_exists() -> None:
    from app.cli import COMMANDS

    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    named = {match for page in pages for match in re.findall(r"\./whetstone ([a-z]+)", page.read_text())}
    assert named <= set(COMMANDS), named - set(COMMANDS)
