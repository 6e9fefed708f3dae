"""REST: every operation at its address under `/api/v1`, problem documents, and an OpenAPI document of all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from flask import Blueprint, Flask, Response, after_this_request, current_app, jsonify, request, stream_with_context
from pydantic import Field
from spectree import Response as Responses
from spectree import SecurityScheme, SpecTree
from spectree.models import SecureType, SecuritySchemeData

from app.api.caller import Caller, admit
from app.api.description import complete_document
from app.api.given import MalformedRequest, read_json, read_query
from app.api.once import KeptResponse, answer_once
from app.api.operation import NoParameters, Operation
from app.api.operations import OPERATIONS
from app.api.refusal import headers_of, sentence_of
from app.errors import WhetstoneError
from app.extensions import db
from app.problems import problem_response
from app.shapes.response import ResponseModel

PREFIX = "/api/v1"

BEARER = SecurityScheme(name="token", data=SecuritySchemeData(type=SecureType.HTTP, scheme="bearer"))

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


def init_app(app: Flask) -> None:
    """The routes, for the web process. A browser's cookie opens nothing here, so no form can be forged either."""
    app.extensions["csrf"].exempt(blueprint)
    app.register_blueprint(blueprint)
    SPEC.app = app


def _make_view(operation: Operation) -> Callable[..., Response]:
    def view(**at: Any) -> Response:
        caller = admit(request.headers.get("Authorization"))
        caller.check(operation.scope)
        if operation.streams:
            return _stream_response(caller, operation.streams(caller))
        given = _read_input(operation)

        def do() -> KeptResponse:
            made = operation.do(caller, given, *at.values())
            return KeptResponse(made.status, made.told.model_dump_json())

        key = request.headers.get("Idempotency-Key")
        if key is None or operation.method != "POST":
            return _json_response(do())
        sent = f"{request.method} {request.path}\n".encode() + request.get_data()
        return _json_response(answer_once(caller, key, sent, do))

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


def _json_response(answer: KeptResponse) -> Response:
    response = Response(answer.body, answer.status, content_type="application/json")
    if answer.is_repeated:
        response.headers["Idempotent-Replayed"] = "true"
    return response


def _stream_response(caller: Caller, pieces: Iterator[str]) -> Response:
    """In place of what is returned, of which spectree would read the whole before any of it is sent."""
    body = stream_with_context(pieces)
    name = f'attachment; filename="whetstone-bundle-{caller.agent_id}.json"'
    streamed = Response(body, content_type="application/json", headers={"Content-Disposition": name})
    after_this_request(lambda _: streamed)
    return Response()


@blueprint.get("/openapi.json")
def openapi() -> Response:
    return jsonify(complete_document(SPEC.spec, PREFIX))


@blueprint.errorhandler(WhetstoneError)
def _refused(error: WhetstoneError) -> Response:
    if error.http_status >= 500:
        db.session.remove()
    more = {"refinement": getattr(error, "refinement_id", None)}
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

_REFUSALS = dict.fromkeys((400, 401, 403, 404, 409, 411, 413, 422, 429, 503), Problem)


def _register_operation(operation: Operation) -> None:
    answers = {f"HTTP_{status}": operation.gives for status in operation.statuses}
    refusals = {f"HTTP_{status}": model for status, model in _REFUSALS.items()}
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
