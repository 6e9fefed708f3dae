"""What all shapes share: they are read off what they tell of, refuse what they don't know, and print moments alike."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict

from app.models.base import iso


class DiscreetModel(BaseModel):
    """What goes in or out can be content: it is printed by its name alone, and what does not fit is not quoted."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        return []


class ResponseModel(DiscreetModel):
    """What a caller is told. Keys may be added; none is ever renamed. Descriptions speak to an agent about its own."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, told: Any, /, **more: Any) -> Self:
        """Read off the attributes of a row or a value; `more` is what these don't say, or say otherwise."""
        return cls.model_validate({name: getattr(told, name) for name in cls.model_fields if name not in more} | more)

    @classmethod
    def of_checked(cls, told: dict[str, Any]) -> Self:
        """Of all of its fields, in the types that it tells: `model_construct` without a search for defaults."""
        shape = object.__new__(cls)
        object.__setattr__(shape, "__dict__", told)
        _SET_FIELDS(shape, _all_fields(cls))
        _SET_EXTRA(shape, None)
        _SET_PRIVATE(shape, None)
        return shape

    def as_json(self) -> dict[str, Any]:
        return self.model_dump()


_SET_FIELDS, _SET_EXTRA, _SET_PRIVATE = (
    vars(BaseModel)[f"__pydantic_{name}__"].__set__ for name in ("fields_set", "extra", "private")
)
"""What pydantic keeps beside the values; by its slots, which takes a third of the time."""


@cache
def _all_fields(shape: type[BaseModel]) -> set[str]:
    """One set for all of a shape: nothing is added to it, as there are no other fields."""
    return {*shape.model_fields}


def _as_text(moment: object) -> object:
    return iso(moment) if isinstance(moment, datetime) else moment


Moment = Annotated[str, BeforeValidator(_as_text)]
"""ISO 8601, UTC, with Z."""
