"""Celery's settings: JSON with ids only, early acknowledgement, three queues, no results, and the beat timetable.

The database is the truth: a message only says "look at this row", so one that is lost, late or doubled does no harm.
The namespace, and the broker once more, are set when a worker or beat starts (tasks/celery.py).
"""

from __future__ import annotations

from datetime import timedelta

from kombu import Exchange, Queue

from app.config import load_settings
from tasks.timetable import Crontab

_settings = load_settings()

imports = (
    "tasks.short_queues",
    "tasks.refinement",
    "tasks.sweep",
    "tasks.intake",
    "tasks.keys",
    "tasks.grants",
    "tasks.tokens",
    "tasks.statements",
    "tasks.authoring",
    "tasks.settings_requests",
    "tasks.models",
    "tasks.proof",
    "tasks.reflection",
    "tasks.upkeep",
)

task_serializer = "json"
result_serializer = "json"
accept_content = ["json"]
task_ignore_result = True
task_store_errors_even_if_ignored = False
task_acks_late = False
_exchange = Exchange("whetstone")
task_queues = tuple(Queue(name, _exchange, routing_key=name) for name in ("refine", "upkeep", "interactive"))
task_default_queue = "upkeep"
task_routes = {
    "tasks.refinement.*": "refine",
    "tasks.grants.ask": "refine",
    "tasks.tokens.ask": "refine",
    "tasks.authoring.read": "refine",
    "tasks.settings_requests.ask": "refine",
    "tasks.models.test": "refine",
    "tasks.reflection.hear": "refine",
    "tasks.reflection.promote": "refine",
    "tasks.grants.answer": "interactive",
    "tasks.statements.settle": "interactive",
    "tasks.statements.cover": "interactive",
    "tasks.echo.*": "interactive",
}
"""What asks a model goes to `refine`, what somebody waits for to `interactive`."""

broker_url = _settings.broker_url or None
broker_transport = "tasks.transport:TaskTransport"
"""Drops malformed messages, which would end the worker."""
broker_transport_options = {"socket_connect_timeout": 5, "socket_keepalive": True, "health_check_interval": 25}
broker_connection_retry = True
broker_connection_retry_on_startup = True
broker_connection_max_retries = None

worker_pool = "threads"
worker_concurrency = _settings.concurrency
worker_disable_prefetch = True
"""A worker takes no refinement that it has no thread for: another worker may be free."""
worker_enable_prefetch_count_reduction = False
worker_cancel_long_running_tasks_on_connection_loss = False
worker_enable_remote_control = False
"""Whoever reaches the broker could shut workers down. Whether one answers, /readyz finds out by an echo."""
worker_send_task_events = False
worker_redirect_stdouts = False

enable_utc = True
timezone = "UTC"

_EVERY_MINUTE = {"schedule": timedelta(minutes=1), "options": {"expires": 55}}
_HOURLY = {"schedule": timedelta(hours=1), "options": {"expires": 3500}}

beat_schedule = {
    "weekly sweep": {"task": "tasks.sweep.weekly", "schedule": Crontab(_settings.schedule)},
    "over-budget sweep": {"task": "tasks.sweep.over_budget", **_HOURLY},
    "nightly proof": {"task": "tasks.proof.prove", "schedule": Crontab("17 * * * *"), "options": {"expires": 3500}},
    "stopped agents": {"task": "tasks.proof.look_again", **_EVERY_MINUTE},
    "daily reflection": {
        "task": "tasks.reflection.start_due",
        "schedule": Crontab("47 * * * *"),
        "options": {"expires": 3500},
    },
    "old answers": {"task": "tasks.upkeep.drop_old_answers", **_HOURLY},
    "old calls": {"task": "tasks.upkeep.drop_old_calls", **_HOURLY},
    "old sessions": {"task": "tasks.upkeep.drop_old_sessions", **_HOURLY},
    "old notices": {"task": "tasks.upkeep.drop_old_messages", **_HOURLY},
    "old events": {"task": "tasks.upkeep.drop_old_events", **_HOURLY},
    "sign of life": {"task": "tasks.upkeep.note_beat", **_EVERY_MINUTE},
    "visits that are over": {"task": "tasks.upkeep.end_visits", **_EVERY_MINUTE},
    "missed tick": {"task": "tasks.sweep.missed_tick", **_EVERY_MINUTE},
    "stalled refinements": {"task": "tasks.upkeep.close_stalled", **_EVERY_MINUTE},
    "lost starts": {"task": "tasks.upkeep.find_lost_starts", **_EVERY_MINUTE},
    "lost intakes": {"task": "tasks.upkeep.find_lost_intakes", **_EVERY_MINUTE},
    "exceptions": {"task": "tasks.grants.look_after", **_EVERY_MINUTE},
    "token requests": {"task": "tasks.tokens.look_after", **_EVERY_MINUTE},
    "signed requests": {"task": "tasks.statements.look_after", **_EVERY_MINUTE},
    "prompts to read": {"task": "tasks.authoring.find_unread", **_EVERY_MINUTE},
    "prompts to tell of": {"task": "tasks.authoring.tell_what_was_decided", **_EVERY_MINUTE},
    "changes to ask about": {"task": "tasks.settings_requests.find_unasked", **_EVERY_MINUTE},
    "acts to tell of": {"task": "tasks.upkeep.tell_human_acts", **_EVERY_MINUTE},
    "lost keys": {"task": "tasks.upkeep.find_lost_keys", **_EVERY_MINUTE},
    "removed keys": {"task": "tasks.upkeep.shred_removed_keys", **_EVERY_MINUTE},
}
beat_max_loop_interval = 30
