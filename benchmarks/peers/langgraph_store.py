"""Runs in the peer's environment: LangGraph's store (SqliteStore, PostgresStore) and its InMemoryStore.

Embeddings are made up from a hash of the text in microseconds. Where the database has no extension for vectors (or this
Python loads none), a search is a list of the newest.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import time
import uuid
from contextlib import ExitStack

from langgraph.store.memory import InMemoryStore

DIMENSIONS = 64
PLACE = ("ezra", "memories")


def embed(texts: list[str]) -> list[list[float]]:
    return [[byte / 255 for byte in hashlib.sha512(text.encode()).digest()] for text in texts]


def open_store(address: str, stack: ExitStack):
    index = {"dims": DIMENSIONS, "embed": embed, "fields": ["content"]}
    if address == "memory":
        return InMemoryStore(index=index)
    if address.startswith("postgresql"):
        from langgraph.store.postgres import PostgresStore

        store = stack.enter_context(PostgresStore.from_conn_string(address))
    else:
        from langgraph.store.sqlite import SqliteStore

        vectors = {"index": index} if hasattr(sqlite3.Connection, "enable_load_extension") else {}
        store = stack.enter_context(SqliteStore.from_conn_string(address, **vectors))
        store.conn.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;")
    store.setup()
    return store


def main() -> None:
    with ExitStack() as stack:
        store = open_store(sys.argv[1], stack)
        last = ""

        def save(text: str) -> None:
            nonlocal last
            last = uuid.uuid4().hex
            store.put(PLACE, last, {"content": text})

        works = {
            "save": save,
            "update": lambda text: store.put(PLACE, last, {"content": text}),
            "all": lambda _: len(store.search(PLACE, limit=10_000)),
            "search": lambda text: store.search(PLACE, query=text, limit=50),
            "get": lambda _: store.get(PLACE, last),
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
