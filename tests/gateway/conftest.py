"""A web process on a real socket, and peers that send what they like, as slowly as they like."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
from flask import Flask

from app.gateway.protocol import Deadlines
from tests.api.conftest import Door, open_door
from tests.support.pages import Site, serving
from tests.views.conftest import Browser, browser

LONG = Deadlines(head=600, body=600, lingering=600, reading=600)
SHORT = Deadlines(head=0.3, body=0.3, lingering=0.3, reading=0.3)


@dataclass
class Peer:
    """One connection of somebody who need not behave."""

    socket: socket.socket

    def send(self, *pieces: bytes) -> None:
        """What the server has closed already takes nothing more."""
        with suppress(OSError):
            for piece in pieces:
                self.socket.sendall(piece)

    def answer(self, until: bytes = b"") -> bytes:
        """All that comes until `until`, or until the server closes. Raises TimeoutError where it does neither."""
        got = b""
        with suppress(ConnectionResetError):
            while not (until and until in got) and (piece := self.socket.recv(65536)):
                got += piece
        return got

    def is_closed(self) -> bool:
        """Whether the server closed it by now, having said whatever it said."""
        self.socket.setblocking(False)
        try:
            while self.socket.recv(65536):
                pass
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True


class Crowd:
    """Opens connections, and closes them all at the end."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._peers: list[Peer] = []

    def peer(self, *pieces: bytes) -> Peer:
        made = Peer(socket.create_connection(self._site.place, timeout=15))
        self._peers.append(made)
        made.send(*pieces)
        return made

    def close(self) -> None:
        for peer in self._peers:
            peer.socket.close()


@pytest.fixture
def admin(web: Flask) -> Browser:
    return browser(web, "admin")


@pytest.fixture
def door(web: Flask) -> Door:
    return open_door(web.test_client(), "ezra")


@pytest.fixture
def other(web: Flask) -> Door:
    return open_door(web.test_client(), "mina")


@pytest.fixture
def site(web: Flask) -> Iterator[Site]:
    """A site of much patience: what it closes it closes because there are too many."""
    with serving(web, deadlines=LONG) as made:
        yield made


@pytest.fixture
def hasty(web: Flask) -> Iterator[Site]:
    """A site of little patience."""
    with serving(web, deadlines=SHORT) as made:
        yield made


@pytest.fixture
def crowd(site: Site) -> Iterator[Crowd]:
    made = Crowd(site)
    yield made
    made.close()


@pytest.fixture
def hurried(hasty: Site) -> Iterator[Crowd]:
    made = Crowd(hasty)
    yield made
    made.close()
