"""Runs in the peer's environment: mem0 with a local qdrant and SQLite, no model (`infer=False`) and no network.

Embeddings are made up from a hash of the text in microseconds: a real model would take 10 ms and more of each call.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time

os.environ.update({"MEM0_TELEMETRY": "False", "MEM0_DIR": sys.argv[1], "OPENAI_API_KEY": "unused"})

from mem0 import Memory
from mem0.utils.factory import EmbedderFactory

DIMENSIONS = 64


class HashedEmbedder:
    config = None

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return [byte / 255 for byte in hashlib.sha512(text.encode()).digest()]

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        return [self.embed(text) for text in texts]


EmbedderFactory.create = classmethod(lambda cls, *_: HashedEmbedder())


def main() -> None:
    folder = sys.argv[1]
    store = {"path": f"{folder}/qdrant", "on_disk": True, "embedding_model_dims": DIMENSIONS, "collection_name": "m"}
    memory = Memory.from_config(
        {"vector_store": {"provider": "qdrant", "config": store}, "history_db_path": f"{folder}/history.db"}
    )
    last = ""

    def save(text: str) -> None:
        nonlocal last
        last = memory.add(text, agent_id="ezra", infer=False)["results"][0]["id"]

    works = {
        "save": save,
        "update": lambda text: memory.update(last, text),
        "all": lambda _: len(memory.get_all(filters={"agent_id": "ezra"}, top_k=10_000)["results"]),
        "search": lambda text: memory.search(text, filters={"agent_id": "ezra"}, top_k=50, threshold=0.0),
        "history": lambda _: memory.history(last),
    }
    for line in sys.stdin:
        asked = json.loads(line)
        spent, found, clock = [], None, getattr(time, asked["clock"])
        for text in asked["texts"]:
            began = clock()
            found = works[asked["do"]](text)
            spent.append((clock() - began) * 1000)
        print(json.dumps({"ms": spent, "found": found if isinstance(found, int) else None}), flush=True)


main()
