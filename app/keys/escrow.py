"""Escrow: copies of the master key for the day when its file is lost, each recorded, and their way back."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from sqlalchemy import func, select

from app.errors import Refused
from app.extensions import db, writing
from app.keys.rotation import record_in_all_accounts
from app.models.audit import Action, AuditLog
from app.models.master_key import MasterKeyRow, key_ring, master_key
from app.models.user import Account
from app.silo import MasterKey
from app.statements.checkpointing import make_checkpoint
from app.values.actor import Actor


class AlreadyThere(Refused):
    """A file of that name is there already; it was left as it is."""

    code = "already_there"


def back_up(path: Path, passphrase: str, *, by: Actor) -> str:
    """Write the master key that is in use to a new file, under a passphrase; returns its fingerprint.

    Raises AlreadyThere, Invalid for a short passphrase, or KeyFileError; nothing is written or recorded then.
    """
    key, written = _in_use(), False
    try:
        with writing():
            _record_backup(key, "file", by)
            key.back_up(path, passphrase)
            written = True
    except FileExistsError:
        raise AlreadyThere(f"{path} is there already. A backup is never written over another file.") from None
    except BaseException:
        if written:
            path.unlink()
        raise
    make_checkpoint()
    return MasterKey.load(path, passphrase).fingerprint


def reveal_words(*, by: Actor) -> tuple[str, ...]:
    """The recovery words of the master key that is in use, to be shown once they are recorded as shown."""
    key = _in_use()
    with writing():
        _record_backup(key, "words", by)
    return key.words


def put_back(key: MasterKey) -> Path:
    """Write the file of a master key that was lost on this machine; returns where.

    Raises Refused when the key is none of this database's, and AlreadyThere.
    """
    known = db.session.scalars(select(MasterKeyRow).order_by(MasterKeyRow.id)).all()
    if key.fingerprint not in [row.fingerprint for row in known]:
        whose = ", ".join(row.fingerprint for row in known) or "none yet"
        raise Refused(
            f"That is the key {key.fingerprint}, which this database was never sealed to (its master keys: {whose}).",
            "Nothing was written.",
        )
    current = MasterKeyRow.current()
    ring = key_ring()
    with ring.held():
        try:
            return ring.put_back(key, is_current=current is not None and current.fingerprint == key.fingerprint)
        except FileExistsError as error:
            raise AlreadyThere(
                f"{error.filename2 or error.filename} is there already, and was left as it is. "
                "`./whetstone keys check` says whether it is the right key; if it is not, move it away first."
            ) from None


def last_backup(fingerprint: str) -> datetime | None:
    """When a copy of that key was last written, or its words shown, as far as it was recorded.

    Every account's log has it: the first one's is read, along its index.
    """
    first = select(func.min(Account.id)).scalar_subquery()
    query = select(AuditLog.at, AuditLog.data).where(
        AuditLog.account_id == first, AuditLog.action == Action.MASTER_KEY_BACKUP
    )
    entries = db.session.execute(query.order_by(AuditLog.at.desc(), AuditLog.id.desc()).limit(1000)).tuples()
    return next((at for at, data in entries if data.get("fingerprint") == fingerprint), None)


def _in_use() -> MasterKey:
    row = MasterKeyRow.current()
    return master_key(row.fingerprint if row else None)


def _record_backup(key: MasterKey, form: str, by: Actor) -> None:
    data = {"fingerprint": key.fingerprint, "form": form}
    record_in_all_accounts(Action.MASTER_KEY_BACKUP, by, lambda _: data)
