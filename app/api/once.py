"""Doing a request once: sent again with the same Idempotency-Key, it gets the same answer and does nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from app.api.caller import Caller
from app.errors import DiskFull, WhetstoneError
from app.models import IdempotencyKey

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class KeptResponse:
    """A body of JSON. `is_repeated` where it was given before."""

    status: int
    body: str
    is_repeated: bool = False


def answer_once(caller: Caller, key: str, request: bytes, do: Callable[[], KeptResponse]) -> KeptResponse:
    """Do it, unless the same request was answered before. What is refused may be sent again.

    Raises Invalid, KeyReused, StillBeingDone, and whatever `do` refuses with. Where `do` breaks, nobody knows what was
    done: the key stays claimed. So it does where the answer can't be kept because the disk is full.
    """
    keys = caller.keys()
    earlier = IdempotencyKey.claim(caller.agent_id, key, keys.request_hash(request))
    if earlier is not None:
        return KeptResponse(earlier.status, earlier.reveal(keys), is_repeated=True)
    try:
        answer = do()
    except WhetstoneError:
        IdempotencyKey.give_back(caller.agent_id, key)
        raise
    try:
        IdempotencyKey.settle(caller.agent_id, key, status=answer.status, answer=answer.body, keys=keys)
    except DiskFull:  # what was done is done: to say that nothing was written would be untrue
        log.error("answer not kept", agent_id=caller.agent_id, error="DiskFull")  # noqa: TRY400
    return answer
