"""The OpenAPI document of `/api/v1`: made of the operations, and only once somebody asks for it.

Spectree makes a JSON Schema for each answer of each operation, which together take longer than the rest of a start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

from flask import Flask
from pydantic import Field
from spectree import Response as Responses
from spectree import SecurityScheme, SpecTree
from spectree.model_adapter.protocol import SchemaMode
from spectree.model_adapter.pydantic_adapter import PydanticModelAdapter
from spectree.models import SecureType, SecuritySchemeData

from app.api.operation import PREFIX, NoParameters, Operation
from app.api.operations import OPERATIONS
from app.models.idempotency import KEY_PATTERN, MAX_KEY
from app.shapes.memory import ErasedMemory
from app.shapes.response import ResponseModel

BEARER = SecurityScheme(name="token", data=SecuritySchemeData(type=SecureType.HTTP, scheme="bearer"))

JSON, PROBLEM = "application/json", "application/problem+json"

HEADERS = {
    "401": {"WWW-Authenticate": {"description": "Bearer", "schema": {"type": "string"}}},
    "429": {"Retry-After": {"description": "Seconds until there is room again.", "schema": {"type": "integer"}}},
    "503": {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}},
}

KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A word of your own. Sent again within 24 hours, the same request with the same word is done once "
    "and gets the same answer, with the header Idempotent-Replayed.",
    "schema": {"type": "string", "minLength": 1, "maxLength": MAX_KEY, "pattern": KEY_PATTERN},
}

REPLAYED = {"Idempotent-Replayed": {"description": "true: it was done before.", "schema": {"type": "string"}}}

ONLY_WITH_A_BODY = ("411", "413")


class Problem(ResponseModel):
    """What can't be done, and why (RFC 9457)."""

    type: str
    title: str
    status: int
    code: str = Field(description="Stable: for programs.")
    detail: str = Field(description="What happened, and whether anything was written: for people and models.")
    reference: str | None = Field(default=None, description="To find it in the server's log.")
    refinement: str | None = Field(default=None, description="The refinement that is open already.")
    receipt: ErasedMemory | None = Field(default=None, description="Of a memory that was erased: what the log says.")


class SharedSchemas(PydanticModelAdapter):
    """Makes the schema of a shape once, however many answers have it."""

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[tuple[type[Any], SchemaMode], dict[str, Any]] = {}

    def json_schema(self, model: type[Any], *, ref_template: str, mode: SchemaMode = "validation") -> dict[str, Any]:
        if (model, mode) not in self._made:
            self._made[model, mode] = super().json_schema(model, ref_template=ref_template, mode=mode)
        return self._made[model, mode]


@cache
def openapi_document() -> dict[str, Any]:
    """With what the shapes alone don't say: problem documents, idempotency keys, headers, and forms of ids."""
    document: dict[str, Any] = _describe_operations()
    for operation in OPERATIONS:
        said = document["paths"][PREFIX + operation.path][operation.method.lower()]
        said["summary"], said["description"] = operation.name.replace("_", " ").capitalize(), operation.about
        _tell_answers(operation, said["responses"])
        if operation.method == "POST":
            said.setdefault("parameters", []).append(KEY)
        for parameter in said.get("parameters", []):
            if operation.at and parameter["name"] == operation.at.name:
                parameter["schema"] |= operation.at.form
    schemas = document["components"]["schemas"]
    used = sorted(_used_schema_names(document["paths"], schemas))
    document["components"]["schemas"] = {name: schemas[name] for name in used}
    return document


def _tell_answers(operation: Operation, answers: dict[str, Any]) -> None:
    for status in ONLY_WITH_A_BODY if operation.reads_only else ():
        answers.pop(status, None)
    for status, answer in answers.items():
        is_refusal = int(status) >= 400
        if is_refusal:
            answer["content"] = {PROBLEM: answer["content"][JSON]}
        elif operation.streams:
            answer["content"] = {JSON: {"schema": {"type": "object", "description": "The bundle, as one document."}}}
        headers = HEADERS.get(status, {}) if is_refusal else REPLAYED if operation.method == "POST" else {}
        if headers:
            answer["headers"] = headers


def _used_schema_names(part: object, schemas: dict[str, Any]) -> set[str]:
    """Names of the shapes that something in `part` refers to, and of those that these refer to."""
    if isinstance(part, list):
        return set().union(*(_used_schema_names(each, schemas) for each in part))
    if not isinstance(part, dict):
        return set()
    name = str(part.get("$ref", "")).removeprefix("#/components/schemas/")
    more = {name} | _used_schema_names(schemas[name], schemas) if name else set()
    return more.union(*(_used_schema_names(each, schemas) for each in part.values()))


_REFUSED = (400, 401, 403, 404, 409, 410, 411, 413, 422, 429, 503)


def _describe_operations() -> dict[str, Any]:
    """By spectree, of an application that is never served: it has the same addresses, and says what each takes."""
    app = Flask(__name__)
    spec = SpecTree(
        "flask",
        app=app,
        mode="strict",
        title="Whetstone",
        version="1",
        description="An agent's own memories, settings, refinements and exceptions. One bearer token of one agent.",
        openapi_version="3.1.0",
        security_schemes=[BEARER],
        security={"token": []},
        naming_strategy=lambda model: model.__name__,
        nested_naming_strategy=lambda _parent, child: child,
        model_adapter=cast(Any, SharedSchemas()),
    )
    for operation in OPERATIONS:
        app.add_url_rule(
            PREFIX + operation.rule,
            endpoint=operation.name,
            view_func=_describe(spec, operation),
            methods=[operation.method],
        )
    with app.app_context():
        document: dict[str, Any] = spec.spec
    return document


def _describe(spec: SpecTree, operation: Operation) -> Callable[..., Any]:
    answers = {f"HTTP_{status}": operation.gives for status in operation.statuses}
    refusals = {f"HTTP_{status}": Problem for status in _REFUSED}
    takes = operation.takes if operation.takes is not NoParameters else None
    described: Callable[..., Any] = spec.validate(
        query=takes if operation.reads_only else None,
        json=None if operation.reads_only else takes,
        resp=Responses(**answers, **refusals),
        tags=[operation.path.split("/")[1]],
        operation_id=operation.name,
        path_parameter_descriptions={operation.at.name: operation.at.description} if operation.at else None,
    )(operation.run)
    return described
