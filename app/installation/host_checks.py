"""What is looked at on this host: who could read what, the data dir, the disk, and the keys."""

from __future__ import annotations

import shutil
import stat
import time

from app.config import Settings
from app.extensions import now
from app.installation.findings import WARN, CheckScope, Trouble
from app.keys.escrow import last_backup
from app.keys.rotation import unfinished_rotation
from app.keys.shredding import is_due
from app.models.master_key import MasterKeyRow
from app.setup import load_master_key
from app.silo.notes import NoteVerifier
from app.silo.webkey import WebKey
from app.statements.web_keys import enrolled_web_keys
from app.values.plural import count_nouns

LITTLE_SPACE = 1_000_000_000
NO_SPACE = 100_000_000
"""Bytes free where the data is."""


def check_separation(scope: CheckScope) -> str:
    """What a web process that was taken over could read. Web and worker share a data dir where they are one user."""
    settings = scope.settings
    if not settings.master_key_path.exists():
        return "no master key is on this host: a web process here can't read it"
    here, enrolled = _public_web_key(settings), enrolled_web_keys()
    if here is None or (here not in enrolled and enrolled):
        return "the web processes that the worker listens to have another data dir than the master key"
    raise Trouble(
        "Web and worker run as one user here: processes of one user can read one another's files, so whoever takes "
        "over the web process can read every memory.",
        "Fine on a machine of your own. Else run `./whetstone web` as another user or on another host, with a data dir "
        "of its own: docs/operations.md, Several machines.",
        state=WARN,
    )


def check_web_keys(scope: CheckScope) -> str:
    settings = scope.settings
    if not settings.master_key_path.exists():
        here = _public_web_key(settings)
        if here is None:
            return "none has run here"
        return f"on the worker's host `./whetstone keys enroll --list` has to name {here.public.hex()}"
    enrolled = enrolled_web_keys()
    if not enrolled:
        fix = "Run `./whetstone keys web` on its host, then `./whetstone keys enroll KEY` here."
        raise Trouble("No web process is enrolled: what any of them signs is refused.", fix)
    return f"{count_nouns(len(enrolled), 'web process', 'web processes')} enrolled"


def _public_web_key(settings: Settings) -> NoteVerifier | None:
    """Of the web process of this data dir; None where there was none."""
    return WebKey.load_or_make(settings.web_key_path).verifier if settings.web_key_path.exists() else None


def check_private_folder(scope: CheckScope) -> str:
    settings = scope.settings
    if not settings.data.is_dir():
        raise Trouble(
            f"{settings.data} is not there.",
            "Run `./whetstone up` or `./whetstone db upgrade`, or set WHETSTONE_DATA_DIR.",
        )
    mode = stat.S_IMODE(settings.data.stat().st_mode)
    probe = settings.data / f".probe-{time.monotonic_ns()}"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        said = f"{settings.data} can't be written ({error.strerror})."
        raise Trouble(said, "Give its owner the right to.") from None
    if mode & 0o077:
        raise Trouble(f"Others may look into it (mode {mode:03o}).", f"chmod 700 {settings.data}", state=WARN)
    return "private and writable"


def check_disk_space(scope: CheckScope) -> str:
    data = scope.settings.data
    folder = next(each for each in (data, *data.parents) if each.is_dir())
    free = shutil.disk_usage(folder).free
    said = f"{free / 1e9:,.1f} GB free"
    if free < NO_SPACE:
        raise Trouble(said, "Free some space now: a full disk stops every change.")
    if free < LITTLE_SPACE:
        raise Trouble(said, "Free some space soon.", state=WARN)
    return said


def check_master_key(scope: CheckScope) -> str:
    key, path = load_master_key(scope.settings), scope.settings.master_key_path
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    if mode & 0o077:
        raise Trouble(f"Others may read it (mode {mode:03o}).", f"chmod 600 {path}", state=WARN)
    return f"{key.fingerprint} belongs to this database"


def check_backup(scope: CheckScope) -> str:
    """That a copy of the master key in use is kept, and that what was removed of keys is gone. Opens no key."""
    current = MasterKeyRow.current()
    if current is None:
        raise Trouble("There is no master key yet.", "Run `./whetstone up` or `./whetstone db upgrade`.")
    if unfinished_rotation():
        fix = "Run `./whetstone keys rotate` again: it goes on where it was."
        raise Trouble("A rotation of the master key was cut off.", fix, state=WARN)
    if is_due():
        fix = "A worker's upkeep cleans them each minute; `./whetstone keys check` says what it may lack."
        raise Trouble("Removed keys may still be found in the database's files.", fix, state=WARN)
    backup = last_backup(current.fingerprint)
    if backup is None:
        raise Trouble(
            "No backup of the master key is recorded: without this key, memories can't be decrypted.",
            "Run `./whetstone keys backup FILE` on the worker's host, and keep the file elsewhere.",
            state=WARN,
        )
    days = (now() - backup).days
    return f"the master key was backed up on {backup:%Y-%m-%d}, {count_nouns(days, 'day')} ago"
