"""A ledger of 10,000 memories, opened for a prompt, beside a bare cursor and the cipher called by hand.

    python -m benchmarks.ledger [--memories N] [--rounds N] [--json]

Both sides read the same columns in the same order and open each memory's own key and its text. The other side checks
neither the digest nor the form of what it reads, and makes no object of a memory.
"""

from __future__ import annotations

import random
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.asking.prompt_memories import read_entries
from app.extensions import db, end_reading
from app.keys.agent_keys import open_keys
from app.models import Agent
from app.silo import AgentKeys
from benchmarks.figures import Figure
from benchmarks.scratch import is_sqlite, medians, run, scratch
from tests.support.factories import make_agent, remember

MOST_RATIO = 2.0
BATCH = 1_000
LENGTH = 200
"""Characters of a memory."""


def measure(memories: int = 10_000, rounds: int = 9) -> list[Figure]:
    with scratch():
        agent, keys = fill_ledger(memories)
        taken = medians(
            rounds, product=lambda: load_ledger(agent.id, keys), raw=lambda: _by_hand(agent.id, agent.uuid, keys)
        )
        texts = [each.content for each in load_ledger(agent.id, keys)]
        if texts != _by_hand(agent.id, agent.uuid, keys) or len(texts) != memories:
            raise RuntimeError("the two sides read different ledgers")
    beside = "a cursor and the cipher by hand"
    return [Figure(f"{memories:,} memories", taken["product"], "ms", beside, taken["raw"], most_ratio=MOST_RATIO)]


def fill_ledger(memories: int, name: str = "ezra") -> tuple[Agent, AgentKeys]:
    """An agent with so many different memories, and its keys."""
    agent, chance = make_agent(name), random.Random(5)
    for first in range(0, memories, BATCH):
        remember(agent, *(_text(n, chance) for n in range(first, min(first + BATCH, memories))))
    keys = open_keys(agent)
    return agent, keys


def _text(number: int, chance: random.Random) -> str:
    words = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz    ", k=LENGTH)).strip()
    return f"Memory {number}: {words}."[:LENGTH]


def load_ledger(agent_id: int, keys: AgentKeys) -> list[Any]:
    found = read_entries(agent_id, keys)
    end_reading()
    return found


_QUERY = (
    "SELECT m.id, m.type, m.token_estimate, m.constitutional, m.immutable, m.tags, m.origin_at, m.other_dates,"
    " m.merged_sources, m.merges, m.source, m.version, t.sealed, t.content_hash, k.sealed"
    " FROM memories m JOIN memory_texts t ON t.memory_id = m.id AND t.content_digest = m.content_digest"
    " JOIN content_keys k ON k.memory_id = m.id"
    " WHERE m.agent_id = {mark} AND m.discarded_at IS NULL AND m.type = 'core' ORDER BY m.origin_at, m.id"
)
_KEY_NONCE, _KEY_BODY = slice(5, 17), slice(17, None)
_HEAD, _NONCE, _BODY = slice(0, 9), slice(9, 21), slice(21, None)


def _by_hand(agent_id: int, agent_uuid: str, keys: AgentKeys) -> list[str]:
    """The formats are those of `app/silo/sealed.py`."""
    connection = db.engine.raw_connection()
    cursor = connection.cursor()
    cursor.execute(_QUERY.format(mark="?" if is_sqlite() else "%s"), (agent_id,))
    own, version = AESGCM(keys._data_key(1)), 1
    texts = []
    for row in cursor.fetchall():
        number, sealed, content_hash, sealed_key = row[0], row[12], row[13], row[14]
        name = f"whetstone/content-key/1|{agent_uuid}|{number}|{version}".encode()
        key = own.decrypt(sealed_key[_KEY_NONCE], sealed_key[_KEY_BODY], name)
        name = f"whetstone/memory/1|{agent_uuid}|{number}|0|{content_hash.hex()}|".encode() + sealed[_HEAD]
        texts.append(AESGCM(key).decrypt(sealed[_NONCE], sealed[_BODY], name).decode())
    connection.close()
    return texts


if __name__ == "__main__":
    run(measure, __doc__, memories=10_000, rounds=9)
