"""A model server in a process of its own, light enough not to be measured: one thread, any number of requests.

It answers each after the same time: YES, then one deletion of the first memory, which the second
carries, then complete.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CALLS = 3
"""What one refinement asks: consent, one change, complete."""


@contextmanager
def slow_model(reply_seconds: float) -> Iterator[str]:
    """The address to ask."""
    command = [sys.executable, "-m", "benchmarks.slow_model", str(reply_seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            await asyncio.sleep(seconds)
            answer = json.dumps(_completion(body.decode())).encode()
            told = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n\r\n"
            writer.write(told.encode() + answer)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _completion(body: str) -> dict[str, Any]:
    if '"tools"' not in body:
        return _message({"role": "assistant", "content": "YES"}, "stop")
    messages = json.loads(body)["messages"]
    if any(message["role"] == "tool" for message in messages):
        return _message(_call("complete_refinement", {"summary": "One said twice."}), "tool_calls")
    first, second, *_ = map(int, re.findall(r'^\{"id": (\d+)', messages[-1]["content"], re.MULTILINE))
    return _message(_call("delete_memory", {"id": first, "carried_by": second}), "tool_calls")


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }


def _message(message: dict[str, Any], finish: str) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "slow", "choices": [choice], "usage": usage}


async def _serve(seconds: float) -> None:
    server = await asyncio.start_server(
        lambda reader, writer: _answer(reader, writer, seconds), "127.0.0.1", 0, backlog=2048, limit=2**20
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
