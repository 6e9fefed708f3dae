"""One agent's history, lived twice: each step is done to the product, then to the reference, and both are compared."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from app.asking.calls import Dependencies
from app.errors import Refused
from app.extensions import db, writing
from app.history.plan import GuardFinal, NothingToUndo, Plan, Target, preview_plan
from app.history.telling import find_acts_to_tell, tell_human_acts
from app.history.undo import RollbackConflict, roll_back
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.models import (
    COMMAND_LINE,
    Action,
    Agent,
    Memory,
    MemoryType,
    Mode,
    Refinement,
    Source,
    Status,
    Trigger,
    record,
)
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from app.refinement.tool import RefinementTool
from tests.history import reference as model
from tests.history.mirror import Mirror
from tests.history.past import CORE, JOURNAL, Draft, Kind
from tests.history.reference import Noun, Reference
from tests.support.clock import FakeClock
from tests.support.factories import import_lines, make_agent, proceed, promote, toggle
from tests.support.scripted import ScriptedClient, ScriptedClients

TAGS: tuple[tuple[str, ...], ...] = ((), (), ("tea",), ("ann", "tea"), ("voice",))
TEXTS = (
    *(
        "Tea\nat five.",
        "Tea\r\nat five.",
        "Caf\u00e9 in Lisbon.",
        "Cafe\u0301 in Lisbon.",
        "a",
        "A",
        "Bob moved to Oslo.",
    ),
    *("We promised to tell the truth, however small. " * n + "Even then." for n in (1, 2, 3)),
)
FIRST = (9, 29, 8, 0, 31, 6, 46)
"""Picks of drafts: enough to refine, some alike but for their tags."""
seen: Counter[str] = Counter()
"""How often each thing happened, so that a run can say what it has tried."""


class Walk:
    """Each method from `save` to `again` is a step: `a` and `b` pick what it is done to, `more` asks for more of it."""

    def __init__(self, name: str, clock: FakeClock, threshold: str) -> None:
        agent = make_agent(name, refinement_threshold=threshold)
        self.agent_id, self.name = agent.id, agent.name
        self.keys = open_keys(agent)
        self.clock = clock
        self.reference = Reference()
        self.mirror = Mirror(agent, self.keys, self.reference)
        self.said: list[str] = []
        self._refinement_ids: list[str] = []
        self._rollback_ids: dict[int, str] = {}
        self._tool: RefinementTool | None = None
        self._undone: tuple[str, int] | None = None
        self.bring([self._draft(pick) for pick in FIRST])

    @property
    def agent(self) -> Agent:
        return db.session.get_one(Agent, self.agent_id)

    def bring(self, drafts: Sequence[Draft]) -> None:
        """An import: what every history begins with."""
        import_lines(self.agent_id, map(_line, drafts), keys=self.keys, by=COMMAND_LINE)
        self._tell("import", *(draft.text for draft in drafts))
        self.reference.save(drafts, self.clock.at, Kind.IMPORT)
        self.mirror.compare()

    def save(self, a: int, b: int, more: bool) -> None:
        drafts = [self._draft(a + 37 * number) for number in range(1 + b % 3)]
        if more:
            self.bring(drafts)
            return
        self._save(drafts)
        self._tell("save", *(draft.text for draft in drafts))
        self.reference.save(drafts, self.clock.at)
        self.mirror.compare()

    def toggle(self, a: int, _b: int, more: bool) -> None:
        """A flag that is on stays so while a refinement is open."""
        memory = _pick(self.reference.memories(CORE, constitutional=more) or self.reference.memories(CORE), a)
        if memory is None:
            return
        on = not self.reference.now(memory).constitutional
        refused = not on and self.reference.open is not None
        with pytest.raises(Refused) if refused else nullcontext():
            toggle(self.agent, self.mirror.ids[memory], on=on)
        if not refused:
            self._tell("toggle", memory)
            self.reference.toggle(memory, self.clock.at)
        self.mirror.compare()

    def promote(self, a: int, _b: int, _more: bool) -> None:
        memory = _pick(self.reference.memories(JOURNAL), a)
        if memory is not None:
            promote(self.agent, self.mirror.ids[memory])
            self._tell("promote", memory)
            self.reference.promote(memory, self.clock.at)
            self.mirror.compare()

    def dedup(self, _a: int, _b: int, _more: bool) -> None:
        if self.reference.open is None and self._start(Mode.DEDUP_ONLY):
            run_refinement(self._refinement_ids[-1], Dependencies(ScriptedClients(ScriptedClient())))
            self._tell("dedup only")
            self.reference.deduplicate(self.clock.at)
            self.reference.end()
            self.mirror.compare()

    def queue(self, _a: int, _b: int, _more: bool) -> None:
        if self.reference.open is None:
            self._start(Mode.FULL)

    def update(self, a: int, b: int, more: bool) -> None:
        memory, text = _pick(self._begun(b), a), TEXTS[b % len(TEXTS)]
        if memory is not None and self._call("update", id=self.mirror.ids[memory], content=text):
            self._tell("update", memory, text)
            self.reference.update(memory, text, self.clock.at)
        self._go_on(more)

    def delete(self, a: int, b: int, more: bool) -> None:
        """Another one, any, carries it from then on: these histories are made without a comparison of texts."""
        memory = _pick(self._begun(b), a)
        carrier = _pick([other for other in self.reference.memories(CORE) if other != memory], a + b)
        if memory is not None and carrier is not None:
            ids = {"id": self.mirror.ids[memory], "carried_by": self.mirror.ids[carrier]}
            if self._call("delete", **ids):
                self._tell("delete", memory, carrier)
                self.reference.delete(memory, carrier, self.clock.at)
        self._go_on(more)

    def consolidate(self, a: int, b: int, more: bool) -> None:
        core = self._begun(b)
        sources = sorted({core[(a + step) % len(core)] for step in (0, 1 + b)} if core else set())
        if len(sources) > 1:
            text = self.reference.text(sources[b % 2])
            if self._call("consolidate", ids=self.mirror.ids_of(sources), content=text):
                self._tell("consolidate", *sources)
                self.reference.consolidate(sources, text, self.clock.at)
        self._go_on(more)

    def protect(self, a: int, b: int, more: bool) -> None:
        memory = _pick(self._begun(b), a)
        if memory is not None and self._call("protect", id=self.mirror.ids[memory]):
            self._tell("protect", memory)
            self.reference.protect(memory)
        self._go_on(more)

    def end(self, _a: int, b: int, more: bool) -> None:
        if more and self._tool is not None:
            self._go_on(True)
        elif self.reference.open is not None:
            with writing():
                row = Refinement.lock(self._refinement_ids[self.reference.open])
                row.end(Agent.lock(self.agent_id), (Status.STOPPED, Status.INTERRUPTED)[b % 2])
            self._tell("stop")
            self.reference.end()
            self._go_on(False)

    def tell(self, _a: int, _b: int, _more: bool) -> None:
        """The worker's minute: the agent is told of what the command line did, where there is something to tell."""
        if (self.agent_id, str(COMMAND_LINE)) not in find_acts_to_tell():
            return
        tell_human_acts(self.agent_id, str(COMMAND_LINE))
        self._tell("tell the agent")
        seen["told"] += 1
        self.reference.tell(self.mirror.newest_text(), self.clock.at)
        self.mirror.compare()

    def undo(self, a: int, _b: int, _more: bool) -> None:
        self._undo("refinement", range(len(self.reference.starts)), a)

    def undo_entry(self, a: int, _b: int, _more: bool) -> None:
        self._undo("entry", list(self.mirror.entry_ids), a)

    def undo_rollback(self, a: int, _b: int, _more: bool) -> None:
        self._undo("rollback", list(self._rollback_ids), a)

    def rewind(self, a: int, _b: int, _more: bool) -> None:
        self._undo("rewind", range(len(self.reference.starts)), a)

    def again(self, _a: int, _b: int, _more: bool) -> None:
        """The same undo once more."""
        if self._undone is not None:
            self._go_back(*self._undone)

    def prove(self) -> None:
        verdict = verify(self.agent)
        assert verdict.ok, verdict.first_problem

    def _draft(self, pick: int) -> Draft:
        kind = JOURNAL if pick % 7 == 3 else CORE
        return Draft(
            TEXTS[pick % len(TEXTS)],
            self.clock.at - timedelta(hours=pick // 2),
            kind,
            kind == CORE and pick % 11 == 10,
            TAGS[pick // len(TEXTS) % len(TAGS)],
        )

    def _save(self, drafts: Sequence[Draft]) -> None:
        with writing():
            locked = Agent.lock(self.agent_id)
            memories = [
                Memory.write(
                    locked,
                    draft.text,
                    keys=self.keys,
                    source=Source.AGENT,
                    type_=MemoryType(draft.type),
                    tags=draft.tags,
                    origin_at=draft.origin_at,
                    constitutional=draft.constitutional,
                )
                for draft in drafts
            ]
            db.session.flush()
            record(Action.CREATE, actor=COMMAND_LINE, of=locked, subject=locked.subject, memories=memories)

    def _start(self, mode: Mode) -> bool:
        """Nothing is started for an empty ledger."""
        if not self.reference.memories(CORE):
            return False
        row = start_refinement(self.agent_id, trigger=Trigger.ADMIN, by=COMMAND_LINE, mode=mode)
        self._refinement_ids.append(row.id)
        self.reference.start()
        self._tell("start refinement", len(self._refinement_ids) - 1)
        return True

    def _begun(self, b: int) -> list[int]:
        """The core memories, once a refinement runs; every other one removes exact duplicates first."""
        if self.reference.open is None and not self._start(Mode.FULL):
            return []
        if self._tool is None:
            row = db.session.get_one(Refinement, self._refinement_ids[-1])
            self._tool = proceed(row, deduplicate=b % 2 == 1).tool
            if b % 2 == 1:
                self._tell("dedup")
                self.reference.deduplicate(self.clock.at)
            self.mirror.compare()
        return self.reference.memories(CORE)

    def _call(self, action: str, **arguments: Any) -> bool:
        """Whether the Knife did it. That the latch tripped is told by `_go_on`."""
        assert self._tool is not None
        result = self._tool.execute(action, **arguments)
        seen[result["type"]] += 1
        return bool(result["type"] != "error")

    def _go_on(self, more: bool) -> None:
        """After a call: the latch may have ended it, or it is completed. Both leave a note in the machine's words."""
        if self._tool is not None and self._tool.was_rolled_back:
            self._tell("trip")
            self.reference.trip(self.mirror.newest_text(), self.clock.at)
        elif self._tool is not None and more and self._tool.execute("complete", summary="Done.")["type"] != "error":
            self._tell("complete")
            self.reference.complete(self.mirror.newest_text(), self.clock.at)
        if self.reference.open is None:
            self._tool = None
        self.mirror.compare()

    def _undo(self, kind: str, among: Sequence[int], a: int) -> None:
        """Recent ones first: `a` counts back from the newest."""
        if among:
            self._undone = (kind, among[-1 - a % len(among)])
            self._go_back(*self._undone)

    def _go_back(self, kind: str, number: int) -> None:
        self._tell("rewind to before refinement" if kind == "rewind" else f"undo {kind}", number)
        if kind == "entry" and self.reference.entries[number].kind is Kind.TOLD:
            with pytest.raises(NothingToUndo):
                roll_back(self._target(kind, number), by=COMMAND_LINE)
            self.mirror.compare()
            return
        if kind == "rewind":
            target, noun = Target.rewind(self._refinement_ids[number]), Noun("refinement", number)
            expected = self.reference.plan_rewind(number, self.clock.at)
        else:
            target, noun = self._target(kind, number), Noun(kind, number)
            if kind == "entry" and self.reference.entries[number].kind is Kind.ROLLBACK:
                noun = Noun("rollback", number)
            expected = self.reference.plan_undo(noun, self.clock.at)
        self._roll_back(target, noun, expected)

    def _target(self, kind: str, number: int) -> Target:
        if kind == "refinement":
            return Target.refinement(self._refinement_ids[number])
        if kind == "rollback":
            return Target.rollback(self._rollback_ids[number])
        return Target.entry(self.mirror.entry_ids[number])

    def _roll_back(self, target: Target, noun: Noun, expected: model.Plan) -> None:
        applies = bool(expected.goals) and not expected.conflicts
        refusal = GuardFinal if expected.final else RollbackConflict if expected.conflicts else None
        end = "final" if expected.final else "conflict" if refusal else "applied" if applies else "nothing to do"
        seen[f"{target.kind}: {end}"] += 1
        self._check(preview_plan(target), expected)
        if refusal is not None:
            with pytest.raises(refusal) as refused:
                roll_back(target, by=COMMAND_LINE)
            self._check(refused.value.plan, expected)
        else:
            done = roll_back(target, by=COMMAND_LINE)
            assert done.applied == applies
            self._check(done.plan, expected)
            if applies and done.rollback is not None:
                self._rollback_ids[len(self.reference.entries)] = done.rollback.id
            elif expected.undone_by is not None:
                assert done.rollback is not None
                assert done.rollback.id == self._rollback_ids[expected.undone_by]
        was_open = self.reference.open
        self.reference.apply(expected, noun, rewinds=target.kind == "rewind")
        self._check_end(was_open, expected.stops)
        self.mirror.compare()

    def _check(self, plan: Plan, expected: model.Plan) -> None:
        assert (plan.final is not None) == expected.final
        assert list(plan.conflicts) == self.mirror.ids_of(expected.conflicts)
        assert {self._refinement_ids.index(number) for number in plan.later} == expected.later
        if not expected.conflicts:
            assert sorted(plan.memories) == self.mirror.ids_of(expected.goals)
            assert sorted(plan.stays) == self.mirror.ids_of(expected.stays)
            assert (plan.restored, plan.removed) == (expected.restored, expected.removed)
            assert (plan.mass_before, plan.mass_after) == (expected.mass_before, expected.mass_after)

    def _check_end(self, was_open: int | None, stops: bool) -> None:
        """A refinement that was running is ended by it, and answers so from then on; or it runs on."""
        if was_open is None:
            return
        row = db.session.get_one(Refinement, self._refinement_ids[was_open], populate_existing=True)
        assert (row.status == Status.STOPPED) == stops
        if stops and self._tool is not None:
            late = {"id": self.mirror.ids[0], "carried_by": self.mirror.ids[1]}
            assert "terminated" in self._tool.execute("delete", **late)["error"]
            self._tool = None

    def _tell(self, *words: object) -> None:
        self.said.append(f"{self.clock.at:%d %H:%M:%S} {self.name}: {' '.join(map(str, words))}")


def _pick(among: Sequence[int], a: int) -> int | None:
    """Mostly one of the first three, so that many steps meet at the same memory."""
    return among[(a % 3 if a < 70 else a) % len(among)] if among else None


def _line(draft: Draft) -> str:
    said = {"content": draft.text, "type": draft.type, "created_at": draft.origin_at.isoformat()}
    return json.dumps(said | {"constitutional": draft.constitutional, "tags": list(draft.tags)})
