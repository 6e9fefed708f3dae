"""How the installation is run: schedule, limits, models in use and health. Everybody of the account may look."""

from __future__ import annotations

from flask import Response, after_this_request, request

from app.installation.model_usage import ModelUsage
from app.models.agent_settings import operator_settings
from app.views.access import viewer
from app.views.answers import page
from app.views.house.shell import blueprint
from app.views.shown.operations import HealthPage, LimitsPage, SchedulePage


@page(blueprint, "/settings/schedule", "house/schedule.html")
def schedule() -> SchedulePage:
    shown = SchedulePage(operator_settings(), viewer(), tried=request.args.get("crontab"))
    if shown.error:
        after_this_request(_unprocessable)
    return shown


@page(blueprint, "/settings/limits", "house/limits.html")
def limits() -> LimitsPage:
    return LimitsPage(operator_settings(), viewer())


@page(blueprint, "/settings/models", "house/models.html")
def models() -> ModelUsage:
    return ModelUsage(viewer().account_id)


@page(blueprint, "/settings/health", "house/health.html")
def health() -> HealthPage:
    return HealthPage(operator_settings(), viewer())


def _unprocessable(response: Response) -> Response:
    response.status_code = 422
    return response
