"""Which parts are looked at, in the order in which faults are mended: by `doctor`, and by the health page."""

from __future__ import annotations

from app.installation import database_checks, host_checks, part_checks
from app.installation.findings import Check, CheckScope
from app.version import app_version


def _tell_version(scope: CheckScope) -> str:
    database_checks.check_database_version(scope)
    return f"Whetstone {app_version()}; the database is of this version"


DATABASE = Check("database", "Database", database_checks.check_database)
DISK = Check("disk", "Disk", host_checks.check_disk_space)
GUARDS = Check("guards", "Guards in the database", database_checks.check_triggers, ("version",))
PROOF = Check("proof", "Proof of the record", database_checks.check_proof, ("version",))
BACKUP = Check("backup", "Key backup", host_checks.check_backup, ("version",))
LOG = Check("log", "Log of statements", database_checks.check_statement_log, ("version",))
CHECKPOINT = Check("checkpoint", "Checkpoints", database_checks.check_checkpoints, ("log",))
CLOCK = Check("clock", "Clock", database_checks.check_clock, ("database",))
BROKER = Check("broker", "Broker", part_checks.check_broker)
WORKER = Check("worker", "Workers", part_checks.check_worker, ("version", "broker"))
BEAT = Check("beat", "Beat", part_checks.check_beat, ("version",))
PARTS = Check("parts", "Stopped parts", part_checks.check_stopped_parts)
WAITING = Check("waiting", "Queue", part_checks.check_waiting_refinements, ("version",))

ON_THE_HOST = (
    Check("apart", "Separation", host_checks.check_separation),
    Check("web", "Web processes", host_checks.check_web_keys),
    Check("data", "Data directory", host_checks.check_private_folder),
    DISK,
    DATABASE,
    Check("version", "Version", database_checks.check_database_version, ("database",)),
    *(GUARDS, PROOF),
    Check("key", "Master key", host_checks.check_master_key, ("version",)),
    *(BACKUP, LOG, CHECKPOINT, CLOCK, BROKER, WORKER, BEAT, PARTS, WAITING),
)
"""What `./whetstone doctor` looks at: it may read the master key."""

ON_THE_PAGE = (
    *(DISK, DATABASE),
    Check("version", "Version", _tell_version, ("database",)),
    *(GUARDS, PROOF, BACKUP, LOG, CHECKPOINT, CLOCK, BROKER, WORKER, BEAT, PARTS),
    Check("stream", "Event stream", part_checks.check_event_stream),
    WAITING,
)
"""What a web process looks at: nothing that needs a private key, or lies where only the worker may read."""
