"""All rows of SPEC §14 in one run, beside what people would use instead.

    python -m benchmarks [--rows NAME …] [--quick] [--no-peers] [--database-url URL] [--history] [--list]

Without an address of a server it runs on SQLite. A server's address needs the right to make databases there. Prints one
table and writes the same to a file in `benchmarks/results`. Exit status 1 where a row failed; a missed target is none.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.figures import plain
from benchmarks.history import RESULTS, history_lines, new_results, read_results, write_results
from benchmarks.registry import BY_NAME, ROWS, Row
from benchmarks.running import Options, Outcome, run_row

HEAD = ("row", "figure", "target", "measured", "ratio", "verdict")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    given = _options(arguments)
    if given.history:
        print("\n".join(history_lines(read_results(given.results, quick=given.quick), given.rows)) or "No results yet.")
        return 0
    chosen = [BY_NAME[name] for name in given.rows] or list(ROWS)
    if given.list:
        print("\n".join(f"{row.name:<20} {row.target}" for row in chosen))
        return 0
    options = Options(given.database_url, given.quick, not given.no_peers)
    print(f"database: {options.database}; each row is a process of its own", flush=True)
    outcomes, path = list[Outcome](), new_results(options, given.results)
    for outcome in _run_each(chosen, options):
        outcomes.append(outcome)
        write_results(outcomes, options, path)
    print(f"\n{table(outcomes)}\n\nwritten to {path.name}")
    failed = [outcome.row.name for outcome in outcomes if outcome.failure]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _run_each(rows: Iterable[Row], options: Options) -> Iterable[Outcome]:
    for row in rows:
        print(f"{row.name} …", end=" ", flush=True)
        outcome = run_row(row, options)
        print(f"{outcome.verdict}, {outcome.seconds:.0f} s {outcome.failure}".rstrip(), flush=True)
        yield outcome


def table(outcomes: Iterable[Outcome]) -> str:
    """In Markdown: a line a figure, and one of a row that has none."""
    lines = [HEAD, ("---",) * len(HEAD), *(line for outcome in outcomes for line in _lines(outcome))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _lines(outcome: Outcome) -> Iterable[tuple[str, ...]]:
    row = outcome.row
    if outcome.failure or not outcome.figures:
        yield row.name, "", row.target, outcome.failure or outcome.not_run, "", str(outcome.verdict)
        return
    for figure in outcome.figures:
        ratio = "" if figure.ratio is None else plain(figure.ratio)
        yield row.name, figure.what, figure.limit, figure.measured, ratio, str(figure.verdict)
    if row.shown_by:
        yield row.name, "", row.target, f"shown by {row.shown_by}", "", ""


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--rows", nargs="+", default=[], choices=list(BY_NAME), metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="small sizes: it shows that all works, not how fast")
    parser.add_argument("--no-peers", action="store_true", help="install nothing; peers are not measured")
    parser.add_argument("--database-url", default="", help="a PostgreSQL server for scratch databases")
    parser.add_argument("--history", action="store_true", help="how each figure moved from run to run")
    parser.add_argument("--list", action="store_true", help="the names of the rows")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results are kept")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
