"""Every command: its help, its text, and its JSON, of a success and of a refusal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from sqlalchemy import func, select

from app.cli import cli
from app.extensions import SystemClock, db, end_reading
from app.models import AttentionItem, Memory
from app.models.statement_log import statement_log
from tests.cli.conftest import Said, Whetstone, whetstone
from tests.golden.conftest import Compare, Scene
from tests.support.canary import assert_nowhere
from tests.support.clock import FakeClock

__all__ = ["whetstone"]

NOT_HERE = {
    *("up", "web", "worker", "beat", "mcp", "test", "check", "db upgrade", "keys restore", "audit checkpoint"),
    *("limits", "models test"),
}
"""They run until they are ended, stand where there is nothing yet, or say how this machine is set up or how long a
model took: they have tests of their own."""


@pytest.fixture(autouse=True)
def one_clock(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command has an app of its own, with the system's clock."""
    monkeypatch.setattr(SystemClock, "now", lambda _: clock.now())


def every_command(group: click.Group = cli, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from every_command(command, (*before, name))
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield (*before, name)


def test_every_command_s_help(whetstone: Whetstone, as_text: Compare) -> None:
    forms = {}
    for words in [(), *every_command()]:
        said = whetstone(*words, "--help")
        assert said.status == 0
        forms[" ".join(words) or "whetstone"] = said.out
    as_text(forms)


def test_every_command(scene: Scene, whetstone: Whetstone, tmp_path: Path, as_json: Compare, as_text: Compare) -> None:
    texts: dict[str, str] = {}
    forms: dict[str, Any] = {}
    for name, words in script(scene, tmp_path):
        end_reading()  # as nobody else's reading holds a command up
        texts[name] = transcript(whetstone(*words), words)
    for name, words in script(scene, tmp_path):
        end_reading()
        forms[name] = as_form(whetstone(*words, "--json"))
    done = {name.partition(" (")[0] for name in texts}
    assert {" ".join(words) for words in every_command()} - NOT_HERE == done
    assert_nowhere(str((texts, forms)).encode(), "what the commands said")
    as_text(texts)
    as_json(forms)


def transcript(said: Said, words: tuple[str, ...]) -> str:
    return f"$ whetstone {' '.join(words)}\n{said.out}--- on standard error\n{said.err}--- exit {said.status}\n"


def as_form(said: Said) -> dict[str, Any]:
    return {"status": said.status, "out": lines_of(said.out), "err": lines_of(said.err)}


def lines_of(text: str) -> Any:
    """JSON, JSON Lines, or lines of text."""
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) if line.startswith(("{", "[")) else line for line in text.splitlines()]


def script(scene: Scene, folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every command with what it works on; the same twice in a row, once for its text and once for its JSON."""
    life, subject = (agent.name for agent in scene.agents.values())
    refinement, later = scene.life.refinement.id, scene.life.later.id
    item = db.session.scalars(select(AttentionItem.id).order_by(AttentionItem.id)).first()
    file = folder / "memories.jsonl"
    file.write_text('{"content": "Dora likes ink."}\n' * 2)
    new = f"new-{len(list(folder.iterdir()))}"
    backup = folder / f"{new}.backup"
    backup.with_suffix(".phrase").write_text("correct horse battery\n")
    yield "agents create", ("agents", "create", new, "--model", "whetstone/offline")
    yield "agents create (name taken)", ("agents", "create", life, "--model", "whetstone/offline")
    yield "agents list", ("agents", "list")
    yield "agents show", ("agents", "show", life)
    yield "agents show (another)", ("agents", "show", subject)
    yield "agents show (unknown)", ("agents", "show", "nobody")
    yield "agents set", ("agents", "set", new, "--budget", "4000")
    yield "models rename", ("models", "rename", "openai/retired", "openai/newest", "--dry-run")
    yield "models list", ("models", "list")
    yield "accounts create", ("accounts", "create", f"the {new}", "--owner", f"{new}@example.org")
    yield "accounts create (wrong)", ("accounts", "create", "A", "--owner", "ann", "--max-agents=-1")
    yield "accounts list", ("accounts", "list")
    yield "accounts limits", ("accounts", "limits", f"the {new}", "--max-agents", "2", "--max-monthly-cost", "9.5")
    yield "schedule", ("schedule",)
    yield "schedule (tried)", ("schedule", "--try", "30 22 * * 1-5")
    yield "schedule (no crontab)", ("schedule", "--try", "soon")
    yield "agents pause", ("agents", "pause", new)
    yield "agents resume", ("agents", "resume", new)
    yield "agents token create", ("agents", "token", "create", new, "--name", "laptop")
    yield "agents token list", ("agents", "token", "list", subject)
    yield "agents token rotate", ("agents", "token", "rotate", new, "laptop")
    yield "agents token revoke", ("agents", "token", "revoke", new, "laptop")
    yield "memories import", ("memories", "import", str(file), "--agent", new)
    yield "memories list", ("memories", "list", life)
    yield "memories list (discarded)", ("memories", "list", life, "--discarded")
    yield "memories export", ("memories", "export", life)
    yield "refine", ("refine", new, "--wait")
    yield "refine (duplicates only)", ("refine", new, "--mode", "dedup_only", "--wait")
    newest = str(db.session.scalar(select(func.max(Memory.id))))
    yield "memories erase", ("memories", "erase", newest, "--agent", new, "--reason", "It was a slip.")
    yield "memories erase (again)", ("memories", "erase", newest, "--agent", new, "--reason", "It was a slip.")
    yield "refinements list", ("refinements", "list")
    yield "refinements list (failed)", ("refinements", "list", "--failed")
    for name, each in scene.refinements().items():
        yield f"refinements show ({name})", ("refinements", "show", each.id)
    yield "refinements stop", ("refinements", "stop", refinement)
    failed = scene.refinements()["failed-1"].id
    yield "refinements retry", ("refinements", "retry", refinement)
    yield "refinements seen", ("refinements", "seen", failed)
    yield "refinements rollback", ("refinements", "rollback", scene.subject.values["refinement_id"])
    yield "attention list", ("attention", "list")
    yield "attention seen", ("attention", "seen", str(item))
    yield "attention seen (undone)", ("attention", "seen", str(item), "--undo")
    yield "notices list", ("notices", "list")
    yield "notices test (unknown)", ("notices", "test", "nobody")
    yield "notices log", ("notices", "log")
    yield "rollback (preview)", ("rollback", scene.subject.values["refinement_id"], "--dry-run")
    yield "rollback (rewind)", ("rollback", refinement, "--rewind", "--dry-run")
    yield "rollback (final)", ("rollback", later)
    yield "rollback (unknown)", ("rollback", "nothing")
    yield "rollback", ("rollback", scene.subject.values["refinement_id"])
    yield "sweep", ("sweep",)
    yield "grants list", ("grants", "list", "--all")
    asked = ("grants", "request", subject, "--as", "owner-1@example.org", "--category", "debugging")
    yield "grants request", (*asked, "--purpose", "To see.")
    yield "grants revoke", ("grants", "revoke", scene.looks["history"].id)
    yield "audit", ("audit", "--agent", life)
    yield "audit heads", ("audit", "heads")
    aside = folder.with_name(f"{folder.name}-{new}")
    aside.mkdir()
    receipt, keys = aside / "receipt.txt", aside / "whetstone.json"
    yield "audit receipt", ("audit", "receipt", scene.looks["history"].id, "--out", str(receipt))
    keys.write_text(json.dumps({"signing_keys": [{"vkey": statement_log().keys.verifier.vkey}]}))
    yield "audit check-receipt", ("audit", "check-receipt", str(receipt), "--key", str(keys))
    yield "verify", ("verify",)
    yield "restore accept (nothing to accept)", ("restore", "accept")
    yield "users create", ("users", "create", f"{new}@example.org", "--role", "auditor")
    yield "users create (no address)", ("users", "create", "nobody", "--role", "auditor")
    yield "users list", ("users", "list")
    yield "users set", ("users", "set", f"{new}@example.org", "--role", "admin")
    yield "users reset-password", ("users", "reset-password", f"{new}@example.org")
    yield "users reset-second-factor", ("users", "reset-second-factor", f"{new}@example.org")
    yield "users deactivate", ("users", "deactivate", f"{new}@example.org")
    yield "users deactivate (nobody)", ("users", "deactivate", "nobody@example.org")
    yield "keys check", ("keys", "check")
    yield "keys web", ("keys", "web")
    yield "keys enroll", ("keys", "enroll", "ab" * 32)
    yield "keys dismiss", ("keys", "dismiss", "ab" * 32)
    yield "keys backup", ("keys", "backup", str(backup), "--passphrase-file", str(backup.with_suffix(".phrase")))
    yield "keys rotate", ("keys", "rotate", "--agent", new)
    yield "demo", ("demo",)
    yield "doctor", ("doctor",)
    yield "agents forget", ("agents", "forget", new, "--yes-forget", new)
