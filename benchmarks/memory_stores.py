"""Saves, contexts and searches of an agent with 500 memories, beside mem0 with a local store and LangGraph's stores.

    python -m benchmarks.memory_stores [--memories N] [--rounds N] [--no-peers] [--json]

Ours in process, and through REST without a network; each peer in a process of its own, in turn. They keep different
promises: ours seals every text, writes an audit entry and counts; theirs index vectors, which are made up from a hash
here. A save is one memory that is new, a context all memories with their text; ours searches by a part of the text.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from flask import current_app

from app import Part, create_app
from app.asking.prompt_memories import memory_context, read_entries
from app.extensions import db, end_reading, writing
from app.keys.agent_keys import open_keys, share_with_tokens
from app.keys.tokens import issue_token
from app.models import COMMAND_LINE, Agent, Memory
from benchmarks.figures import Figure, print_figures
from benchmarks.peers.environments import Peer, PeerUnavailable
from benchmarks.plain_versioning import scratch_database
from benchmarks.scratch import is_sqlite, milliseconds, scratch
from tests.support.factories import make_agent

Work = Callable[[str], object]
WORKS = {"save": "save", "all": "context", "search": "search"}
"""What a peer is asked to do, and what that is called here."""

CLOCK = "perf_counter"
"""Wall time: some of them wait for the disk at each save, which is what their users wait for, too."""


def measure(memories: int = 500, rounds: int = 30, *, peers: bool = True) -> list[Figure]:
    with scratch(api_rate="1000000/minute"), ExitStack() as stack:
        sides = _sides()
        for number in range(memories):
            for side in sides.values():
                side["save"](_text(number))
        started, missing = _start(stack, memories) if peers else ({}, dict.fromkeys(_PEERS, "--no-peers"))
        figures = []
        for asked, name in WORKS.items():
            texts = [_text(memories + turn) if asked == "save" else "price of tin" for turn in range(rounds)]
            taken = _in_turn(asked, texts, sides, started)
            figures += _compare(name, taken, sides, memories)
        db.session.remove()
    return [*figures, *(Figure(f"beside {name}", reason=why) for name, why in missing.items())]


def _text(number: int) -> str:
    return f"On the walk of day {number} the river stood high, we turned back and spoke of the price of tin."


def _in_turn(
    asked: str, texts: Sequence[str], sides: Mapping[str, Mapping[str, Work]], peers: Mapping[str, Peer]
) -> dict[str, float]:
    """Medians of milliseconds by side and peer."""
    taken: dict[str, list[float]] = {name: [] for name in (*sides, *peers)}
    for text in texts:
        for name, works in sides.items():
            taken[name].append(milliseconds(lambda works=works, text=text: works[asked](text), CLOCK))
        for name, peer in peers.items():
            taken[name] += peer.ask(do=asked, texts=[text], clock=CLOCK)["ms"]
    return {name: statistics.median(spent) for name, spent in taken.items()}


def _compare(
    name: str, taken: Mapping[str, float], sides: Mapping[str, Mapping[str, Work]], memories: int
) -> list[Figure]:
    peers = [each for each in taken if each not in sides]
    alone = [Figure(f"{name} of {memories}, {side}", taken[side], "ms") for side in sides if not peers]
    return alone + [
        Figure(f"{name} of {memories}, {side}", taken[side], "ms", peer, taken[peer])
        for side in sides
        for peer in peers
    ]


def _sides() -> dict[str, dict[str, Work]]:
    return {"in process": _in_process(make_agent("within")), "REST": _through_rest(make_agent("rest"))}


def _in_process(agent: Agent) -> dict[str, Work]:
    keys, agent_id = open_keys(agent), agent.id
    db.session.rollback()

    def save(text: str) -> None:
        with writing():
            locked = Agent.lock(agent_id)
            Memory.save(locked, text, keys=keys, by=locked.as_actor)

    def context(_: str) -> None:
        memory_context(None, read_entries(agent_id, keys), [], None)
        end_reading()

    def search(text: str) -> list[Any]:
        found = [each for each in read_entries(agent_id, keys) if text in each.content.casefold()]
        end_reading()
        return found

    return {"save": save, "all": context, "search": search}


def _through_rest(agent: Agent) -> dict[str, Work]:
    with writing():
        locked = Agent.lock(agent.id)
        token = issue_token(locked, by=COMMAND_LINE)
        db.session.flush()
        share_with_tokens(locked, open_keys(locked))
    web = create_app(current_app.extensions["settings"], part=Part.WEB)
    client, headers = web.test_client(), {"Authorization": f"Bearer {token}"}

    def ask(method: str, path: str, **given: Any) -> None:
        answer = client.open(f"/api/v1{path}", method=method, headers=headers, **given)
        if answer.status_code not in (200, 201):
            raise RuntimeError(answer.get_data(as_text=True))

    return {
        "save": lambda text: ask("POST", "/memories", json={"content": text, "type": "core"}),
        "all": lambda _: ask("GET", "/context"),
        "search": lambda text: ask("GET", "/memories/search", query_string={"query": text}),
    }


def _start(stack: ExitStack, memories: int) -> tuple[dict[str, Peer], dict[str, str]]:
    """Those that run, with as many memories as ours; and why the others do not."""
    started, missing = dict[str, Peer](), dict[str, str]()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    server = stack.enter_context(scratch_database(folder, "langgraph"))
    for name, (environment, script, place) in _PEERS.items():
        address = {"folder": str(folder), "database": _plain(server) if not is_sqlite() else str(folder / "store.db")}
        try:
            peer = stack.enter_context(Peer(environment, script, address.get(place, place)))
            peer.ask(do="save", texts=[_text(number) for number in range(memories)], clock=CLOCK)
            found = peer.ask(do="all", texts=[""], clock=CLOCK)["found"]
        except PeerUnavailable as error:
            missing[name] = str(error)
        else:
            if found != memories:
                raise RuntimeError(f"{name} gives back {found} of {memories} memories")
            started[name] = peer
    return started, missing


def _plain(address: str) -> str:
    """For a library that knows no SQLAlchemy."""
    return address.replace("postgresql+psycopg://", "postgresql://")


_PEERS = {
    "mem0 (local qdrant)": ("mem0", "mem0_store.py", "folder"),
    "LangGraph's store of the database": ("langgraph", "langgraph_store.py", "database"),
    "LangGraph's InMemoryStore": ("langgraph", "langgraph_store.py", "memory"),
}
"""By name: environment, script, and where it keeps its memories."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    print_figures(measure(given.memories, given.rounds, peers=not given.no_peers), as_json=given.json)


if __name__ == "__main__":
    main()
