"""What a refusal says in its headers, by whichever door it leaves."""

from __future__ import annotations

from app.api.caller import Unauthorized
from app.api.throttle import TooManyRequests
from app.errors import WhetstoneError


def headers_of(error: WhetstoneError) -> dict[str, str]:
    """How to come in, and when to try again."""
    if isinstance(error, Unauthorized):
        return {"WWW-Authenticate": 'Bearer realm="whetstone"'}
    if isinstance(error, TooManyRequests):
        return {"Retry-After": str(error.retry_after)}
    return {"Retry-After": "1"} if error.http_status == 503 else {}
