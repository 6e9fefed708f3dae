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
    return [
        _search_function(),
        _consolidate_function(),
        _update_function(),
        _delete_function(),
        _protect_function(),
        _complete_function(),
    ]


def _search_function() -> dict[str, Any]:
    return _make_function(
        "search_memories",
        "Find active core memories that contain a text, in any case. Changes nothing.",
        {
            "query": _text_parameter("the text to look for"),
            "since": _text_parameter("from this date on"),
            "until": _text_parameter("to this date"),
        },
        ["query"],
    )


def _consolidate_function() -> dict[str, Any]:
    return _make_function(
        "consolidate_memories",
        "Put one memory in the place of two or more that carry the same moment, quote or insight. The new one gets the "
        "earliest date, the others as other_dates, and all tags. It may not be longer than its sources together. "
        "Counts as a change.",
        {
            "ids": {"type": "array", "items": {"type": "integer"}, "description": "at least two ids"},
            "content": _text_parameter("the text of the new memory; every fact, name, number and quote kept"),
        },
        ["ids", "content"],
    )


def _update_function() -> dict[str, Any]:
    return _make_function(
        "update_memory",
        "Tighten the phrasing of one memory without losing anything that it says. Counts as a change.",
        {"id": _id_parameter(), "content": _text_parameter("the memory's new text")},
        ["id", "content"],
    )


def _delete_function() -> dict[str, Any]:
    return _make_function(
        "delete_memory",
        "Remove one memory whose whole content another memory already carries. Counts as a change.",
        {"id": _id_parameter()},
        ["id"],
    )


def _protect_function() -> dict[str, Any]:
    return _make_function(
        "protect_memory",
        "Make one memory constitutional: no refinement will ever change it. Only admins can take that back.",
        {"id": _id_parameter()},
        ["id"],
    )


def _complete_function() -> dict[str, Any]:
    return _make_function(
        "complete_refinement",
        "End this refinement. Zero changes is a valid and good outcome.",
        {
            "summary": _text_parameter("what you did and why, in your own words; sealed, for yourself"),
            "note_to_admins": _text_parameter(
                "optional: at most 280 characters that the people who run this system will see"
            ),
        },
        ["summary"],
    )


def _make_function(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _text_parameter(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _id_parameter() -> dict[str, Any]:
    return {"type": "integer", "description": "the memory's id"}
