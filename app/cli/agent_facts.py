"""An agent as the command line tells it: the stable form for programs, a row of a table, and a page for people."""

from __future__ import annotations

from typing import Any

from app.asking.second_reader import ReaderAction, second_reader_of
from app.cli.printing import Cell, day_and_time, print_facts, print_table, say
from app.models import Agent
from app.refinement.timetable import Outlook, Timetable
from app.shapes.agent import OperatedAgent

HEADINGS = ("NAME", "MODEL", "MEMORIES", "TOKENS", "BUDGET", "LAST REFINED (UTC)", "STATE")


def describe_agents(agents: list[Agent]) -> list[dict[str, Any]]:
    """What programs rely on, for any number of agents in two queries."""
    timetable = Timetable()
    outlooks = timetable.outlooks(agents)

    def describe(agent: Agent, outlook: Outlook) -> dict[str, Any]:
        due, refinement = outlook.due, outlook.running
        needs = agent.needs_refinement(timetable.at, changeable=outlook.is_changeable)
        more = {"open_refinement": refinement and refinement.id, "next_due": due.at, "next_due_words": due.words}
        return OperatedAgent.of(agent, needs_refinement=needs, **more).as_json()

    return [describe(agent, outlooks[agent.id]) for agent in agents]


def print_agents(agents: list[Agent], described: list[dict[str, Any]]) -> None:
    """A table of agents, beside what programs are told of them."""
    print_table(HEADINGS, [_agent_row(agent, each) for agent, each in zip(agents, described, strict=True)])


def show_facts(agent: Agent, described: dict[str, Any]) -> None:
    """One agent for people. Prompts are told by their lengths."""
    share = agent.core_token_usage / agent.core_token_budget
    own = "its own" if agent.refinement_threshold is not None else "the default"
    say(agent.name)
    print_facts(
        [
            ("model", agent.model_id),
            ("address", agent.api_base),
            ("key from", agent.api_key_env and f"${agent.api_key_env}"),
            ("ledger", f"{agent.core_count:,} core memories, {agent.journal_count:,} in the journal"),
            ("mass", f"{agent.core_token_usage:,} of {agent.core_token_budget:,} tokens ({share:.0%})"),
            ("threshold", f"{agent.effective_refinement_threshold:.2%} ({own})"),
            ("confirmed losses", f"at most {agent.effective_max_confirmed_losses} a refinement"),
            ("recall probes", agent.recall_probes or "off"),
            ("second reader", _reader_words(agent)),
            ("system prompt", _text_length(agent.system_prompt)),
            ("refinement prompt", _text_length(agent.refinement_prompt) if agent.refinement_prompt else "the default"),
            ("last refined", day_and_time(agent.last_refinement_at)),
            ("last attempt", day_and_time(agent.last_attempt_at)),
            ("next run", described["next_due_words"]),
            ("state", _state_words(agent, described)),
            ("stopped because", agent.stopped_why),
            ("memories", "unreadable for ever: their keys are destroyed" if agent.forgotten_at else None),
        ]
    )


def brief_change(field: str, before: object, after: object) -> str:
    """A setting's change on one line."""
    words = _text_length if field.endswith("_prompt") else _format_value
    return f"{words(before)} → {words(after)}"


def _agent_row(agent: Agent, described: dict[str, Any]) -> list[Cell]:
    mass = [agent.core_count, agent.core_token_usage, agent.core_token_budget]
    return [agent.name, agent.model_id, *mass, day_and_time(agent.last_refinement_at), _state_words(agent, described)]


def _state_words(agent: Agent, described: dict[str, Any]) -> str:
    if agent.forgotten_at is not None:
        return f"forgotten on {agent.forgotten_at:%Y-%m-%d}"
    words = [
        "stopped" if agent.stopped_at else "",
        "refining now" if described["open_refinement"] else "",
        "" if agent.active else "inactive",
        "paused" if agent.paused else "",
        "over budget" if agent.is_over_budget else "",
        "due" if described["needs_refinement"] else "",
    ]
    return ", ".join(filter(None, words)) or "ok"


def _reader_words(agent: Agent) -> str:
    reader = second_reader_of(agent)
    if reader is None:
        return "none"
    whose = "the operator's" if reader.endpoint.is_operators else "its own"
    what = "a refinement of which not all is kept is reversed" if reader.action == ReaderAction.REVERSE else "it flags"
    return f"{reader.endpoint.model_id} ({whose}); {what}"


def _text_length(text: object) -> str:
    return f"{len(text):,} characters" if isinstance(text, str) else "none"


def _format_value(value: object) -> str:
    return "default" if value is None else f"{value:,}" if type(value) is int else str(value)
