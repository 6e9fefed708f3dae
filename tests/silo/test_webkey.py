"""What the web process keeps on its own disk: made once, read strictly, and a file that is none says what to do."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import pytest

from app.silo import MasterKey, PinnedFileError, PinnedInstallation, WebKey, WebKeyError, open_note, sign_note

INSTALLATION = "0d9f6ac4-50cf-4b2a-9d2a-64b9d5a7f001"


def test_the_web_key_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "web.key"
    made = WebKey.load_or_make(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    again = WebKey.load_or_make(path)
    assert (again.verifier, path.read_bytes()) == (made.verifier, before)
    assert made.name == f"whetstone/web/{made.name[-16:]}"
    assert open_note(sign_note("A text.\n", again), made.verifier).text == "A text.\n"
    assert WebKey.load_or_make(tmp_path / "other").verifier != made.verifier


def test_web_processes_that_start_together_have_one_key(tmp_path: Path) -> None:
    path, found = tmp_path / "web.key", []
    threads = [threading.Thread(target=lambda: found.append(WebKey.load_or_make(path).verifier)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["web.key"]


def test_a_web_key_that_is_none_says_what_to_do(tmp_path: Path) -> None:
    MasterKey.generate().save(tmp_path / "master.key")
    WebKey.load_or_make(tmp_path / "web.key")
    cases = {
        "empty, cut off or altered": b"",
        "is not a web key": (tmp_path / "web.key").read_bytes()[:60],
        "a key of another kind": (tmp_path / "master.key").read_bytes(),
        "can't be read": None,
    }
    for number, (words, body) in enumerate(cases.items()):
        path = tmp_path / str(number)
        path.mkdir() if body is None else path.write_bytes(body)
        with pytest.raises(WebKeyError, match=words) as refusal:
            WebKey.load_or_make(path)
        assert "keys enroll KEY" in refusal.value.sentence
        assert "Nothing was started and nothing was written." in refusal.value.sentence
        assert body is None or path.read_bytes() == body


def pinned() -> PinnedInstallation:
    master = MasterKey.generate()
    key = master.installation_key(INSTALLATION).verifier
    return PinnedInstallation(INSTALLATION, master.public.raw, key.public)


def test_the_installation_to_trust_comes_back(tmp_path: Path) -> None:
    path, first, second = tmp_path / "data" / "installation.json", pinned(), pinned()
    first.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert PinnedInstallation.load(path) == first
    with pytest.raises(FileExistsError):
        second.save(path)
    assert PinnedInstallation.load(path) == first
    second.replace(path)
    assert PinnedInstallation.load(path) == second
    assert [each.name for each in path.parent.iterdir()] == ["installation.json"]
    assert second.verifier.name == f"whetstone/{INSTALLATION}"
    assert second.master.raw == second.master_public


def test_a_file_that_names_no_installation_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "installation.json"
    pinned().save(path)
    good = path.read_text()
    fields = json.loads(good)
    wrong = [
        *("", "[]", "null", "1", '"text"', "{}", good[:-4], good + "x", "[" * 100_000),
        good.replace("{", '{"format": 1,', 1),
        *(json.dumps({**fields, name: None}) for name in fields),
        *(json.dumps({key: value for key, value in fields.items() if key != name}) for name in fields),
        json.dumps({**fields, "more": 1}),
        json.dumps({**fields, "format": 2}),
        json.dumps({**fields, "installation": INSTALLATION.upper()}),
        json.dumps({**fields, "installation": INSTALLATION + "\n"}),
        json.dumps({**fields, "master_key": fields["master_key"][:-2]}),
        json.dumps({**fields, "signing_key": fields["signing_key"].upper()}),
        json.dumps({**fields, "signing_key": "g" * 64}),
    ]
    for body in [*map(str.encode, wrong), b"\xff\xfe", b"\x00" * 200]:
        path.write_bytes(body)
        with pytest.raises(PinnedFileError, match="does not name an installation") as refusal:
            PinnedInstallation.load(path)
        assert "Put its backup back." in refusal.value.sentence
        assert path.read_bytes() == body
    path.unlink()
    with pytest.raises(PinnedFileError, match="is missing"):
        PinnedInstallation.load(path)
    path.mkdir()
    with pytest.raises(PinnedFileError, match="can't be read"):
        PinnedInstallation.load(path)
