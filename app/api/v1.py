"""REST: every operation at its address under `/api/v1`, problem documents, and an OpenAPI document of all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import structlog
from flask import Blueprint, Flask, Response, after_this_request, current_app, jsonify, request, stream_with_context
from pydantic import Field
from spectree import Response as Responses
from spectree import SecurityScheme, SpecTree
from spectree.models import SecureType, SecuritySchemeData

from app.api.caller import Caller, admit_caller
from app.api.given import MalformedRequest, read_json, read_query
from app.api.operation import NoParameters, Operation
from app.api.operations import OPERATIONS
from app.api.refusal import headers_of, sentence_of
from app.errors import DiskFull, WhetstoneError
from app.extensions import db
from app.history.erasing import check_not_erased
from app.models import IdempotencyKey
from app.models.idempotency import KEY_PATTERN, MAX_KEY
from app.problems import problem_response
from app.shapes.memory import ErasedMemory
from app.shapes.response import ResponseModel

PREFIX = "/api/v1"

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

log = structlog.get_logger(__name__)

blueprint = Blueprint("api", __name__, url_prefix=PREFIX)


class LengthMissing(MalformedRequest):
    """The body came in chunks, so it was not read: send it whole, with a Content-Length."""

    code = "length_required"
    outcome = "Nothing was written."
    http_status = 411


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


def init_app(app: Flask) -> None:
    """The routes, for the web process. A browser's cookie opens nothing here, so no form can be forged either."""
    app.extensions["csrf"].exempt(blueprint)
    app.register_blueprint(blueprint)
    SPEC.app = app


def _make_view(operation: Operation) -> Callable[..., Response]:
    def view(**at: Any) -> Response:
        caller = admit_caller(request.headers.get("Authorization"))
        caller.check(operation.scope)
        if operation.streams:
            return _stream_response(caller, operation.streams(caller))
        given = _read_input(operation)

        def do() -> Response:
            told, status = operation.do(caller, given, *at.values())
            return Response(told.model_dump_json(), status, content_type=JSON)

        key = request.headers.get("Idempotency-Key")
        if key is None or operation.method != "POST":
            return do()
        sent = f"{request.method} {request.path}\n".encode() + request.get_data()
        asker = f"{caller.bearer.public_id}\n".encode() if operation.gives_secret else b""
        return _answer_once(operation, caller, key, asker + sent, do)

    view.__name__, view.__doc__ = operation.name, operation.about
    return view


def _read_input(operation: Operation) -> Any:
    if operation.reads_only:
        return read_query(operation.takes, request.args)
    if "Transfer-Encoding" in request.headers:
        raise LengthMissing
    request.max_content_length = operation.most_bytes or current_app.config["MAX_CONTENT_LENGTH"]
    body = request.get_data() if operation.takes is not NoParameters else b""
    return read_json(operation.takes, body)


def _stream_response(caller: Caller, pieces: Iterator[str]) -> Response:
    """In place of what is returned, of which spectree would read the whole before any of it is sent."""
    body = stream_with_context(pieces)
    name = f'attachment; filename="whetstone-bundle-{caller.agent_id}.json"'
    streamed = Response(body, content_type=JSON, headers={"Content-Disposition": name})
    after_this_request(lambda _: streamed)
    return Response()


def _answer_once(
    operation: Operation, caller: Caller, key: str, request: bytes, do: Callable[[], Response]
) -> Response:
    """Do it, unless the same request was answered before. What is refused may be sent again.

    Raises Invalid, KeyReused, StillBeingDone, MemoryErased, and whatever `do` refuses with. Where `do` breaks, nobody
    knows what was done: the key stays claimed. So it does where the answer can't be kept because the disk is full.
    """
    keys = caller.keys
    earlier = IdempotencyKey.claim(caller.agent_id, key, keys.request_hash(request))
    if earlier is not None:
        if earlier.answer is None and earlier.memory_id is not None:
            check_not_erased(caller.agent_id, earlier.memory_id)
        return Response(earlier.reveal(keys), earlier.status, {"Idempotent-Replayed": "true"}, content_type=JSON)
    try:
        answer = do()
    except WhetstoneError:
        IdempotencyKey.give_back(caller.agent_id, key)
        raise
    try:
        body = answer.get_data(as_text=True)
        memory_id = json.loads(body)["id"] if operation.quotes_memory else None
        IdempotencyKey.settle(
            caller.agent_id, key, status=answer.status_code, answer=body, keys=keys, memory_id=memory_id
        )
    except DiskFull:  # what was done is done: to say that nothing was written would be untrue
        log.error("answer not kept", agent_id=caller.agent_id, error="DiskFull")  # noqa: TRY400
    return answer


@blueprint.get("/openapi.json")
def openapi() -> Response:
    """With what the shapes alone don't say: problem documents, idempotency keys, headers, and forms of ids."""
    document = deepcopy(SPEC.spec)
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
    return jsonify(document)


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


@blueprint.errorhandler(WhetstoneError)
def _refused(error: WhetstoneError) -> Response:
    if error.http_status >= 500:
        db.session.remove()
    more = {"refinement": getattr(error, "refinement_id", None), "receipt": getattr(error, "receipt", None)}
    sentence = sentence_of(error, reads_only=request.method == "GET")
    response = problem_response(error.http_status, error.code, sentence, **more)
    response.headers.update(headers_of(error))
    return response


SPEC = SpecTree(
    "flask",
    mode="strict",
    title="Whetstone",
    version="1",
    description="An agent's own memories, settings, refinements and exceptions. One bearer token of one agent.",
    openapi_version="3.1.0",
    security_schemes=[BEARER],
    security={"token": []},
    naming_strategy=lambda model: model.__name__,
    nested_naming_strategy=lambda _parent, child: child,
)

_REFUSED = (400, 401, 403, 404, 409, 410, 411, 413, 422, 429, 503)


def _register_operation(operation: Operation) -> None:
    answers = {f"HTTP_{status}": operation.gives for status in operation.statuses}
    refusals = {f"HTTP_{status}": Problem for status in _REFUSED}
    takes = operation.takes if operation.takes is not NoParameters else None
    described = SPEC.validate(
        query=takes if operation.reads_only else None,
        json=None if operation.reads_only else takes,
        resp=Responses(**answers, **refusals),
        tags=[operation.path.split("/")[1]],
        operation_id=operation.name,
        skip_validation=True,
        path_parameter_descriptions={operation.at.name: operation.at.description} if operation.at else None,
    )(_make_view(operation))
    kind = "int" if operation.at and operation.at.type is int else "string"
    rule = re.sub(r"{(\w+)}", rf"<{kind}:\1>", operation.path)
    blueprint.add_url_rule(rule, endpoint=operation.name, view_func=described, methods=[operation.method])


for _operation in OPERATIONS:
    _register_operation(_operation)
