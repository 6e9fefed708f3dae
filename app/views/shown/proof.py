"""What the nightly proof found, for the overview: an alarm that stands first, or that nobody verifies any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flask import url_for
from sqlalchemy import select

from app.extensions import db, now
from app.history.proof import Proof
from app.models import Agent

COMMAND = "Stop changing things, keep a copy of the database, and run ./whetstone verify on the server."


@dataclass(frozen=True)
class Alarm:
    """`items` are (name, address, remark), as the overview shows them."""

    tone: str
    icon: str
    title: str
    text: str
    items: Sequence[tuple[str, str, str]] = ()


def proof_alarms(account_id: int, proof: Proof | None) -> list[Alarm]:
    """Of the account's last proof, worst first. What is wrong beside all accounts is told to each, naming nothing."""
    rest = Proof.of(None)
    found = [_alteration_alarm(account_id, proof)] if proof and not proof.verdict.ok else []
    found += [_database_alarm(rest)] if rest and not rest.verdict.ok else []
    found += [_stale_alarm(proof)] if proof and proof.is_stale(now()) else []
    return found


def _alteration_alarm(account_id: int, proof: Proof) -> Alarm:
    agents = select(Agent.id, Agent.name).where(Agent.id == proof.verdict.agent_id, Agent.account_id == account_id)
    items = [(name, url_for("agents.show", agent_id=number), "") for number, name in db.session.execute(agents)]
    text = f"{proof.verdict.first_problem} {_found_words(proof)} {COMMAND}"
    return Alarm("bad", "alert", "The record is not as it was written.", text, items)


def _database_alarm(proof: Proof) -> Alarm:
    what = "Rows were found that belong to nobody, or a trigger is gone that keeps the log append-only."
    return Alarm("bad", "alert", "The database is not as it should be.", f"{what} {_found_words(proof)} {COMMAND}")


def _found_words(proof: Proof) -> str:
    return f"Found on {proof.at:%d %B, %H:%M} UTC."


def _stale_alarm(proof: Proof) -> Alarm:
    days = (now() - proof.at).days
    text = "A worker does it every night, when beat runs beside it. Run ./whetstone doctor on the server."
    return Alarm("warn", "clock", f"Nobody has verified the record for {days} days.", text)
