"""The examinations of `./whetstone keys check`: the files, what is sealed to which key, and whether it opens."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from app.errors import WhetstoneError
from app.extensions import db, end_reading, now
from app.keys.agent_keys import has_keys, open_keys
from app.keys.escrow import last_backup
from app.keys.provision import LOST_AFTER
from app.keys.rotation import unfinished_rotation
from app.keys.shredding import TABLES, is_due
from app.models import Agent, AgentKey, Intake, IntakeStatus, MasterKeyRow, Memory
from app.models.base import iso
from app.models.key import live_tokens
from app.models.master_key import key_ring, master_key
from app.models.statement_log import statement_log
from app.silo import AgentKeys, KeyFileError, MasterKey, SealBroken


@dataclass(frozen=True)
class EarlierKeyFile:
    """The file of an earlier master key. `fingerprint` is empty where it can't be read."""

    path: Path
    fingerprint: str
    retired_at: datetime | None

    def as_json(self) -> dict[str, Any]:
        return {"path": str(self.path), "fingerprint": self.fingerprint, "retired_at": iso(self.retired_at)}


@dataclass
class KeyReport:
    """What was looked at; `problems` are sentences, worst first.

    `signing_fingerprint` is of the installation's public signing key, `fingerprint` of the master key.
    """

    fingerprint: str
    path: Path
    signing_fingerprint: str = ""
    agents: int = 0
    forgotten: int = 0
    keys: int = 0
    tokens: int = 0
    kept: list[EarlierKeyFile] = field(default_factory=list)
    rotating_from: list[str] = field(default_factory=list)
    backed_up_at: datetime | None = None
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """What programs rely on."""
        kept, backed_up_at = [each.as_json() for each in self.kept], iso(self.backed_up_at)
        changed = {"path": str(self.path), "kept": kept, "backed_up_at": backed_up_at}
        return {"ok": not self.problems} | asdict(self) | changed


def examine_keys() -> KeyReport:
    """Look at everything; show and write nothing. The process holds the master key, which belongs to this database."""
    ring = key_ring()
    report = KeyReport(
        master_key().fingerprint, ring.path, kept=list(_find_earlier_files()), rotating_from=unfinished_rotation()
    )
    report.signing_fingerprint = statement_log().keys.verifier.fingerprint
    report.backed_up_at = last_backup(report.fingerprint)
    report.problems += _examine_files(report)
    for agent_id in db.session.scalars(select(Agent.id).order_by(Agent.id)).all():
        agent = db.session.get_one(Agent, agent_id)
        report.problems += [f"{agent.name}: {problem}" for problem in _examine_agent(agent, report)]
        db.session.expunge_all()
        end_reading()
    report.problems += _examine_waiting_imports()
    return report


def _find_earlier_files() -> Iterator[EarlierKeyFile]:
    retired = {row.fingerprint: row.retired_at for row in db.session.scalars(select(MasterKeyRow))}
    for path in key_ring().kept():
        try:
            fingerprint = MasterKey.load(path).fingerprint
        except KeyFileError:
            fingerprint = ""
        yield EarlierKeyFile(path, fingerprint, retired.get(fingerprint))


def _examine_files(report: KeyReport) -> Iterator[str]:
    ring = key_ring()
    if not ring.path.exists():
        yield f"{ring.path} is not there; the key was found beside it: move it back to that name."
    for path in (ring.path, ring.next_path, *ring.kept()):
        if path.exists() and (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
            yield f"Others on this machine may read {path} (mode {mode:03o}): chmod 600 {path}"
    known = set(db.session.scalars(select(MasterKeyRow.fingerprint)))
    for each in report.kept:
        if each.path != ring.kept_path(each.fingerprint):
            yield f"{each.path} is not the key that its name says."
        elif each.fingerprint not in known:
            yield f"{each.path} is no key of this database."
    if report.rotating_from:
        named = ", ".join(report.rotating_from)
        yield f"A rotation from {named} was cut off: run `./whetstone keys rotate` again, and it goes on where it was."
    if is_due():
        yield (
            "Removed keys may still be found in the database's files: a worker's upkeep tries each minute to clean "
            f"them. On PostgreSQL its user needs the right to TRUNCATE {', '.join(TABLES)}."
        )


def _examine_agent(agent: Agent, report: KeyReport) -> Iterator[str]:
    report.agents += 1
    if agent.forgotten_at is not None:
        report.forgotten += 1
        if has_keys(agent):
            yield "it was forgotten, but keys of it are there again."
        return
    if not has_keys(agent) and not agent.core_count and not agent.journal_count:
        return
    try:
        keys = open_keys(agent)
        report.keys += len(keys.versions) + 1
        _open_some(agent, keys)
    except (SealBroken, KeyFileError) as error:
        yield error.sentence
    else:
        yield from _examine_tokens(agent, keys, report)


def _open_some(agent: Agent, keys: AgentKeys) -> None:
    """Its first and its last memory. Raises SealBroken."""
    for order in (Memory.id, Memory.id.desc()):
        there = (Memory.agent_id == agent.id, Memory.erased_at.is_(None))
        query = select(Memory).where(*there).order_by(order).limit(1)
        for number, sealed in Memory.read_contents(query):
            keys.reveal_memory(number, sealed)


def _examine_tokens(agent: Agent, keys: AgentKeys, report: KeyReport) -> Iterator[str]:
    """Whether each live token has its copy of each key, and nobody else has one."""
    counts = select(AgentKey.reader, func.count()).where(AgentKey.agent_id == agent.id).group_by(AgentKey.reader)
    copies = dict(db.session.execute(counts).tuples().all())
    whole = len(keys.versions) + 1
    for reader in statement_log().keys.masters:
        copies.pop(reader, None)
    for token in live_tokens(agent.id):
        report.tokens += 1
        has = copies.pop(token.reader, 0)
        if has < whole and token.created_at < now() - LOST_AFTER:
            yield (
                f"its token {token.public_id} has {has} of {whole} copies of its keys. A worker makes them: see that "
                "one runs; issue a new token if that does not help."
            )
    if copies:
        named = ", ".join(sorted(reader[:16] for reader in copies))
        yield f"{sum(copies.values())} copies of its keys are sealed to nobody who is known ({named})."


def _examine_waiting_imports() -> Iterator[str]:
    """What came in through the web must open for the worker that takes it in."""
    readers = select(Intake.reader, func.count()).where(Intake.status == IntakeStatus.WAITING).group_by(Intake.reader)
    for reader, count in db.session.execute(readers).tuples().all():
        try:
            master_key(reader)
        except WhetstoneError as error:
            yield f"{count} imports wait, sealed to a key that is not here. {error.sentence}"
