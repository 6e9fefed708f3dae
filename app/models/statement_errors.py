"""What stops the work where the database and the log of statements differ."""

from __future__ import annotations

from app.silo import SealBroken

AFTER_A_RESTORE = (
    "Nothing is opened until that is settled. If you have just restored a backup, run `./whetstone restore accept`; "
    "if you have not, somebody changed the database: keep it as it is, and compare it with a backup."
)


class LogBroken(SealBroken):
    """The database's log of statements does not extend the copy outside of it."""

    code = "log_broken"
    http_status = 503

    def __init__(self, what: str) -> None:
        super().__init__(f"The log of statements is not the one that was seen before: {what}. {AFTER_A_RESTORE}")


class AgentStopped(SealBroken):
    """What the database says of an agent differs from the log of statements."""

    code = "agent_stopped"
    http_status = 503

    def __init__(self, what: str, agent_id: int | None = None) -> None:
        self.what, self.agent_id = what, agent_id
        super().__init__(f"{what}. Nothing of this agent is opened or asked until that is settled.")
