"""`whetstone keys`: what is wrong with the keys, copies of the master key and their way back, and rotation."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import select, update

from app.config import Settings
from app.extensions import db, now, writing
from app.keys import escrow
from app.keys.rotation import rotate_master_key
from app.models import COMMAND_LINE, Agent, AgentToken, AuditLog, Intake, MasterKeyRow, Memory, MemoryText, master_key
from app.models.key import AgentKey
from app.models.key_statements import state_next_key
from app.models.statement_log import statement_log
from app.silo import KeyRing, MasterKey
from tests.cli.conftest import Whetstone
from tests.silo.holding import give_token, hand_in
from tests.support.factories import make_agent, remember

PASSPHRASE = "four quiet herons by the weir"


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("ezra")
    remember(made, "Ann likes tea.", "Bob likes rum.")
    return made


@pytest.fixture
def passphrase(tmp_path: Path) -> str:
    path = tmp_path / "passphrase"
    path.write_text(PASSPHRASE + "\nnot this line\n")
    return str(path)


def recorded() -> list[tuple[str, dict[str, object]]]:
    """What the log says of copies of the master key."""
    db.session.rollback()
    entries = db.session.scalars(select(AuditLog).where(AuditLog.action == "master_key_backup").order_by(AuditLog.id))
    return [(entry.actor, entry.data) for entry in entries]


def keep_a_copy(whetstone: Whetstone, passphrase: str, to: Path) -> None:
    assert whetstone("keys", "backup", str(to), "--passphrase-file", passphrase).status == 0


def test_check_counts_what_opens(agent: Agent, whetstone: Whetstone, settings: Settings) -> None:
    give_token(agent)
    said = whetstone("keys", "check", "--json")

    assert said.status == 0
    assert said.json == {
        "ok": True,
        "fingerprint": master_key().fingerprint,
        "path": str(settings.master_key_path),
        "signing_fingerprint": statement_log().keys.verifier.fingerprint,
        "agents": 1,
        "forgotten": 0,
        "keys": 2,
        "tokens": 1,
        "kept": [],
        "rotating_from": [],
        "backed_up_at": None,
        "problems": [],
    }
    people = whetstone("keys", "check").out
    assert "opens all 2 keys of 1 agents" in people
    assert "none is recorded: ./whetstone keys backup FILE" in people


def _alter(agent: Agent, version: int) -> None:
    with writing() as session:
        sealed = AgentKey.agent_id == agent.id, AgentKey.purpose == "data", AgentKey.version == version
        session.execute(update(AgentKey).where(*sealed).values(sealed=b"\x01" * 80))


def _swap_first_memory(agent: Agent) -> None:
    first, second = (memory.id for memory in db.session.scalars(Memory.active(agent.id)))
    with writing() as session:
        other = session.scalars(select(MemoryText.sealed).where(MemoryText.memory_id == second)).one()
        session.execute(update(MemoryText).where(MemoryText.memory_id == first).values(sealed=other))


def _age_tokens(agent: Agent) -> None:
    give_token(agent, provisioned=False)
    with writing() as session:
        session.execute(update(AgentToken).values(created_at=now().replace(year=2020)))


def _leave_a_copy(agent: Agent) -> None:
    give_token(agent)
    with writing() as session:
        session.execute(update(AgentToken).values(revoked_at=now()))


def _strange_intake(agent: Agent) -> None:
    hand_in(agent, "Cleo likes ink.")
    with writing() as session:
        session.execute(update(Intake).values(reader="0123456789abcdef"))


def _forget_and_put_back(agent: Agent) -> None:
    with writing() as session:
        session.execute(update(Agent).where(Agent.id == agent.id).values(forgotten_at=now()))


WRONG: dict[str, tuple[Callable[[Agent], None], str]] = {
    "a key of the first version": (lambda agent: _alter(agent, 1), "are not those that were signed"),
    "its oldest memory": (_swap_first_memory, "ezra: Sealed text does not open"),
    "a token without copies": (_age_tokens, "has 0 of 2 copies of its keys"),
    "a copy of nobody's": (_leave_a_copy, "2 copies of its keys are sealed to nobody who is known"),
    "an import of another key's": (_strange_intake, "1 imports wait, sealed to a key that is not here"),
    "keys of a forgotten agent": (_forget_and_put_back, "ezra: it was forgotten, but keys of it are there again"),
}


@pytest.mark.parametrize("what", WRONG)
def test_check_names_what_is_wrong_in_the_database(agent: Agent, whetstone: Whetstone, what: str) -> None:
    make_agent("eve")
    break_it, sentence = WRONG[what]
    break_it(agent)

    said = whetstone("keys", "check", "--json")

    assert (said.status, said.json["ok"]) == (1, False)
    assert len(said.json["problems"]) == 1, said.json["problems"]
    assert sentence in said.json["problems"][0]


def test_check_names_what_is_wrong_with_the_files(agent: Agent, whetstone: Whetstone, settings: Settings) -> None:
    ring, old = KeyRing(settings.master_key_path), master_key()
    assert whetstone("keys", "rotate").status == 0
    kept = ring.kept_path(old.fingerprint)
    assert whetstone("keys", "check", "--json").json["kept"][0]["fingerprint"] == old.fingerprint

    kept.chmod(0o644)
    ring.kept_path("0123456789abcdef").write_text("")
    strange = MasterKey.generate()
    strange.save(ring.kept_path(strange.fingerprint))

    problems = " ".join(whetstone("keys", "check", "--json").json["problems"])
    assert f"chmod 600 {kept}" in problems
    assert "master.key.0123456789abcdef is not the key that its name says" in problems
    assert f"master.key.{strange.fingerprint} is no key of this database" in problems
    ring.path.rename(ring.next_path)
    assert "is not there; the key was found beside it" in whetstone("keys", "check").err


@pytest.mark.parametrize(("left", "word"), [(0, "is empty"), (40, "is cut off")])
def test_a_key_file_that_a_crash_left_is_said_plainly(
    agent: Agent, whetstone: Whetstone, settings: Settings, left: int, word: str
) -> None:
    path = settings.master_key_path
    path.write_bytes(path.read_bytes()[:left])

    for arguments in (("keys", "check"), ("doctor",)):
        said = whetstone(*arguments, "--json")
        assert said.status == 1
        assert f"{word}: a crash or a full disk" in said.out + said.err
        assert "whetstone keys restore" in said.out + said.err


def test_a_backup_opens_with_its_passphrase_only_and_is_recorded(
    agent: Agent, whetstone: Whetstone, passphrase: str, tmp_path: Path
) -> None:
    path = tmp_path / "away" / "master.backup"
    said = whetstone("keys", "backup", str(path), "--passphrase-file", passphrase, "--json")

    fingerprint = master_key().fingerprint
    assert (said.status, said.json) == (0, {"fingerprint": fingerprint, "path": str(path)})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"ENCRYPTED PRIVATE KEY" in path.read_bytes()
    assert MasterKey.load(path, PASSPHRASE).fingerprint == fingerprint
    with pytest.raises(Exception, match="does not open with that passphrase"):
        MasterKey.load(path, PASSPHRASE + " ")
    assert recorded() == [("system:command line", {"fingerprint": fingerprint, "form": "file"})]
    assert whetstone("keys", "check", "--json").json["backed_up_at"] is not None
    assert "backed up on" in whetstone("doctor").out


def test_a_backup_is_never_written_over_a_file_nor_recorded_when_it_was_not_written(
    agent: Agent, whetstone: Whetstone, passphrase: str, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.write_text("mine")
    (tmp_path / "short").write_text("too short")
    for path, given, status in (
        (there, passphrase, 3),
        (tmp_path / "new", str(tmp_path / "short"), 2),
        (there / "below", passphrase, 1),
    ):
        said = whetstone("keys", "backup", str(path), "--passphrase-file", given)
        assert (said.status, said.out) == (status, ""), said.err
    assert there.read_text() == "mine"
    assert not (tmp_path / "new").exists()
    assert recorded() == []


def test_a_backup_that_could_not_be_recorded_is_taken_away_again(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("the disk is full")

    path = tmp_path / "master.backup"
    monkeypatch.setattr(db.session(), "commit", fail)
    with pytest.raises(RuntimeError, match="disk is full"):
        escrow.back_up(path, PASSPHRASE, by=COMMAND_LINE)
    monkeypatch.undo()
    assert not path.exists()
    assert recorded() == []


def test_a_backup_of_an_earlier_key_is_none_of_the_one_in_use(
    agent: Agent, whetstone: Whetstone, passphrase: str, tmp_path: Path
) -> None:
    earlier = escrow.back_up(tmp_path / "master.backup", PASSPHRASE, by=COMMAND_LINE)
    assert escrow.last_backup(earlier) is not None
    rotated = rotate_master_key(by=COMMAND_LINE).fingerprint
    assert escrow.last_backup(rotated) is None
    assert whetstone("keys", "check", "--json").json["backed_up_at"] is None


@pytest.mark.parametrize(
    "arguments",
    [(), ("FILE", "--words"), ("--words", "--passphrase-file", "-"), ("FILE",)],
    ids=["nothing", "both", "a passphrase for words", "nobody to ask"],
)
def test_backup_says_how_it_is_used(agent: Agent, whetstone: Whetstone, arguments: tuple[str, ...]) -> None:
    said = whetstone("keys", "backup", *arguments)
    assert (said.status, said.out) == (2, "")
    assert recorded() == []


def test_the_words_are_shown_when_asked_for_and_recorded_without_them(
    agent: Agent, whetstone: Whetstone, settings: Settings
) -> None:
    shown = whetstone("keys", "backup", "--words")
    asked = whetstone("keys", "backup", "--words", "--json")

    words = asked.json["words"]
    assert (shown.status, asked.status, len(words)) == (0, 0, 24)
    assert MasterKey.from_words(shown.out.partition("\n")[2]).fingerprint == master_key().fingerprint
    assert [data for _, data in recorded()] == [{"fingerprint": master_key().fingerprint, "form": "words"}] * 2
    for path in (settings.data / "logs").glob("*"):
        assert words[0] not in path.read_text()


@pytest.fixture
def away(settings: Settings, tmp_path: Path) -> Path:
    """Where the machine's key files went."""
    return tmp_path / "gone"


def lose_the_keys(settings: Settings, away: Path) -> None:
    settings.master_key_path.parent.rename(away)


def test_restore_brings_the_key_back_from_a_backup(
    agent: Agent, whetstone: Whetstone, settings: Settings, passphrase: str, tmp_path: Path, away: Path
) -> None:
    keep_a_copy(whetstone, passphrase, tmp_path / "copy")
    lose_the_keys(settings, away)
    assert whetstone("keys", "check").status == 1

    said = whetstone("keys", "restore", str(tmp_path / "copy"), "--passphrase-file", passphrase, "--json")

    assert (said.status, said.json["path"]) == (0, str(settings.master_key_path))
    assert stat.S_IMODE(settings.master_key_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.master_key_path.parent.stat().st_mode) == 0o700
    assert whetstone("keys", "check", "--json").json["ok"]


@pytest.mark.parametrize("how", ["as shown", "column by column", "plain", "numbered", "shouted"])
def test_restore_brings_the_key_back_from_its_words_as_people_type_them(
    agent: Agent, whetstone: Whetstone, settings: Settings, away: Path, how: str
) -> None:
    words = whetstone("keys", "backup", "--words", "--json").json["words"]
    typed = {
        "as shown": whetstone("keys", "backup", "--words").out,
        "column by column": "\n".join(f"{place}. {words[place - 1]}" for place in [*range(2, 25, 2), *range(1, 24, 2)]),
        "plain": " ".join(words),
        "numbered": "\n".join(f"{place}. {word}" for place, word in enumerate(words, start=1)),
        "shouted": "\r\n".join(words).upper() + "\r\n",
    }[how]
    lose_the_keys(settings, away)

    said = whetstone("keys", "restore", "--words-file", "-", stdin=typed.encode())

    assert said.status == 0, said.err
    assert f"The master key {master_key().fingerprint} is back" in said.out
    assert whetstone("keys", "check", "--json").json["ok"]


def test_a_plain_copy_of_the_file_is_as_good(
    agent: Agent, whetstone: Whetstone, settings: Settings, away: Path
) -> None:
    lose_the_keys(settings, away)
    assert whetstone("keys", "restore", str(away / "master.key")).status == 0
    assert whetstone("keys", "check", "--json").json["ok"]


def test_restore_refuses_what_would_not_help_and_writes_nothing(
    agent: Agent, whetstone: Whetstone, settings: Settings, passphrase: str, tmp_path: Path, away: Path
) -> None:
    words = whetstone("keys", "backup", "--words", "--json").json["words"]
    keep_a_copy(whetstone, passphrase, tmp_path / "copy")
    MasterKey.generate().back_up(tmp_path / "strange", PASSPHRASE)
    (tmp_path / "wrong").write_text("another passphrase that is long")
    (tmp_path / "letter").write_text("Dear Ann")
    lose_the_keys(settings, away)
    swapped = [words[1], words[0], *words[2:]]
    copy, strange = str(tmp_path / "copy"), str(tmp_path / "strange")
    for arguments, typed, status, sentence in (
        ((strange, "--passphrase-file", passphrase), "", 3, "which this database was never sealed to"),
        ((copy, "--passphrase-file", str(tmp_path / "wrong")), "", 1, "does not open with that passphrase"),
        ((str(tmp_path / "letter"),), "", 1, "is not a master key"),
        ((copy,), "", 2, "no terminal to ask"),
        (("--words-file", "-"), " ".join(words[:23]), 2, "must be 24 recovery words; here are 23"),
        (("--words-file", "-"), " ".join(["zebraa", *words[1:]]), 2, "Not in the list of recovery words: word 1."),
        (("--words-file", "-"), " ".join(swapped), 2, "do not fit together"),
        ((), "", 2, "Give the FILE of a backup"),
    ):
        said = whetstone("keys", "restore", *arguments, stdin=typed.encode())
        assert (said.status, said.out) == (status, ""), (arguments, said)
        assert sentence in " ".join(said.err.split())
        assert " ".join(words[5:8]) not in " ".join(said.err.split())
        assert not settings.master_key_path.exists()


def test_restore_writes_over_no_file_whatever_is_in_it(
    agent: Agent, whetstone: Whetstone, settings: Settings, away: Path
) -> None:
    lose_the_keys(settings, away)
    settings.master_key_path.parent.mkdir()
    settings.master_key_path.write_text("")
    said = whetstone("keys", "restore", str(away / "master.key"))
    assert (said.status, said.out) == (3, "")
    assert f"{settings.master_key_path} is there already, and was left as it is" in said.err
    assert settings.master_key_path.read_text() == ""


def test_an_earlier_key_comes_back_beside_the_one_in_use(
    agent: Agent, whetstone: Whetstone, settings: Settings, tmp_path: Path
) -> None:
    ring, old = KeyRing(settings.master_key_path), master_key()
    whetstone("keys", "rotate")
    kept = ring.kept_path(old.fingerprint)
    kept.rename(tmp_path / "elsewhere")

    said = whetstone("keys", "restore", str(tmp_path / "elsewhere"), "--json")

    assert (said.status, said.json["path"], said.json["in_use"]) == (0, str(kept), False)
    assert MasterKey.load(ring.path).fingerprint != old.fingerprint


def test_rotate_says_what_was_done_and_what_to_do_next(agent: Agent, whetstone: Whetstone, settings: Settings) -> None:
    give_token(agent)
    hand_in(agent, "Cleo likes ink.")
    said = whetstone("keys", "rotate", "--json")
    assert said.status == 0
    assert {name: said.json[name] for name in ("resumed", "keys", "intakes", "finished", "problems")} == {
        "resumed": False,
        "keys": 2,
        "intakes": 1,
        "finished": True,
        "problems": {},
    }
    people = whetstone("keys", "rotate").out
    assert "2 keys of agents and 1 waiting imports were sealed anew" in people
    assert "keys backup FILE" in people
    checked = whetstone("keys", "check", "--json").json
    assert (checked["ok"], len(checked["kept"]), checked["backed_up_at"]) == (True, 2, None)


def test_a_prepared_rotation_takes_the_key_that_was_copied_about(
    agent: Agent, whetstone: Whetstone, settings: Settings
) -> None:
    prepared = whetstone("keys", "rotate", "--prepare", "--json").json
    assert prepared["path"] == f"{settings.master_key_path}.next"
    assert whetstone("keys", "check", "--json").json["fingerprint"] != prepared["fingerprint"]
    assert whetstone("keys", "rotate", "--json").json["fingerprint"] == prepared["fingerprint"]


def test_a_rotation_that_was_cut_off_is_told_by_check_and_doctor(
    agent: Agent, whetstone: Whetstone, settings: Settings
) -> None:
    old, new = master_key(), KeyRing(settings.master_key_path).make_next()
    with writing():
        MasterKeyRow.register(new.public)
        state_next_key(new)

    check = whetstone("keys", "check", "--json")
    assert (check.status, check.json["rotating_from"]) == (1, [old.fingerprint])
    assert "run `./whetstone keys rotate` again" in check.json["problems"][0]
    assert "A rotation of the master key was cut off" in whetstone("doctor").out

    said = whetstone("keys", "rotate")
    assert "Went on with the rotation that was cut off." in said.out
    assert whetstone("keys", "check", "--json").json["ok"]


def test_rotate_fails_in_words_when_a_key_does_not_open(agent: Agent, whetstone: Whetstone) -> None:
    _alter(agent, 1)
    said = whetstone("keys", "rotate")
    assert said.status == 1
    assert f"Problem: agent {agent.id}: The keys that are sealed for ezra are not those" in said.err
    assert "the old key stays in use" in said.err


def test_rotate_agent_makes_a_new_version_for_that_agent_only(agent: Agent, whetstone: Whetstone) -> None:
    eve = make_agent("eve")
    said = whetstone("keys", "rotate", "--agent", "ezra", "--json")
    assert (said.status, said.json) == (0, {"agent": "ezra", "version": 2})
    assert "version 3 of its data key" in whetstone("keys", "rotate", "--agent", "ezra").out
    assert whetstone("keys", "rotate", "--agent", "nobody").status == 1
    assert whetstone("keys", "rotate", "--agent", "ezra", "--prepare").status == 2
    assert whetstone("keys", "check", "--json").json["keys"] == 4 + 2
    versions = set(db.session.scalars(select(AgentKey.version).where(AgentKey.agent_id == eve.id)))
    assert versions == {1}


def test_forgetting_wants_the_name_once_more(agent: Agent, whetstone: Whetstone) -> None:
    for again in ((), ("--yes-forget", "Ezra"), ("--yes-forget", "ezra ")):
        said = whetstone("agents", "forget", "ezra", *again)
        assert (said.status, said.out) == (2, "")
        assert "whetstone agents forget ezra --yes-forget ezra" in " ".join(said.err.split())
    assert whetstone("agents", "show", "ezra", "--json").json["forgotten_at"] is None


def test_a_forgotten_agent_is_told_by_show_list_check_and_verify(agent: Agent, whetstone: Whetstone) -> None:
    give_token(agent)
    said = whetstone("agents", "forget", "ezra", "--yes-forget", "ezra", "--json")

    assert said.status == 0
    assert said.json == {
        "id": agent.id,
        "name": "ezra",
        "keys": 4,
        "tokens": 1,
        "intakes": 0,
        "exceptions": 0,
        "memories": 2,
        "shredded": True,
    }
    shown = whetstone("agents", "show", "ezra", "--json").json
    assert (shown["active"], shown["paused"], shown["needs_refinement"], shown["core_count"]) == (False, True, False, 2)
    assert shown["forgotten_at"] is not None
    assert "forgotten on" in whetstone("agents", "show", "ezra").out
    assert "forgotten on" in whetstone("agents", "list").out
    checked = whetstone("keys", "check", "--json").json
    assert (checked["ok"], checked["forgotten"], checked["keys"]) == (True, 1, 0)
    verified = whetstone("verify", "--json")
    assert (verified.status, verified.json["ok"], verified.json["forgotten"]) == (0, True, 1)
    assert "1 agent was forgotten: its chain is intact, and its content is gone" in whetstone("verify").out
    for arguments in (
        ("agents", "forget", "ezra", "--yes-forget", "ezra"),
        ("agents", "resume", "ezra"),
        ("agents", "set", "ezra", "--active"),
        ("keys", "rotate", "--agent", "ezra"),
        ("refine", "ezra"),
    ):
        refused = whetstone(*arguments, "--json")
        assert (refused.status, refused.error["code"]) == (3, "agent_forgotten"), arguments


def test_nothing_is_imported_for_a_forgotten_agent(agent: Agent, whetstone: Whetstone) -> None:
    whetstone("agents", "forget", "ezra", "--yes-forget", "ezra")
    said = whetstone("memories", "import", "-", "--agent", "ezra", "--json", stdin=b'{"content": "Cleo likes ink."}')
    assert (said.status, said.error["code"]) == (3, "agent_forgotten")
    assert whetstone("keys", "check", "--json").json["ok"]
