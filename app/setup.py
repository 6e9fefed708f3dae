"""Brings an installation to life: the database's version, the master key pair, the first account and its owner."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
from flask import Flask
from sqlalchemy import Text, cast, inspect, select, text
from sqlalchemy.exc import OperationalError

from app import Part, create_app, security
from app.config import Settings, load_settings
from app.errors import Misconfigured
from app.extensions import db, init_migrations, writing
from app.keys.escrow import reveal_words
from app.models import SETUP, Account, AgentKey, InstallationMark, Memory, User
from app.models.key_statements import begin_log
from app.models.master_key import MasterKeyRow
from app.models.statement_log import claimed_installation, statement_log
from app.models.user import OWNER, SITE_ADMIN
from app.processes.quickcheck import PreparedInstallation, revision_ids
from app.silo import KeyFileError, KeyRing, MasterKey
from app.silo.webkey import WebKey
from app.statements.web_keys import enroll_web_key, enrolled_web_keys

FIRST_ACCOUNT = "Home"
FIRST_EMAIL = "admin@whetstone.local"

log = structlog.get_logger(__name__)


def prepare_installation(
    settings: Settings, *, with_admin: bool = True, with_words: bool = False
) -> PreparedInstallation:
    """Everything that the web process, workers and beat need before they start. Safe to repeat.

    `with_admin`: False for those who run the parts apart and make their users themselves. `with_words`: somebody is
    there to write down the recovery words of a master key that is made now.
    """
    app = create_app(settings)
    with _brief_context(app):
        check_data_dir(settings)
        before = _database_version()
        upgrade_database(app, before)
        made = ensure_master_key(settings)
        app.extensions["master_key"] = load_master_key(settings)
        trust_this_machine(settings)
        flag_immutable_memories(settings)
        email = password = ""
        if with_admin:
            email, password = ensure_first_admin(app)
        else:
            ensure_first_account()
        words = _recovery_words() if made and with_words else ""
        signed_by = statement_log().keys.verifier.fingerprint
    key_file = str(settings.master_key_path) if made else ""
    return PreparedInstallation(email, password, key_file, signed_by, words, before, revision_ids()[-1])


def make_if_new(settings: Settings) -> bool:
    """Bring an installation to life where the database is empty or not there yet; returns whether it was."""
    with _brief_context(create_app(settings)):
        check_data_dir(settings)
        is_new = _database_version() is None
    if is_new:
        prepare_installation(settings, with_admin=False)
    return is_new


def ready_app(part: Part, settings: Settings | None = None, *, with_key: bool = True) -> Flask:
    """An app whose database is of this version and, where its part may hold it, with the master key checked.

    The web process makes what it keeps on its own disk; else nothing is written. Without the key only what brings it
    back can be done. Raises Misconfigured, with what to do.
    """
    app = create_app(settings or load_settings(), part=part)
    with _brief_context(app):
        check_version()
        if with_key and part in (Part.WORKER, Part.COMMAND_LINE):
            app.extensions["master_key"] = load_master_key(app.extensions["settings"])
        if part is Part.WEB:
            trust_on_first_use(app.extensions["settings"])
    return app


@contextmanager
def _brief_context(app: Flask) -> Iterator[None]:
    """Its context, for a look or a preparation; no connection stays open behind it, whatever happens."""
    with app.app_context():
        try:
            yield
        finally:
            db.session.remove()
            db.engine.dispose()


def check_data_dir(settings: Settings) -> None:
    """Make the data dir, private to its owner. Raises Misconfigured when it can't be written."""
    try:
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = settings.data / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise Misconfigured(
            f"The data directory {settings.data} can't be written ({error.strerror}). Nothing was started. "
            "Choose another one with --data-dir or WHETSTONE_DATA_DIR."
        ) from None


def upgrade_database(app: Flask, version: str | None) -> None:
    """Bring the database of that version to this one. Raises Misconfigured for one of a newer version."""
    if version == revision_ids()[-1]:
        return
    _refuse_other(version)
    from flask_migrate import upgrade

    init_migrations(app)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    upgrade()


def check_version() -> None:
    """Raises Misconfigured unless the database is of exactly this version."""
    version = _database_version()
    if version == revision_ids()[-1]:
        return
    _refuse_other(version)
    raise Misconfigured(
        "The database is not of this version yet: run `./whetstone db upgrade` first (or `./whetstone up`)."
    )


def load_master_key(settings: Settings) -> MasterKey:
    """The private key, checked against the database. Raises KeyFileError; writes nothing."""
    row = MasterKeyRow.current()
    if row is None:
        raise KeyFileError("There is no master key yet: run `./whetstone db upgrade` first (or `./whetstone up`).")
    return KeyRing(settings.master_key_path).find(row.fingerprint)


def ensure_master_key(settings: Settings) -> bool:
    """Make the key pair at first start only. Returns whether it was made. Raises KeyFileError."""
    if MasterKeyRow.current() is not None:
        load_master_key(settings)
        return False
    if db.session.scalar(select(AgentKey.id).limit(1)) is not None:
        raise KeyFileError("The database has sealed keys but no master key; restore its backup as a whole.")
    path = settings.master_key_path
    made = not path.exists()
    key = MasterKey.generate() if made else _load_unused(path)
    if made:
        key.save(path)
    with writing():
        if MasterKeyRow.current() is None:
            MasterKeyRow.register(key.public)
            begin_log(key)
    return made


def trust_this_machine(settings: Settings) -> None:
    """Let the web process of this data dir know the installation, and the worker know the web process."""
    known = statement_log()
    known.catch_up()
    if not settings.pinned_path.exists():
        known.keys.pin.save(settings.pinned_path)
    is_new = not settings.web_key_path.exists()
    key = WebKey.load_or_make(settings.web_key_path).verifier
    if is_new or not enrolled_web_keys():  # one that was dismissed here, where others are enrolled, stays dismissed
        enroll_web_key(key.public.hex())


def trust_on_first_use(settings: Settings) -> None:
    """Give a web process on a host of its own a key, and let it take the installation for what the database now says.

    From then on a database that says otherwise is refused. Raises Misconfigured.
    """
    check_data_dir(settings)
    WebKey.load_or_make(settings.web_key_path)
    if settings.pinned_path.exists():
        return
    pin = claimed_installation()
    with contextlib.suppress(FileExistsError):  # another web process of this host was quicker
        pin.save(settings.pinned_path)
    log.warning(
        "installation trusted on first use: compare the fingerprint with `./whetstone keys check` on the worker's host",
        installation=pin.installation,
        fingerprint=pin.verifier.fingerprint,
    )


def _recovery_words() -> str:
    """The recovery words of the key that was made just now, recorded as shown."""
    return " ".join(reveal_words(by=SETUP))


def _load_unused(path: Path) -> MasterKey:
    """A key that somebody put there before the first start. Raises KeyFileError."""
    try:
        return MasterKey.load(path)
    except KeyFileError as error:
        raise KeyFileError(
            f"{error.sentence} But nothing is sealed in this new database yet: you can also move that file away and "
            "start again, which makes a new key."
        ) from None


def ensure_first_admin(app: Flask) -> tuple[str, str]:
    """Make the first account and its owner. Returns address and password, or blanks when somebody is there."""
    if db.session.scalar(select(User.id).limit(1)) is not None:
        return "", ""
    security.init_app(app, views=False)
    password = secrets.token_urlsafe(12)
    with writing():
        security.create_user(_first_account(), FIRST_EMAIL, password, roles=(OWNER, SITE_ADMIN), by=SETUP)
    return FIRST_EMAIL, password


def ensure_first_account() -> None:
    """Make the first account where there is none, for users that an operator creates."""
    if db.session.scalar(select(Account.id).limit(1)) is None:
        with writing():
            _first_account()


def flag_immutable_memories(settings: Settings) -> None:
    """Bring the flag `immutable` in line after the operator changed the immutable tags."""
    wanted = ",".join(sorted(settings.immutable_tags))
    if InstallationMark.read("immutable_tags") == wanted:
        return
    with writing():
        for memory in db.session.scalars(select(Memory).where(cast(Memory.tags, Text) != "[]")):
            memory.immutable = any(tag in settings.immutable_tags for tag in memory.tags)
        InstallationMark.write("immutable_tags", wanted)


def _first_account() -> Account:
    found = db.session.scalar(select(Account).order_by(Account.id).limit(1))
    if found is not None:
        return Account.lock(found.id)
    return Account.create(FIRST_ACCOUNT)


def _database_version() -> str | None:
    """The Alembic revision, or None for an empty database. Raises Misconfigured when none answers."""
    try:
        with db.engine.connect() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return None
            version: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
            return version
    except OperationalError as error:
        reason = str(error.orig).splitlines()[0] if error.orig else "no answer"
        raise Misconfigured(f"The database can't be opened: {reason}. Nothing was started.") from None


def _refuse_other(version: str | None) -> None:
    if version is None or version in revision_ids():
        return
    if version < revision_ids()[0]:
        raise Misconfigured(
            f"The database was made by a state of Whetstone before its first release ({version}), whose data is not "
            "carried over. Nothing was changed: start with another WHETSTONE_DATA_DIR or DATABASE_URL."
        )
    raise Misconfigured(
        f"The database is of a newer version ({version}) than this Whetstone ({revision_ids()[-1]}). "
        "Nothing was changed: upgrade Whetstone, or use the backup from before."
    )
