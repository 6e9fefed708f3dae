"""Notes that a restored backup must not undo: kept whole, whatever a crash left, and never taken for none."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from app.silo.keptnotes import KeptNotes, KeptNotesBroken

FIRST, SECOND, THIRD = (2, b"two\n"), (5, b"\xe2\x80\x94 five\n"), (9, b"nine\n")


@pytest.fixture
def kept(tmp_path: Path) -> KeptNotes:
    made = KeptNotes(tmp_path / "kept")
    assert made.read() == []
    made.add([FIRST, SECOND])
    return made


def test_each_comes_back_once_in_the_order_of_the_log(kept: KeptNotes) -> None:
    kept.add([THIRD])
    KeptNotes(kept.path).add([SECOND, FIRST])
    kept.add([])
    assert kept.read() == [FIRST, SECOND, THIRD]
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600


def test_what_the_disk_takes_in_pieces_is_kept_whole(kept: KeptNotes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk with little room takes the beginning, and refuses only what comes next."""
    real = os.write
    monkeypatch.setattr("app.silo.keptnotes.os.write", lambda descriptor, body: real(descriptor, body[:10]))
    kept.add([THIRD])

    assert kept.read() == [FIRST, SECOND, THIRD]


def test_what_a_crash_left_of_a_line_spoils_no_other(kept: KeptNotes) -> None:
    whole = kept.path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole) + 1):
        kept.path.write_bytes(whole[:cut])
        kept.add([THIRD])
        found = kept.read()
        assert (found[0], found[-1]) == (FIRST, THIRD)
        assert set(found) <= {FIRST, SECOND, THIRD}


def test_a_file_that_can_not_be_read_is_not_taken_for_none(kept: KeptNotes) -> None:
    kept.path.write_bytes(b"\xff" + kept.path.read_bytes())
    with pytest.raises(KeptNotesBroken, match="UnicodeDecodeError"):
        kept.read()
    kept.path.unlink()
    kept.path.mkdir()
    with pytest.raises(KeptNotesBroken, match="IsADirectoryError"):
        kept.read()
