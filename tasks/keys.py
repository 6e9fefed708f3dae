"""Makes the keys of agents, and shares them with tokens, that were made where no private key is: in the web process."""

from __future__ import annotations

from app.history import erasing
from app.keys import provision as provisioning
from app.keys.shredding import shred_files
from app.models import WORKER
from tasks.celery import task
from tasks.queue import send_task


def enqueue(agent_id: int) -> bool:
    """Ask a worker for an agent's keys, once agent or token are committed. Never raises; see `send_task`."""
    return send_task(provision, agent_id)


def enqueue_renewal(agent_id: int) -> bool:
    """Ask a worker for the data key that is due once a memory was erased. Never raises; see `send_task`."""
    return send_task(renew, agent_id)


@task
def renew(agent_id: int) -> None:
    """With it, the files of the database are cleaned of the old one's work."""
    erasing.renew_data_key(agent_id, by=WORKER)
    shred_files()


@task
def provision(agent_id: int) -> None:
    provisioning.provision_keys(agent_id)
