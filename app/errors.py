"""Errors are sentences: what happened, and what one may do next. Every floor may raise them."""

from __future__ import annotations

import errno


class WhetstoneError(Exception):
    """Something was refused or could not be done."""

    code = "error"
    http_status = 400
    exit_status = 1
    outcome = ""
    """What became of the data, where the error says so itself."""

    def __init__(self, message: str = "", outcome: str = "") -> None:
        self.outcome = outcome or self.outcome
        message = message or (self.__doc__ or "").strip()
        super().__init__(f"{message} {self.outcome}".strip())

    @property
    def sentence(self) -> str:
        """The message for a person: never content of a memory."""
        return str(self)


class NotFound(WhetstoneError):
    """There is no such thing here."""

    code = "not_found"
    http_status = 404


class Invalid(WhetstoneError):
    """What was given can't be used."""

    code = "invalid"
    http_status = 422


class Refused(WhetstoneError):
    """A rule does not allow it."""

    code = "refused"
    http_status = 409
    exit_status = 3


class Misconfigured(WhetstoneError):
    """The configuration can't be used; nothing was started."""

    code = "misconfigured"
    http_status = 503


class Unavailable(WhetstoneError):
    """A part that is needed does not answer just now."""

    code = "unavailable"
    http_status = 503


class DiskFull(Unavailable):
    """The disk of the database is full; nothing was written. Free some space, then try again."""

    code = "disk_full"
    http_status = 507


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""No space left on the device, or in the user's share of it."""


def has_no_room(error: BaseException) -> bool:
    """Whether a file could not be written because its disk is full."""
    return isinstance(error, OSError) and error.errno in NO_ROOM
