"""The overview's lines of what broke, was reversed or declined, and of what refinements and agents left to be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from flask import url_for
from sqlalchemy import Select, bindparam, case, func, select

from app.extensions import now, read_rows
from app.models import Agent, AttentionItem, AttentionKind, Refinement, Status
from app.models.base import UtcDateTime
from app.models.refinement import NO_REASON
from app.prepared import Prepared, one_of_these
from app.refinement.failures import FAILED, SHOWN_FOR, FailureReason, failure_conditions
from app.values.plural import count_nouns
from app.views.addresses import list_url, refinement_url
from app.views.shown.attention import REASONS_SHOWN, SHOWN, Attention, ShownItem, Unseen
from app.vocabulary import ATTENTION_KINDS, STATUSES

LOOKED_AT = 100
"""Declined refinements that are counted; a day on which all decline needs no exact number."""

TO_CHECK = (AttentionKind.UNFINISHED, AttentionKind.PROTECTIONS, AttentionKind.REFUSALS, AttentionKind.READING)

_ALERTS = [status for status in reversed(Status) if STATUSES[status].alert]
"""The worst come first."""

_BROKEN = (AttentionKind.FAILED, AttentionKind.ROLLED_BACK)


@dataclass(frozen=True)
class OpenItems:
    """How many items wait by kind; of what broke, by status: why, how many, and when the newest did.

    The reasons that most give come first.
    """

    waiting: dict[AttentionKind, int]
    broken: dict[str, list[FailureReason]]

    @classmethod
    def count(cls, account_id: int) -> OpenItems:
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


def alerting_outcomes(account_id: int, items: OpenItems) -> list[Attention]:
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


def unseen_items(account_id: int, counts: dict[AttentionKind, int]) -> list[Attention]:
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
