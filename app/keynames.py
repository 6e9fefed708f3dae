"""Names of environment variables that may hold a model's key: what an admin names goes to the address that he names.

The operator lists them in WHETSTONE_API_KEY_ENVS; unless he does, a name must look like a model's key.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,119}")

_NEVER = re.compile(
    r"WHETSTONE_.*|DATABASE_.*|REDIS_.*|CELERY_.*|FLASK_.*|PG.*|LD_.*|PYTHON.*|SSH_.*|XDG_.*|LC_.*"
    r"|PATH|HOME|USER|LOGNAME|SHELL|PWD|OLDPWD|HOSTNAME|LANG|TZ|TERM|TMPDIR|MAIL|DISPLAY",
    re.IGNORECASE,
)
"""Of Whetstone itself, of its database and broker, and of the system: not even where the operator lists them."""

_LIKE_A_KEY = re.compile(r".*(_KEY|_APIKEY|_API_TOKEN)|HF_TOKEN", re.IGNORECASE)
_CREDENTIAL = re.compile(r"(.*_)?(KEY|APIKEY|TOKEN|SECRET|CREDENTIALS|PASSWORD|JWT)|AWS_(?!REGION).*", re.IGNORECASE)

_OF_SOMETHING_ELSE = {"AWS", "SECRET", "PRIVATE", "MASTER", "SESSION", "SIGNING", "ENCRYPTION"}


def is_possible(name: str) -> bool:
    """Whether the operator may list it at all."""
    return bool(_NAME.fullmatch(name)) and not _NEVER.fullmatch(name)


def may_hold_a_key(name: str, listed: tuple[str, ...] | None) -> bool:
    """Whether an agent may be given this variable's value as its key. `listed` None: the operator listed nothing."""
    if not is_possible(name):
        return False
    if listed is not None:
        return name in listed
    return bool(_LIKE_A_KEY.fullmatch(name)) and not _OF_SOMETHING_ELSE & set(name.upper().split("_"))


def is_like_a_key(name: str) -> bool:
    """Whether a provider of models may take its value for a credential: kept from processes that ask no model."""
    return is_possible(name) and bool(_CREDENTIAL.fullmatch(name))
