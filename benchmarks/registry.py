"""The rows of the table: what each is called, what it has to reach, how it is run, and how its figures are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import readers
from benchmarks.readers import Reader

EMBEDDED = "embedded"
"""A row that starts a whole `up` of its own, on SQLite and the embedded broker."""


@dataclass(frozen=True)
class Row:
    """`spec` is the first cell of the row of SPEC §14 that it shows, in full, or "" for what is only told.

    `command` is a module of this folder and its arguments; `quick` are the arguments for a smoke run. `seconds` is how
    long it may take. A row without a command is shown by what `shown_by` names, and not run here.
    """

    name: str
    spec: str
    target: str
    command: Sequence[str] = ()
    quick: Sequence[str] = ()
    read: Reader = readers.printed
    seconds: int = 420
    asks_peers: bool = False
    only: str = ""
    in_quick: bool = True
    shown_by: str = ""


_GUARDED = "A guarded mutation (fence, rules, change, audit, latch, commit)"
_FAULTS = "Faults"
_PEERS = "Slow and hostile peers"
_WAITING = "Waiting on models"
_FIRST = "First page"
_START = "Cold `./whetstone up` on an empty machine / second start / a command such as `agents list`"

ROWS: tuple[Row, ...] = (
    Row(
        "guarded_change", _GUARDED,
        "≤ 2 × SQL by hand on PostgreSQL, ≤ 5 × on SQLite; 10,000 memories ≤ 1.2 × 100",
        ("guarded_change",), read=readers.guarded_change,
    ),
    Row(
        "plain_versioning", _GUARDED,
        "faster than the plain versioned update of SQLAlchemy-Continuum and django-simple-history",
        ("plain_versioning", "--json"), ("--rounds", "3"), asks_peers=True,
    ),
    Row(
        "undo", "Undo of 500 changes", "≤ 2 × set-based SQL, one transaction",
        ("undo",), read=readers.undo,
    ),
    Row(
        "due_agents", "Due agents among 100,000 (10 M memories)",
        "first 100 in ≤ 10 ms, ≥ 100 × faster than the GROUP BY",
        ("due_agents", "--json"), ("--agents", "2000", "--memories", "100000", "--rounds", "5"), seconds=600,
    ),
    Row(
        "ledger", "Ledger of 10,000 memories, unsealed", "≤ 2 × raw SQL plus raw decryption",
        ("ledger", "--json"), ("--memories", "500", "--rounds", "5"),
    ),
    Row(
        "memory_stores", "", "told for comparison: saves, contexts and searches beside mem0 and LangGraph's stores",
        ("memory_stores", "--json"), ("--memories", "30", "--rounds", "3"), asks_peers=True,
    ),
    Row(
        "audit_page", "Audit page, 10 M entries", "any depth ≤ 1.5 × the first page",
        ("audit_page", "--depths", "--entries", "1000000"), ("--depths", "--entries", "20000"), readers.audit_page,
        seconds=600,
    ),
    Row(
        "pages", "Pages of one web process, 50 rows, 2,000 agents",
        "agents ≥ 150 requests/s, overview and audit ≥ 100; ≥ 4 × Flask-Admin's list",
        ("pages", "--json"), ("--agents", "1100", "--seconds", "0.5"), asks_peers=True,
    ),
    Row(
        "first_page", _FIRST, "≤ 60 kB and ≤ 5 requests; later ≤ 15 kB, no conditional requests for static files",
        ("first_page",), read=readers.first_page, only=EMBEDDED,
        shown_by="layout shift: tests/browser/test_night.py",
    ),
    Row(
        "agents_door", "The agents' door", "200 requests/s for 60 s: 0 errors, p95 ≤ 100 ms, ≤ 3 ms of processor time",
        ("agents_door", "200", "60", "50"), ("50", "5", "5"), readers.agents_door, only=EMBEDDED,
    ),
    Row(
        "refinement_time", "A refinement's own processor time (consent, three model turns, close)",
        "≤ 30 ms with LiteLLM, without the model server",
        ("in_flight", "200"), ("20",), readers.refinement_time,
    ),
    Row(
        "in_flight", _WAITING, "500 in flight, 2 s a reply: ≤ 1.5 × the ideal, ≤ 600 MB PSS, a page ≤ 100 ms",
        ("in_flight", "500"), ("20",), readers.in_flight, seconds=600,
    ),
    Row(
        "event_stream", "Event stream", "1,000 open pages: all within 100 ms, other pages within 1.5 × idle",
        ("event_stream", "1000"), ("50",), readers.event_stream,
    ),
    Row(
        "commands", _START, "a command ≤ 0.6 s more than importing Flask-SQLAlchemy",
        ("commands", "--rounds", "3", "--json"), ("--rounds", "1"), only=EMBEDDED,
    ),
    Row(
        "starting", _START, "a second start ready in ≤ 2.5 s; a cold one in ≤ 15 s",
        ("starting", "--json"), ("--rounds", "1"), only=EMBEDDED,
        shown_by="the cold one, which downloads: python -m benchmarks.starting --cold 1",
    ),
    Row(
        "kill_storm", _FAULTS, "every refinement closed within 2 minutes, in a storm of kills too",
        ("kill_storm", "60"), read=readers.kill_storm, only=EMBEDDED, in_quick=False,
        shown_by="1,000 kills: python -m benchmarks.kill_storm 4000; each change with its entry: tests/refinement",
    ),
    Row(
        "slow_requests", _PEERS, "1,000 slow or half-sent requests: other pages within 2 × idle",
        ("slow_requests", "1000"), ("60",), readers.slow_requests, only=EMBEDDED,
    ),
    Row(
        "hostile_models", _PEERS, "any reply of a model server: ≤ 64 MB more, over at the deadline + 2 s",
        ("hostile_models", "openai/m", "anthropic/m"), ("openai/m",), readers.hostile_models, seconds=420,
        shown_by="every provider: python -m benchmarks.hostile_models",
    ),
    Row(
        "scaling", "", "told: how time grows with memories, agents, entries and open pages",
        ("scaling", "--json"), ("--memories", "100", "1000", "--agents", "100", "1000", "--entries", "2000", "20000"),
        seconds=600,
    ),
    Row(
        "forged_rows", "Forged rows", "0 memories opened, `verify` names it",
        shown_by="./whetstone test tests/adversaries tests/history/test_rows.py",
    ),
    Row(
        "late_calls", "Late and parallel calls", "0 changes after an end state",
        shown_by="./whetstone test tests/refinement/test_machine.py tests/refinement/test_races.py",
    ),
    Row(
        "undo_exact", "Undo", "byte-exact over 10,000 random histories",
        shown_by="./whetstone test tests/history/test_machine.py",
    ),
    Row(
        "meaning", "Meaning", "losses named ≥ 96 %, harmless changes asked about ≤ 10 %, ≤ 1 ms a check",
        ("meaning",), ("--most", "40"), readers.meaning,
    ),
    Row(
        "exact_dedup", "Exact dedup and `whetstone/offline`", "0 distinct memories merged or lost",
        shown_by="./whetstone test tests/refinement/test_dedup.py tests/refinement/test_weak_models.py",
    ),
    Row(
        "hostile_arguments", "Hostile arguments", "0 uncaught errors in 100,000 generated calls",
        shown_by="./whetstone test tests/refinement/test_arguments.py tests/refinement/test_hostile.py",
    ),
    Row(
        "canary", "Canary sweep", "0 hits of seeded content",
        shown_by="./whetstone test tests/silo/test_canary.py",
    ),
)  # fmt: skip

BY_NAME = {row.name: row for row in ROWS}
