"""Many refinements in flight in one worker process, against a model server that takes 2 seconds a reply.

Each refinement asks three times (consent, one change, complete), so the ideal wall time is 6 seconds however many run
at once. Prints wall time over the ideal, and the peak memory of the worker.
Usage: python -m benchmarks.in_flight [COUNT]
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from app import Part, create_app
from app.extensions import db
from app.models import COMMAND_LINE, Refinement, Status, Trigger
from app.refinement.start import start_refinement
from tests.support.databases import Template
from tests.support.factories import make_agent, remember

REPLY_SECONDS = 2.0
CALLS = 3


class SlowModel(BaseHTTPRequestHandler):
    """Stateless: YES, then one deletion of the first memory, which the second carries, then complete."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(REPLY_SECONDS)
        answer = json.dumps(_completion(body)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


def _completion(body: dict[str, Any]) -> dict[str, Any]:
    if not body.get("tools"):
        return _message({"role": "assistant", "content": "YES"}, "stop")
    if any(message["role"] == "tool" for message in body["messages"]):
        return _message(_call("complete_refinement", {"summary": "One said twice."}), "tool_calls")
    ledger = body["messages"][-1]["content"]
    first, second, *_ = map(int, re.findall(r'^\{"id": (\d+)', ledger, re.MULTILINE))
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


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    server = Server(("127.0.0.1", 0), SlowModel)
    Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        template = Template(Path(folder) / "template")
        data = Path(folder) / "data"
        data.mkdir()
        with template.copy(data) as settings:
            app = create_app(settings, part=Part.COMMAND_LINE)
            app.extensions["master_key"] = template.master_key
            with app.app_context():
                ids = _queue(count, f"http://127.0.0.1:{server.server_address[1]}/v1")
                db.session.remove()
                _run(settings.data, settings.database_url, count, ids)
                done = sum(db.session.get_one(Refinement, each).status == Status.COMPLETED for each in ids)
                print(f"completed: {done} of {count}")
                db.session.remove()
                db.engine.dispose()
        template.drop()
    server.shutdown()


def _queue(count: int, base: str) -> list[str]:
    ids = []
    for number in range(count):
        agent = make_agent(f"agent-{number}", model_id="openai/slow", api_base=base)
        ships = ("0", "0 and 1", *map(str, range(2, 20)))
        remember(agent, *(f"We spoke about ship {ship} and its captain at length." for ship in ships))
        ids.append(start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id)
    return ids


def _run(data: Path, database_url: str, count: int, ids: list[str]) -> None:
    """One worker process with as many threads as refinements; it reads the ids from its standard input."""
    worker = subprocess.run(
        [sys.executable, "-m", "benchmarks.in_flight_worker", str(data), database_url, str(count)],
        input="\n".join(ids),
        text=True,
        capture_output=True,
        timeout=600,
        check=False,
    )
    if worker.returncode:
        raise SystemExit(worker.stderr[-3000:])
    figures = json.loads(worker.stdout.splitlines()[-1])
    ideal = REPLY_SECONDS * CALLS
    print(
        f"{count} refinements, {CALLS} calls of {REPLY_SECONDS:.0f} s each, one process: wall {figures['wall']:.1f} s, "
        f"{figures['wall'] / ideal:.2f} x the ideal; CPU {figures['cpu']:.1f} s; peak memory {figures['peak_mb']} MB"
    )


if __name__ == "__main__":
    main()
