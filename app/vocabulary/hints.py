"""What the product's own words mean, in a sentence or two: shown where a page uses one first."""

from __future__ import annotations

from collections.abc import Mapping

HINTS: Mapping[str, str] = {
    "budget": "The number of tokens that an agent's core memories should stay under. Above it, the agent is refined.",
    "constitutional": "A core memory that no refinement may change, merge or delete.",
    "exception": (
        "Permission to read memories, for one person and a limited time. Only the agent can give it, and every view is "
        "recorded."
    ),
    "latch": (
        "The circuit breaker of a refinement. If too little of the memories would be kept, everything is reversed and "
        "the refinement ends."
    ),
    "mass": "How many tokens an agent's core memories take in every prompt: one for four characters.",
    "refinement": (
        "One guarded session in which an agent tidies its own core memories, after it agreed. All that it changes can "
        "be undone."
    ),
}
