"""Canonical JSON: what hashes are computed over, the same text for the same values."""

from __future__ import annotations

import json

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
"""Made once: an entry encodes as many states as it wrote."""


def canonical_json(value: object) -> str:
    """Keys in order, no spaces, characters as they are."""
    return _ENCODER.encode(value)
