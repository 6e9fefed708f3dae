"""Findings: what a look at one part came to, in words, with what to do; for `doctor` and the health page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from app.config import Settings
from app.errors import WhetstoneError
from app.extensions import db

OK, WARN, FAIL, SKIPPED = "ok", "warn", "fail", "skipped"


@dataclass(frozen=True)
class Finding:
    """`state` is ok, warn, fail or skipped; `fix` is what to do."""

    name: str
    state: str
    detail: str
    fix: str | None = None


@dataclass(eq=False)
class Trouble(Exception):
    """An examination found something, and what to do about it."""

    detail: str
    fix: str | None = None
    state: str = FAIL


@dataclass(frozen=True)
class CheckScope:
    """For whom is looked. With an `account_id` nothing is told of other accounts, nor of where things lie on the host.

    `wait` is how many seconds a part may take to answer.
    """

    settings: Settings
    account_id: int | None = None
    wait: float = 2.0


@dataclass(frozen=True)
class Check:
    """One part, and how to look at it: words where it is well, else `Trouble`. `needed` have to be well first."""

    name: str
    title: str
    examine: Callable[[CheckScope], str]
    needed: tuple[str, ...] = ()


def examine_parts(checks: Iterable[Check], scope: CheckScope) -> Iterator[Finding]:
    """Every finding as it is made. What needs another part is skipped where that is not well."""
    found: dict[str, Finding] = {}
    for check in checks:
        if any(found[each].state != OK for each in check.needed):
            found[check.name] = Finding(check.name, SKIPPED, "skipped: fix the problem above first")
        else:
            found[check.name] = _examine_part(check, scope)
        yield found[check.name]


def findings_as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """What programs rely on."""
    return {"ok": is_well(findings), "checks": [asdict(finding) for finding in findings]}


def is_well(findings: Iterable[Finding]) -> bool:
    return all(finding.state != FAIL for finding in findings)


def _examine_part(check: Check, scope: CheckScope) -> Finding:
    try:
        return Finding(check.name, OK, check.examine(scope))
    except Trouble as trouble:
        return Finding(check.name, trouble.state, trouble.detail, trouble.fix)
    except WhetstoneError as error:
        return Finding(check.name, FAIL, error.sentence)
    except (SQLAlchemyError, OSError) as error:
        db.session.rollback()
        return Finding(check.name, FAIL, f"It does not answer ({type(error).__name__}).")
