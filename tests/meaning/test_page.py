"""docs/meaning.md says what the rule does."""

from __future__ import annotations

from app.config import ROOT
from app.meaning import ChangeKind, SpecificKind, missing
from app.meaning.language import FOLDER

PAGE = (ROOT / "docs" / "meaning.md").read_text(encoding="utf-8")


def rows(section: str) -> list[list[str]]:
    text = PAGE.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines][1:]


def test_every_example_of_the_page_is_what_the_rule_answers() -> None:
    examples = rows("Examples")
    assert len(examples) > 10
    for old, new, named in examples:
        found = [f"{each.kind}: {each.words}" for each in missing(old, new, kind=ChangeKind.UPDATE)]
        assert ", ".join(found) == named, old


def test_the_page_names_every_kind_of_specific() -> None:
    named = {kind.strip() for row in rows("What is compared") for kind in row[0].split(",")}
    assert named == {*SpecificKind}


def test_the_page_names_every_language_that_has_a_file() -> None:
    assert [path.name for path in FOLDER.glob("*.toml") if path.name != "others.toml" and path.name not in PAGE] == []
