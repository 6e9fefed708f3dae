"""`whetstone keys check`: whether the master key is the right one, kept well, and opens what it must."""

from __future__ import annotations

import stat
from pathlib import Path

import click

from app.cli import json_option
from app.cli.common import aside, emit, opened, say


@click.group()
def keys() -> None:
    """Check the master key."""


@keys.command()
@json_option
def check(as_json: bool) -> int:
    """Open every agent's keys, and one memory of each, with the master key. Shows and writes nothing."""
    with opened() as app:
        settings = app.extensions["settings"]
        fingerprint = app.extensions["master_key"].fingerprint
        agents, problems = _open_all()
        problems = _kept_badly(settings.master_key_path) + problems
    if as_json:
        path = str(settings.master_key_path)
        emit({"ok": not problems, "fingerprint": fingerprint, "path": path, "agents": agents, "problems": problems})
    else:
        say(f"Master key {fingerprint}, {settings.master_key_path}")
        say("It belongs to this database" + (f" and opens the keys of {agents:,} agents." if not problems else "."))
        for problem in problems:
            aside(f"Problem: {problem}")
    return 1 if problems else 0


def _kept_badly(path: Path) -> list[str]:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return [f"Others on this machine may read the key file (mode {mode:03o}): chmod 600 {path}"]
    return []


def _open_all() -> tuple[int, list[str]]:
    """How many agents there are, and a sentence for each whose keys or memory do not open."""
    from sqlalchemy import select

    from app.extensions import db
    from app.models import Agent
    from app.models.key import has_keys
    from app.silo import SealBroken

    agents = db.session.scalars(select(Agent).order_by(Agent.id)).all()
    problems = []
    for agent in agents:
        try:
            if has_keys(agent) or agent.core_count or agent.journal_count:
                _open(agent.id)
        except SealBroken as error:
            problems.append(f"{agent.name}: {error.sentence}")
    return len(agents), problems


def _open(agent_id: int) -> None:
    """Raises SealBroken."""
    from sqlalchemy import select

    from app.extensions import db
    from app.models import Agent, Memory, open_keys

    keys = open_keys(db.session.get_one(Agent, agent_id))
    newest = select(Memory.id, Memory.content).where(Memory.agent_id == agent_id).order_by(Memory.id.desc()).limit(1)
    for number, content in db.session.execute(newest).tuples():
        keys.reveal_memory(number, content)
