"""The measured side of `in_flight`: one process, one thread a refinement, as the worker's threads pool runs them."""

from __future__ import annotations

import json
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app import Part
from app.asking.calls import Dependencies
from app.config import load_settings
from app.llm.litellm import LiteLLMClients, load_litellm
from app.refinement.process import run_refinement
from app.setup import ready_app


def main() -> None:
    data, database_url, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    app = ready_app(Part.WORKER, load_settings(data_dir=data, database_url=database_url, concurrency=count))
    ids = sys.stdin.read().split()
    load_litellm()
    clients = LiteLLMClients()

    def work(refinement_id: str) -> None:
        with app.app_context():
            run_refinement(refinement_id, Dependencies(clients))

    before = time.process_time()
    started = time.perf_counter()
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, ids))
    wall = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"wall": wall, "cpu": time.process_time() - before, "peak_mb": peak}))


if __name__ == "__main__":
    main()
