"""The Knife: the functions that an agent holds during its refinement.

Every answer is a result that a model can read: what happened, how many changes are left, the retention so far.
A refusal is such a result too (`type: error`); it changes nothing and is not counted.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from itertools import accumulate
from typing import Any

from app.asking.prompt_memories import PromptMemory, read_entries
from app.asking.replies import clean_note
from app.errors import DiskFull, Invalid, NotFound, Refused, WhetstoneError
from app.extensions import db, end_reading, writing
from app.meaning import ChangeKind
from app.models import Action, Agent, AskedLoss, Memory, MemoryType, Refinement, Source, Status, note_to_admins
from app.refinement import arguments as accept
from app.refinement.functions import ACTIONS, ARGUMENTS, specifications
from app.refinement.guard import (
    Claim,
    LatchTrip,
    Terminated,
    book_kept_mass,
    check_fence,
    enforce_latch,
    fenced_transaction,
    kept_weights,
)
from app.refinement.losses import Allowed, Proposal, Questions, WouldLose, advise, canonical_call, describe
from app.refinement.refusals import UNKNOWN, RefusedByKind
from app.silo import AgentKeys
from app.values.text import clean_content, clean_text, is_blank

Result = dict[str, Any]

FEW = 10
"""Texts that are compared while rows are locked; more of them before that."""

MAX_RESULTS = 50
"""Memories in one search result; `count` says how many there were."""

MAX_RESULT_CHARACTERS = 40_000
"""Of the memories in one search result together, so that a broad query does not fill the model's context."""


class ConstitutionalMemory(Refused):
    """The memory is constitutional: no refinement may change, merge or remove it."""

    code = "constitutional"


class ImmutableMemory(Refused):
    """The memory carries an immutable tag: no refinement may change, merge or remove it."""

    code = "immutable"


class NotYours(NotFound):
    """Some ids name no active core memory of this agent."""

    code = "unknown_memory"


class UnknownFunction(Invalid):
    """There is no such function."""

    code = "unknown_function"


class RefinementTool:
    """One agent's Knife for one refinement. Works inside an app context; one call after another."""

    specifications = staticmethod(specifications)

    def __init__(self, claim: Claim, keys: AgentKeys) -> None:
        self.claim = claim
        self._keys = keys
        self._calls = 0
        self._refusals = RefusedByKind()
        self._questions = Questions()
        self.is_over = False
        self.was_rolled_back = False

    def call(self, name: str, raw_arguments: str) -> Result:
        """A model's call: a function's name and its arguments as raw JSON text. Never raises for what a model sent.

        Raises DiskFull.
        """
        self._calls += 1
        if name not in ACTIONS:
            return self._refuse_call(UNKNOWN, UnknownFunction(), name=name)
        return self._run_action(ACTIONS[name], lambda: accept.parse_arguments(raw_arguments))

    def execute(self, action: str, /, **arguments: Any) -> Result:
        """The same for code: the actions of `ACTIONS`. Each call has read the answers to all before it."""
        self._questions.begin_reply()
        self._calls += 1
        if action not in ACTIONS.values():
            return self._refuse_call(UNKNOWN, UnknownFunction("There is no such action."), name=action)
        return self._run_action(action, lambda: arguments)

    def _run_action(self, action: str, read_arguments: Callable[[], Mapping[str, Any]]) -> Result:
        steps: dict[str, Callable[[Mapping[str, Any]], Result]] = {
            "search": self._search_memories,
            "consolidate": self._consolidate_memories,
            "update": self._update_memory,
            "delete": self._delete_memory,
            "protect": self._protect_memory,
            "complete": self._complete_refinement,
        }
        found: Mapping[str, Any] = {}
        try:
            found = read_arguments()
            accept.check_argument_names(found, *ARGUMENTS[action])
            try:
                return steps[action](found)
            except WouldLose as question:
                return self._ask_about(question, action, found)
        except DiskFull:
            raise  # nothing that a model could do about it
        except WhetstoneError as error:
            return self._refuse_call(action, error, ids=accept.readable_ids(found))

    def _search_memories(self, found: Mapping[str, Any]) -> Result:
        query = accept.query_text(found["query"])
        since, until = (accept.parse_day(found.get(name), name=name) for name in ("since", "until"))
        wanted = query.casefold()
        try:
            refinement = check_fence(self.claim)
            entries = read_entries(refinement.agent_id, self._keys)
            hits = [e.as_dict() for e in entries if wanted in e.content.casefold() and _within_dates(e, since, until)]
            return self._make_result(
                refinement, type="search_results", query=query, count=len(hits), results=_first_hits(hits)
            )
        finally:
            end_reading()

    def _consolidate_memories(self, found: Mapping[str, Any]) -> Result:
        ids, content = accept.memory_ids(found["ids"]), clean_content(found["content"])
        confirm = _confirms(found)
        if len(ids) > FEW:
            self._compare_ahead(ids, content)
        with fenced_transaction(self.claim, mutations=1) as (refinement, agent):
            sources = [_check_touchable(memory) for memory in _all_of(agent, ids)]
            texts = self._reveal(sources)
            _check_shorter(content, texts)
            proposal = Proposal(ChangeKind.CONSOLIDATE, texts, content)
            allowed = self._check_losses(refinement, proposal, confirm=confirm)
            kept = kept_weights(refinement, sources)
            origin = min(date for memory in sources for date in memory.dates)
            merged = Memory.write(agent, content, keys=self._keys, source=Source.REFINEMENT, origin_at=origin)
            merged.merge(agent, sources)
            for memory in sources:
                memory.discard(agent)
            weight = sum(memory.token_estimate for memory in sources)
            after = {memory.id: 0 for memory in sources} | {merged.id: min(sum(kept.values()), merged.token_estimate)}
            refinement.consolidated += 1
            refinement.memories_merged += len(sources)
            done = self._book_change(
                refinement,
                agent,
                Action.REFINEMENT_CONSOLIDATE,
                [*sources, merged],
                kept,
                after,
                {"id": merged.id, "sources": sorted(ids), "tokens": [weight, merged.token_estimate]},
                allowed,
            )
        self._questions.close(proposal)
        return done or self._make_result(refinement, type="consolidated", id=merged.id, merged_count=len(sources))

    def _update_memory(self, found: Mapping[str, Any]) -> Result:
        number, content = accept.memory_id(found["id"]), clean_content(found["content"])
        confirm = _confirms(found)
        with fenced_transaction(self.claim, mutations=1) as (refinement, agent):
            memory = _check_touchable(_all_of(agent, [number])[0])
            proposal = Proposal(ChangeKind.UPDATE, self._reveal([memory]), content)
            if proposal.old[memory.id] == content:
                raise Invalid("The content is identical to what the memory says already.")
            allowed = self._check_losses(refinement, proposal, confirm=confirm)
            kept, before = kept_weights(refinement, [memory]), memory.token_estimate
            memory.rewrite(agent, content, keys=self._keys)
            refinement.updated += 1
            after = {memory.id: min(kept[memory.id], memory.token_estimate)}
            data = {"id": memory.id, "tokens": [before, memory.token_estimate]}
            done = self._book_change(refinement, agent, Action.REFINEMENT_UPDATE, [memory], kept, after, data, allowed)
        self._questions.close(proposal)
        return done or self._make_result(
            refinement, type="updated", id=memory.id, tokens_before=before, tokens_after=memory.token_estimate
        )

    def _delete_memory(self, found: Mapping[str, Any]) -> Result:
        number, other = accept.memory_id(found["id"]), accept.memory_id(found["carried_by"])
        if number == other:
            raise Invalid(f"Memory {number} can't carry itself: carried_by is another memory, which stays.")
        with fenced_transaction(self.claim, mutations=1) as (refinement, agent):
            memory, carrier = _all_of(agent, [number, other])
            _check_touchable(memory)
            texts = self._reveal([memory, carrier])
            proposal = Proposal(ChangeKind.DELETE, {number: texts[number]}, texts[other], carrier=other)
            allowed = self._check_losses(refinement, proposal)
            kept = kept_weights(refinement, [memory, carrier])
            memory.discard(agent)
            changed = [memory, carrier] if carrier.take_over(agent, [memory]) else [memory]
            refinement.deleted += 1
            after = {each.id: 0 if each is memory else kept[each.id] for each in changed}
            data = {"id": number, "carrier": other, "tokens": [memory.token_estimate, 0]}
            before = {each: kept[each] for each in after}
            done = self._book_change(refinement, agent, Action.REFINEMENT_DELETE, changed, before, after, data, allowed)
        self._questions.close(proposal)
        return done or self._make_result(refinement, type="deleted", id=number, carried_by=other)

    def _protect_memory(self, found: Mapping[str, Any]) -> Result:
        number = accept.memory_id(found["id"])
        with fenced_transaction(self.claim, protections=1) as (refinement, agent):
            memory = _all_of(agent, [number])[0]
            if memory.constitutional:
                raise ConstitutionalMemory("The memory is constitutional already.")
            kept = kept_weights(refinement, [memory])
            memory.become(agent, constitutional=True, version=memory.version + 1)
            data = {"id": memory.id, "tokens": [memory.token_estimate, memory.token_estimate]}
            self._book_change(refinement, agent, Action.REFINEMENT_PROTECT, [memory], kept, kept, data)
        return self._make_result(refinement, type="protected", id=memory.id)

    def _complete_refinement(self, found: Mapping[str, Any]) -> Result:
        summary = clean_text(found["summary"], what="summary").strip()
        if is_blank(summary) or len(summary) > 10_000:
            raise Invalid("The summary must have 1 to 10,000 characters.")
        note = found.get("note_to_admins")
        note = None if note is None else clean_note(clean_text(note, what="note_to_admins"))
        with fenced_transaction(self.claim) as (refinement, agent):
            self._book_calls(refinement)
            note_to_admins(agent, note, about=refinement)
            trip = enforce_latch(refinement, agent, self._keys)
            if trip is None:
                self._record_completion(refinement, agent, summary)
        self.is_over = True
        if trip is not None:
            return self._rolled_back(trip)
        return self._make_result(refinement, type="refinement_complete", summary=summary, stats=refinement.stats)

    def _record_completion(self, refinement: Refinement, agent: Agent, summary: str) -> None:
        refinement.summary = self._keys.seal(summary, purpose="summary", subject=refinement.id)
        refinement.measure(agent)
        counts = f"I completed a refinement of my core memories. The system's count: {refinement.machine_line}."
        text = f"{counts} My summary: {summary}"
        journal = Memory.write(
            agent, text[:10_000].rstrip(), keys=self._keys, source=Source.REFINEMENT, type_=MemoryType.JOURNAL
        )
        data = {"stats": refinement.stats, "line": refinement.machine_line, "journal": journal.id}
        refinement.record_action(Action.REFINEMENT_COMPLETE, agent, agent.as_actor, data, memories=[journal])
        refinement.end(agent, Status.COMPLETED)

    def _book_change(
        self,
        refinement: Refinement,
        agent: Agent,
        action: Action,
        memories: list[Memory],
        kept: Mapping[int, int],
        after: Mapping[int, int],
        data: dict[str, Any],
        allowed: Allowed | None = None,
    ) -> Result | None:
        """Record a change, keep the account of mass, and let the latch look at it. A result only if it tripped."""
        book_kept_mass(refinement, kept, after)
        if allowed is not None:
            data["specifics"] = allowed.count.as_json()
            refinement.count_specifics(**data["specifics"])
        self._book_calls(refinement)
        data["retention"] = str(refinement.retention)
        about = f"memory:{data['id']}"
        entry = refinement.record_action(
            action, agent, agent.as_actor, data, subject=about, memories=memories, kept=after
        )
        if allowed is not None:
            AskedLoss.settle(refinement, entry, allowed.settled)
        refinement.announce("operation", entry=entry.id, action=str(action), **data)
        trip = enforce_latch(refinement, agent, self._keys)
        return self._rolled_back(trip) if trip else None

    def _rolled_back(self, trip: LatchTrip) -> Result:
        self.is_over = self.was_rolled_back = True
        return {
            "type": "refinement_rolled_back",
            "reason": f"{trip.reason} Everything was rolled back; this refinement is terminated.",
            "stats": dict(trip.stats),
            "changes_left": 0,
            "retention": str(trip.retention),
        }

    def _make_result(self, refinement: Refinement, **result: Any) -> Result:
        retention = refinement.retention
        left = 0 if self.is_over else max(refinement.cap - refinement.mutations, 0)
        return result | {"changes_left": left, "retention": str(Decimal(1) if retention is None else retention)}

    def _reveal(self, memories: list[Memory]) -> dict[int, str]:
        return {memory.id: self._keys.reveal_memory(memory.id, memory.content) for memory in memories}

    def _check_losses(self, refinement: Refinement, proposal: Proposal, *, confirm: bool = False) -> Allowed:
        """Raises WouldLose, which takes the transaction back, or ConfirmationsUsed."""
        return self._questions.check(proposal, confirm=confirm, confirmations_left=refinement.confirmations_left)

    def _compare_ahead(self, ids: list[int], content: str) -> None:
        try:
            query = Memory.active(check_fence(self.claim).agent_id, MemoryType.CORE).where(Memory.id.in_(ids))
            sealed = dict(Memory.read_contents(query.order_by(None)))
        finally:
            end_reading()
        texts = {number: self._keys.reveal_memory(number, sealed[number]) for number in ids if number in sealed}
        self._questions.compare_ahead(Proposal(ChangeKind.CONSOLIDATE, texts, content))

    def _ask_about(self, question: WouldLose, action: str, found: Mapping[str, Any]) -> Result:
        """Name what would be lost, and write down that it was asked. Raises AskedBefore or Terminated."""
        number, new = self._questions.note(question, canonical_call(action, found))
        losses: dict[int, list[str]] = {}
        for loss in question.losses:
            losses.setdefault(loss.memory_id, []).append(str(loss))
        with fenced_transaction(self.claim) as (refinement, agent):
            for memory in Memory.lock_active_core(agent.id, list(losses)).values():
                AskedLoss.ask(self._keys, refinement, memory, number, action, losses[memory.id])
            refinement.specifics_missing += new
            ids = sorted(question.proposal.old)
            refinement.announce("would_lose", action=action, ids=ids, missing=len(question.losses))
            left = refinement.confirmations_left
        missing, advice = describe(question), advise(question, left)
        return self._make_result(refinement, type="would_lose", missing=missing, advice=advice)

    def _refuse_call(self, action: str, error: WhetstoneError, **named: Any) -> Result:
        """The answer to what was wrong; once it is over, to everything, that it is: that is no refusal that counts."""
        allowed: Result = {}
        if isinstance(error, UnknownFunction):
            allowed = {"allowed_actions": list(ACTIONS.values()), "allowed_functions": list(ACTIONS)}
        try:
            check_fence(self.claim)
            self._refusals.refuse(action, error.code, **named)
        except Terminated as over:
            self.is_over, error = True, over
            self._calls -= 1
        refinement = db.session.get_one(Refinement, self.claim.refinement_id)
        result = self._make_result(refinement, type="error", error=error.sentence) | allowed
        end_reading()
        return result

    def settle(self) -> None:
        """After the calls of one reply: those that no change took along are booked, unless it is over."""
        self._questions.begin_reply()
        if self._calls:
            with writing():
                refinement = Refinement.lock(self.claim.refinement_id)
                if refinement.is_held_by(self.claim.worker):
                    self._book_calls(refinement)

    def _book_calls(self, refinement: Refinement) -> None:
        """Count them, and tell of those that changed nothing, in the caller's transaction."""
        refinement.count_calls(self._calls, self._refusals.codes())
        self._refusals.announce(refinement)
        self._calls = 0


def _all_of(agent: Agent, ids: list[int]) -> list[Memory]:
    found = Memory.lock_active_core(agent.id, ids)
    missing = [number for number in ids if number not in found]
    if missing:
        raise NotYours(
            f"No active core memory of yours has the id {', '.join(map(str, missing[:20]))}.", "Nothing was changed."
        )
    return [found[number] for number in ids]


def _check_touchable(memory: Memory) -> Memory:
    if memory.constitutional:
        raise ConstitutionalMemory(
            f"Memory {memory.id} is constitutional and is never touched.", "Nothing was changed."
        )
    if memory.immutable:
        raise ImmutableMemory(
            f"Memory {memory.id} carries an immutable tag and is never touched.", "Nothing was changed."
        )
    return memory


def _confirms(found: Mapping[str, Any]) -> bool:
    return accept.flag(found.get("confirm_loss", False), name="confirm_loss")


def _check_shorter(content: str, sources: Mapping[int, str]) -> None:
    together = sum(map(len, sources.values()))
    if len(content) > together:
        raise Invalid(
            f"The content has {len(content):,} characters, its sources together {together:,}: "
            "a consolidation may not be longer than its sources."
        )


def _first_hits(hits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The oldest hits that fit into one result; at least one."""
    together = list(accumulate(len(hit["content"]) for hit in hits[:MAX_RESULTS]))
    return hits[: max(bisect(together, MAX_RESULT_CHARACTERS), 1)]


def _within_dates(entry: PromptMemory, since: date | None, until: date | None) -> bool:
    """Whether one of its dates is."""
    days = [moment.date() for moment in (entry.date, *entry.other_dates)]
    return any((since is None or day >= since) and (until is None or day <= until) for day in days)
