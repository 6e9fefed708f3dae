"""How the installation is run, as the pages under /settings show it: schedule, limits, models in use, health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import current_app

from app.config import Settings
from app.crontabs import MAX_CRONTAB, check_crontab
from app.health import CachedAnswer
from app.installation.checks import ON_THE_PAGE
from app.installation.findings import CheckScope, Finding, examine_parts, findings_as_json, is_well
from app.installation.limits import LimitGroup, limits_as_json, read_limits
from app.installation.schedule import CrontabPlan, Schedule
from app.models import User
from app.models.user import SITE_ADMIN
from app.views.forms import Wrong
from app.vocabulary.term import Term

WAIT_SECONDS = 1.0
"""How long the health page waits for a broker, and for a worker's answer."""

KEPT_SECONDS = 3.0
"""Who loads the health page again within this time gets the same answer: looking costs a round to a worker."""

FINDINGS: Mapping[str, Term] = {
    "ok": Term("check", "OK", "ok"),
    "warn": Term("alert", "Look", "warn"),
    "fail": Term("ban", "Failed", "bad"),
    "skipped": Term("dashed", "Not checked", "neutral"),
}


class SchedulePage:
    """`tried` is a crontab that somebody wants to understand: `plan` is what it means, `error` why it is none."""

    def __init__(self, settings: Settings, user: User, tried: str | None = None) -> None:
        self.schedule = Schedule(settings, user.account_id)
        self.tried = None if tried is None else tried.strip()[: MAX_CRONTAB + 1]
        self.error, self.plan = "", None
        if self.tried:
            try:
                check_crontab(self.tried)
            except ValueError as error:
                self.error = f"This {error}."
            else:
                self.plan = CrontabPlan(self.tried, user.account_id)

    def as_json(self) -> dict[str, Any]:
        """Raises Wrong for a crontab that is none."""
        if self.error:
            raise Wrong({"crontab": self.error})
        return self.schedule.as_json() | ({"tried": self.plan.as_json()} if self.plan else {})


class LimitsPage:
    """What concerns the host alone, such as addresses and folders, is for its operator."""

    def __init__(self, settings: Settings, user: User) -> None:
        self.is_operator = user.may(SITE_ADMIN)
        self.groups: Sequence[LimitGroup] = read_limits(settings, with_host=self.is_operator)

    def as_json(self) -> dict[str, Any]:
        return limits_as_json(list(self.groups))


@dataclass(frozen=True)
class ShownFinding:
    title: str
    finding: Finding

    @property
    def term(self) -> Term:
        return FINDINGS[self.finding.state]

    @property
    def detail(self) -> str:
        return f"{self.finding.detail[:1].upper()}{self.finding.detail[1:]}"


class HealthPage:
    """Each part as a web process sees it; an operator is told of the whole installation, others of their account."""

    def __init__(self, settings: Settings, user: User) -> None:
        account_id = None if user.may(SITE_ADMIN) else user.account_id
        held: dict[int | None, CachedAnswer[list[Finding]]] = current_app.extensions.setdefault("health_pages", {})
        scope = CheckScope(settings, account_id, WAIT_SECONDS)
        looking = CachedAnswer(lambda: list(examine_parts(ON_THE_PAGE, scope)), KEPT_SECONDS)
        self.findings = held.setdefault(account_id, looking).get()
        titles = {check.name: check.title for check in ON_THE_PAGE}
        self.rows = [ShownFinding(titles[each.name], each) for each in self.findings]
        self.is_well = is_well(self.findings)
        self.troubles = sum(each.state in ("warn", "fail") for each in self.findings)

    def as_json(self) -> dict[str, Any]:
        return findings_as_json(self.findings)
