"""The filters of the list of refinements as options: the same names as in the page's address."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from app.cli.common import CommandContext
from app.models import Mode, Status, Trigger
from app.refinement.listing import FILTERS, RefinementFilters, TypedFilters

F = TypeVar("F", bound=Callable[..., Any])


def filter_options(command: F) -> F:
    """The filters of the page, by the same names."""
    for name in reversed(FILTERS):
        metavar = "WORDS" if name == "reason" else name.upper()
        command = click.option(f"--{name}", metavar=metavar, help=_HELP[name])(command)
    return command


def read_filters(context: CommandContext, account_id: int, typed: Mapping[str, str | None]) -> RefinementFilters:
    """Raises UsageError, and NotFound for an agent, which is then looked for in other accounts too."""
    form = TypedFilters.read(account_id, typed)
    if "agent" in form.errors:
        context.find_agent(form.typed["agent"])
    if form.errors:
        raise click.UsageError(" ".join(f"--{name}: {sentence}" for name, sentence in form.errors.items()))
    return form.filters


def filter_words(typed: Mapping[str, str | None]) -> str:
    """The same filters in a command that is suggested."""
    return "".join(f" --{name} {shlex.quote(text)}" for name, text in typed.items() if text)


_HELP = {
    "status": f"Only those with this status, or one of several with commas between: {', '.join(Status)}.",
    "agent": "Only this agent's, by name or number.",
    "trigger": f"Only those that started so: {', '.join(Trigger)}.",
    "mode": f"Only those of this mode: {', '.join(Mode)}.",
    "model": "Only those of this model.",
    "from": "Only those asked for on this day (UTC) or later, such as 2026-11-30.",
    "to": "Only those asked for on this day (UTC) or before.",
    "reason": "Only those that broke down for this reason, as `--failed` tells it.",
    "needs": "`attention`: only those with something that nobody has seen yet.",
}
