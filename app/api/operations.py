"""Every operation of the agents' door, in the order in which an agent meets them."""

from __future__ import annotations

from app.api import (
    context,
    conversations,
    exceptions,
    memories,
    profile,
    receipts,
    refinements,
    setting_requests,
    settings,
    tokens,
    transfer,
)
from app.api.operation import Operation

OPERATIONS = tuple(
    each
    for module in (
        *(profile, memories, context, conversations, settings, setting_requests),
        *(refinements, exceptions, tokens, receipts, transfer),
    )
    for each in vars(module).values()
    if isinstance(each, Operation) and each.run.__module__ == module.__name__
)
