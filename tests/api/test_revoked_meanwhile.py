"""A token that is revoked while its call lasts: what takes long breaks off, and is taken for whole by nobody."""

from __future__ import annotations

import json

import httpx
import pytest
from flask import Flask

from app.api.caller import Unauthorized
from app.exchange.bundle import BATCH
from app.extensions import writing
from app.keys.tokens import revoke_token
from app.models import COMMAND_LINE, Agent
from tests.api.conftest import Door
from tests.support.canary import assert_nowhere, canary
from tests.support.factories import remember
from tests.support.pages import serving


def revoke(door: Door) -> None:
    with writing():
        agent = Agent.lock(door.agent.id)
        revoke_token(agent, door.token.split("_")[1], by=COMMAND_LINE)


def test_a_bundle_breaks_off_where_its_token_is_revoked(app: Flask, door: Door) -> None:
    remember(door.agent, *(f"Number {number}." for number in range(2 * BATCH + 10)))
    pieces, got = door("GET", "/export", buffered=False).iter_encoded(), []
    with pytest.raises(Unauthorized):
        for number, piece in enumerate(pieces):
            got.append(piece)
            if number == 10:
                revoke(door)

    assert len(got) <= BATCH + 1, len(got)
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(b"".join(got))


def test_a_bundle_of_a_live_token_comes_whole(app: Flask, door: Door) -> None:
    remember(door.agent, *(f"Number {number}." for number in range(2 * BATCH + 10)))
    assert len(door.get("/export")["memories"]) == 2 * BATCH + 10


def test_through_the_server_it_is_a_transfer_that_broke_off(
    app: Flask, door: Door, web: Flask, capfd: pytest.CaptureFixture[str]
) -> None:
    """So large that nothing on the way can have taken all of it in before."""
    remember(door.agent, *(f"{number} {canary('long')} {'x' * 9_000}" for number in range(4 * BATCH)))
    headers = {"Authorization": f"Bearer {door.token}"}
    got = 0
    with serving(web) as site, httpx.stream("GET", f"{site.url}/api/v1/export", headers=headers) as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            for piece in answer.iter_bytes():
                if not got:
                    revoke(door)
                got += len(piece)
    assert got < 4 * BATCH * 9_000
    assert_nowhere("".join(capfd.readouterr()).encode(), "what was logged")
