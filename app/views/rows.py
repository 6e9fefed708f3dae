"""The rows of the longest lists, fifty on a page, for the page and the stream alike: one form filled for each.

In Python, as `markup` is. Whatever is filled in is escaped, unless it is markup already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any

from markupsafe import Markup

from app.models.agent_standing import AgentStanding
from app.refinement.timetable import OpenRefinement
from app.values.plural import count_nouns
from app.views.addresses import Address, agent_url, page_url, refinement_url, row_url
from app.views.icons import icon
from app.views.markup import NOTHING, ago, budget_bar, chip, clock, fill, outcome, sparkline, tag
from app.views.shown.agents import AgentRow
from app.views.shown.entry import Fact, actor_name
from app.views.shown.log import AuditRow, Fold
from app.views.words import ago_words

_AGENT = (
    '<tr id="agent-{}">{}'
    '<th scope="row"><a href="{}">{}</a></th>'
    '<td class="wide">{}</td>'
    '<td data-label="Trend">{}</td>'
    '<td data-label="State">{}</td>'
    '<td data-label="Last refinement">{}</td>'
    '<td data-label="Next run" class="nowrap">{}</td>'
    "</tr>"
)
_PICK = '<td class="pick"><input type="checkbox" name="agent" value="{}" aria-label="Select {}"{}></td>'
_CHECKED = Markup(" checked")
_LAST = '<span class="chips"><a class="plain" href="{}">{}</a> {}</span>'
_NEVER = Markup('<span class="muted">never</span>')


def agent_rows(rows: Iterable[AgentRow], may_act: bool, selected: Collection[int] = ()) -> Markup:
    """Those of a page in one piece: a template takes as long to call for a row as a third of it takes to be made."""
    return NOTHING.join([agent_row(row, may_act, selected) for row in rows])


def agent_row(row: AgentRow, may_act: bool, selected: Collection[int] = ()) -> Markup:
    """One agent of the list; `selected` are the ids whose boxes are checked."""
    agent, last = row.agent, row.last
    checked = _CHECKED if agent.id in selected else NOTHING
    pick = fill(_PICK, agent.id, agent.name, checked) if may_act else NOTHING
    ended = _NEVER
    if last is not None:
        ended = fill(_LAST, refinement_url(last.id), outcome(last), ago(last.ended_at, ago_words(last.ended_at)))
    mass = budget_bar(agent.core_token_usage, agent.core_token_budget)
    trend = sparkline(row.trend, row.trend_words) if row.trend else NOTHING
    due = "once it is settled" if agent.stopped_at else row.due.short
    named = (agent.id, pick, agent_url(agent.id), agent.name)
    return fill(_AGENT, *named, mass, trend, agent_chips(agent, row.running, row.has_keys), ended, due)


_FORGOTTEN = tag("forgotten", "trash", "neutral", "Its keys are destroyed: nobody can read its memories any more")
_STOPPED = tag(
    *("stopped", "alert", "bad", "Its rows differ from what was signed: nothing of it is opened, changed or asked")
)
_KEYLESS = tag("making keys", "key", "broken", "A worker makes the keys that seal its memories")
_INACTIVE = tag("not active", "ban")
_PAUSED = tag("paused", "pause", "neutral", "Nothing starts by itself")
_TOO_LARGE = tag("over budget", "budget", "warn")
_FINE = tag("OK", "check", "ok", "Nothing runs, nothing is wrong")
_CHIPS = '<span class="chips">{}{}{}{}</span>'


def agent_chips(agent: AgentStanding, running: OpenRefinement | None, has_keys: bool) -> Markup:
    """How an agent stands, in one or two small labels."""
    if agent.forgotten_at:
        return _in_one(_FORGOTTEN)
    first = _STOPPED if agent.stopped_at else NOTHING
    second = NOTHING if has_keys else _KEYLESS
    if running is not None:
        link = fill('<a class="plain" href="{}">{}</a>', refinement_url(running.id), chip(running.status))
        return fill(_CHIPS, first, second, link, fill(" {}", _PAUSED) if agent.paused else NOTHING)
    if not agent.active:
        return _in_one(first, second, _INACTIVE)
    if agent.paused:
        return _in_one(first, second, _PAUSED)
    if agent.is_over_budget:
        return _in_one(first, second, _TOO_LARGE)
    return _in_one(first, second, _FINE if has_keys and not agent.stopped_at else NOTHING)


@cache
def _in_one(first: Markup, second: Markup = NOTHING, third: Markup = NOTHING) -> Markup:
    """Of these constants there are some twenty combinations."""
    return fill(_CHIPS, first, second, third, NOTHING)


_ENTRY = (
    '<li id="entry-{}" class="tone-{}">'
    '<span class="timeline-icon">{}</span>'
    '<div class="timeline-what">'
    '<div class="headline"><strong>{}</strong>{}'
    '<span class="muted">by <a href="{}" title="Only what {} did">{}</a></span>{}</div>'
    '<ul class="facts">{}<li class="seal" title="SHA-256 {}">entry {}, hash {}</li></ul>'
    "</div>"
    '<div class="timeline-side">{}{}</div>'
    "</li>"
)
_LINK = ' <span><a href="{}">{}</a></span>'
_AGENT_LOG = ' <span><a href="{}" title="The log of this agent">{}</a></span>'
_UNDID = ' <span>of <a href="{}">refinement {}</a></span>'
_RECEIPT = (
    ' <a class="small-text" href="{}" title="The agent\'s signed answer, with the proof that it is in the log"'
    " download>Receipt</a>"
)
_UNDO = '<a href="{}" title="See first what would change">Undo</a>'
_FINAL = Markup(
    '<span class="muted" title="A guard reversed this refinement. Only the agent can do that work again, in a new one">'
    "final</span>"
)


def log_rows(rows: Iterable[AuditRow], actor_url: Address, may_act: bool, names_agent: bool = True) -> Markup:
    """Those of a day, in one piece: a refinement's entries as one."""
    return NOTHING.join(
        fold_row(row, row.fold, names_agent) if row.fold else entry_row(row, actor_url, may_act, names_agent)
        for row in rows
    )


def entry_row(
    row: AuditRow, actor_url: Address, may_act: bool, names_agent: bool = True, in_fold: bool = False
) -> Markup:
    """One entry of the audit log; `actor_url` gives the address of the same log, filtered by an actor."""
    entry, who, seal = row.entry, actor_name(row.entry.actor), row.entry.hash.hex()
    about, look, subject = NOTHING, row.look, row.subject
    if subject and not (in_fold and subject.is_refinement):
        words, url = subject.words, subject.url
        about += fill(_LINK, url, words) if url else fill(" <span>{}</span>", words)
    if row.undid is not None:
        about += fill(_UNDID, refinement_url(row.undid.id), row.undid.id[:8])
    if names_agent and entry.agent:
        about += fill(_AGENT_LOG, _agent_log_url(entry.agent_id), entry.agent)
    receipt_url = row.receipt_url
    receipt = fill(_RECEIPT, receipt_url) if receipt_url else NOTHING
    facts = NOTHING.join([_fact(each) for each in row.facts])
    side = fill(_UNDO, row.undo_url) if may_act and row.undo_url else _FINAL if row.is_final else NOTHING
    head = (entry.id, look.tone, icon(look.icon), look.words, about, actor_url(entry.actor), who, who)
    return fill(_ENTRY, *head, receipt, facts, seal, entry.id, seal[:10], clock(entry.at), side)


def _fact(fact: Fact) -> Markup:
    if fact.full:
        form = '<li><details class="long"><summary>{}: {}</summary><pre>{}</pre></details></li>'
        return fill(form, fact.name, fact.value, fact.full)
    return fill("<li><span>{}</span> {}</li>", fact.name, fact.value)


_FOLD = (
    '<li id="fold-{}" class="tone-neutral">'
    '<span class="timeline-icon">{}</span>'
    '<div class="timeline-what">'
    '<div class="headline"><strong><a href="{}">Refinement</a></strong>{} {}'
    '<span class="muted">started by {}</span></div>'
    '<ul class="facts"><li>{}</li></ul>'
    "</div>"
    '<div class="timeline-side">{}</div>'
    '<details class="fold" id="opened-{}" hx-get="{}" hx-trigger="toggle" hx-target="#entries-{}" hx-swap="innerHTML">'
    "<summary>{}</summary>"
    '<div id="entries-{}" hx-morph-skip-children><p><a href="{}">Show them on a page of their own</a></p></div>'
    "</details>"
    "</li>"
)


def fold_row(row: AuditRow, fold: Fold, names_agent: bool = True) -> Markup:
    """The entries of one refinement, which open when they are wanted; `row` is the newest of them."""
    refinement = fold.refinement
    number, url = refinement.id, refinement_url(refinement.id)
    whose = fill(_AGENT_LOG, _agent_log_url(refinement.agent_id), row.entry.agent) if names_agent else NOTHING
    head = (number, icon("refine"), url, whose, outcome(refinement), actor_name(refinement.started_by), fold.line)
    opened = row_url("audit.fold", "refinement_id", number)
    entries, alone = count_nouns(fold.entries, "entry"), f"{page_url('audit.index')}?refinement={number}"
    return fill(_FOLD, *head, clock(row.entry.at), number, opened, number, entries, number, alone)


def _agent_log_url(agent_id: int | None) -> str:
    return row_url("audit.agent", "agent_id", agent_id)


_NAMED = (agent_rows, agent_row, agent_chips, log_rows, entry_row)
FOR_JINJA: Mapping[str, Any] = {each.__name__: each for each in _NAMED}
"""What every template knows by name."""
