"""What all shapes share: they are read off what they tell of, refuse what they don't know, and print moments alike."""

from __future__ import annotations

from datetime import datetime
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
        shape = cls.__new__(cls)
        object.__setattr__(shape, "__dict__", told)
        object.__setattr__(shape, "__pydantic_fields_set__", {*told})
        object.__setattr__(shape, "__pydantic_extra__", None)
        object.__setattr__(shape, "__pydantic_private__", None)
        return shape

    def as_json(self) -> dict[str, Any]:
        return self.model_dump()


def _as_text(moment: object) -> object:
    return iso(moment) if isinstance(moment, datetime) else moment


Moment = Annotated[str, BeforeValidator(_as_text)]
"""ISO 8601, UTC, with Z."""
