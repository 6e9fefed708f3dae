"""What is found in a text, of which kind, and by which language's rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.meaning import SpecificKind, extract
from app.meaning.language import FOLDER, languages, read_language

TEXT = (
    "On 3 March Alice told Bob that the API (v1.7.8) might cost $5 per 20 minutes; don't set `max_tokens` before 6 pm. "
    'See https://x.example/a?b=1 or docs/foo.md: "never again" 😀'
)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (SpecificKind.NUMBER, ("3", "$5", "20 minutes")),
        (SpecificKind.DATE, ("March", "6 pm")),
        (SpecificKind.NAME, ("Alice", "Bob", "API")),
        (SpecificKind.QUOTE, ("never again",)),
        (SpecificKind.IDENTIFIER, ("v1.7.8", "max_tokens")),
        (SpecificKind.ADDRESS, ("https://x.example/a?b=1", "docs/foo.md")),
        (SpecificKind.CODE, ("max_tokens",)),
        (SpecificKind.EMOJI, ("😀",)),
        (SpecificKind.HEDGE, ("might",)),
    ],
)
def test_each_kind_is_found_with_its_words_as_they_stand(kind: SpecificKind, words: tuple[str, ...]) -> None:
    assert extract(TEXT).of(kind) == words


def test_a_negation_is_named_with_what_it_negates() -> None:
    assert extract("Please don't ever set it.").of(SpecificKind.NEGATION) == ("don't ever set",)


@pytest.mark.parametrize(
    "text",
    ["Use natural language.", "The cache is full.", "Models are listed.", "Fix: Enable it.", "IMPORTANT: ask first"],
)  # fmt: skip
def test_a_capital_at_the_start_of_a_sentence_makes_no_name(text: str) -> None:
    assert extract(text).of(SpecificKind.NAME) == ()


def test_a_word_in_capitals_is_emphasis_and_an_acronym_is_a_name() -> None:
    assert extract("The main branch is PROTECTED by the API, that is IMPORTANT.").of(SpecificKind.NAME) == ("API",)


def test_one_is_no_number_by_itself() -> None:
    assert extract("One of us is a second choice.").of(SpecificKind.NUMBER) == ()


def test_words_in_every_form_have_their_content_in_common() -> None:
    assert extract("The boats were sailing").content_words == ("boats", "sailing")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The door is open", "en"),
        ("letta-code - memory-first agent", "en"),
        ("Ada likes tea", "en"),
        ("Der Hund ist nicht im Haus, und das ist gut", None),
        ("El perro no está en la casa", None),
        ("我不喜欢喝咖啡", None),
        ("لا أحب القهوة", None),
        ("12 34 !!", None),
        ("", None),
    ],
)
def test_the_result_says_by_which_language_it_was_read(text: str, language: str | None) -> None:
    assert extract(text).language == language


def test_what_every_language_has_in_common_is_found_without_a_file() -> None:
    found = extract(
        "Der Zug fährt nicht um 18:30, sondern mit 12 km/h ab `Gleis 3`, sagt «Anna» auf https://bahn.example 🚂"
    )
    assert found.language is None
    kinds = ["date", "number", "code", "quote", "address", "emoji"]
    assert {each.kind for each in found.found} == {*map(SpecificKind, kinds)}
    assert found.of(SpecificKind.NEGATION) == ()


def test_another_language_is_a_file(tmp_path: Path) -> None:
    text = (FOLDER / "en.toml").read_text(encoding="utf-8")
    (tmp_path / "xx.toml").write_text(
        text.replace('code = "en"', 'code = "xx"').replace('words = """not', 'words = """zonk not')
    )
    language = read_language(tmp_path / "xx.toml")
    assert language.code == "xx"
    assert "zonk" in language.negations


def test_a_language_file_that_lacks_a_part_says_which(tmp_path: Path) -> None:
    text = (FOLDER / "en.toml").read_text(encoding="utf-8")
    (tmp_path / "xx.toml").write_text(text.replace("[negations]", "[other]"))
    with pytest.raises(KeyError, match="negations"):
        read_language(tmp_path / "xx.toml")


def test_no_word_stands_at_both_poles_of_a_pair() -> None:
    for language in languages():
        for word, marks in language.marks_by_stem.items():
            groups = [atom[1] for _, atom in marks]
            assert len(groups) == len(set(groups)), f"{language.code}: {word}"
