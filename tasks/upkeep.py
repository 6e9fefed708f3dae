"""The sweeper: what a dead worker or a broker that was away left behind, and what nobody asks for any more."""

from __future__ import annotations

from app.extensions import writing
from app.history import erasing, reversing, telling
from app.keys.provision import find_unprovisioned
from app.keys.shredding import shred_files
from app.models import WORKER, event, model_call, presence, user_session, visits
from app.models.idempotency import drop_old_keys
from app.models.intake import CONVERSATION, IMPORT, Intake
from app.models.notice import drop_old_notices
from app.refinement import sweep
from tasks import intake, keys, refinement, reflection
from tasks.celery import task
from tasks.queue import send_lost


@task
def note_beat() -> None:
    """Beat asks each minute: that this runs at all says that beat, broker and a worker do."""
    with writing():
        presence.note_beat()


@task
def close_stalled() -> None:
    sweep.close_stalled()


@task
def find_lost_starts() -> None:
    send_lost(refinement.refine, sweep.find_lost_starts())


@task
def find_lost_intakes() -> None:
    """Imports wait for any worker, conversations for one that asks the agent's model."""
    for intake_id in Intake.find_lost(IMPORT):
        intake.enqueue(intake_id)
    for intake_id in Intake.find_lost(CONVERSATION):
        reflection.enqueue(intake_id)


@task
def find_lost_keys() -> None:
    for agent_id in find_unprovisioned():
        keys.enqueue(agent_id)


@task
def tell_human_acts() -> None:
    """Tell agents, in their journals, what humans did to their memories, and what was reversed there: the dashboard has
    no key to do so."""
    for agent_id, actor in telling.find_acts_to_tell():
        telling.tell_human_acts(agent_id, actor)
    for refinement_id in reversing.find_untold_reversals():
        reversing.tell_reversal(refinement_id)


@task
def shred_removed_keys() -> None:
    """What could not be cleaned at once, because others were using the tables; and data keys that are due."""
    for agent_id in erasing.find_due_data_keys():
        erasing.renew_data_key(agent_id, by=WORKER)
    shred_files()


@task
def drop_old_answers() -> None:
    """Those that agents could have asked for again by their Idempotency-Key."""
    drop_old_keys()


@task
def drop_old_events() -> None:
    """Those that no page needs any more: announcements, not records."""
    event.drop_old_events()


@task
def drop_old_sessions() -> None:
    """Those of which no cookie lives any more."""
    user_session.drop_old_sessions()


@task
def end_visits() -> None:
    """Of operators to other accounts: what is over has its entry there within a minute."""
    visits.end_visits()


@task
def drop_old_calls() -> None:
    """What calls of models cost, where it is too long ago to be compared."""
    model_call.drop_old_calls()


@task
def drop_old_messages() -> None:
    """Notices, and the log of their delivery."""
    drop_old_notices()
