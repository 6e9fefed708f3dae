"""The log's copy outside the database: whole after any crash, one for all processes, and no fork goes unseen."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from app.config import ROOT
from app.silo import LeafRecord, LogCopy, LogCopyBroken, LogCopyUnwritable, LogForked, MerkleTree, logcopy
from app.silo.logcopy import RECORD
from tests.silo.appending import AGENTS, record

INSTALLATION = "0d9f6ac4-50cf-4b2a-9d2a-64b9d5a7f001"


def records(first: int, end: int) -> list[LeafRecord]:
    return [record(index) for index in range(first, end)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "statements" / "leaves"


@pytest.fixture
def copy(path: Path) -> LogCopy:
    """Ten leaves."""
    made = LogCopy(path, INSTALLATION)
    made.extend(0, records(0, 10))
    return made


def loaded(path: Path) -> LogCopy:
    again = LogCopy(path, INSTALLATION)
    again.load()
    return again


def test_it_is_its_owners_alone(copy: LogCopy, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.stat().st_size == 11 * RECORD


def test_nothing_is_there_before_the_first_leaf(path: Path) -> None:
    empty = loaded(path)
    assert (empty.size, empty.root(), list(empty.indexes_of(AGENTS[0] or ""))) == (0, MerkleTree().root, [])
    assert not path.exists()
    with pytest.raises(IndexError):
        empty.hash_at(0)


def test_what_was_written_is_what_is_read(copy: LogCopy, path: Path) -> None:
    tree = MerkleTree(each.hash for each in records(0, 10))
    for one in (copy, loaded(path)):
        assert one.size == 10
        assert [one.hash_at(index) for index in range(10)] == [each.hash for each in records(0, 10)]
        assert list(one.indexes_of(AGENTS[0] or "")) == [0, 3, 6, 9]
        assert list(one.indexes_of(AGENTS[1] or "")) == [1, 4, 7]
        assert list(one.indexes_of(INSTALLATION)) == []
        assert [one.root(size) for size in range(11)] == [tree.root_at(size) for size in range(11)]
        assert one.root() == one.tree.root == tree.root
        for wrong in (-1, 10):
            with pytest.raises(IndexError):
                one.hash_at(wrong)
        with pytest.raises(ValueError, match="10 leaves"):
            one.root(11)


def test_what_is_there_already_is_compared_and_left(copy: LogCopy, path: Path) -> None:
    before = path.stat().st_mtime_ns
    copy.extend(0, records(0, 10))
    copy.extend(4, records(4, 6))
    copy.extend(10, [])
    assert (copy.size, path.stat().st_mtime_ns) == (10, before)
    copy.extend(8, records(8, 13))
    assert (copy.size, list(copy.indexes_of(AGENTS[1] or ""))) == (13, [1, 4, 7, 10])
    assert loaded(path).root() == copy.root() == MerkleTree(each.hash for each in records(0, 13)).root


@pytest.mark.parametrize(
    ("first", "given", "words"),
    [
        (3, [*records(3, 5), LeafRecord(bytes(32), None), *records(6, 12)], "Leaf 5 of the log is not the one"),
        (9, [LeafRecord(record(9).hash, AGENTS[1])], "Leaf 9 of the log is not the one"),
        (9, [LeafRecord(record(9).hash, None), *records(10, 12)], "Leaf 9 of the log is not the one"),
        (11, records(11, 12), "goes on at leaf 11, but its copy"),
        (-1, records(0, 1), "goes on at leaf -1, but its copy"),
    ],
)
def test_another_log_is_seen_and_not_written(
    copy: LogCopy, path: Path, first: int, given: list[LeafRecord], words: str
) -> None:
    before = path.read_bytes()
    with pytest.raises(LogForked, match=words):
        copy.extend(first, given)
    assert path.read_bytes() == before
    assert (copy.size, copy.root()) == (10, loaded(path).root())


def test_what_another_process_added_is_taken_and_compared(copy: LogCopy, path: Path) -> None:
    other = loaded(path)
    other.extend(10, records(10, 14))
    assert copy.size == 10
    copy.extend(10, records(10, 16))
    assert copy.size == 16
    with pytest.raises(LogForked, match="Leaf 14 of the log"):
        other.extend(14, [LeafRecord(bytes(32), None)])
    other.load()
    assert (other.size, other.root()) == (16, copy.root())


def test_a_torn_record_is_cut_off_at_every_place(copy: LogCopy, path: Path) -> None:
    whole = path.read_bytes()
    for kept in range(1, RECORD):
        path.write_bytes(whole[: 10 * RECORD + kept])
        torn = loaded(path)
        assert torn.size == 9
        torn.extend(9, records(9, 10))
        assert path.read_bytes() == whole


def test_a_torn_header_is_made_anew(copy: LogCopy, path: Path) -> None:
    whole = path.read_bytes()
    for kept in range(RECORD):
        path.write_bytes(whole[:kept])
        torn = loaded(path)
        assert torn.size == 0
        torn.extend(0, records(0, 10))
        assert path.read_bytes() == whole


def test_a_file_that_became_shorter_or_another_is_seen(copy: LogCopy, path: Path) -> None:
    whole = path.read_bytes()
    for other in (whole[:-RECORD], whole[: 3 * RECORD], whole[:RECORD], b"", whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(other)
        for asked in (copy.load, lambda: copy.extend(10, records(10, 11))):
            with pytest.raises((LogForked, LogCopyBroken)):
                asked()
        assert path.read_bytes() == other


def test_a_copy_is_whole_while_its_file_is_what_was_read(copy: LogCopy, path: Path) -> None:
    empty = LogCopy(path.with_name("none"), INSTALLATION)
    assert (copy.is_whole(), empty.is_whole()) == (True, True)
    whole = path.read_bytes()
    for other in (whole[:-RECORD], whole[:RECORD], b"", whole + whole[-RECORD:]):
        path.write_bytes(other)
        assert not copy.is_whole()
    path.write_bytes(whole + b"torn")
    assert copy.is_whole()
    path.with_name("other").write_bytes(whole)
    path.with_name("other").replace(path)
    assert not copy.is_whole()
    path.unlink()
    assert not copy.is_whole()


def test_nobody_finds_it_empty_while_another_file_is_read_in_its_place(
    copy: LogCopy, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.with_name("other").write_bytes(path.read_bytes())
    path.with_name("other").replace(path)
    read = logcopy._read
    with ThreadPoolExecutor(1) as pool:

        def read_while_somebody_asks(*where: int) -> bytes:
            nonlocal asked
            asked = pool.submit(copy.indexes_of, AGENTS[0] or "")
            wait([asked], timeout=0.2)
            return read(*where)

        asked = pool.submit(tuple[int, ...])
        monkeypatch.setattr(logcopy, "_read", read_while_somebody_asks)
        copy.load()
        assert asked.result() == (0, 3, 6, 9)


def test_the_copy_of_another_installation_or_of_nothing_is_refused(copy: LogCopy, path: Path) -> None:
    for wrong in (LogCopy(path, INSTALLATION.replace("1", "2")), LogCopy(path.with_name("none"), INSTALLATION)):
        wrong.path.touch()
        if not wrong.path.read_bytes():
            wrong.path.write_bytes(b"Dear diary, today I wrote more than forty-eight bytes.")
        before = wrong.path.read_bytes()
        for asked in (wrong.load, lambda wrong=wrong: wrong.extend(0, records(0, 1))):
            with pytest.raises(LogCopyBroken, match=r"is not a copy of a log|of another installation's log"):
                asked()
        assert wrong.path.read_bytes() == before
    path.unlink()
    path.mkdir()
    with pytest.raises(LogCopyBroken, match="can't be read"):
        loaded(path)


def test_a_full_disk_leaves_what_was_there(copy: LogCopy, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, real = path.read_bytes(), os.pwrite

    def half(descriptor: int, body: Any, at: int) -> int:
        if len(body) < RECORD:
            raise OSError(28, "No space left on device")
        return real(descriptor, body[: RECORD // 2], at)

    monkeypatch.setattr("app.silo.logcopy.os.pwrite", half)
    with pytest.raises(LogCopyUnwritable, match="No space left on device"):
        copy.extend(10, records(10, 11))
    with pytest.raises(LogCopyUnwritable):
        LogCopy(path.with_name("new"), INSTALLATION).extend(0, records(0, 1))
    monkeypatch.undo()
    assert (path.read_bytes(), copy.size) == (before, 10)
    assert path.with_name("new").read_bytes() == b""
    copy.extend(10, records(10, 11))
    assert loaded(path).size == 11


def test_what_is_no_record_is_not_written(copy: LogCopy, path: Path) -> None:
    before = path.read_bytes()
    for wrong in (LeafRecord(bytes(31), None), LeafRecord(bytes(32), "nobody")):
        with pytest.raises(ValueError, match=r"hash|UUID"):
            copy.extend(10, [record(10), wrong])
    assert (path.read_bytes(), copy.size) == (before, 10)


def test_it_is_moved_aside_and_other_processes_follow(copy: LogCopy, path: Path) -> None:
    other = loaded(path)
    aside = copy.archive("before-restore")
    assert (aside.name, copy.size, path.exists()) == ("leaves.before-restore", 0, False)
    assert loaded(aside).size == 10
    copy.extend(0, records(2, 5))
    other.load()
    assert (other.size, other.root()) == (3, MerkleTree(each.hash for each in records(2, 5)).root)
    with pytest.raises(FileExistsError):
        copy.archive("before-restore")
    assert (copy.size, loaded(aside).size) == (3, 10)
    with pytest.raises(FileNotFoundError):
        LogCopy(path.with_name("none"), INSTALLATION).archive("x")


def test_processes_write_one_copy_together(path: Path) -> None:
    command = [sys.executable, "-m", "tests.silo.appending", str(path), INSTALLATION, "120"]
    writers = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) for _ in range(3)]
    for writer in writers:
        assert writer.communicate(timeout=60)[1] == b""
        assert writer.returncode == 0
    assert loaded(path).root() == MerkleTree(each.hash for each in records(0, 120)).root
    assert path.stat().st_size == 121 * RECORD


def test_threads_share_one_object(path: Path) -> None:
    shared = LogCopy(path, INSTALLATION)

    def write(_: int) -> bool:
        roots = []
        for index in range(60):
            shared.extend(index, [record(index)])
            roots.append(shared.root(index + 1))
        return roots == [MerkleTree(each.hash for each in records(0, size)).root for size in range(1, 61)]

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(write, range(4))) == [True] * 4
    assert shared.root() == loaded(path).root()
    assert list(shared.indexes_of(AGENTS[0] or "")) == list(range(0, 60, 3))


def test_a_hundred_thousand_leaves_load_quickly(path: Path) -> None:
    LogCopy(path, INSTALLATION).extend(0, [LeafRecord(os.urandom(32), AGENTS[n % 3]) for n in range(100_000)])
    assert path.stat().st_size == 100_001 * RECORD
    again = LogCopy(path, INSTALLATION)
    began = process_time()
    again.load()
    assert process_time() - began < 0.3, "0.04 seconds on a quiet machine"
    assert again.size == 100_000
