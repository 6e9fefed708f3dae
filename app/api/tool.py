"""One operation as a tool of MCP: what it is given is read by REST's rules, so that both refuse in the same words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anyio.to_thread import run_sync
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field, create_model

from app.api.operation import Operation

Run = Callable[[Context[Any, Any], Mapping[str, Any]], Any]
"""Is given the call and its arguments as they came; returns what is told, or a whole result."""


class OperationTool(Tool):
    """The SDK's own reading is left out: it drops unknown arguments, and its refusals are pydantic's, with values."""

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        told = await run_sync(self.fn, context, arguments)
        return self.fn_metadata.convert_result(told) if convert_result else told


def make_tool(operation: Operation, run: Run) -> OperationTool:
    return OperationTool(
        fn=run,
        name=operation.name,
        title=None,
        description=operation.about,
        parameters=_argument_schema(arguments_of(operation)),
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


def arguments_of(operation: Operation) -> type[BaseModel]:
    """What the operation takes, and the thing that it is about, which over REST stands in the address."""
    at = operation.at
    if at is None:
        return operation.takes
    form: dict[str, Any] = dict(at.form)
    field: Any = (at.type, Field(description=at.description, json_schema_extra=form))
    return create_model(operation.name, __base__=operation.takes, **{at.name: field})


def _argument_schema(model: type[BaseModel]) -> dict[str, Any]:
    """In JSON Schema, what is required first, and without the titles, which say nothing that the names don't."""
    found = model.model_json_schema()
    required = found.get("required", [])
    names = sorted(found["properties"], key=lambda name: name not in required)
    properties = {name: _drop_title(found["properties"][name]) for name in names}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _drop_title(said: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in said.items() if key != "title"}
