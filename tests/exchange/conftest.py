"""The clock and nothing else: reading a file needs no database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask

from tests.support.clock import FakeClock


@pytest.fixture
def bare(clock: FakeClock) -> Iterator[Flask]:
    made = Flask("bare")
    made.extensions["clock"] = clock
    with made.app_context():
        yield made
