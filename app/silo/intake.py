"""Content that enters through the web: sealed at once to the master public key, opened only by the worker."""

from __future__ import annotations

from app.silo.keys import MasterKey, MasterPublicKey


def seal_intake(text: str, *, intake_id: str, agent_uuid: str, master: MasterPublicKey) -> bytes:
    """Seal a text so that only the holder of the master key, and only for this intake row, can open it."""
    return master.seal(text.encode(), _intake_info(intake_id, agent_uuid))


def open_intake(sealed: bytes, *, intake_id: str, agent_uuid: str, master: MasterKey) -> str:
    """Open an intake. Raises SealBroken."""
    return master.open(sealed, _intake_info(intake_id, agent_uuid)).decode()


def _intake_info(intake_id: str, agent_uuid: str) -> str:
    return f"whetstone/intake/1|{agent_uuid}|{intake_id}"
