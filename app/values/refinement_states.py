"""How a refinement stands, who wanted it and how much it may do: the words of its row."""

from __future__ import annotations

from enum import StrEnum


class Trigger(StrEnum):
    """Who wanted it."""

    WEEKLY = "weekly"
    OVER_BUDGET = "over_budget"
    ADMIN = "admin"
    AGENT = "agent"


class Mode(StrEnum):
    FULL = "full"
    DEDUP_ONLY = "dedup_only"


class Status(StrEnum):
    """`queued`, `asking` (for consent) and `running` are open; all others are ends, and an end is never left."""

    QUEUED = "queued"
    ASKING = "asking"
    RUNNING = "running"
    COMPLETED = "completed"
    DECLINED = "declined"
    ROLLED_BACK = "rolled_back"
    STOPPED = "stopped"
    UNFINISHED = "unfinished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


OPEN_STATES = (Status.QUEUED, Status.ASKING, Status.RUNNING)
BROKEN_STATES = (Status.FAILED, Status.INTERRUPTED)
UNLOOKED_STATES = BROKEN_STATES
"""Ends after which the agent does not count as looked at."""
REFINED_STATES = (Status.COMPLETED, Status.ROLLED_BACK)
"""Ends after which it counts as refined, so that the schedule waits for its interval."""
CHANGELESS_STATES = (Status.DECLINED, Status.ROLLED_BACK)
"""Ends that leave no change but the removal of exact duplicates."""
AUTOMATIC = (Trigger.WEEKLY, Trigger.OVER_BUDGET)
"""Started by beat."""


class WaitsFor(StrEnum):
    """What an open refinement waits for."""

    WORKER = "worker"
    PLACE = "place"
    MONTH = "month"
    DUPLICATES = "duplicates"
    CONSENT = "consent"
    QUESTIONS = "questions"
    TURN = "turn"
    READER = "reader"
    ANSWERS = "answers"
