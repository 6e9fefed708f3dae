"""The six functions as a model sees them."""

from __future__ import annotations

from typing import Any

ACTIONS = {
    "search_memories": "search",
    "consolidate_memories": "consolidate",
    "update_memory": "update",
    "delete_memory": "delete",
    "protect_memory": "protect",
    "complete_refinement": "complete",
}
"""Function names and the actions that `RefinementTool.execute` knows them by."""


def specifications() -> list[dict[str, Any]]:
    """The functions in the form that chat completions take as `tools`."""
    return [_search(), _consolidate(), _update(), _delete(), _protect(), _complete()]


def _search() -> dict[str, Any]:
    return _function(
        "search_memories",
        "Find active core memories that contain a text, in any case. Changes nothing.",
        {
            "query": _text("the text to look for"),
            "since": _text("from this date on"),
            "until": _text("to this date"),
        },
        ["query"],
    )


def _consolidate() -> dict[str, Any]:
    return _function(
        "consolidate_memories",
        "Put one memory in the place of two or more that carry the same moment, quote or insight. The new one gets the "
        "earliest date, the others as other_dates, and all tags. It may not be longer than its sources together. "
        "Counts as a change.",
        {
            "ids": {"type": "array", "items": {"type": "integer"}, "description": "at least two ids"},
            "content": _text("the text of the new memory; every fact, name, number and quote kept"),
        },
        ["ids", "content"],
    )


def _update() -> dict[str, Any]:
    return _function(
        "update_memory",
        "Tighten the phrasing of one memory without losing anything that it says. Counts as a change.",
        {"id": _id(), "content": _text("the memory's new text")},
        ["id", "content"],
    )


def _delete() -> dict[str, Any]:
    return _function(
        "delete_memory",
        "Remove one memory whose whole content another memory already carries. Counts as a change.",
        {"id": _id()},
        ["id"],
    )


def _protect() -> dict[str, Any]:
    return _function(
        "protect_memory",
        "Make one memory constitutional: no refinement will ever change it. Only admins can take that back.",
        {"id": _id()},
        ["id"],
    )


def _complete() -> dict[str, Any]:
    return _function(
        "complete_refinement",
        "End this refinement. Zero changes is a valid and good outcome.",
        {
            "summary": _text("what you did and why, in your own words; sealed, for yourself"),
            "note_to_admins": _text("optional: at most 280 characters that the people who run this system will see"),
        },
        ["summary"],
    )


def _function(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _id() -> dict[str, Any]:
    return {"type": "integer", "description": "the memory's id"}
