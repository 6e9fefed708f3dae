"""What is stated of the installation's keys: the first of them begin the log, and later ones follow each other."""

from __future__ import annotations

import uuid

from app.extensions import now
from app.models.appending import append_statement
from app.models.base import insert_rows, iso
from app.models.pending_leaves import PendingLeaf
from app.models.statement import StatementKind
from app.models.statement_log import statement_log
from app.silo import MasterKey
from app.silo.notes import SigningKey, sign_note
from app.silo.statements import STATEMENT, compose_text


def begin_log(key: MasterKey) -> None:
    """The first leaf of a new installation: its UUID and its first keys, signed by them. Within `writing()`."""
    installation = str(uuid.uuid4())
    signing = key.installation_key(installation)
    subject = f"master:{key.fingerprint}"
    said = {"installation": installation, "kind": "master-key", "account": None, "agent": None, "time": iso(now())}
    said |= {"subject": subject, "previous": None} | _key_body(key, signing)
    note = sign_note(compose_text(STATEMENT, said), signing)
    leaf = PendingLeaf(StatementKind.MASTER_KEY, subject, None, None, note, None, None)
    insert_rows([leaf.row_at(0)])


def state_next_key(new: MasterKey) -> None:
    """Append that another master key follows, signed by both. What is signed after this is signed by the new one."""
    log = statement_log()
    signing = new.installation_key(log.installation)
    body = _key_body(new, signing) | {"previous": log.keys.verifier.public.hex()}
    append_statement(StatementKind.MASTER_KEY, f"master:{new.fingerprint}", body, cosigners=(signing,))


def _key_body(key: MasterKey, signing: SigningKey) -> dict[str, str]:
    """What a statement says of a master key: its own public half, and that of the installation key."""
    return {"public_key": key.public.hex, "signing_key": signing.verifier.public.hex()}
