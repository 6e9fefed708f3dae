"""What a refusal says, in words and in its headers, by whichever door it leaves."""

from __future__ import annotations

from app.api.caller import TooManyRequests, Unauthorized
from app.errors import Invalid, NotFound, Refused, WhetstoneError
from app.models.statement_errors import AgentStopped, LogBroken
from app.statements.receipts import ReceiptPending

_UNTIL_SETTLED = (
    "Nothing of yours is opened, changed or asked until that is settled, and nothing is lost by it. It is none of your "
    "doing: tell whoever runs this server, and try again later."
)

SETTLED_AFTER = 60
"""Seconds after which to look again whether somebody has settled what stopped an agent."""


def sentence_of(error: WhetstoneError, *, reads_only: bool) -> str:
    """What was wrong, what is allowed and, of a call that could have written, that it wrote nothing.

    That holds for every refusal, because each rolls its transaction back; many say it in their own `outcome`.
    """
    if isinstance(error, AgentStopped):
        return f"What the database says about you is not what was signed: {error.what}. {_UNTIL_SETTLED}"
    if isinstance(error, LogBroken):
        return f"The log of what was signed is not the one that was seen before. {_UNTIL_SETTLED}"
    is_refusal = isinstance(error, Invalid | NotFound | Refused)
    return error.sentence if reads_only or error.outcome or not is_refusal else f"{error.sentence} Nothing was written."


def headers_of(error: WhetstoneError) -> dict[str, str]:
    """How to come in, and when to try again."""
    if isinstance(error, Unauthorized):
        return {"WWW-Authenticate": 'Bearer realm="whetstone"'}
    if isinstance(error, TooManyRequests | ReceiptPending):
        return {"Retry-After": str(error.retry_after)}
    if isinstance(error, AgentStopped | LogBroken):
        return {"Retry-After": str(SETTLED_AFTER)}
    return {"Retry-After": "1"} if error.http_status == 503 else {}
