"""The master key: the public halves that the database knows, and the private one where this process may hold it."""

from __future__ import annotations

from flask import current_app
from sqlalchemy import LargeBinary, String, select, text
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import Unavailable
from app.extensions import db, is_sqlite, now
from app.models.base import Identity, Model, Moment
from app.silo import KeyRing, MasterKey, MasterPublicKey

_SEALING = 0x57E8
_WHILE_SEALING = text("SELECT pg_advisory_xact_lock_shared(:number)").bindparams(number=_SEALING)
_NOBODY_SEALING = text("SELECT pg_advisory_xact_lock(:number)").bindparams(number=_SEALING)


class MasterKeyRow(Model):
    """The public half of a master key pair. The newest that is not retired is the one to seal to."""

    __tablename__ = "master_keys"

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(16), unique=True)
    public: Mapped[bytes] = mapped_column(LargeBinary(32))
    created_at: Mapped[Moment]
    retired_at: Mapped[Moment | None]

    @classmethod
    def current(cls) -> MasterKeyRow | None:
        return db.session.scalar(select(cls).where(cls.retired_at.is_(None)).order_by(cls.id.desc()).limit(1))

    @classmethod
    def register(cls, public: MasterPublicKey) -> MasterKeyRow:
        row = cls(fingerprint=public.fingerprint, public=public.raw, created_at=now())
        db.session.add(row)
        return row


def master_key(fingerprint: str | None = None) -> MasterKey:
    """The private master key of this process; by its fingerprint, also one that a rotation made or left meanwhile.

    Raises Unavailable in a process that holds none, such as the web's; KeyFileError where the other one is not here.
    """
    key = current_app.extensions.get("master_key")
    if not isinstance(key, MasterKey):
        raise Unavailable("This process does not hold the master key; only the worker and the command line do.")
    if fingerprint is None or fingerprint == key.fingerprint:
        return key
    others: dict[str, MasterKey] = current_app.extensions.setdefault("other_master_keys", {})
    if fingerprint not in others:
        others[fingerprint] = key_ring().find(fingerprint)
    return others[fingerprint]


def holds_master_key() -> bool:
    """Whether this process may make statements: the worker and the command line."""
    return "master_key" in current_app.extensions


def key_ring() -> KeyRing:
    """The master keys' files on this machine."""
    return KeyRing(current_app.extensions["settings"].master_key_path)


def seal_for_now() -> None:
    """Before the key to seal to is looked up: a rotation waits for the end of this transaction.

    On PostgreSQL by an advisory lock, shared until then; SQLite has one writer.
    """
    if not is_sqlite(db.session()):
        db.session.execute(_WHILE_SEALING)


def wait_until_nobody_seals() -> None:
    """Until the end of this transaction nobody seals to any master key, and what they sealed before is seen."""
    if not is_sqlite(db.session()):
        db.session.execute(_NOBODY_SEALING)
