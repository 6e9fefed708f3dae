"""What the log says of humans' acts on memories, and of telling the agent of them, against the rows."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime

from sqlalchemy import select

from app.extensions import db
from app.history.difference import entry_name, owner_difference
from app.models import Action, Agent, AuditLog, HumanAct
from app.models.human_act import is_human_act

BATCH = 500


class Acts:
    """Of one agent: by entry, who acted and when, and when the agent was told."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._acts: dict[int, tuple[str, datetime]] = {}
        self._told: dict[int, datetime] = {}

    def take(self, entry: AuditLog) -> None:
        """The next entry of the agent's chain. Raises Difference."""
        if is_human_act(entry):
            self._acts[entry.id] = entry.actor, entry.at
        if entry.action != Action.AGENT_TOLD:
            return
        told = entry.data.get("entries", [])
        if not isinstance(told, list) or not set(told) <= set(self._acts):
            raise owner_difference(self._agent, f"{entry_name(entry)} tells of what no human did.", entry.id)
        self._told |= dict.fromkeys(told, entry.at)

    def compare(self, agent: Agent) -> None:
        """Raises Difference unless the rows say the same."""
        left = dict(self._acts)
        rows = select(HumanAct).where(HumanAct.agent_id == agent.id).order_by(HumanAct.entry_id)
        with closing(db.session.scalars(rows.execution_options(yield_per=BATCH))) as found:
            for act in found:
                if left.pop(act.entry_id, None) != (act.actor, act.at):
                    raise owner_difference(
                        agent, f"the human act of entry id {act.entry_id} is not what the log says.", act.entry_id
                    )
                if act.told_at != self._told.get(act.entry_id):
                    sentence = f"when the agent was told of entry id {act.entry_id} is not what the log says."
                    raise owner_difference(agent, sentence, act.entry_id)
        for entry_id in left:
            raise owner_difference(
                agent, f"of entry id {entry_id} the agent would never be told: its row is gone.", entry_id
            )
