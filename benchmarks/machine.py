"""What a reader of old results has to know of the machine: no paths, no names of hosts."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from typing import Any

import psycopg
from sqlalchemy.engine import make_url

from app.config import ROOT


def machine_facts(database_url: str) -> dict[str, Any]:
    """`load` is the mean number of processes that wanted to run in the last minute: other work beside the run."""
    facts: dict[str, Any] = {
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "load": round(os.getloadavg()[0], 2),
    }
    return facts | ({"postgresql": _server_version(database_url)} if database_url else {})


def commit() -> dict[str, Any]:
    """Of the checkout; `changed` where files differ from it."""
    return {"commit": _git("rev-parse", "--short=12", "HEAD"), "changed": bool(_git("status", "--porcelain", "-uno"))}


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _server_version(database_url: str) -> str:
    url = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url) as connection:
        found = connection.execute("SHOW server_version").fetchone()
    return str(found[0]).split()[0] if found else ""
