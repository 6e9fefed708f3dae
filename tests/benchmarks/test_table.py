"""`python -m benchmarks`: every row of SPEC §14 is in its table, and each run leaves results of what it found."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from app.config import ROOT
from benchmarks import readers
from benchmarks.__main__ import main
from benchmarks.figures import Figure, Verdict, print_figures, read_printed
from benchmarks.history import RESULTS, history_lines, new_results, read_results, write_results
from benchmarks.registry import BY_NAME, ROWS, Row
from benchmarks.running import Options, Outcome, run_row

SPEC_ROWS = (
    "A guarded mutation (fence, rules, change, audit, latch, commit)",
    "Undo of 500 changes",
    "Due agents among 100,000 (10 M memories)",
    "Ledger of 10,000 memories, unsealed",
    "Audit page, 10 M entries",
    "Pages of one web process, 50 rows, 2,000 agents",
    "First page",
    "The agents' door",
    "A refinement's own processor time (consent, three model turns, close)",
    "Waiting on models",
    "Event stream",
    "Cold `./whetstone up` on an empty machine / second start / a command such as `agents list`",
    "Faults",
    "Slow and hostile peers",
    "Forged rows",
    "Late and parallel calls",
    "Undo",
    "Meaning",
    "Exact dedup and `whetstone/offline`",
    "Hostile arguments",
    "Canary sweep",
)
"""The first column of the contract's table of numbers to reach."""


@pytest.mark.parametrize("spec", SPEC_ROWS)
def test_every_number_to_reach_has_a_row(spec: str) -> None:
    assert [row.name for row in ROWS if row.spec == spec] != []


def test_no_row_claims_a_number_that_is_not_in_the_contract() -> None:
    assert {row.spec for row in ROWS} - {""} <= set(SPEC_ROWS)
    assert len(BY_NAME) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_run_by_a_module_that_is_there_or_says_what_shows_it(row: Row) -> None:
    assert row.target
    if row.command:
        assert (ROOT / "benchmarks" / f"{row.command[0]}.py").is_file()
    for path in re.findall(r"tests/\S+", row.shown_by):
        assert (ROOT / path).exists(), path
    assert row.command or row.shown_by


def test_a_figure_is_met_only_within_every_limit_that_it_has() -> None:
    def verdict(**limits: float) -> Verdict:
        return Figure("save", 3.0, "ms", beside="by hand", base=2.0, **limits).verdict

    assert verdict() is Verdict.SHOWN
    assert verdict(most=3.0, most_ratio=1.5) is Verdict.MET
    assert verdict(most=2.9, most_ratio=1.5) is Verdict.MISSED
    assert verdict(most=3.0, most_ratio=1.4) is Verdict.MISSED
    assert verdict(least_ratio=1.6) is Verdict.MISSED
    assert Figure("save", reason="no uv").verdict is Verdict.NOT_MEASURED


def test_figures_come_through_the_printed_line_as_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    figures = [Figure("save", 3.0, "ms", beside="by hand", base=2.0, most_ratio=4), Figure("mem0", reason="no uv")]
    print_figures(figures, as_json=True)
    assert read_printed(capsys.readouterr().out) == figures
    with pytest.raises(ValueError, match="no figures"):
        read_printed("nothing of the kind")


def test_a_reader_takes_the_limit_of_its_database_and_refuses_what_lacks_its_figure() -> None:
    said = "database: sqlite\n   100 memories: guarded   1.60 ms, by hand   0.40 ms, ratio 4.00 (at most 2.5)\n"
    said += "10,000 over 100 memories, guarded: ratio 1.10 (at most 1.3)\n"
    on_sqlite, grown = readers.guarded_change(said, "sqlite")
    assert (on_sqlite.value, on_sqlite.base, on_sqlite.verdict, grown.value) == (1.6, 0.4, Verdict.MET, 1.1)
    assert on_sqlite.what.startswith("100 memories")
    assert readers.guarded_change(said, "postgresql")[0].verdict is Verdict.MISSED
    with pytest.raises(ValueError, match="10,000 memories over 100"):
        readers.guarded_change(said.splitlines()[1], "sqlite")


def test_a_reader_does_not_take_a_number_in_a_name_for_a_figure_nor_miss_one_that_is_the_same() -> None:
    read = readers.pattern("{name} pages", r"^(?P<name>\d+) pages: # ms, idle # ms", unit="ms", beside="idle")
    (figure,) = read("100 pages: 100 ms, idle 50 ms\n", "sqlite")
    assert (figure.what, figure.value, figure.base) == ("100 pages", 100.0, 50.0)


def row_of(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, seconds: int = 20) -> Row:
    """A row whose module is this text."""
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "made_up.py").write_text(source)
    monkeypatch.setattr("benchmarks.running.ROOT", folder)
    return Row("made_up", "", "none", ("made_up",), seconds=seconds)


def test_a_row_that_breaks_is_failed_with_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = row_of(tmp_path, monkeypatch, "raise RuntimeError('the latch tripped')")
    outcome = run_row(row, Options())
    assert (outcome.verdict, outcome.failure) == (Verdict.FAILED, "RuntimeError: the latch tripped")


def test_a_row_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = row_of(tmp_path, monkeypatch, "import threading; threading.Event().wait()", seconds=1)
    assert run_row(row, Options()).failure == "it took more than 1 s"


def test_a_missed_figure_is_a_missed_row_and_a_lacking_one_hides_nothing() -> None:
    figures = [
        Figure("ours", 2.0, most=1.0),
        Figure("peer", reason="it can't be installed"),
        Figure("met", 1.0, most=1),
    ]
    assert Outcome(ROWS[0], 1, figures).verdict is Verdict.MISSED
    assert Outcome(ROWS[0], 1, figures[1:]).verdict is Verdict.MET
    assert Outcome(ROWS[0], 1, figures[1:2]).verdict is Verdict.NOT_MEASURED


def test_each_run_has_a_file_of_its_own_and_the_history_tells_them_in_order(tmp_path: Path) -> None:
    for ratio in (9.0, 4.5):
        outcome = Outcome(ROWS[0], 1, [Figure("save", ratio, "ms", beside="by hand", base=1.0)])
        write_results([outcome], Options(), new_results(Options(), tmp_path))
    assert len(list(tmp_path.iterdir())) == 2
    runs = read_results(tmp_path)
    runs[0]["at"], runs[1]["at"] = sorted((runs[0]["at"], runs[1]["at"]))
    assert any(line.endswith(("save: 9 × → 4.50 ×", "save: 4.50 × → 9 ×")) for line in history_lines(runs))
    assert list(history_lines(runs, ["undo"]))[1:] == []


@pytest.mark.slow
def test_a_quick_run_of_cheap_rows_measures_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--rows", "due_agents", "canary", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "| due_agents | first 100 by schedule" in said
    assert "shown by ./whetstone test tests/silo/test_canary.py" in said
    (path,) = tmp_path.iterdir()
    assert_shape(json.loads(path.read_text()))


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.name)
def test_kept_results_have_their_shape(path: Path) -> None:
    assert_shape(json.loads(path.read_text()))


def assert_shape(run: dict[str, Any]) -> None:
    """All that a later reader needs, and nothing that names a place."""
    assert {"at", "database", "quick", "commit", "changed", "machine", "rows"} <= set(run)
    assert {"cores", "memory_gb", "system", "python", "sqlite", "load"} <= set(run["machine"])
    for row in run["rows"]:
        assert {"name", "spec", "target", "seconds", "verdict", "figures"} <= set(row)
        assert row["verdict"] in set(Verdict)
        assert all({"what", "verdict"} <= set(figure) for figure in row["figures"])
    assert re.search(r"/(home|root|tmp|work|usr|var)/|://", json.dumps(run)) is None


def test_the_history_of_no_runs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--history", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "No results yet.\n"


def test_a_failed_row_makes_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.__main__.run_row", lambda row, _: Outcome(row, 0, failure="no disk"))
    assert main(["--rows", "undo", "--results", str(tmp_path)]) == 1
    assert "failed: undo" in capsys.readouterr().err
    assert sys.executable not in "".join(path.read_text() for path in tmp_path.iterdir())
