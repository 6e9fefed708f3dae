"""What anybody may know of this installation: the public keys that its receipts and checkpoints are checked with."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify

from app.models.statement_log import statement_log
from app.statements.checkpointing import latest_checkpoint

PATH = "/.well-known/whetstone.json"
CACHED = "public, max-age=300"

blueprint = Blueprint("well_known", __name__)


@blueprint.get(PATH)
def installation() -> Response:
    """`from` is the place in the log of the first leaf that a key signs, `fingerprint` that of the newest one."""
    log, note = statement_log(), latest_checkpoint()
    log.catch_up()
    answer = jsonify(
        installation=log.installation,
        signing_keys=[{"vkey": key.vkey, "from": first} for first, key in log.keys.verifiers],
        fingerprint=log.keys.verifier.fingerprint,
        checkpoint=note.decode() if note else None,
    )
    answer.headers["Cache-Control"] = CACHED
    return answer
