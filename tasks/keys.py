"""Makes the keys of agents, and shares them with tokens, that were made where no private key is: in the web process."""

from __future__ import annotations

from app.keys import provision as provisioning
from tasks.celery import task
from tasks.queue import send_task


def enqueue(agent_id: int) -> bool:
    """Ask a worker for an agent's keys, once agent or token are committed. Never raises; see `send_task`."""
    return send_task(provision, agent_id)


@task
def provision(agent_id: int) -> None:
    provisioning.provision_keys(agent_id)
