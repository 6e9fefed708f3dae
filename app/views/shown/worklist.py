"""The overview's worklist: one line a kind, always the same in the same order, so that nothing moves when one fills."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

from flask import url_for
from sqlalchemy import BindParameter, Select, bindparam, case, exists, func, select

from app.extensions import db, now, read_rows
from app.history.proof import Proof
from app.models import (
    AccessGrant,
    Agent,
    AgentKey,
    AttentionItem,
    AttentionKind,
    ProposalStatus,
    Refinement,
    SettingProposal,
    Status,
    TokenRequest,
)
from app.models.base import UtcDateTime
from app.models.grant import GrantStatus
from app.models.refinement import NO_REASON
from app.prepared import Prepared, one_of_these
from app.refinement.failures import FAILED, SHOWN_FOR, FailureReason, failure_conditions
from app.refinement.fleet import IS_KEPT, OVER_BUDGET
from app.values.mass_story import exact_percent, percent
from app.values.plural import count_nouns
from app.views.addresses import agent_url, list_url, refinement_url
from app.views.shown.attention import (
    REASONS_SHOWN,
    Attention,
    ShownItem,
    Unseen,
    health_alarms,
    log_alarms,
    proof_alarms,
)
from app.views.shown.fleet import AccountFigures, FleetTrend
from app.vocabulary import ATTENTION_KINDS, STATUSES

SHOWN = 8
LOOKED_AT = 100
"""Bad ends that are counted; a day on which everything fails needs no exact number."""
KEYS_SOON = timedelta(minutes=1)
NEWEST = 500
"""Agents among which missing keys are looked for: they are made once, right after the agent."""

TO_CHECK = (AttentionKind.UNFINISHED, AttentionKind.PROTECTIONS, AttentionKind.REFUSALS, AttentionKind.READING)


@dataclass(frozen=True)
class Slot:
    """The place of one kind: what stands in it while there is nothing to do."""

    kind: str
    label: str
    nothing: str
    icon: str


SLOTS = (
    Slot("system", "System", "all parts answer", "bolt"),
    Slot("failed", "Failed", "none", "alert"),
    Slot("rolled_back", "Rolled back", "none", "undo"),
    Slot("to_check", "To check", "nothing", "eye"),
    Slot("notes", "Notes", "none from agents", "chat"),
    Slot("waiting", "Waiting", "no agent is asked anything", "clock"),
    Slot("declined", "Declined", "none", "ban"),
    Slot("over_budget", "Over budget", "no agent", "budget"),
    Slot("eroding", "Eroding", "no agent", "arrow-right"),
)
"""Worst first."""


@dataclass(frozen=True)
class Line:
    """One line of the worklist. `found` is empty where there is nothing to do."""

    slot: Slot
    found: Sequence[Attention] = field(default=())

    @property
    def first(self) -> Attention:
        return self.found[0]

    @property
    def title(self) -> str:
        """`48 failed, 2 interrupted`."""
        return ", ".join(each.short for each in self.found if each.short) or self.slot.label

    def as_json(self) -> dict[str, Any]:
        said = {"kind": self.slot.kind, "count": sum(each.count for each in self.found)}
        return said | ({"line": self.first.line, "url": self.first.url or None} if self.found else {})


def make_lines(found: Iterable[Attention]) -> list[Line]:
    """All lines, each with what belongs to it."""
    by_kind: dict[str, list[Attention]] = {slot.kind: [] for slot in SLOTS}
    for each in found:
        by_kind[each.kind].append(each)
    return [Line(slot, by_kind[slot.kind]) for slot in SLOTS]


def find_attention(
    account_id: int, figures: AccountFigures, trend: FleetTrend, proofs: tuple[Proof | None, Proof | None]
) -> list[Attention]:
    """All that needs attention, worst first. `proofs`: the account's last one, and that of what is in no account."""
    items, waits = _OpenItems.count(account_id), _count_waiting(account_id)
    return [
        *_stopped(account_id, figures.stopped),
        *proof_alarms(account_id, *proofs),
        *log_alarms(),
        *health_alarms(),
        *_without_keys(account_id),
        *_alerting_outcomes(account_id, items),
        *_waiting_items(account_id, items.waiting),
        *(_waiting_exceptions(account_id) if waits.exceptions else ()),
        *(_waiting_tokens(account_id) if waits.tokens else ()),
        *(_held_prompts(account_id) if waits.prompts else ()),
        *_over_budget(account_id, figures, trend),
        *_eroding(trend),
    ]


_ALERTS = [status for status in reversed(Status) if STATUSES[status].alert]
"""The worst come first."""


_BROKEN = (AttentionKind.FAILED, AttentionKind.ROLLED_BACK)


@dataclass(frozen=True)
class _OpenItems:
    """How many items wait by kind; of what broke, by status: why, how many, and when the newest did.

    The reasons that most give come first.
    """

    waiting: dict[AttentionKind, int]
    broken: dict[str, list[FailureReason]]

    @classmethod
    def count(cls, account_id: int) -> _OpenItems:
        """In one statement."""
        rows = read_rows(_items_query(), {"account_id": account_id})
        items = cls({}, {})
        for broken, found, failure, count, newest in sorted(rows, key=lambda row: (-row[3], row[2] or "")):
            if broken:
                items.broken.setdefault(found, []).append(FailureReason(failure or NO_REASON, count, newest))
            else:
                items.waiting[AttentionKind(found)] = count
        return items


@cache
def _items_query() -> Prepared:
    """Made once, as all that each look at the overview asks."""
    is_broken = one_of_these(AttentionItem.kind, _BROKEN)
    what = case((is_broken, Refinement.status), else_=AttentionItem.kind).label("what")
    why = case((is_broken, Refinement.failure)).label("why")
    columns = (is_broken.label("is_broken"), what, why, func.count(), func.max(Refinement.ended_at))
    query = select(*columns).outerjoin_from(AttentionItem, Refinement, AttentionItem.refinement_id == Refinement.id)
    mine = query.where(AttentionItem.account_id == bindparam("account_id"), AttentionItem.is_open())
    return Prepared(mine.group_by("is_broken", "what", "why"))


def _alerting_outcomes(account_id: int, items: _OpenItems) -> list[Attention]:
    """What broke down or was reversed by a guard, until somebody has seen it or the agent's next refinement settles it;
    and the NO that is an agent's newest answer of a week."""
    asked = {"account_id": account_id, "since": now() - SHOWN_FOR}
    ended: dict[Status, list[Any]] = {}
    for query in (_declined_query(), *([_broken_query()] if items.broken else [])):
        for row in read_rows(query, asked):
            ended.setdefault(row[0], []).append(row)
    return [_ended_so(each, ended[each], items.broken.get(each, ())) for each in _ALERTS if each in ended]


def _ended_query() -> Select[Any]:
    columns = (Refinement.status, Refinement.id, Refinement.ended_at, Agent.name)
    return select(*columns).join(Agent, Agent.id == Refinement.agent_id).order_by(Refinement.requested_at.desc())


@cache
def _declined_query() -> Prepared:
    since = bindparam("since", type_=UtcDateTime)
    conditions = failure_conditions(bindparam("account_id"), Status.DECLINED, since=since)
    return Prepared(_ended_query().where(*conditions).limit(LOOKED_AT))


@cache
def _broken_query() -> Prepared:
    return Prepared(_ended_query().where(Refinement.id.in_(_newest_broken())))


def _newest_broken() -> Select[tuple[str]]:
    """Ids of as many refinements as are shown, of each status: among many that failed, one rolled back is seen too."""
    newest = (Refinement.requested_at.desc(), Refinement.id)
    rank = func.row_number().over(partition_by=Refinement.status, order_by=newest).label("rank")
    query = select(Refinement.id, rank).join(AttentionItem, AttentionItem.refinement_id == Refinement.id)
    my_account = AttentionItem.account_id == bindparam("account_id")
    mine = (my_account, AttentionItem.is_open(), one_of_these(AttentionItem.kind, _BROKEN))
    ranked = query.where(*mine).subquery()
    return select(ranked.c.id).where(ranked.c.rank <= SHOWN)


def _ended_so(status: Status, ended: Sequence[Any], given: Sequence[FailureReason]) -> Attention:
    """`ended` are the newest; `given` counts all."""
    term = STATUSES[status]
    items = [
        (name, refinement_url(number), f"{at:%a %H:%M} UTC" if at else "") for _, number, at, name in ended[:SHOWN]
    ]
    count = sum(each.count for each in given) or len(ended)
    reasons = given if status in FAILED else ()
    states = ",".join(FAILED) if status in FAILED else str(status)
    filters = {"status": states} if status == Status.DECLINED else {"status": states, "needs": "attention"}
    url = list_url("refinements.index", **filters)
    all_of_them = f"All failures, {len(reasons)} reasons" if len(reasons) > REASONS_SHOWN else "All of them"
    return Attention(
        *(term.tone, term.icon, f"{term.capitalized}: {count_nouns(count, 'agent')}", term.alert, items),
        (all_of_them, url),
        reasons,
        kind="failed" if status in FAILED else str(status),
        short=f"{count:,} {term.words}",
        count=count,
        line=_reason_line(reasons) or _name_line(term.meaning, ended, count),
        url=url,
        newest=max((at for _, _, at, _ in ended if at), default=None),
        retry=filters if status in FAILED else {},
        seen={} if status == Status.DECLINED else {"kind": "failed" if status in FAILED else str(status)},
    )


def _reason_line(reasons: Sequence[FailureReason]) -> str:
    """The reason that most of them give, and how many others there are."""
    if not reasons:
        return ""
    more = len(reasons) - 1
    return f"{reasons[0].words}; {count_nouns(more, 'other reason')}" if more else reasons[0].words


def _name_line(what: str, ended: Sequence[Any], count: int) -> str:
    """`ezra, mina and 3 others: what it means`."""
    names = [name for *_, name in ended]
    others = f" and {count_nouns(count - 2, 'other')}" if count > 2 else ""
    return f"{', '.join(names[:2])}{others}: {what[:1].lower()}{what[1:]}"


def _waiting_items(account_id: int, counts: dict[AttentionKind, int]) -> list[Attention]:
    """What nobody has seen yet: what refinements left to be checked, and notes of agents."""
    if not counts:
        return []
    unseen = Unseen(account_id, kinds=(AttentionKind.NOTE, *TO_CHECK))
    to_check: dict[AttentionKind, int] = {kind: counts[kind] for kind in TO_CHECK if kind in counts}
    parts = ", ".join(f"{count:,} {ATTENTION_KINDS[kind].words.lower()}" for kind, count in to_check.items())
    checked = _of_items("to_check", "to check", to_check, unseen, f"{parts}", "warn", "eye")
    notes: dict[AttentionKind, int] = {kind: count for kind, count in counts.items() if kind == AttentionKind.NOTE}
    newest = next((row for row in unseen.rows if row.item.kind == AttentionKind.NOTE), None)
    words = f"{newest.item.agent.name}: “{newest.item.text}”" if newest else "Agents wrote to the admins."
    noun = "note" if sum(notes.values()) == 1 else "notes"
    return checked + _of_items("notes", noun, notes, unseen, words, "ask", "chat")


def _of_items(
    kind: str, noun: str, counts: dict[AttentionKind, int], unseen: Unseen, line: str, tone: str, icon: str
) -> list[Attention]:
    if not counts:
        return []
    total, kinds = sum(counts.values()), ",".join(sorted(counts))
    rows = [row for row in unseen.rows if row.item.kind in counts]
    url = url_for("attention.index", kind=kinds)
    return [
        Attention(
            *(tone, icon, f"{total:,} {noun}", "", [_item_facts(row) for row in rows], ("All of them", url)),
            kind=kind,
            short=f"{total:,} {noun}",
            count=total,
            line=line,
            url=url,
            newest=rows[0].item.at if rows else None,
            seen={"kind": kinds},
        )
    ]


def _item_facts(row: ShownItem) -> tuple[str, str, str]:
    item = row.item
    return item.agent.name, row.subject.url, f"{item.line}: “{item.text}”" if item.text else item.line


class _Waiting(NamedTuple):
    """Whether any exception, token or prompt of the account's agents waits to be decided on."""

    exceptions: bool
    tokens: bool
    prompts: bool


def _count_waiting(account_id: int) -> _Waiting:
    """In one statement: mostly nothing does."""
    return _Waiting(*read_rows(_waiting_query(), {"account_id": account_id})[0])


@cache
def _waiting_query() -> Prepared:
    account_id: BindParameter[int] = bindparam("account_id")
    waiting = select(
        exists().where(AccessGrant.account_id == account_id, AccessGrant.status == GrantStatus.PENDING),
        exists().where(TokenRequest.account_id == account_id, TokenRequest.waits()),
        exists().where(SettingProposal.account_id == account_id, SettingProposal.status == ProposalStatus.HELD),
    )
    return Prepared(waiting)


def _waiting_exceptions(account_id: int) -> list[Attention]:
    """Exceptions that their agents have not decided on."""
    mine = (AccessGrant.account_id == account_id, AccessGrant.status == GrantStatus.PENDING)
    query = select(AccessGrant.id, Agent.name, AccessGrant.minutes).join(Agent, Agent.id == AccessGrant.agent_id)
    found = db.session.execute(query.where(*mine).order_by(AccessGrant.requested_at).limit(LOOKED_AT)).all()
    items = [
        (name, url_for("exceptions.show", exception_id=number), f"{minutes} min") for number, name, minutes in found
    ]
    text = "Their agents are being asked. Nobody reads a memory before a YES."
    return _asked("Exceptions", "exception", "eye", text, items, url_for("exceptions.index"))


def _waiting_tokens(account_id: int) -> list[Attention]:
    """Tokens that admins asked for, and that their agents have not decided on."""
    mine = (TokenRequest.account_id == account_id, TokenRequest.waits())
    query = select(TokenRequest.name, Agent.id, Agent.name).join(Agent, Agent.id == TokenRequest.agent_id)
    found = db.session.execute(query.where(*mine).order_by(TokenRequest.requested_at).limit(LOOKED_AT)).all()
    items = [(agent, url_for("tokens.index", agent_id=number), name) for name, number, agent in found]
    text = "Their agents are being asked. Nobody gets in with them before a YES."
    return _asked("Token requests", "token request", "key", text, items)


def _asked(
    title: str, noun: str, icon: str, text: str, items: Sequence[tuple[str, str, str]], url: str = ""
) -> list[Attention]:
    if not items:
        return []
    count = len(items)
    line = f"{items[0][0]}: {items[0][2]}{' and others' if count > 1 else ''}. {text}"
    facts: dict[str, Any] = {"kind": "waiting", "short": count_nouns(count, noun), "count": count, "line": line}
    return [Attention("ask", icon, f"{title}: {count} waiting", text, items[:SHOWN], url=url or items[0][1], **facts)]


def _held_prompts(account_id: int) -> list[Attention]:
    """Prompts that agents wrote for themselves, and that the safety reading did not let through."""
    mine = (SettingProposal.account_id == account_id, SettingProposal.status == ProposalStatus.HELD)
    query = select(SettingProposal.field, Agent.id, Agent.name).join(Agent, Agent.id == SettingProposal.agent_id)
    found = db.session.execute(query.where(*mine).order_by(SettingProposal.proposed_at).limit(LOOKED_AT)).all()
    if not found:
        return []
    items = [
        (name, url_for("settings.show", agent_id=number), field.replace("_", " ")) for field, number, name in found
    ]
    count, text = len(found), "What an agent wrote for itself does not apply until an admin has read it."
    facts: dict[str, Any] = {"kind": "waiting", "short": f"{count_nouns(count, 'prompt')} held", "count": count}
    facts |= {"line": f"{items[0][0]}: {items[0][2]}. {text}", "url": items[0][1]}
    return [Attention("ask", "lock", f"Held: {_count_or_more(count, 'prompt')}", text, items[:SHOWN], **facts)]


def _stopped(account_id: int, count: int) -> list[Attention]:
    """Agents whose rows differ from what was signed."""
    if not count:
        return []
    query = select(Agent.id, Agent.name, Agent.stopped_why).where(Agent.account_id == account_id)
    found = db.session.execute(query.where(Agent.stopped_at.is_not(None)).order_by(Agent.id).limit(SHOWN)).tuples()
    items = [(name, agent_url(number), f"{why}.") for number, name, why in found]
    if not items:
        return []
    text = (
        "The database does not say of them what was signed. Nothing was opened by that, and none of their memories is "
        "read, written or sent to a model until it is settled. Their pages say what to do."
    )
    url = url_for("agents.index", state="stopped")
    more = ("All of them", url) if count > SHOWN else None
    title = f"Stopped: {count_nouns(count, 'agent')}"
    return [Attention("bad", "alert", title, text, items, more, short=f"{count:,} stopped", count=count, url=url)]


def _over_budget(account_id: int, figures: AccountFigures, trend: FleetTrend) -> list[Attention]:
    if not figures.over_budget:
        return []
    found = read_rows(_over_budget_query(), {"account_id": account_id})
    items = [
        (name, agent_url(number), f"{over:,} tokens over{', paused' if paused else ''}")
        for number, name, paused, over in found
    ]
    if not items:
        return []
    count = max(figures.over_budget, len(items))
    url, twice = list_url("agents.index", state="over_budget"), trend.over_budget_twice
    text = f"{_names(twice)} stayed over after two looks in a row." if twice else ""
    facts: dict[str, Any] = {"kind": "over_budget", "short": f"{count:,} over budget", "count": count, "url": url}
    facts["line"] = f"Twice in a row: {_names(twice)}" if twice else f"{items[0][0]}: {items[0][2]}"
    more = ("All of them", url) if count > SHOWN else None
    return [Attention("warn", "budget", f"Over budget: {count_nouns(count, 'agent')}", text, items, more, **facts)]


@cache
def _over_budget_query() -> Prepared:
    columns = (Agent.id, Agent.name, Agent.paused, Agent.core_token_usage - Agent.core_token_budget)
    query = select(*columns).where(Agent.account_id == bindparam("account_id"), OVER_BUDGET)
    return Prepared(query.order_by(columns[3].desc(), Agent.id).limit(SHOWN))


def _names(found: Sequence[str]) -> str:
    others = f" and {count_nouns(len(found) - 3, 'other')}" if len(found) > 3 else ""
    return f"{', '.join(found[:3])}{others}"


def _eroding(trend: FleetTrend) -> list[Attention]:
    if not trend.eroding:
        return []
    items = [(each.name, agent_url(each.agent_id), f"{percent(each.kept)} kept in 30 days") for each in trend.eroding]
    count, least = len(items), exact_percent(trend.erosion_floor) if trend.erosion_floor is not None else ""
    text = "Refinements have cut at least half of what they may" + (f" (minimum {least})." if least else ".")
    facts: dict[str, Any] = {"kind": "eroding", "short": f"{count:,} eroding", "count": count, "url": items[0][1]}
    facts["line"] = f"{items[0][0]}: {items[0][2]}" + (f" (minimum {least})" if least else "")
    return [Attention("warn", "arrow-right", f"Eroding: {count_nouns(count, 'agent')}", text, items[:SHOWN], **facts)]


def _without_keys(account_id: int) -> list[Attention]:
    asked = {"account_id": account_id, "until": now() - KEYS_SOON}
    rows = read_rows(_keyless_query(), asked)
    if not rows:
        return []
    items = [(name, agent_url(number), "") for number, name, _ in rows]
    count = rows[0][2]
    text = "Their memories can't be sealed before a worker has made the keys. Is a worker running?"
    title = f"Without keys: {count_nouns(count, 'agent')}"
    return [Attention("broken", "key", title, text, items, short=f"{count} without keys", count=count)]


def _count_or_more(count: int, noun: str) -> str:
    words = count_nouns(count, noun)
    return f"{words} or more" if count >= LOOKED_AT else words


@cache
def _keyless_query() -> Prepared:
    mine = (Agent.account_id == bindparam("account_id"), IS_KEPT)
    newest = select(Agent.id, Agent.name, Agent.created_at).where(*mine)
    newest_few = newest.order_by(Agent.id.desc()).limit(NEWEST).subquery()
    missing = ~exists().where(AgentKey.agent_id == newest_few.c.id)
    columns = (newest_few.c.id, newest_few.c.name, func.count().over())
    keyless = select(*columns).where(missing, newest_few.c.created_at < bindparam("until", type_=UtcDateTime))
    return Prepared(keyless.order_by(newest_few.c.id.desc()).limit(SHOWN))
