"""An environment for each peer, made with uv from a lock with pinned versions and hashes, and kept for the next run.

    with Peer("flask-admin", "flask_admin_site.py", "--port", "0") as peer:
        peer.ask(do="start")["url"]

`environment_python(name)` makes the environment where it is missing, and gives its Python. Which versions are wanted
stands in `PEERS`; `python -m benchmarks.peers.environments` writes the locks anew from that, with all that they need.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from app.config import ROOT

HERE = Path(__file__).resolve().parent
LOCKS = HERE / "locks"
PEERS: Mapping[str, tuple[str, ...]] = {
    "sqlalchemy-continuum": ("sqlalchemy-continuum==2.0.0", "sqlalchemy==2.1.9", "psycopg[binary]==3.3.9"),
    "django-simple-history": ("django-simple-history==3.13.0", "django==5.2.19", "psycopg[binary]==3.3.9"),
    "mem0": ("mem0ai==2.2.1", "qdrant-client==1.20.0"),
    "langgraph": (
        *("langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2", "langgraph-checkpoint-postgres==3.2.0"),
        *("psycopg[binary,pool]==3.3.9", "numpy==2.4.6"),
    ),
    "flask-admin": (
        *("flask-admin==2.2.1", "flask==3.1.3", "flask-sqlalchemy==3.1.1", "psycopg[binary]==3.3.9"),
        *("uvicorn==0.54.0", "a2wsgi==1.10.10"),
    ),
}
QUIET = {
    **{"MEM0_TELEMETRY": "False", "ANONYMIZED_TELEMETRY": "False", "LANGSMITH_TRACING": "false"},
    **{"DO_NOT_TRACK": "1", "PYTHONSAFEPATH": "1"},
}
INSTALL_SECONDS = 300
STAMP = "lock.stamp"


class PeerUnavailable(Exception):
    """The peer can't be measured here; the text says why, for the table."""


def environment_python(name: str) -> Path:
    """The Python of the peer's environment, made now where it is missing. Raises PeerUnavailable."""
    lock = LOCKS / f"{name}.txt"
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = cache_folder() / f"{name}-{digest}"
    python = folder / "bin" / "python"
    with _alone(folder.with_suffix(".turn")):
        if not (folder / STAMP).exists():
            shutil.rmtree(folder, ignore_errors=True)
            _uv("venv", "--python", sys.executable, str(folder))
            _uv("pip", "sync", "--require-hashes", "--python", str(python), str(lock))
            (folder / STAMP).write_text(digest)  # last: an interrupted installation never counts
    return python


def cache_folder() -> Path:
    """Outside of the checkout, so that several checkouts share what is installed."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "whetstone" / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Peer:
    """A script of this folder that runs in a peer's environment, and answers each line of JSON with another."""

    def __init__(self, name: str, script: str, *arguments: str) -> None:
        command = [str(environment_python(name)), "-P", str(HERE / script), *arguments]
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "WHETSTONE_"))}
        self.name = name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            command, env=kept | QUIET, cwd=cache_folder(), text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, **question: Any) -> dict[str, Any]:
        """Raises PeerUnavailable with the last line that it wrote to its standard error, when it has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerUnavailable(f"{self.name} ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines()
        return said[-1][:200] if said else "it said nothing"

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def _uv(*arguments: str) -> None:
    command = [_find_uv(), "--quiet", *arguments]
    try:
        # uv reads settings from the folder that it runs in: not those of the checkout
        subprocess.run(command, cwd=cache_folder(), check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or ["it said nothing"]
        raise PeerUnavailable(f"uv {arguments[0]} failed: {said[-1].strip()[:200]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerUnavailable(f"uv {arguments[0]} failed: {type(error).__name__}") from error


def _find_uv() -> str:
    """uv on the PATH, else beside this Python, else one from the lock that the launcher uses, too."""
    beside = Path(sys.executable).with_name("uv")
    own = cache_folder() / "uv"
    found = shutil.which("uv") or next((str(each) for each in (beside, own / "bin" / "uv") if each.exists()), "")
    if found:
        return found
    for python in filter(None, (sys.executable, shutil.which("python3"))):
        if _has_pip(python):
            command = [python, "-m", "pip", "install", "--quiet", "--root-user-action=ignore", "--target", str(own)]
            lock = ("--require-hashes", "-r", str(ROOT / "requirements-uv.lock"))
            if subprocess.run([*command, *lock], check=False, capture_output=True).returncode == 0:
                return str(own / "bin" / "uv")
    raise PeerUnavailable("uv is not installed, and pip could not install it")


def _has_pip(python: str) -> bool:
    return subprocess.run([python, "-m", "pip", "--version"], check=False, capture_output=True).returncode == 0


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def write_locks() -> None:
    """Pin all that the versions in `PEERS` need, with hashes and no address."""
    for name, wanted in PEERS.items():
        given = cache_folder() / f"{name}.in"
        given.write_text("\n".join(wanted) + "\n")
        options = ("--universal", "--generate-hashes", "--no-emit-index-url", "--no-header", "--no-annotate")
        target = ("--python-version", "3.11", "-o", str(LOCKS / f"{name}.txt"))
        _uv("pip", "compile", *options, str(given), *target)
        print(f"{name}: {sum('==' in line for line in (LOCKS / f'{name}.txt').read_text().splitlines())} packages")


if __name__ == "__main__":
    write_locks()
