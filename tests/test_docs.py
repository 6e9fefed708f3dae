"""The documentation names what there is."""

from __future__ import annotations

import re
import tomllib

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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = {*project["project"]["dependencies"], *project["dependency-groups"]["dev"]}
    for requirement in declared:
        name = re.split(r"[\[<>=; ]", requirement)[0]
        assert name in text or name.split("-")[0] in text, f"{name} has no line in docs/architecture.md"


def test_every_command_of_the_readme_exists() -> None:
    from app.cli import COMMANDS

    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    named = {match for page in pages for match in re.findall(r"\./whetstone ([a-z]+)", page.read_text())}
    assert named <= set(COMMANDS), named - set(COMMANDS)
