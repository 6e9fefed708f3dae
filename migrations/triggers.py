"""The triggers that hold whatever the code does: an append-only log, the constitution, and ends that are never left.

They are the same promises in two dialects, so they are made anew after every migration rather than once in one of them.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

APPEND_ONLY = ("audit_log", "memory_states")
"""Rows of these tables are neither changed nor removed nor replaced, by anything."""

OPEN = "('queued', 'asking', 'running')"

_SAME_ROW = {
    "audit_log": "id = NEW.id OR (chain = NEW.chain AND sequence = NEW.sequence)",
    "memory_states": "memory_id = NEW.memory_id AND entry_id = NEW.entry_id",
    "memories": "id = NEW.id",
    "refinements": f"id = NEW.id OR (agent_id = NEW.agent_id AND status IN {OPEN} AND NEW.status IN {OPEN})",
}


def install_triggers(connection: Connection) -> None:
    """Make every trigger; they must not exist."""
    for statement in _statements(connection.dialect.name):
        connection.execute(text(statement))


def drop_triggers(connection: Connection) -> None:
    """Remove every trigger that is there, so that tables can be rebuilt."""
    for name, table, _ in sorted(_existing(connection)):
        if connection.dialect.name == "sqlite":
            connection.execute(text(f"DROP TRIGGER {name}"))
        else:
            connection.execute(text(f"DROP TRIGGER {name} ON {table}"))


def missing_triggers(connection: Connection) -> set[str]:
    """Names of declared triggers that the database lacks, or that somebody switched off."""
    return declared(connection.dialect.name) - {name for name, _, is_on in _existing(connection) if is_on}


def declared(dialect: str) -> set[str]:
    """The names of all triggers that must be there."""
    names = {f"wt_{table}_{verb}" for table in APPEND_ONLY for verb in ("no_update", "no_delete")}
    names |= {f"wt_{table}_{promise}" for table in ("memories", "refinements") for promise in ("no_delete", "identity")}
    names |= {"wt_memories_constitution", "wt_refinements_end"}
    if dialect == "sqlite":
        return names | {f"wt_{table}_no_replace" for table in _SAME_ROW}
    return names | {f"wt_{table}_no_truncate" for table in _SAME_ROW}


def _existing(connection: Connection) -> set[tuple[str, str, bool]]:
    """Name, table, and whether it fires."""
    if connection.dialect.name == "sqlite":
        query = "SELECT name, tbl_name, 1 FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'wt\\_%' ESCAPE '\\'"
    else:
        query = (
            "SELECT t.tgname, c.relname, t.tgenabled IN ('O', 'A')"
            " FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
            " JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = current_schema()"
            " WHERE NOT t.tgisinternal AND t.tgname LIKE 'wt\\_%'"
        )
    return {(row[0], row[1], bool(row[2])) for row in connection.execute(text(query))}


_WHAT = {"audit_log": "the audit log is append-only", "memory_states": "the states of memories are append-only"}
_CONSTITUTION = "a constitutional memory can not be changed or discarded"
_IDENTITY = {
    "memories": "a memory keeps its number and its agent",
    "refinements": "a refinement keeps its number and its agent",
}
_NEVER = {"memories": "memories are never removed", "refinements": "refinements are never removed"}
_END = "an end state is never left"

_CHANGED = " OR ".join(
    f"NEW.{column} IS {{differs}} OLD.{column}" for column in ("content", "content_hash", "discarded_at", "type")
)


def _statements(dialect: str) -> list[str]:
    return _sqlite() if dialect == "sqlite" else _postgresql()


def _sqlite() -> list[str]:
    changed = _CHANGED.format(differs="NOT")
    made = [
        _sqlite_trigger(
            "memories", "constitution", "UPDATE", f"WHEN OLD.constitutional AND ({changed})", _CONSTITUTION
        ),
        _sqlite_trigger(
            "refinements",
            "end",
            "UPDATE",
            f"WHEN OLD.status NOT IN {OPEN} AND (NEW.status <> OLD.status OR NEW.mutations <> OLD.mutations)",
            _END,
        ),
    ]
    for table in APPEND_ONLY:
        made += [_sqlite_trigger(table, f"no_{verb.lower()}", verb, "", _WHAT[table]) for verb in ("UPDATE", "DELETE")]
    for table, sentence in _IDENTITY.items():
        moved = "WHEN NEW.id <> OLD.id OR NEW.agent_id <> OLD.agent_id"
        made.append(_sqlite_trigger(table, "no_delete", "DELETE", "", _NEVER[table]))
        made.append(_sqlite_trigger(table, "identity", "UPDATE", moved, sentence))
    for table, same in _SAME_ROW.items():
        when = f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {same})"
        made.append(_sqlite_trigger(table, "no_replace", "INSERT", when, "the row exists and can not be replaced"))
    return made


def _sqlite_trigger(table: str, name: str, verb: str, when: str, sentence: str) -> str:
    return (
        f"CREATE TRIGGER wt_{table}_{name} BEFORE {verb} ON {table} {when}"
        f" BEGIN SELECT RAISE(ABORT, 'whetstone: {sentence}'); END"
    )


def _postgresql() -> list[str]:
    changed = _CHANGED.format(differs="DISTINCT FROM")
    made = [
        _REFUSE,
        _pg_trigger("memories", "constitution", "UPDATE", f"WHEN (OLD.constitutional AND ({changed}))", _CONSTITUTION),
        _pg_trigger(
            "refinements",
            "end",
            "UPDATE",
            f"WHEN (OLD.status NOT IN {OPEN} AND (NEW.status <> OLD.status OR NEW.mutations <> OLD.mutations))",
            _END,
        ),
    ]
    for table in APPEND_ONLY:
        made += [_pg_trigger(table, f"no_{verb.lower()}", verb, "", _WHAT[table]) for verb in ("UPDATE", "DELETE")]
    for table, sentence in _IDENTITY.items():
        moved = "WHEN (NEW.id <> OLD.id OR NEW.agent_id <> OLD.agent_id)"
        made.append(_pg_trigger(table, "no_delete", "DELETE", "", _NEVER[table]))
        made.append(_pg_trigger(table, "identity", "UPDATE", moved, sentence))
    for table, sentence in (_WHAT | _NEVER).items():
        made.append(
            f"CREATE TRIGGER wt_{table}_no_truncate BEFORE TRUNCATE ON {table}"
            f" FOR EACH STATEMENT EXECUTE FUNCTION wt_refuse('{sentence}')"
        )
    return made


_REFUSE = """
CREATE OR REPLACE FUNCTION wt_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'whetstone: %', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END $$
"""


def _pg_trigger(table: str, name: str, verb: str, when: str, sentence: str) -> str:
    return (
        f"CREATE TRIGGER wt_{table}_{name} BEFORE {verb} ON {table} FOR EACH ROW {when}"
        f" EXECUTE FUNCTION wt_refuse('{sentence}')"
    )
