"""Content that enters through the web: signed by who handed it in, and sealed at once to the master public key."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from app.silo.keys import MasterKey, MasterPublicKey
from app.silo.sealed import SealBroken

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True)
class OpenedIntake:
    """A text that was handed in, and the signed note about it: nothing of it is checked yet."""

    note: bytes
    text: str = field(repr=False)


def seal_intake(text: str, note: bytes, *, intake_id: str, agent_uuid: str, master: MasterPublicKey) -> bytes:
    """Seal text and note so that only the holder of the master key, and only for this intake row, can open them.

    The note goes inside: what it says of the text is for nobody else.
    """
    return master.seal(_LENGTH.pack(len(note)) + note + text.encode(), _intake_info(intake_id, agent_uuid))


def open_intake(sealed: bytes, *, intake_id: str, agent_uuid: str, master: MasterKey) -> OpenedIntake:
    """Open an intake. Raises SealBroken."""
    opened = master.open(sealed, _intake_info(intake_id, agent_uuid))
    if len(opened) < _LENGTH.size:
        raise SealBroken("What waits to be taken in is not of a form that this version knows.")
    end = _LENGTH.size + int(_LENGTH.unpack_from(opened)[0])
    try:
        return OpenedIntake(opened[_LENGTH.size : end], opened[end:].decode())
    except UnicodeDecodeError:
        raise SealBroken("What waits to be taken in is not text.") from None


def _intake_info(intake_id: str, agent_uuid: str) -> str:
    return f"whetstone/intake/2|{agent_uuid}|{intake_id}"
