"""Why the Knife refused a call, by the refusal's code."""

from __future__ import annotations

from collections.abc import Mapping

_REASONS: Mapping[str, str] = {
    "constitutional": "the memory is constitutional",
    "immutable": "the memory carries an immutable tag",
    "unknown_memory": "no such memory of this agent",
    "cap_reached": "the hard cap was reached",
    "terminated": "the refinement was over already",
    "protections_used": "all 10 protections were used",
    "invalid": "the arguments were not valid",
    "malformed_arguments": "the arguments were no JSON object",
    "unknown_function": "there is no such function",
}


def refusal_reason(code: str) -> str:
    """Plain for a code that has no words of its own."""
    return _REASONS.get(code, code.replace("_", " "))
