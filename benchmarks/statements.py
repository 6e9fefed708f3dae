"""What the log of statements costs: a save through the agents' door, and a start with 100,000 statements in the log.

`python -m benchmarks.statements [--against FOLDER]`. FOLDER is a checkout of a commit from before the log; saves are
measured in both, in turn, and the ratio of the medians is printed. The start is measured with a short log and a long
one: the process opens the log, checks it against its copy, and replays one agent.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flask import Flask

from app import Part, create_app
from app.extensions import db, writing
from app.models import COMMAND_LINE, Agent
from tests.support.databases import Template
from tests.support.factories import make_agent

SAVES = 300
TURNS = 3
MOST_SAVE = 1.2
STATEMENTS = 100_000
AGENTS = 1_000
MOST_MORE_SECONDS = 1.0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--against", type=Path, help="another checkout")
    options.add_argument("--measure", action="store_true", help="print one measurement as JSON")
    chosen = options.parse_args()
    if chosen.measure:
        with _installation() as (app, web):
            print(json.dumps(_time_saves(app, web)))
        return
    here, mine, others = Path(__file__).resolve().parent.parent, list[float](), list[float]()
    for _ in range(TURNS):
        mine.append(_measure_in(here))
        others += [_measure_in(chosen.against.resolve())] if chosen.against else []
    now = statistics.median(mine)
    line = f"save through the door: {now * 1000:.2f} ms"
    if others:
        before = statistics.median(others)
        line += f", before {before * 1000:.2f} ms, ratio {now / before:.2f} (at most {MOST_SAVE})"
    print(line)
    _compare_starts()


def _measure_in(folder: Path) -> float:
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--measure"]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: float = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@contextmanager
def _installation() -> Iterator[tuple[Flask, Flask]]:
    """The command line's app, in its context, and the web process's."""
    with tempfile.TemporaryDirectory() as folder:
        template = Template(Path(folder) / "template")
        copy = Path(folder) / "data"
        copy.mkdir()
        with template.copy(copy, api_rate="1000000/minute") as settings:
            app, web = (create_app(settings, part=part) for part in (Part.COMMAND_LINE, Part.WEB))
            app.extensions["master_key"] = template.master_key
            with app.app_context():
                yield app, web
                db.session.remove()
                db.engine.dispose()
            with web.app_context():
                db.engine.dispose()
        template.drop()


def _time_saves(app: Flask, web: Flask) -> float:
    """The median of saves that each come as a request of their own."""
    agent = make_agent()
    headers = {"Authorization": f"Bearer {_issue(agent)}"}
    client, spent = web.test_client(), list[float]()
    for number in range(SAVES):
        body = {"content": f"Number {number}: the price of tin.", "type": "core"}
        started = time.perf_counter()
        answer = client.post("/api/v1/memories", json=body, headers=headers)
        spent.append(time.perf_counter() - started)
        if answer.status_code != 201:
            raise RuntimeError(answer.get_data(as_text=True))
    return statistics.median(spent)


def _issue(agent: Agent) -> str:
    """A token with its keys, in this checkout or in one from before tokens were stated."""
    try:
        from app.keys.agent_keys import open_keys, share_with_tokens
    except ImportError:
        from app.models import open_keys
        from app.models.key import share_with_tokens
    with writing():
        locked = Agent.lock(agent.id)
        try:
            from app.keys.tokens import issue_token
        except ImportError:
            from app.models import AgentToken

            token = AgentToken.issue(locked, by=COMMAND_LINE)
        else:
            token = issue_token(locked, by=COMMAND_LINE)
        db.session.flush()
        share_with_tokens(locked, open_keys(locked))
    return str(token)


def _compare_starts() -> None:
    from app.models.statement_log import current_of, statement_log

    def start(app: Flask, agent: Agent) -> float:
        app.extensions.pop("statement_log", None)
        db.session.rollback()
        started = time.perf_counter()
        statement_log().catch_up()
        current_of(agent.id, agent.uuid)
        return time.perf_counter() - started

    with _installation() as (app, _):
        agent = make_agent()
        short = statistics.median(start(app, agent) for _ in range(5))
        _fill_log(agent)
        long = statistics.median(start(app, agent) for _ in range(5))
        size = statement_log().copy.size
    print(f"a start with {size:,} statements: {long:.3f} s, {long - short:.3f} s more (at most {MOST_MORE_SECONDS})")


def _fill_log(agent: Agent) -> None:
    """As many statements as wanted, of many agents, of which this one has its share."""
    from app.models.declaring import declare
    from app.models.statement import StatementKind

    others = [make_agent(f"agent {number}") for number in range(20)]
    for first in range(0, STATEMENTS, 5_000):
        with writing():
            locked = [Agent.lock(each.id) for each in (agent, *others)]
            for number in range(first, first + 5_000):
                whose = locked[0] if number % AGENTS == 0 else locked[1 + number % len(others)]
                said = {"granted": True, "by_token": None, "question": "0" * 64, "reply": "0" * 64}
                declare(StatementKind.CONSENT, whose, f"refinement:{number:036}", said)


if __name__ == "__main__":
    main()
