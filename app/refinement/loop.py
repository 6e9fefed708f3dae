"""The loop between a model and its tools. It knows turns, calls and limits; it knows nothing of memories."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Protocol

from app.llm.client import ModelError, Reply, ToolCall, Usage
from app.refinement.repetition import RefusedCalls

MAX_SILENT_TURNS = 2
"""Replies without a call, one after another, after which the model is taken to be done without saying so."""

REMINDER = (
    "You called no function. Call complete_refinement when you are done; zero changes is a valid and good outcome."
)


class LoopOutcome(StrEnum):
    """Why the loop ended."""

    CLOSED = "closed"
    TURNS = "turns"
    TIME = "time"
    TOKENS = "tokens"
    COST = "cost"
    MONTH = "month"
    SILENT = "silent"
    REFUSED = "refused"


class Toolbox(Protocol):
    """What the model may call."""

    is_over: bool
    was_rolled_back: bool

    def specifications(self) -> list[dict[str, Any]]: ...

    def call(self, name: str, raw_arguments: str) -> Mapping[str, Any]: ...

    def settle(self) -> None:
        """All calls of one reply are answered."""


@dataclass(frozen=True)
class Limits:
    """`time_left` gives seconds; tokens and dollars are those of this loop. `month_is_spent` is about its account."""

    max_turns: int
    time_left: Callable[[], float]
    max_tokens: int
    max_cost_usd: Decimal
    month_is_spent: Callable[[], bool] = bool


Ask = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], Reply]
OnTurn = Callable[[int, Reply], None]


def run_tool_loop(
    ask: Ask, opening: Sequence[Mapping[str, Any]], tools: Toolbox, limits: Limits, on_turn: OnTurn
) -> LoopOutcome:
    """Let the model call its tools, strictly one after another, until they say that it is over or a limit is reached.

    `ask` makes one model call, retries included, and raises ModelError; `on_turn` hears of every reply before its calls
    are made. After a rollback the model gets one more turn, so that it is told; its calls then change nothing.
    """
    messages: list[Mapping[str, Any]] = list(opening)
    used, silent, refused = Usage(), 0, RefusedCalls()
    for turn in range(1, limits.max_turns + 1):
        reached, told = _reached_limit(used, limits), tools.is_over
        if reached is not None:
            return LoopOutcome.CLOSED if told else reached
        try:
            reply = ask(messages, tools.specifications())
        except ModelError:
            if not told:
                raise
            return LoopOutcome.CLOSED
        used += reply.usage
        on_turn(turn, reply)
        results = _call_tools(reply, tools, limits)
        messages += [reply.as_message(), *map(_result_message, reply.tool_calls, results)]
        if tools.is_over and (told or not tools.was_rolled_back):
            return LoopOutcome.CLOSED
        for call, result in zip(reply.tool_calls, results, strict=False):
            refused.take(turn, call, result)
        if refused.are_too_many and not tools.is_over:
            return LoopOutcome.REFUSED
        silent = 0 if reply.tool_calls else silent + 1
        if silent >= MAX_SILENT_TURNS:
            return LoopOutcome.SILENT
        if silent:
            messages.append({"role": "user", "content": REMINDER})
    return LoopOutcome.CLOSED if tools.is_over else LoopOutcome.TURNS


def _call_tools(reply: Reply, tools: Toolbox, limits: Limits) -> list[Mapping[str, Any]]:
    """Of its calls, one after another for as long as there is time."""
    results = [tools.call(call.name, call.arguments) for call in reply.tool_calls if limits.time_left() > 0]
    tools.settle()
    return results


def _result_message(call: ToolCall, result: Mapping[str, Any]) -> Mapping[str, Any]:
    content = json.dumps(result, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": call.id, "name": call.sendable_name, "content": content}


def _reached_limit(used: Usage, limits: Limits) -> LoopOutcome | None:
    if limits.time_left() <= 0:
        return LoopOutcome.TIME
    if used.total_tokens >= limits.max_tokens:
        return LoopOutcome.TOKENS
    if used.cost_usd > limits.max_cost_usd:
        return LoopOutcome.COST
    if limits.month_is_spent():
        return LoopOutcome.MONTH
    return None
