"""The functions as a model sees them, and what each takes."""

from __future__ import annotations

import json
from typing import Any


def specifications() -> list[dict[str, Any]]:
    """The functions in the form that chat completions take as `tools`: a copy, so the sender may change it."""
    made: list[dict[str, Any]] = json.loads(_AS_JSON)  # a sixth of what `deepcopy` takes
    return made


MUTATING = ("consolidate", "update", "delete")
"""The actions that count to the cap, as prompts name them."""


def _make_function(name: str, description: str, required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    if name.partition("_")[0] in MUTATING:
        description += " Counts as a change."
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _text_parameter(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


_ID = {"type": "integer", "description": "the memory's id"}

_CONFIRM = {
    "type": "boolean",
    "description": "leave it out, but to send a call again whose answer was would_lose: true gives up what it named",
}

_FUNCTIONS = [
    _make_function(
        "search_memories",
        "Find active core memories that contain a text, in any case. Changes nothing.",
        ["query"],
        query=_text_parameter("the text to look for"),
        since=_text_parameter("from this date on"),
        until=_text_parameter("to this date"),
    ),
    _make_function(
        "consolidate_memories",
        "Put one memory in the place of two or more that carry the same moment, quote or insight. The new one gets the "
        "earliest date, the others as other_dates, and all tags. It may not be longer than its sources together.",
        ["ids", "content"],
        ids={"type": "array", "items": {"type": "integer"}, "description": "at least two ids"},
        content=_text_parameter("the text of the new memory; every fact, name, number and quote kept"),
        confirm_loss=_CONFIRM,
    ),
    _make_function(
        "update_memory",
        "Tighten the phrasing of one memory without losing anything that it says. An answer of type would_lose names "
        "what the new text lacks; nothing was changed then.",
        ["id", "content"],
        id=_ID,
        content=_text_parameter("the memory's new text; every fact, name, number and quote kept"),
        confirm_loss=_CONFIRM,
    ),
    _make_function(
        "delete_memory",
        "Remove one memory whose whole content another active core memory already says. That one gets its dates and "
        "tags. An answer of type would_lose names what the other one lacks; nothing was changed then.",
        ["id", "carried_by"],
        id={"type": "integer", "description": "the id of the memory to remove"},
        carried_by={"type": "integer", "description": "the id of the other memory, which says all of it and stays"},
    ),
    _make_function(
        "protect_memory",
        "Make one memory constitutional: no refinement will ever change it. Only admins can take that back.",
        ["id"],
        id=_ID,
    ),
    _make_function(
        "complete_refinement",
        "End this refinement. Zero changes is a valid and good outcome.",
        ["summary"],
        summary=_text_parameter("what you did and why, in your own words; sealed, for yourself"),
        note_to_admins=_text_parameter("optional: at most 280 characters that the people who run this system will see"),
    ),
]

_FORMS = {each["function"]["name"]: each["function"]["parameters"] for each in _FUNCTIONS}

ACTIONS = {name: name.partition("_")[0] for name in _FORMS}
"""Function names and the actions that `RefinementTool.execute` knows them by."""

ARGUMENTS = {
    ACTIONS[name]: (form["required"], [each for each in form["properties"] if each not in form["required"]])
    for name, form in _FORMS.items()
}
"""Of each action: those that it needs, and those that it takes besides."""

_AS_JSON = json.dumps(_FUNCTIONS)
