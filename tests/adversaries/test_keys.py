"""Rows of wrapped keys and of the master key: nothing is opened or sealed with what no statement names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.extensions import now
from app.keys.rotation import rotate_agent_key, rotate_master_key
from app.models import COMMAND_LINE, master_public_key
from app.models.statement_errors import AgentStopped
from tests.adversaries.forging import change_rows, insert_row, read_rows, remove_rows
from tests.adversaries.scene import Scene
from tests.support.factories import make_agent


def keys_of(scene: Scene, reader: str) -> list[dict[str, object]]:
    return read_rows("agent_keys", agent_id=scene.victim.id, reader=reader)


@pytest.mark.parametrize("reader", ["the master", "its own token"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_key_that_the_attacker_knows_is_never_used(scene: Scene, reader: str, version: int) -> None:
    """In the place of the agent's own, or as a newer one: whoever opens them finds them sealed as they should be."""
    to = master_public_key() if reader == "the master" else scene.key_of(scene.home).public
    with scene.attacked():
        for row in scene.wrap_known_key(to, version):
            this = {name: row[name] for name in ("agent_id", "purpose", "version", "reader")}
            if read_rows("agent_keys", **this):
                change_rows("agent_keys", {"sealed": row["sealed"]}, **this)
            else:
                insert_row("agent_keys", **row)


def test_the_dedup_key_can_not_be_swapped_alone(scene: Scene) -> None:
    master = master_public_key()
    known = next(row for row in scene.wrap_known_key(master) if row["purpose"] == "dedup")
    with scene.attacked():
        change_rows(
            "agent_keys", {"sealed": known["sealed"]}, agent_id=scene.victim.id, purpose="dedup", reader=master.hex
        )
        with pytest.raises(AgentStopped):
            scene.open_as_worker()


def test_an_old_row_is_not_taken_for_todays(scene: Scene) -> None:
    """The keys of before a new data key, in the place of today's."""
    master = master_public_key().hex
    old = keys_of(scene, master)
    rotate_agent_key(scene.victim.id, by=COMMAND_LINE)
    with scene.attacked():
        remove_rows("agent_keys", agent_id=scene.victim.id, reader=master)
        for row in old:
            insert_row("agent_keys", **row)
        with pytest.raises(AgentStopped):
            scene.open_as_worker()


@pytest.mark.parametrize("purpose", ["data", "dedup", "all"])
def test_no_new_keys_are_made_where_a_row_is_gone(scene: Scene, purpose: str) -> None:
    """Else an agent would go on with keys that open nothing of what it had."""
    where = {} if purpose == "all" else {"purpose": purpose}
    with scene.attacked():
        remove_rows("agent_keys", agent_id=scene.victim.id, **where)


@pytest.mark.parametrize("column", ["reader", "version", "purpose"])
def test_nothing_about_a_row_can_be_another(scene: Scene, column: str) -> None:
    values = {"reader": scene.attacker.key.public.hex, "version": 7, "purpose": "other"}
    with scene.attacked():
        (row,) = (row for row in keys_of(scene, master_public_key().hex) if row["purpose"] == "data")
        change_rows("agent_keys", {column: values[column]}, id=row["id"])


def test_the_keys_of_another_agent_open_nothing_here(scene: Scene) -> None:
    with scene.attacked():
        remove_rows("agent_keys", agent_id=scene.victim.id)
        change_rows("agent_keys", {"agent_id": scene.victim.id}, agent_id=scene.attacker.agent.id)


def test_a_new_agent_takes_no_key_that_was_laid_in_wait(scene: Scene) -> None:
    """Before a worker has made any: the agent stops, and nothing is sealed with a key that the attacker knows."""
    with scene.web.app_context():
        fresh = scene.make_agent_by_web("fresh")
    known = scene.wrap_known_key(master_public_key(), of=fresh)
    for row in known:
        insert_row("agent_keys", **row)
    with pytest.raises(AgentStopped):
        scene.settle(fresh)
    assert len(read_rows("agent_keys", agent_id=fresh.id)) == len(known)


def forge_newest(scene: Scene) -> None:
    own = scene.attacker.master.public
    insert_row("master_keys", fingerprint=own.fingerprint, public=own.raw, created_at=now(), retired_at=None)


def forge_only(scene: Scene) -> None:
    own = scene.attacker.master.public
    change_rows("master_keys", {"fingerprint": own.fingerprint, "public": own.raw})


def forge_public_half(scene: Scene) -> None:
    change_rows("master_keys", {"public": scene.attacker.master.public.raw})


def forge_fingerprint(scene: Scene) -> None:
    change_rows("master_keys", {"fingerprint": scene.attacker.master.fingerprint})


def forge_retirement(scene: Scene) -> None:
    change_rows("master_keys", {"retired_at": now()})
    forge_newest(scene)


@pytest.mark.parametrize(
    "forge",
    [forge_newest, forge_only, forge_public_half, forge_fingerprint, forge_retirement],
    ids=lambda f: f.__name__,
)
def test_nobody_seals_to_another_master_key(scene: Scene, forge: Callable[[Scene], None]) -> None:
    """Not what comes in through the web, not a new agent's keys, and not a rotation, which is begun meanwhile."""
    scene.meanwhile += [lambda: make_agent("newcomer"), lambda: rotate_master_key(by=COMMAND_LINE)]
    with scene.attacked():
        forge(scene)
        scene.restart()
    own = scene.attacker.master.public.hex
    assert not [row for row in read_rows("agent_keys") if row["reader"] == own]
