"""The launcher, in small checkouts of its own, with a `uv` that notes what it is asked and a PATH that holds little."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.config import ROOT
from tests.support.processes import read, wait_for

TOOLS = ("sh", "cat", "cksum", "cut", "dirname", "ln", "mkdir", "readlink", "rm")

PYTHON = f"""#!/bin/sh
[ "$1 $2" = "-m pip" ] && exit 1
case "$*" in
*sys.version_info*) echo "fast $0" ;;
*) exec {sys.executable} "$@" ;;
esac
"""
SLOW_PYTHON = PYTHON.replace("fast $0", "slow $0")
OLD_PYTHON = "#!/bin/sh\nexit 1\n"
BARE_PYTHON = PYTHON.replace('case "$*" in', 'case "$*" in\n*ensurepip*) exit 1 ;;')
PIP_PYTHON = PYTHON.replace(
    '[ "$1 $2" = "-m pip" ] && exit 1',
    """if [ "$1 $2" = "-m pip" ]; then
    echo "$*" >>"pip.log"
    case "$*" in *--target*) mkdir -p .venv.uv/bin && ln -s "${0%/*}/uv-from-pip" .venv.uv/bin/uv ;; esac
    exit 0
fi""",
)

UV = f"""#!/bin/sh
echo "$*" >>{{log}}
case $1 in
venv) for env; do :; done; mkdir -p "$env/bin"; ln -sf {sys.executable} "$env/bin/python" ;;
pip) [ ! -e {{log}}.hold ] || while [ ! -e {{log}}.go ]; do :; done; [ ! -e {{log}}.fail ] || exit 2 ;;
esac
"""

APPLICATION = """
import os, sys
print(os.getpid(), os.getcwd(), os.environ["PYTHONPATH"], sys.argv[1:], sep="|")
print(os.environ.get("WHETSTONE_DATA_DIR"), sys.flags.dont_write_bytecode, file=sys.stderr)
sys.exit(int(os.environ.get("STATUS", 0)))
"""


class Checkout:
    """A checkout with the real launcher and a stand-in for everything that it starts."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "my checkout"
        self.tools = folder / "tools"
        self.uv_log = folder / "uv.log"
        self.variables = {"PATH": str(self.tools), "HOME": str(folder / "home")}
        (self.root / "app").mkdir(parents=True)
        self.tools.mkdir()
        shutil.copy(ROOT / "whetstone", self.root)
        (self.root / "requirements.lock").write_text("first==1\n")
        (self.root / "app" / "__main__.py").write_text(APPLICATION)
        for tool in TOOLS:
            (self.tools / tool).symlink_to(shutil.which(tool) or "")
        self.add_tool("python3", PYTHON)
        self.add_tool("uv", UV.format(log=self.uv_log))

    def add_tool(self, name: str, text: str) -> None:
        (self.tools / name).write_text(text)
        (self.tools / name).chmod(0o755)

    def start(self, *arguments: str, cwd: Path | None = None, user: int | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.root / "whetstone"), *arguments],
            cwd=cwd or self.root,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            user=user,
            group=user,
            extra_groups=[] if user else None,
        )

    def run(self, *arguments: str, cwd: Path | None = None, user: int | None = None) -> tuple[int, str, str]:
        process = self.start(*arguments, cwd=cwd, user=user)
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err

    @property
    def installations(self) -> int:
        return sum(line.startswith("pip sync") for line in read(self.uv_log).splitlines())


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_first_start_installs_the_lock_with_its_hashes(checkout: Checkout) -> None:
    status, out, err = checkout.run("agents", "list")
    assert status == 0
    assert out.endswith(f"|{checkout.root}|['agents', 'list']\n")
    assert "making its environment" in err
    asked = read(checkout.uv_log).splitlines()
    assert [line.split()[0] for line in asked] == ["--version", "venv", "pip"]
    assert "pip sync --quiet --require-hashes" in asked[-1]


def test_the_second_start_installs_and_asks_nothing(checkout: Checkout) -> None:
    checkout.run()
    checkout.add_tool("uv", "#!/bin/sh\nexit 9\n")
    checkout.add_tool("python3", OLD_PYTHON)
    status, out, err = checkout.run("audit")
    assert (status, err.splitlines()) == (0, ["None 0"])
    assert out.endswith("['audit']\n")


def test_a_changed_lock_is_installed_again(checkout: Checkout) -> None:
    checkout.run()
    (checkout.root / "requirements.lock").write_text("second==2\n")
    assert checkout.run()[0] == 0
    assert checkout.installations == 2
    assert [line.split()[0] for line in read(checkout.uv_log).splitlines()].count("venv") == 1


def test_the_working_directory_and_the_arguments_stay_the_users(checkout: Checkout, tmp_path: Path) -> None:
    here = tmp_path / "elsewhere"
    here.mkdir()
    _, out, _ = checkout.run("memories", "import", "a file.jsonl", "--agent", "*", cwd=here)
    assert out.split("|")[1:] == [
        str(here),
        str(checkout.root),
        "['memories', 'import', 'a file.jsonl', '--agent', '*']\n",
    ]


def test_the_exit_status_and_the_process_are_the_commands_own(checkout: Checkout) -> None:
    checkout.variables["STATUS"] = "3"
    process = checkout.start("refine")
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 3
    assert out.split("|")[0] == str(process.pid)


def test_it_is_found_through_a_symbolic_link(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "one").symlink_to("../my checkout/whetstone")
    (tmp_path / "bin" / "two").symlink_to(tmp_path / "bin" / "one")
    out = subprocess.check_output([tmp_path / "bin" / "two", "up"], env=checkout.variables, cwd=tmp_path, text=True)
    assert out.endswith(f"|{checkout.root}|['up']\n")


def test_bytecode_is_written_whatever_the_machine_says(checkout: Checkout) -> None:
    checkout.variables["PYTHONDONTWRITEBYTECODE"] = "1"
    assert checkout.run()[2].endswith("None 0\n")


def test_a_failed_installation_starts_nothing_and_does_not_count(checkout: Checkout) -> None:
    failing = Path(f"{checkout.uv_log}.fail")
    failing.touch()
    status, out, err = checkout.run()
    assert (status, out) == (1, "")
    assert "the dependencies could not be installed; uv says why above. Nothing was started." in err
    failing.unlink()
    assert checkout.run()[0] == 0
    assert checkout.installations == 2


def test_a_broken_environment_is_made_again(checkout: Checkout) -> None:
    checkout.run()
    (checkout.root / ".venv" / "bin" / "python").unlink()
    (checkout.root / ".venv" / "bin" / "python").symlink_to("/nonexistent/python3.9")
    assert checkout.run()[0] == 0


def test_two_starts_at_once_install_once(checkout: Checkout) -> None:
    Path(f"{checkout.uv_log}.hold").touch()
    first = checkout.start()
    wait_for(lambda: checkout.installations == 1)
    second = checkout.start()
    assert second.stderr is not None
    assert "another start is making the environment" in second.stderr.readline()
    Path(f"{checkout.uv_log}.go").touch()
    for process in (first, second):
        process.communicate(timeout=30)
        assert process.returncode == 0
    assert checkout.installations == 1


def test_without_a_python_it_says_what_to_install(checkout: Checkout) -> None:
    checkout.add_tool("python3", OLD_PYTHON)
    status, out, err = checkout.run("up")
    assert (status, out) == (1, "")
    assert "Python 3.11 or newer is needed and was not found. Install it" in err
    assert not (checkout.root / ".venv").exists()


def test_a_newer_python_beside_an_old_one_is_found(checkout: Checkout) -> None:
    checkout.add_tool("python3", OLD_PYTHON)
    checkout.add_tool("python3.12", PYTHON)
    assert checkout.run()[0] == 0
    assert f"--python {checkout.tools / 'python3.12'}" in read(checkout.uv_log)


def test_a_python_that_was_built_for_speed_comes_before_one_that_was_not(checkout: Checkout) -> None:
    checkout.add_tool("python3", SLOW_PYTHON)
    checkout.add_tool("python3.12", PYTHON)
    status, _, err = checkout.run()
    slow, fast = checkout.tools / "python3", checkout.tools / "python3.12"
    assert status == 0
    assert f"--python {fast}" in read(checkout.uv_log)
    assert f"{slow} was built without optimizations; taking {fast}" in err


def test_also_where_it_has_the_same_name_further_along_the_path(checkout: Checkout, tmp_path: Path) -> None:
    checkout.add_tool("python3", SLOW_PYTHON)
    further = tmp_path / "usr bin"
    further.mkdir()
    checkout.add_tool("../usr bin/python3", PYTHON)
    checkout.variables["PATH"] += f":{further}"
    assert checkout.run()[0] == 0
    assert f"--python {further / 'python3'}" in read(checkout.uv_log)


def test_where_none_was_built_for_speed_the_first_is_taken_without_a_word(checkout: Checkout) -> None:
    checkout.add_tool("python3", SLOW_PYTHON)
    checkout.add_tool("python3.12", SLOW_PYTHON)
    status, _, err = checkout.run()
    assert status == 0
    assert f"--python {checkout.tools / 'python3'}" in read(checkout.uv_log)
    assert "optimizations" not in err


def test_the_pip_of_a_slow_python_fetches_uv_for_a_fast_one_that_has_none(checkout: Checkout) -> None:
    (checkout.tools / "uv").rename(checkout.tools / "uv-from-pip")
    checkout.add_tool("python3", PIP_PYTHON.replace("fast $0", "slow $0"))
    checkout.add_tool("python3.12", BARE_PYTHON)
    status, _, err = checkout.run("up")
    assert status == 0, err
    assert "-m pip install" in read(checkout.root / "pip.log")
    assert f"--python {checkout.tools / 'python3.12'}" in read(checkout.uv_log)


def test_without_uv_pip_and_venv_it_says_what_to_install(checkout: Checkout) -> None:
    (checkout.tools / "uv").unlink()
    checkout.add_tool("python3", BARE_PYTHON)
    status, _, err = checkout.run("up")
    assert status == 1
    assert "uv, or Python's pip or venv module, is needed" in err
    assert "apt install python3-venv" in err


def test_without_uv_pip_fetches_the_pinned_one_for_this_time(checkout: Checkout) -> None:
    (checkout.tools / "uv").rename(checkout.tools / "uv-from-pip")
    checkout.add_tool("python3", PIP_PYTHON)
    status, _, err = checkout.run("up")
    assert status == 0, err
    assert checkout.installations == 1
    asked = read(checkout.root / "pip.log")
    assert f"--require-hashes -r {checkout.root / 'requirements-uv.lock'}" in asked
    assert not (checkout.root / ".venv.uv").exists()


@pytest.fixture
def readable_files() -> Iterator[None]:
    """For every user of the machine, whatever it lets them see otherwise."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def foreign(readable_files: None) -> Iterator[Checkout]:
    """A checkout that belongs to somebody else, for a user without any rights."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    with tempfile.TemporaryDirectory(prefix="whetstone-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        made = Checkout(folder)
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
        if python is None or subprocess.run([python, "-c", ""], user=65534, check=False).returncode:
            pytest.skip("no Python on this machine that another user can run")
        made.add_tool("python3", PYTHON.replace(sys.executable, python))
        made.uv_log.touch()
        made.uv_log.chmod(0o666)
        made.add_tool("uv", UV.format(log=made.uv_log).replace(sys.executable, python))
        (folder / "home").mkdir()
        os.chown(folder / "home", 65534, 65534)
        yield made


def test_an_unwritable_checkout_uses_the_users_folders(foreign: Checkout) -> None:
    home = Path(foreign.variables["HOME"])
    status, out, err = foreign.run("doctor", user=65534)
    assert (status, out.split("|")[2]) == (0, str(foreign.root))
    (environment,) = (home / ".cache" / "whetstone").iterdir()
    assert (environment / "lock.stamp").exists()
    assert err.splitlines()[-1].startswith(str(home / ".local" / "share" / "whetstone"))
    assert not (foreign.root / ".venv").exists()
    assert foreign.run("doctor", user=65534)[0] == 0
    assert foreign.installations == 1


def test_an_unwritable_checkout_uses_the_environment_that_stands_in_it(foreign: Checkout) -> None:
    foreign.run()
    assert foreign.run("doctor", user=65534)[0] == 0
    assert foreign.installations == 1


def test_nowhere_to_write_is_said(foreign: Checkout) -> None:
    foreign.variables["HOME"] = "/proc"
    status, _, err = foreign.run("up", user=65534)
    assert status == 1
    assert "/proc/.cache/whetstone is not writable. Make it so, or set XDG_CACHE_HOME" in err


def test_nothing_records_where_packages_come_from() -> None:
    for name in ("whetstone", "requirements.lock", "requirements-uv.lock"):
        assert "://" not in (ROOT / name).read_text(), name
