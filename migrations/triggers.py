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
    "refinements": "id = NEW.id",
}


def install_triggers(connection: Connection) -> None:
    """Make every trigger; they must not exist."""
    for statement in _statements(connection.dialect.name):
        connection.execute(text(statement))


def drop_triggers(connection: Connection) -> None:
    """Remove every trigger that is there, so that tables can be rebuilt."""
    for name, table in sorted(_existing(connection)):
        if connection.dialect.name == "sqlite":
            connection.execute(text(f"DROP TRIGGER {name}"))
        else:
            connection.execute(text(f"DROP TRIGGER {name} ON {table}"))


def missing_triggers(connection: Connection) -> set[str]:
    """Names of declared triggers that the database lacks."""
    return declared(connection.dialect.name) - {name for name, _ in _existing(connection)}


def declared(dialect: str) -> set[str]:
    """The names of all triggers that must be there."""
    names = {f"wt_{table}_{verb}" for table in APPEND_ONLY for verb in ("no_update", "no_delete")}
    names |= {"wt_memories_no_delete", "wt_memories_constitution", "wt_memories_identity", "wt_refinements_end"}
    if dialect == "sqlite":
        return names | {f"wt_{table}_no_replace" for table in _SAME_ROW}
    return names | {f"wt_{table}_no_truncate" for table in (*APPEND_ONLY, "memories")}


def _existing(connection: Connection) -> set[tuple[str, str]]:
    if connection.dialect.name == "sqlite":
        query = "SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'wt\\_%' ESCAPE '\\'"
    else:
        query = (
            "SELECT t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
            " JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = current_schema()"
            " WHERE NOT t.tgisinternal AND t.tgname LIKE 'wt\\_%'"
        )
    return {(row[0], row[1]) for row in connection.execute(text(query))}


_WHAT = {"audit_log": "the audit log is append-only", "memory_states": "the states of memories are append-only"}
_CONSTITUTION = "a constitutional memory can not be changed or discarded"
_IDENTITY = "a memory keeps its number and its agent"
_NEVER = "memories are never removed"
_END = "an end state is never left"

_CHANGED = " OR ".join(
    f"NEW.{column} IS {{differs}} OLD.{column}" for column in ("content", "content_hash", "discarded_at", "type")
)


def _statements(dialect: str) -> list[str]:
    return _sqlite() if dialect == "sqlite" else _postgresql()


def _sqlite() -> list[str]:
    changed = _CHANGED.format(differs="NOT")
    made = [
        _sqlite_trigger("memories", "no_delete", "DELETE", "", _NEVER),
        _sqlite_trigger(
            "memories", "constitution", "UPDATE", f"WHEN OLD.constitutional AND ({changed})", _CONSTITUTION
        ),
        _sqlite_trigger(
            "memories", "identity", "UPDATE", "WHEN NEW.id <> OLD.id OR NEW.agent_id <> OLD.agent_id", _IDENTITY
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
        _pg_trigger("memories", "no_delete", "DELETE", "", _NEVER),
        _pg_trigger("memories", "constitution", "UPDATE", f"WHEN (OLD.constitutional AND ({changed}))", _CONSTITUTION),
        _pg_trigger(
            "memories", "identity", "UPDATE", "WHEN (NEW.id <> OLD.id OR NEW.agent_id <> OLD.agent_id)", _IDENTITY
        ),
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
    for table in (*APPEND_ONLY, "memories"):
        sentence = _WHAT.get(table, _NEVER)
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
