"""Operation: one thing that an agent can do, described once; REST routes and MCP tools are both made of these."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict

from app.api.caller import Caller
from app.errors import NotFound
from app.models.key import Scope
from app.shapes.response import DiscreetModel, ResponseModel

PREFIX = "/api/v1"
"""Of every operation's address over REST."""

MOST_ID = 2**63 - 1
LONGEST_PLACE = 100


class RequestBody(DiscreetModel):
    """What a caller sends: nothing unknown, and no type stands for another."""

    model_config = ConfigDict(strict=True)


class QueryModel(DiscreetModel):
    """What a caller asks for in an address: text that is read as what it should be."""


def _require_digits(value: object) -> object:
    """What an address says in other signs than plain digits is no number."""
    if isinstance(value, bool) or (isinstance(value, str) and not (value.isascii() and value.isdigit())):
        raise ValueError("it must be a whole number")
    return value


UUID_FORM = {"format": "uuid"}

DIGITS = BeforeValidator(_require_digits)
"""Behind the bounds of a whole number in an address, so that these are told in JSON Schema."""


class NoParameters(QueryModel):
    """No arguments."""


@dataclass(frozen=True)
class PathParameter:
    """The part of an address that names one thing, such as the id of a memory. `form` is told in JSON Schema."""

    name: str
    type: type
    description: str
    form: Mapping[str, object] = field(default_factory=dict)

    def check(self, value: Any) -> None:
        """What no database could look for is not there either. Raises NotFound."""
        is_number = isinstance(value, int) and 0 < value <= MOST_ID
        is_word = isinstance(value, str) and len(value) <= LONGEST_PLACE and value.isprintable()
        if not (is_number if self.type is int else is_word):
            raise NotFound


@dataclass(frozen=True)
class Operation:
    """`run` is called as `run(caller, *[the place's value], *[takes])` and returns `gives`, or that and its status.

    `name` is the MCP tool and the OpenAPI operation; `about` is for a model that reads it for the first time.
    `statuses` are those that it answers when all is well; `most_bytes` is how long a body may be, where that is more
    than elsewhere; `streams` gives over REST, piece by piece, the document that `run` gives whole; `gives_secret`: what
    it told is told again, by its Idempotency-Key, only to the token that asked first; `quotes_memory`: it tells what a
    memory says, of which the number is its `id`.
    """

    name: str
    method: str
    path: str
    scope: Scope
    about: str
    run: Callable[..., Any]
    gives: type[ResponseModel]
    takes: type[BaseModel] = NoParameters
    at: PathParameter | None = None
    statuses: tuple[int, ...] = (200,)
    destroys: bool = False
    most_bytes: int | None = None
    streams: Callable[[Caller], Iterator[str]] | None = None
    gives_secret: bool = False
    quotes_memory: bool = False

    @property
    def reads_only(self) -> bool:
        return self.method == "GET"

    @property
    def rule(self) -> str:
        """Its path as Flask reads it."""
        kind = "int" if self.at and self.at.type is int else "string"
        return re.sub(r"{(\w+)}", rf"<{kind}:\1>", self.path)

    def do(self, caller: Caller, given: BaseModel, place: object = None) -> tuple[ResponseModel, int]:
        """Carry it out for a caller; returns what to tell, and the HTTP status.

        Raises ScopeMissing, and whatever the operation refuses with.
        """
        caller.check(self.scope)
        if self.at:
            self.at.check(place)
        arguments = [place] if self.at else []
        done = self.run(caller, *arguments, *([] if self.takes is NoParameters else [given]))
        return done if isinstance(done, tuple) else (done, self.statuses[0])


def operation(method: str, path: str, scope: Scope, **more: Any) -> Callable[[Callable[..., Any]], Operation]:
    """Makes an operation of a function: it has the function's name and tells its docstring. It takes the argument
    `given`, if there is one, and gives what is returned; `more` is whatever else the operation is, or is otherwise.
    """

    def make_operation(run: Callable[..., Any]) -> Operation:
        hints, about = get_type_hints(run), " ".join((run.__doc__ or "").split())
        gives, *_ = get_args(hints["return"]) or [hints["return"]]
        return Operation(run.__name__, method, path, scope, about, run, gives, hints.get("given", NoParameters), **more)

    return make_operation
