"""A canary that is remembered, searched, merged, rolled back and told: no file, log, event or row holds it."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator, Sequence
from urllib.parse import quote

import pytest
from flask import Flask
from sqlalchemy import text

from app.extensions import db, writing
from app.llm.client import Message, ModelError, ModelErrorKind, Reply
from app.llm.scripted import calls
from app.models import COMMAND_LINE, Agent, Memory, MemoryType, Trigger
from app.silo import SealBroken
from tests.refinement.driving import DONE, call, carry, say
from tests.support.databases import SERVER
from tests.support.factories import make_agent, remember

CANARY = "Quokka Zanzibar ünter 4711"
TEXT = f"At noon {CANARY} sang to us. "


def forms() -> Iterator[bytes]:
    """The canary as it would look in a file, whatever wrote it there."""
    for piece in (CANARY, "Zanzibar"):
        for encoding in ("utf-8", "latin-1", "utf-16-le", "utf-16-be"):
            plain = piece.encode(encoding)
            yield plain
            yield plain.hex().encode()
            yield plain.hex().upper().encode()
        yield json.dumps(piece)[1:-1].encode()
        yield quote(piece).encode()
        yield quote(piece, safe="").replace("%20", "+").encode()
        for shift in range(3):
            yield base64.b64encode(b"\x00" * shift + piece.encode())[4 if shift else 0 : -4]


def assert_nowhere(haystack: bytes, where: str) -> None:
    folded = haystack.lower()
    for form in forms():
        hit = form in haystack or form.lower() in folded
        assert not hit, f"{form!r} stands in {where}"


def live_through_everything(agent: Agent) -> None:
    ids = remember(agent, *(TEXT + str(n) for n in range(12)))
    remember(agent, TEXT + "0", TEXT.upper() + "1", constitutional=True)
    remember(agent, TEXT + "of the day", type_=MemoryType.JOURNAL)
    with writing():
        locked = Agent.lock(agent.id)
        Memory.lock_core(locked, ids[5]).protect(locked, by=COMMAND_LINE)
    live = [row.id for row in db.session.scalars(Memory.active(agent.id, MemoryType.CORE))]
    plain = [one for one in live if one in ids and one != ids[5]]
    work = calls(
        ("search_memories", {"query": CANARY}),
        ("update_memory", {"id": plain[2], "content": TEXT + "again"}),
        ("consolidate_memories", {"ids": plain[3:5], "content": TEXT + "twice"}),
        ("update_memory", {"id": ids[5], "content": TEXT}),
        ("delete_memory", {"id": CANARY}),
        (CANARY, {"id": 1}),
        ("delete_memory", f'{{"{CANARY}": 1, "id": "{CANARY}"'),
        ("delete_memory", {"id": 1, CANARY: CANARY}),
        ("search_memories", {"query": CANARY, "since": CANARY}),
        text=TEXT,
    )
    assert carry(agent, say(f"YES, {TEXT}"), work, call("complete_refinement", summary=TEXT)).status == "completed"
    everything = calls(*(("delete_memory", {"id": one}) for one in plain))
    assert carry(agent, say("YES"), everything, everything).status == "rolled_back"
    assert carry(agent, say("YES"), say(TEXT), say(TEXT)).status == "unfinished"
    assert carry(agent, say("YES"), ModelError(ModelErrorKind.UNAUTHORIZED, "The key was refused.")).status == "failed"

    def broken(_: Sequence[Message]) -> Reply:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        carry(agent, say("YES"), broken)
    assert carry(agent, say(f"NO. {TEXT}")).status == "declined"
    assert carry(agent, DONE, trigger=Trigger.AGENT).status == "completed"


@pytest.fixture
def lived(app: Flask, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> str:
    with caplog.at_level(logging.DEBUG):
        agent = make_agent("ezra", system_prompt="You are Ezra.")
        live_through_everything(agent)
    return caplog.text + "".join(capfd.readouterr())


def test_no_log_no_file_and_no_table_holds_it(app: Flask, lived: str) -> None:
    assert_nowhere(lived.encode(), "what was logged and printed")
    files = [path for path in app.extensions["settings"].data.rglob("*") if path.is_file()]
    assert SERVER or {"whetstone.db", "whetstone.db-wal"} <= {path.name for path in files}
    for path in files:
        assert_nowhere(path.read_bytes(), path.name)
    for table in db.metadata.tables:
        for row in db.session.execute(text(f'SELECT * FROM "{table}"')):
            for value in row:
                assert_nowhere(bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode(), table)


def test_no_error_of_the_database_or_the_silo_quotes_it(app: Flask) -> None:
    agent = make_agent()
    (number,) = remember(agent, TEXT)
    memory = db.session.get_one(Memory, number)
    with pytest.raises(Exception, match="append-only") as refused:
        db.session.execute(text("UPDATE audit_log SET subject = :subject"), {"subject": CANARY})
    assert_nowhere(f"{refused.value!r} {refused.value}".encode(), "the database's error")
    db.session.rollback()
    from app.models import open_keys

    with pytest.raises(SealBroken) as broken:
        open_keys(agent).reveal_memory(number + 1, memory.content)
    assert_nowhere(f"{broken.value!r}".encode(), "the silo's error")


def test_the_search_for_it_finds_it_where_it_is() -> None:
    for form in forms():
        with pytest.raises(AssertionError, match="stands in"):
            assert_nowhere(b"before " + form + b" after", "here")
