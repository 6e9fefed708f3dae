"""The benchmark runs for everybody, without data from elsewhere, and the rule keeps what it promises there."""

from __future__ import annotations

import sys

import pytest

from app.meaning import ChangeKind, missing
from benchmarks import meaning
from benchmarks.meaning_scenes import parts, read_scenes

KNOWN = [part for part in parts() if part not in ("held_out", "unseen")]
LEAST_NAMED = 0.9
MOST_HARMLESS = 0.1


def test_it_runs_on_sentences_of_our_own(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["meaning", "--most", "3"])
    meaning.main()
    shown = capsys.readouterr().out
    assert "| cosine ≥ 0.9 | not measured: no embedding model here" in shown
    assert "| our own sentences | 3 |" in shown


@pytest.mark.parametrize("part", KNOWN)
def test_losses_written_by_hand_are_named(part: str) -> None:
    pairs = [pair for pairs in read_scenes(part, "losses").values() for pair in pairs]
    named = sum(bool(missing(old, new, kind=ChangeKind.UPDATE)) for old, new in pairs)
    assert named >= LEAST_NAMED * len(pairs)


def test_changes_that_save_words_are_hardly_ever_asked_about() -> None:
    pairs = [pair for part in KNOWN for pair in read_scenes(part, "harmless").get("words saved", ())]
    asked = sum(bool(missing(old, new, kind=ChangeKind.UPDATE)) for old, new in pairs)
    assert asked <= MOST_HARMLESS * len(pairs)


def test_tightening_the_memories_of_agents_is_hardly_ever_asked_about() -> None:
    pairs = [pair for pairs in read_scenes("fourth", "harmless").values() for pair in pairs]
    asked = sum(bool(missing(old, new, kind=ChangeKind.UPDATE)) for old, new in pairs)
    assert asked <= MOST_HARMLESS * len(pairs)


def test_what_a_good_hand_merges_is_never_asked_about() -> None:
    pairs = [pair for part in parts() for pair in read_scenes(part, "harmless").get("merged by a good hand", [])]
    assert [pair for pair in pairs if missing(*pair, kind=ChangeKind.CONSOLIDATE)] == []
