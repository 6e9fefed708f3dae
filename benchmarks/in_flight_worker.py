"""The measured side of `in_flight`: one process, one thread a refinement, as the worker's threads pool runs them, with
what a worker sets for its memory and with its thread that wakes the streams.

Its standard input: a line of refinements' ids, then "go", then the id of a look a line, which it answers as a worker's
interactive pool does and then says. When all refinements have ended it says its figures as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flask import Flask

from app import Part
from app.asking.calls import Dependencies
from app.config import load_settings
from app.events.broker import StreamWaker
from app.grants.opening import answer_view
from app.llm.litellm import LiteLLMClients, load_litellm
from app.loading import collect_rarely, share_heaps
from app.refinement.process import run_refinement
from app.setup import ready_app


def main() -> None:
    share_heaps()
    data, database_url = Path(sys.argv[1]), sys.argv[2]
    ids = sys.stdin.readline().split()
    app = ready_app(Part.WORKER, load_settings(data_dir=data, database_url=database_url, concurrency=len(ids)))
    load_litellm()
    collect_rarely()
    StreamWaker(app).start()
    clients = LiteLLMClients()

    def work(refinement_id: str) -> None:
        with app.app_context():
            run_refinement(refinement_id, Dependencies(clients))

    print("ready", flush=True)
    sys.stdin.readline()
    answering = threading.Thread(target=_answer_looks, args=[app], daemon=True)
    answering.start()
    began, before = time.time(), time.process_time()
    with ThreadPoolExecutor(len(ids)) as pool:
        list(pool.map(work, ids))
    print(json.dumps({"began": began, "ended": time.time(), "cpu": time.process_time() - before}), flush=True)
    answering.join()  # until nobody asks any more


def _answer_looks(app: Flask) -> None:
    for line in sys.stdin:
        with app.app_context():
            answer_view(line.strip())
        print(line.strip(), flush=True)


if __name__ == "__main__":
    main()
