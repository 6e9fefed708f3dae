"""REST: every operation at its address under `/api/v1`, problem documents, and an OpenAPI document of all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import structlog
from flask import Blueprint, Flask, Response, current_app, jsonify, request, stream_with_context

from app.api.caller import Caller, admit_caller
from app.api.given import MalformedRequest, read_json, read_query
from app.api.openapi import openapi_document
from app.api.operation import PREFIX, NoParameters, Operation
from app.api.operations import OPERATIONS
from app.api.refusal import headers_of, sentence_of
from app.errors import DiskFull, WhetstoneError
from app.extensions import db
from app.history.erasing import check_not_erased
from app.models import IdempotencyKey
from app.problems import problem_response

JSON = "application/json"

log = structlog.get_logger(__name__)

blueprint = Blueprint("api", __name__, url_prefix=PREFIX)


class LengthMissing(MalformedRequest):
    """The body came in chunks, so it was not read: send it whole, with a Content-Length."""

    code = "length_required"
    outcome = "Nothing was written."
    http_status = 411


def init_app(app: Flask) -> None:
    """The routes, for the web process. A browser's cookie opens nothing here, so no form can be forged either."""
    app.extensions["csrf"].exempt(blueprint)
    app.register_blueprint(blueprint)


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
    body = stream_with_context(pieces)
    name = f'attachment; filename="whetstone-bundle-{caller.agent_id}.json"'
    return Response(body, content_type=JSON, headers={"Content-Disposition": name})


def _answer_once(
    operation: Operation, caller: Caller, key: str, request: bytes, do: Callable[[], Response]
) -> Response:
    """Do it, unless the same request was answered before. What is refused may be sent again.

    Raises Invalid, KeyReused, StillBeingDone, MemoryErased, and whatever `do` refuses with. Where `do` breaks, nobody
    knows what was done: the key stays claimed. So it does where the answer can't be kept because the disk is full.
    """
    keys = caller.keys_to_write
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
    return jsonify(openapi_document())


@blueprint.errorhandler(WhetstoneError)
def _refused(error: WhetstoneError) -> Response:
    if error.http_status >= 500:
        db.session.remove()
    more = {"refinement": getattr(error, "refinement_id", None), "receipt": getattr(error, "receipt", None)}
    sentence = sentence_of(error, reads_only=request.method == "GET")
    response = problem_response(error.http_status, error.code, sentence, **more)
    response.headers.update(headers_of(error))
    return response


for _operation in OPERATIONS:
    blueprint.add_url_rule(
        _operation.rule, endpoint=_operation.name, view_func=_make_view(_operation), methods=[_operation.method]
    )
