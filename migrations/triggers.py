"""The triggers that hold whatever the code does: an append-only log, the constitution, and ends that are never left.

They are the same promises in two dialects, so they are made anew after every migration rather than once in one of them.
"""

from __future__ import annotations

import re

from sqlalchemy import Connection, text

from app.values.mass_story import NOUNS
from app.values.refinement_states import OPEN_STATES

APPEND_ONLY = ("audit_log", "memory_states", "log_leaves")
"""Rows of these tables are neither changed nor removed nor replaced, by anything."""

OPEN = str(tuple(map(str, OPEN_STATES)))

_SAME_ROW = {
    "audit_log": "id = NEW.id OR (chain = NEW.chain AND sequence = NEW.sequence)",
    "memory_states": "memory_id = NEW.memory_id AND entry_id = NEW.entry_id",
    "log_leaves": "position = NEW.position",
    "memories": "id = NEW.id",
    "refinements": f"id = NEW.id OR (agent_id = NEW.agent_id AND status IN {OPEN} AND NEW.status IN {OPEN})",
    "rollbacks": "id = NEW.id OR entry_id = NEW.entry_id",
    "attention_items": "id = NEW.id OR (entry_id = NEW.entry_id AND kind = NEW.kind)",
    "human_acts": "id = NEW.id OR entry_id = NEW.entry_id",
}


def install_triggers(connection: Connection) -> None:
    """Make every trigger; they must not exist."""
    for statement in trigger_statements(connection.dialect.name):
        connection.execute(text(statement))


def drop_triggers(connection: Connection) -> None:
    """Remove every trigger that is there, so that tables can be rebuilt."""
    for name, table, _ in sorted(_existing(connection)):
        if connection.dialect.name == "sqlite":
            connection.execute(text(f"DROP TRIGGER {name}"))
        else:
            connection.execute(text(f"DROP TRIGGER {name} ON {table}"))


def missing_triggers(connection: Connection) -> set[str]:
    """Names of declared triggers that the database lacks, or that somebody switched off or made harmless."""
    return declared(connection.dialect.name) - {name for name, _, holds in _existing(connection) if holds}


def declared(dialect: str) -> set[str]:
    """The names of all triggers that must be there."""
    names = {f"wt_{table}_{verb}" for table in APPEND_ONLY for verb in ("no_update", "no_delete", "in_order")}
    names |= {f"wt_{table}_no_delete" for table in _NEVER} | {f"wt_{table}_identity" for table in _IDENTITY}
    names |= {"wt_memories_constitution", "wt_memories_erased", "wt_refinements_end", "wt_rollbacks_fixed"}
    if dialect == "sqlite":
        return names | {f"wt_{table}_no_replace" for table in _SAME_ROW}
    return names | {f"wt_{table}_no_truncate" for table in _SAME_ROW}


def _existing(connection: Connection) -> set[tuple[str, str, bool]]:
    """Name, table, and whether it fires and refuses as declared."""
    if connection.dialect.name == "sqlite":
        query = (
            "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'wt\\_%' ESCAPE '\\'"
        )
        statements = set(_sqlite())
        return {(name, table, sql in statements) for name, table, sql in connection.execute(text(query))}
    query = (
        "SELECT t.tgname, c.relname, pg_get_triggerdef(t.oid, true), p.prosrc, t.tgenabled = 'A'"
        " OR (t.tgenabled = 'O' AND current_setting('session_replication_role') <> 'replica')"
        " FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid"
        " JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = current_schema()"
        " WHERE NOT t.tgisinternal AND t.tgname LIKE 'wt\\_%'"
    )
    wanted = set(map(_outline, _postgresql()))
    bodies = {f"wt_{table}_in_order": _body(_in_order(table, condition)) for table, condition in _OUT_OF_ORDER.items()}
    return {
        (name, table, fires and _outline(said) in wanted and body == bodies.get(name, _body(_REFUSE)))
        for name, table, said, body, fires in connection.execute(text(query)).tuples()
    }


def _outline(statement: str) -> str:
    """PostgreSQL tells a condition in words of its own: of that, only whether there is one."""
    return re.sub(r" WHEN \(.*\) ", " WHEN … ", " ".join(statement.split()))


def _body(function: str) -> str:
    return function.split("$$")[1]


_WHAT = {
    "audit_log": "the audit log is append-only",
    "memory_states": "the states of memories are append-only",
    "log_leaves": "the log of statements is append-only",
}
_OUT_OF_ORDER = {
    "audit_log": (
        "NOT (NEW.sequence = 1 AND length(NEW.previous_hash) = 0) AND NOT EXISTS (SELECT 1 FROM audit_log"
        " WHERE chain = NEW.chain AND sequence = NEW.sequence - 1 AND hash = NEW.previous_hash)"
    ),
    "memory_states": (
        "NOT EXISTS (SELECT 1 FROM audit_log e WHERE e.id = NEW.entry_id AND NOT EXISTS"
        " (SELECT 1 FROM audit_log l WHERE l.chain = e.chain AND l.sequence = e.sequence + 1))"
    ),
    "log_leaves": "NEW.position <> (SELECT coalesce(max(position) + 1, 0) FROM log_leaves)",
}
"""What comes is behind the last entry of its chain, and names its hash; a state comes with the last entry. A leaf of
the log of statements takes the next place."""

_CONSTITUTION = "a constitutional memory can not be changed or discarded"
_IDENTITY = {
    "memories": (("id", "agent_id"), "a memory keeps its number and its agent"),
    "refinements": (("id", "agent_id"), "a refinement keeps its number and its agent"),
    "attention_items": (("id", "agent_id", "entry_id", "kind"), "what calls for attention keeps its entry and kind"),
    "human_acts": (("id", "agent_id", "entry_id"), "the act of a human keeps its entry"),
}
_NEVER = {
    "memories": "memories are never removed",
    "refinements": "refinements are never removed",
    "rollbacks": "rollbacks are never removed",
    "attention_items": "what calls for attention is never removed",
    "human_acts": "the acts of humans are never removed",
}
_ERASED = "an erased memory stays erased and discarded"
_BACK = "OLD.erased_at IS NOT NULL AND (NEW.discarded_at IS NULL OR NEW.erased_at IS {differs} OLD.erased_at)"
_END = "an end state is never left, and of an ended refinement only who undid it may change"
_FIXED = "of a rollback only who undid it may change"

_CHANGED = " OR ".join(
    f"NEW.{column} IS {{differs}} OLD.{column}" for column in ("content_digest", "discarded_at", "type")
)

_AFTER_THE_END = " OR ".join(
    [
        *(
            f"NEW.{column} IS {{differs}} OLD.{column}"
            for column in (
                *("id", "account_id", "agent_id", "trigger", "started_by", "mode", "status", "model_id", "threshold"),
                *("cap", "mass_before", "kept_mass", "mass_after", "snapshot_entry_id", "mutations", *NOUNS),
                *("deduplicated_tokens", "turns", "calls"),
                *("memories_merged", "memories_before", "memories_after"),
                *("specifics_checked", "specifics_missing", "specifics_restored", "specifics_confirmed"),
                *("confirmed_losses", "max_confirmed_losses"),
                *("reader_model", "reader_action", "ending", "probes_asked", "probes_kept"),
                *("missing_named", "missing_held"),
                *("prompt_tokens", "completion_tokens", "cost_usd", "erosion_floor", "erosion_cut", "erosion_base"),
                *("reason", "failure", "summary", "worker", "heartbeat_at", "stop_requested_at"),
                *("stop_requested_by", "requested_at", "started_at", "ended_at"),
            )
        ),
        *(
            f"CAST(NEW.{column} AS TEXT) IS {{differs}} CAST(OLD.{column} AS TEXT)"
            for column in ("refused", "second_reading")
        ),
    ]
)
"""All of a refinement but `undone_by`."""

_MOVED = " OR ".join(
    f"CAST(NEW.{column} AS TEXT) IS {{differs}} CAST(OLD.{column} AS TEXT)"
    for column in (
        *("id", "account_id", "agent_id", "kind", "refinement_id", "target_entry_id", "rollback_id", "entry_id"),
        *("requested_by", "reversed", "mass_before", "mass_after", "undid", "redid", "at"),
    )
)
"""All of a rollback but `undone_by`; as text, because PostgreSQL compares no JSON."""


def trigger_statements(dialect: str) -> list[str]:
    """What makes every trigger, in order."""
    return _sqlite() if dialect == "sqlite" else _postgresql()


def _sqlite() -> list[str]:
    changed = _CHANGED.format(differs="NOT")
    made = [
        _sqlite_trigger(
            "memories", "constitution", "UPDATE", f"WHEN OLD.constitutional AND ({changed})", _CONSTITUTION
        ),
        _sqlite_trigger("memories", "erased", "UPDATE", f"WHEN {_BACK.format(differs='NOT')}", _ERASED),
        _sqlite_trigger(
            "refinements",
            "end",
            "UPDATE",
            f"WHEN OLD.status NOT IN {OPEN} AND ({_AFTER_THE_END.format(differs='NOT')})",
            _END,
        ),
        _sqlite_trigger("rollbacks", "fixed", "UPDATE", f"WHEN {_MOVED.format(differs='NOT')}", _FIXED),
    ]
    for table in APPEND_ONLY:
        made += [_sqlite_trigger(table, f"no_{verb.lower()}", verb, "", _WHAT[table]) for verb in ("UPDATE", "DELETE")]
        made.append(_sqlite_trigger(table, "in_order", "INSERT", f"WHEN {_OUT_OF_ORDER[table]}", _WHAT[table]))
    for table, (columns, sentence) in _IDENTITY.items():
        made.append(_sqlite_trigger(table, "identity", "UPDATE", f"WHEN {_moved(columns)}", sentence))
    made += [_sqlite_trigger(table, "no_delete", "DELETE", "", sentence) for table, sentence in _NEVER.items()]
    for table, same in _SAME_ROW.items():
        when = f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {same})"
        made.append(_sqlite_trigger(table, "no_replace", "INSERT", when, "the row exists and can not be replaced"))
    return made


def _moved(columns: tuple[str, ...]) -> str:
    """None of these is ever null."""
    return " OR ".join(f"NEW.{column} <> OLD.{column}" for column in columns)


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
        _pg_trigger("memories", "erased", "UPDATE", f"WHEN ({_BACK.format(differs='DISTINCT FROM')})", _ERASED),
        _pg_trigger(
            "refinements",
            "end",
            "UPDATE",
            f"WHEN (OLD.status NOT IN {OPEN} AND ({_AFTER_THE_END.format(differs='DISTINCT FROM')}))",
            _END,
        ),
        _pg_trigger("rollbacks", "fixed", "UPDATE", f"WHEN ({_MOVED.format(differs='DISTINCT FROM')})", _FIXED),
    ]
    for table in APPEND_ONLY:
        made += [_pg_trigger(table, f"no_{verb.lower()}", verb, "", _WHAT[table]) for verb in ("UPDATE", "DELETE")]
        made += [_in_order(table, _OUT_OF_ORDER[table]), _pg_trigger(table, "in_order", "INSERT", "", _WHAT[table])]
    for table, (columns, sentence) in _IDENTITY.items():
        made.append(_pg_trigger(table, "identity", "UPDATE", f"WHEN ({_moved(columns)})", sentence))
    made += [_pg_trigger(table, "no_delete", "DELETE", "", sentence) for table, sentence in _NEVER.items()]
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


def _in_order(table: str, condition: str) -> str:
    """A function of its own, because PostgreSQL looks at no rows in WHEN."""
    return f"""
CREATE OR REPLACE FUNCTION wt_{table}_in_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF {condition} THEN
        RAISE EXCEPTION 'whetstone: %', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$
"""


def _pg_trigger(table: str, name: str, verb: str, when: str, sentence: str) -> str:
    function = f"wt_{table}_in_order" if name == "in_order" else "wt_refuse"
    return (
        f"CREATE TRIGGER wt_{table}_{name} BEFORE {verb} ON {table} FOR EACH ROW {when}"
        f" EXECUTE FUNCTION {function}('{sentence}')"
    )
