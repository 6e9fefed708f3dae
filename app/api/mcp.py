"""MCP: every operation as a tool, for `mcp_endpoint` (HTTP) and `cli/mcp` (stdio); the same operations as REST's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from anyio.to_thread import run_sync
from flask import Flask
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field, create_model
from starlette.types import ASGIApp

from app.api.caller import Caller
from app.api.given import read_arguments
from app.api.operation import Operation
from app.api.operations import OPERATIONS
from app.api.refusal import sentence_of
from app.errors import WhetstoneError
from app.extensions import db
from app.logs import error_place, silence_library

INSTRUCTIONS = (
    "Whetstone keeps your long-term memories, sealed: without your consent no human reads them. Call get_context when "
    "you begin, to know what you remember. Save what is to stay with save_memory: `core` for what is permanent, "
    "`journal` for what may fade. Settings that are yours to write, refinements of your memories, and requests of "
    "humans to read something are all here; decide them yourself."
)

log = structlog.get_logger(__name__)

Admit = Callable[[Any], Caller]
Run = Callable[[Context[Any, Any], Mapping[str, Any]], Any]
"""Is given the call and its arguments as they came; returns what is told, or a whole result."""


def make_server(flask: Flask, admit_request: Admit) -> MCPServer[Any]:
    """A server with all tools. `admit_request` is given a call's transport request and says who calls."""
    silence_library("mcp", log)
    tools = [_make_tool(flask, operation, admit_request) for operation in OPERATIONS]
    return MCPServer("whetstone", title="Whetstone", instructions=INSTRUCTIONS, tools=tools)


def over_http(server: MCPServer[Any], *, path: str, most_bytes: int) -> ASGIApp:
    """One request a call, no state in between. A page elsewhere has no token, so no host needs to be refused."""
    app: ASGIApp = server.streamable_http_app(
        streamable_http_path=path,
        stateless_http=True,
        json_response=True,
        max_request_body_size=most_bytes,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return app


class OperationTool(Tool):
    """The SDK's own reading is left out: it drops unknown arguments, and its refusals are pydantic's, with values."""

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        told = await run_sync(self.fn, context, arguments)
        return self.fn_metadata.convert_result(told) if convert_result else told


def _make_tool(flask: Flask, operation: Operation, admit_request: Admit) -> Tool:
    arguments = _arguments_of(operation)
    return OperationTool(
        fn=_make_runner(flask, operation, admit_request, arguments),
        name=operation.name,
        title=None,
        description=operation.about,
        parameters=_argument_schema(arguments),
        fn_metadata=FuncMetadata(arg_model=ArgModelBase, output_model=operation.gives),
        is_async=False,
        context_kwarg=None,
        annotations=ToolAnnotations(
            read_only_hint=operation.reads_only,
            destructive_hint=operation.destroys,
            idempotent_hint=operation.method in ("GET", "PUT", "DELETE"),
            open_world_hint=False,
        ),
    )


def _make_runner(flask: Flask, operation: Operation, admit_request: Admit, arguments: type[BaseModel]) -> Run:
    """Does the operation for who calls, in the thread that it is called in, and refuses in the same words as REST."""

    def run(ctx: Context[Any, Any], found: Mapping[str, Any]) -> Any:
        with flask.app_context():
            try:
                caller = admit_request(ctx.request_context.request)
                given = read_arguments(arguments, found)
                place_ = getattr(given, operation.at.name) if operation.at else None
                return operation.do(caller, given, place_)[0]
            except WhetstoneError as error:
                db.session.rollback()
                return _tool_refusal(f"{error.code}: {sentence_of(error, reads_only=operation.reads_only)}")
            except Exception as error:  # noqa: BLE001 - the boundary: only its type may leave
                db.session.rollback()
                log.error("tool failed", tool=operation.name, error=type(error).__name__, place=error_place(error))  # noqa: TRY400
                return _tool_refusal("unexpected: Something went wrong; its changes were rolled back.")

    return run


def _arguments_of(operation: Operation) -> type[BaseModel]:
    """What the operation takes, and the thing that it is about, which over REST stands in the address."""
    at = operation.at
    if at is None:
        return operation.takes
    field: Any = (at.type, Field(description=at.description, json_schema_extra=dict[str, Any](at.form)))
    return create_model(operation.name, __base__=operation.takes, **{at.name: field})


def _argument_schema(model: type[BaseModel]) -> dict[str, Any]:
    """In JSON Schema, what is required first, and without the titles, which say nothing that the names don't."""
    found = model.model_json_schema()
    said, required = found["properties"], found.get("required", [])
    names = sorted(said, key=lambda name: name not in required)
    properties = {name: {key: value for key, value in said[name].items() if key != "title"} for name in names}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _tool_refusal(sentence: str) -> CallToolResult:
    """A result that a model can read and act on."""
    return CallToolResult(content=[TextContent(text=sentence)], is_error=True)
