"""The desk of an operator of many agents: what its pages and acts cost, in the server and in a real Chromium.

`python -m benchmarks.desk [--agents N] [--refinements N] [--failed N] [--database-url URL]`. A throw-away installation
is filled; each page is then asked for in turn, so that whatever else the machine does falls on all of them. Where a
limit is given, the exit status is 1 above it. Agents beyond those that failed are copies of one that was refined, with
no history.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROUNDS, CLICKS = 7, 9
CLICK_MS, BATCH_MS, PAGES_A_SECOND = 250, 2_000, 100
SORTED_AGENTS = ("name", "memory", "state", "last", "next")
SORTED_REFINEMENTS = ("started", "duration", "changes", "kept", "tokens", "cost")
LINKS = ("Agents", "Refinements", "Overview", "Exceptions", "Audit", "Settings")


def main() -> None:
    options = _options()
    if options.database_url:
        os.environ["WHETSTONE_TEST_DATABASE_URL"] = options.database_url
    with _installation(options) as (site, user):
        print(f"{'page':<42}{'ms':>8}{'max':>8}{'statements':>12}{'kB':>7}")
        _report_pages(site, user)
        good = [_report_rate(site, user), *_report_clicks(site, user), *_report_acts(site, user)]
    sys.exit(0 if all(good) else 1)


def _report_pages(site: Any, user: Any) -> None:
    """Whole answers of the web application, without the network; the first of each fills what a process keeps."""
    client = _client(site, user)
    paths = _paths()
    took: dict[str, list[float]] = {path: [] for path in paths}
    counted: dict[str, int] = {}
    weight: dict[str, int] = {}
    for turn in range(ROUNDS + 1):
        for path in paths:
            with _counting(site.flask) as statements:
                began = time.perf_counter()
                answer = client.get(path)
                seconds = time.perf_counter() - began
            assert answer.status_code == 200, (path, answer.status_code)
            if turn:
                took[path].append(seconds)
            counted[path], weight[path] = len(statements), len(answer.data)
    for path in paths:
        median, most = statistics.median(took[path]) * 1000, max(took[path]) * 1000
        print(f"{path:<42}{median:>8.1f}{most:>8.1f}{counted[path]:>12}{weight[path] / 1000:>7.1f}", flush=True)


def _paths() -> list[str]:
    agents = [f"/agents?sort={sign}{name}" for name in SORTED_AGENTS for sign in ("", "-")]
    refinements = [f"/refinements?sort={sign}{name}" for name in SORTED_REFINEMENTS for sign in ("", "-")]
    filtered = ["/agents?due=day", "/agents?outcome=failed", "/agents?query=99", "/refinements?needs=attention"]
    filtered += ["/refinements?status=failed", "/refinements?model=whetstone/offline"]
    settings = ["schedule", "health", "models", "limits", "users", "notices", "account"]
    single = ["/attention", "/audit", "/exceptions", "/agents/1", "/agents/1/settings", "/metrics"]
    return ["/", *agents, *refinements, *filtered, *(f"/settings/{name}" for name in settings), *single]


def _report_rate(site: Any, user: Any) -> bool:
    """Of one client that asks again and again, over HTTP."""
    import httpx

    name, _, value = site.cookie_of(user).partition("=")
    with httpx.Client(base_url=site.url, cookies={name: value}, headers={"Accept": "text/html"}) as client:
        client.get("/").raise_for_status()
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < 5:
            client.get("/").raise_for_status()
            count += 1
        rate = count / (time.perf_counter() - began)
    return _judge("overview, pages a second over HTTP", rate, PAGES_A_SECOND, at_least=True)


def _report_clicks(site: Any, user: Any) -> list[bool]:
    """From the click on a link of the top bar to the first paint of the page behind it."""
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import CHROMIUM

    took: dict[str, list[float]] = {name: [] for name in LINKS}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(base_url=site.url, bypass_csp=True)  # what waits there is evaluated
        name, _, value = site.cookie_of(user).partition("=")
        context.add_cookies([{"name": name, "value": value, "url": site.url}])
        page = context.new_page()
        page.goto("/")
        for turn in range(CLICKS + 1):
            for link in LINKS:
                milliseconds = _click(page, link)
                if turn:
                    took[link].append(milliseconds)
        browser.close()
    good = []
    for link, each in took.items():
        median = statistics.median(each)
        good.append(_judge(f"click to {link}, ms (at most {max(each):.0f})", median, CLICK_MS))
    return good


def _click(page: Any, name: str) -> float:
    note = "() => sessionStorage.setItem('at', performance.timeOrigin + performance.now())"
    page.evaluate(f"addEventListener('click', {note}, true)")
    before = page.evaluate("performance.timeOrigin")
    page.get_by_role("navigation").first.get_by_role("link", name=name, exact=True).click()
    painted = "performance.getEntriesByName('first-contentful-paint')[0]"
    page.wait_for_function(f"performance.timeOrigin !== {before!r} && document.readyState === 'complete' && {painted}")
    at = "performance.timeOrigin + " + painted + ".startTime - Number(sessionStorage.getItem('at'))"
    return float(page.evaluate(at))


def _report_acts(site: Any, user: Any) -> list[bool]:
    """Each with the processor time that it took of this process, which is all of it but the database's server."""
    client, form = _client(site, user), {"csrf_token": _token(site)}
    good = []
    for act in ("pause", "resume"):
        answer = _report_post(f"{act} all that match", client, f"/agents/{act}", form | {"all": "1"}, good)
        undo = re.findall(r"/agents/acts/[0-9a-f-]{36}/undo", client.get(answer.headers["Location"]).text)
    _report_post("undo of that", client, undo[-1], form, good)
    with patch("tasks.refinement.send_task"):  # there is no broker, which each would log
        _report_post("retry all that failed", client, "/refinements/retry", form | {"all": "1", "status": "failed"})
    return good


def _report_post(name: str, client: Any, path: str, form: dict[str, str], good: list[bool] | None = None) -> Any:
    began, worked = time.perf_counter(), time.process_time()
    answer = client.post(path, data=form)
    took, worked = (time.perf_counter() - began) * 1000, (time.process_time() - worked) * 1000
    assert answer.status_code == 303, (path, answer.status_code, answer.text[:300])
    is_good = _judge(f"{name}, ms (processor: {worked:.0f})", took, None if good is None else BATCH_MS)
    if good is not None:
        good.append(is_good)
    return answer


def _judge(name: str, found: float, limit: float | None = None, *, at_least: bool = False) -> bool:
    said = "" if limit is None else f"  ({'≥' if at_least else '≤'} {limit:,})"
    print(f"{name:<42}{found:>8.1f}{said}", flush=True)
    return limit is None or (found >= limit if at_least else found <= limit)


def _client(site: Any, user: Any) -> Any:
    client = site.flask.test_client()
    name, _, value = site.cookie_of(user).partition("=")
    client.set_cookie(name, value, domain="localhost")
    return client


def _token(site: Any) -> str:
    from itsdangerous import URLSafeTimedSerializer

    made = URLSafeTimedSerializer(str(site.flask.secret_key), salt="wtf-csrf-token").dumps("raw")
    return made if isinstance(made, str) else made.decode()


@contextmanager
def _counting(flask: Any) -> Iterator[list[str]]:
    from sqlalchemy import event

    from app.extensions import db

    found: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found.append(statement)

    with flask.app_context():
        engine = db.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)


@contextmanager
def _installation(options: argparse.Namespace) -> Iterator[tuple[Any, Any]]:
    from app import Part, create_app
    from app.extensions import db
    from app.models.user import ADMIN
    from tests.support.databases import Template
    from tests.support.factories import make_user
    from tests.support.pages import serving

    with tempfile.TemporaryDirectory() as folder:
        template = Template(Path(folder) / "template")
        copy = Path(folder) / "data"
        copy.mkdir()
        with template.copy(copy) as settings:
            app = create_app(settings)
            app.extensions["master_key"] = template.master_key
            with app.app_context():
                user = make_user("admin@example.org", ADMIN)
                _fill(options)
                sizes = f"{options.agents:,} agents, {options.refinements:,} refinements, {options.failed:,} failed"
                print(f"{db.engine.dialect.name}: {sizes}")
                quiet = settings.model_copy(update={"log_level": "ERROR"})
                with serving(create_app(quiet, part=Part.WEB), keep_alive=15) as site:
                    yield site, user
                db.session.remove()
                db.engine.dispose()
        template.drop()


def _fill(options: argparse.Namespace) -> None:
    """Some that failed and wait for attention, and one that was refined, by the doors of the product; copies of it."""
    from app.extensions import writing
    from app.models import WORKER, Agent, Refinement, Status
    from tests.support.factories import begin, make_agent, remember

    for number in range(options.failed):
        agent = make_agent(f"agent {number:05}")
        remember(agent, "Ann likes tea.", "Ann likes tea, and milk.")
        run = begin(agent)
        with writing():
            row = Refinement.lock(run.refinement.id)
            reason = f"The model openai/big failed (HTTP {500 + number % 3})"
            row.end(Agent.lock(agent.id), Status.FAILED, reason=f"{reason}.", failure=reason, by=WORKER)
    model = make_agent(f"agent {options.failed:05}")
    remember(model, "Ann likes tea.", "Ann likes tea, and milk.")
    done = begin(model)
    done.tool.execute("complete", summary="Nothing to do.")
    _copy_agents(model.id, options.failed + 1, options.agents)
    _copy_refinements(done.refinement.id, options.failed + 1, options.refinements)


def _copy_agents(agent_id: int, first: int, last: int) -> None:
    """With a memory and keys each, other sizes, and other times of their last refinement."""
    import uuid

    from sqlalchemy import select

    from app.extensions import now, writing
    from app.models import Agent, Memory
    from app.models.key import AgentKey
    from app.models.memory_numbers import reserve_memory_ids

    with writing() as session:
        like = _columns(session, Agent, Agent.id == agent_id)
        memory = _columns(session, Memory, Memory.agent_id == agent_id)
        copies = []
        for number in range(first, last):
            at = now() - timedelta(hours=number % 300, seconds=number)
            other = {"uuid": str(uuid.uuid4()), "name": f"agent {number:05}", "core_token_usage": number % 9_000}
            chain = {"audit_sequence": 0, "audit_head": b"", "logged_sequence": 0}
            copies.append(like | other | chain | {"last_refinement_at": at, "last_attempt_at": at})
            del copies[-1]["id"]
        made = session.scalars(Agent.__table__.insert().returning(Agent.__table__.c.id), copies).all()
        numbers = reserve_memory_ids(len(made))
        pairs = zip(numbers, made, strict=True)
        session.execute(Memory.__table__.insert(), [memory | {"id": n, "agent_id": a} for n, a in pairs])
        columns = [each for each in AgentKey.__table__.c if each.name != "id"]
        found = session.execute(select(*columns).where(AgentKey.agent_id == agent_id)).mappings().all()
        session.execute(AgentKey.__table__.insert(), [dict(key) | {"agent_id": a} for a in made for key in found])


def _copy_refinements(refinement_id: str, first: int, last: int) -> None:
    """Of all the copied agents in turn, over 90 days, of any size and end."""
    import uuid

    from sqlalchemy import select

    from app.extensions import now, writing
    from app.models import Agent, Refinement, Status

    ends = (Status.COMPLETED, Status.COMPLETED, Status.COMPLETED, Status.DECLINED, Status.ROLLED_BACK, Status.STOPPED)
    with writing() as session:
        like = _columns(session, Refinement, Refinement.id == refinement_id)
        agents = session.scalars(select(Agent.id).order_by(Agent.id)).all()[first:]
        copies = []
        for number in range(first, last):
            began = now() - timedelta(days=90 * (last - number) / last)
            times = {"requested_at": began, "started_at": began, "ended_at": began + timedelta(seconds=number % 600)}
            sizes = {"mutations": number % 11, "prompt_tokens": number % 7_777, "cost_usd": number % 97}
            named = {"id": str(uuid.uuid4()), "agent_id": agents[number % len(agents)] if agents else like["agent_id"]}
            copies.append(like | times | sizes | named | {"status": ends[number % len(ends)]})
        session.execute(Refinement.__table__.insert(), copies)


def _columns(session: Any, model: Any, *conditions: Any) -> dict[str, Any]:
    from sqlalchemy import select

    return dict(session.execute(select(model.__table__).where(*conditions).limit(1)).mappings().one())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--refinements", type=int, default=10_000)
    parser.add_argument("--failed", type=int, default=500)
    parser.add_argument("--database-url", default="", help="a PostgreSQL server; without one, SQLite")
    return parser.parse_args()


if __name__ == "__main__":
    main()
