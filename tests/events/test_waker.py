"""A web process in which many requests write: the streams are woken by few messages, and none waits for the broker."""

from __future__ import annotations

import threading

import pytest
from flask import Flask
from redis import ConnectionError as BrokerAway

from app.events import broker
from app.events.broker import StreamWaker
from tests.support.processes import wait_for


class Publisher:
    """In place of the broker's client: its first message takes until it `may_go_on`, the second one fails."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.may_go_on = threading.Event()

    def publish(self, _channel: str, message: str) -> None:
        self.sent.append(message)
        if len(self.sent) == 1:
            self.may_go_on.wait(30)
        if len(self.sent) == 2:
            raise BrokerAway


def test_news_in_quick_succession_are_one_message_an_account(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = Publisher()
    monkeypatch.setattr(broker, "broker_client", lambda: publisher)
    StreamWaker(app).start()
    wake = app.extensions["wake_streams"]

    wake(1, 1)
    wait_for(lambda: publisher.sent)
    for event_id in range(2, 50):
        wake(1, event_id)
        wake(2, 100 + event_id)
    publisher.may_go_on.set()
    wait_for(lambda: len(publisher.sent) == 3)
    wake(1, 50)

    wait_for(lambda: len(publisher.sent) == 4)
    assert publisher.sent == ["1:1", "1:49", "2:149", "1:50"]
