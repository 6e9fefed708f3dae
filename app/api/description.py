"""What the OpenAPI document says beyond the shapes: problem documents, idempotency keys, headers, and forms of ids."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from app.api.operation import Operation
from app.api.operations import OPERATIONS
from app.models.idempotency import KEY_PATTERN, MAX_KEY

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


def complete_document(found: dict[str, Any], prefix: str) -> dict[str, Any]:
    """A document for the operations under `prefix`, from the one that was made of their shapes."""
    document = deepcopy(found)
    for operation in OPERATIONS:
        said = document["paths"][prefix + operation.path][operation.method.lower()]
        said["summary"], said["description"] = operation.name.replace("_", " ").capitalize(), operation.about
        _tell_answers(operation, said["responses"])
        if operation.method == "POST":
            said.setdefault("parameters", []).append(KEY)
        for parameter in said.get("parameters", []):
            if operation.at and parameter["name"] == operation.at.name:
                parameter["schema"] |= operation.at.form
    schemas = document["components"]["schemas"]
    document["components"]["schemas"] = {
        name: schemas[name] for name in sorted(_used_schema_names(document["paths"], schemas))
    }
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
