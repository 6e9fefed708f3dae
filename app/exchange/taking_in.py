"""Taking in: a file is checked and sealed where it arrives; the worker opens it, and writes its memories or none."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

from app.errors import Invalid, NotFound, Refused
from app.exchange.draft import NO_MEMORIES, NOT_IMPORTED
from app.exchange.formats import parse_as, read_file
from app.exchange.importing import Imported, without_known, write_memories
from app.exchange.parsed import ImportFormat, ParsedFile
from app.extensions import db, end_reading, writing
from app.keys.provision import ensure_keys
from app.models.agent import Agent
from app.models.intake import IMPORT, Intake, IntakeStatus
from app.models.statement_errors import AgentStopped, LogBroken
from app.silo import AgentKeys, SealBroken, TokenKey
from app.statements.signers import open_signed
from app.values.actor import Actor, ActorKind
from app.values.text import MAX_NAME
from app.values.unseen import MARKED


@dataclass(frozen=True)
class Received:
    """A file on its way in: the id of its intake, for the worker, and what will be written."""

    intake_id: str
    parsed: ParsedFile

    @property
    def memories(self) -> int:
        return len(self.parsed.drafts)


def receive_file(
    agent_id: int,
    data: bytes,
    *,
    by: Actor,
    name: str = "",
    format: ImportFormat | None = None,
    signer: TokenKey | None = None,
) -> Received:
    """Check all of it, then keep it sealed to the master public key; the caller enqueues the intake.

    `signer` is the agent's token where that hands it in. Raises NotRecognised, ImportRefused, Invalid, NotFound or
    AgentForgotten; then nothing is written.
    """
    parsed = check_file(data, by=by, name=name, format=format)
    with writing():
        agent = Agent.lock(agent_id)
        label = import_name(name, parsed.format)
        intake = Intake.receive(agent, data.decode(), by=by, format=parsed.format, name=label, signer=signer)
    return Received(intake.id, parsed)


def check_file(data: bytes, *, by: Actor, name: str = "", format: ImportFormat | None = None) -> ParsedFile:
    """What `by` would bring in with this file. Raises NotRecognised, ImportRefused or Invalid."""
    parsed = read_file(data, name=name, format=format).memories_only(by=by)
    if not parsed.drafts and parsed.format != ImportFormat.BUNDLE:
        raise Invalid(NO_MEMORIES, NOT_IMPORTED)
    return parsed


def bring_in(
    agent_id: int, parsed: ParsedFile, *, by: Actor, name: str = "", keys: AgentKeys | None = None
) -> Imported:
    """Write them at once, where the agent's keys or the master key are at hand. Raises NotFound or AgentForgotten."""
    with writing():
        agent, label = Agent.lock(agent_id), import_name(name, parsed.format)
        return write_memories(agent, parsed.drafts, keys=keys or ensure_keys(agent), by=by, name=label)


def import_name(file_name: str, format: ImportFormat) -> str:
    """What an import is called: its file's own name on one printable line, without folders, or its format."""
    shown = MARKED.sub(" ", re.split(r"[\\/]", file_name)[-1])
    name = " ".join("".join(each if each.isprintable() else " " for each in shown).split())
    return name[:MAX_NAME].rstrip() if name not in ("", "-", "<stdin>") else str(format)


def take_in(intake_id: str) -> None:
    """Open a waiting import with the master key and write its memories, all or none; settle it either way, once.

    Leaves conversations alone: their memories are for the agent's model to find.
    """
    intake = db.session.get(Intake, intake_id, populate_existing=True)
    if intake is None:
        raise NotFound("There is no such intake.")
    if intake.status != IntakeStatus.WAITING or intake.kind != IMPORT:
        return
    try:
        parsed = _open_intake(intake)
        end_reading()
        _write_intake(intake_id, parsed)
    except (AgentStopped, LogBroken):
        end_reading()
        raise  # it waits until that is settled
    except (Invalid, Refused, SealBroken) as error:
        _refuse_intake(intake_id, error.sentence)


def _open_intake(intake: Intake) -> ParsedFile:
    """Raises Invalid, Refused or SealBroken."""
    with writing():
        ensure_keys(Agent.lock(intake.agent_id))  # what the agent's tokens are is settled with that
    text = open_signed(intake, db.session.get_one(Agent, intake.agent_id))
    format = ImportFormat(intake.format or ImportFormat.JSON_LINES)
    return parse_as(text.encode(), format).memories_only(by=intake.actor)


def _write_intake(intake_id: str, parsed: ParsedFile) -> None:
    with writing():
        intake = Intake.lock(intake_id)
        if intake.status == IntakeStatus.WAITING:
            agent = Agent.lock(intake.agent_id)
            keys, drafts = ensure_keys(agent), parsed.drafts
            if intake.actor.kind == ActorKind.AGENT:
                drafts = without_known(agent, drafts, keys)
            name = intake.name or str(parsed.format)
            done = write_memories(agent, drafts, keys=keys, by=intake.actor, name=name)
            duplicates = len(parsed.drafts) - len(drafts)
            said = {"format": str(parsed.format), "left_out": dict(parsed.left_out), "duplicates": duplicates}
            intake.settle(IntakeStatus.TAKEN, imported=done.imported, outcome=said | asdict(done))


def _refuse_intake(intake_id: str, sentence: str) -> None:
    with writing():
        intake = Intake.lock(intake_id)
        if intake.status == IntakeStatus.WAITING:
            intake.settle(IntakeStatus.FAILED, error=sentence)
