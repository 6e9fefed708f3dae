"""Every operation of the agents' door, in the order in which an agent meets them."""

from __future__ import annotations

from app.api import conversations, exceptions, memories, profile, refinements, settings, transfer

OPERATIONS = (
    *profile.OPERATIONS,
    *memories.OPERATIONS,
    *conversations.OPERATIONS,
    *settings.OPERATIONS,
    *refinements.OPERATIONS,
    *exceptions.OPERATIONS,
    *transfer.OPERATIONS,
)
