"""Problem documents (RFC 9457): what programs are told when something can't be done."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from flask import Response, jsonify


def problem_response(status: int, code: str, sentence: str, **more: Any) -> Response:
    """A sentence for people, and a stable `code` for programs; further members only where they have a value."""
    response = jsonify(
        problem_document(status, code, sentence) | {name: value for name, value in more.items() if value}
    )
    response.status_code = status
    response.content_type = "application/problem+json"
    return response


def problem_document(status: int, code: str, sentence: str) -> dict[str, Any]:
    return {"type": "about:blank", "title": status_phrase(status), "status": status, "code": code, "detail": sentence}


def status_phrase(status: int) -> str:
    """The status in words."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
