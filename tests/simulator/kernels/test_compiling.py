"""Compiled kernels are kept for the next process, never met by a changed policy, and never needed for a run.

What is said of processes is shown with real ones, each with a small kernel that calls a small policy.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from koala.simulator.kernels.compiling import KEPT_UNUSED_S, compiled, fingerprint, kernels_folder
from tests.support.warm_koala import WarmProcess, start_koala

# Who holds a lock on a file, and who waits for one.
LOCKS = Path("/proc/locks")

POLICY = "BONUS = 1\n\n\ndef choose(value):\n    return 2 * value + BONUS\n"
KERNEL = """
import sys

sys.dont_write_bytecode = True
import numpy

from koala.simulator.kernels.compiling import compiled
from policy import choose


def total(values):
    found = 0
    for value in values:
        found += choose(value)
    return found


print(compiled(total)(numpy.arange(4)))
"""


class Programs:
    """A folder with a kernel and its policy, and a cache directory for the processes that run them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache_home = folder / "cache"
        self.begun = 0
        self.write("policy.py", POLICY)
        self.write("kernel.py", KERNEL)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def environment(self, cache_home: Path | None = None) -> dict[str, str]:
        return {**os.environ, "XDG_CACHE_HOME": str(cache_home or self.cache_home)}

    def begin(self, cache_home: Path | None = None) -> tuple[WarmProcess, Path]:
        """A process that was forked from one with numba, and what it says."""
        self.begun += 1
        said = self.folder / f"said-{self.begun}"
        with Path(os.devnull).open("rb") as nothing, said.open("wb") as output:
            process = start_koala(
                [],
                program=self.folder / "kernel.py",
                stdin=nothing.fileno(),
                stdout=output.fileno(),
                stderr=output.fileno(),
                env=self.environment(cache_home),
                cwd=self.folder,
                imported=(
                    "koala.simulator.kernels.compiling",
                    "numba.np.linalg",
                    "scipy.linalg",
                    "tests.support.compiled_first",
                ),
            )
        return process, said

    def run(self, cache_home: Path | None = None) -> str:
        return answer(self.begin(cache_home))

    def run_fresh(self) -> str:
        """In a Python of its own, which has its own order of sets and texts by hash."""
        done = subprocess.run(
            [sys.executable, "kernel.py"],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout.strip() + done.stderr

    def kept(self) -> dict[Path, int]:
        """The files of machine code, each with the time when it was written."""
        return {path: path.stat().st_mtime_ns for path in self.cache_home.rglob("*.nbc")}


def answer(begun: tuple[WarmProcess, Path]) -> str:
    process, said = begun
    code, text = process.wait(timeout=120), said.read_text(encoding="utf-8").strip()
    assert code == 0, text
    return text


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def test_the_next_process_reads_what_was_compiled_and_a_changed_policy_is_compiled_anew(programs: Programs) -> None:
    assert programs.run() == "16"
    kept = programs.kept()
    assert len(kept) == 1
    assert programs.run_fresh() == "16"
    assert programs.kept() == kept
    # The kernel itself is the same, byte by byte.
    programs.write("policy.py", POLICY.replace("2 * value", "3 * value"))
    assert programs.run() == "22"
    assert len({path.parent for path in programs.kept()}) == 2
    assert programs.kept().items() > kept.items()


def test_another_copy_of_the_same_code_reads_what_was_compiled(programs: Programs, tmp_path: Path) -> None:
    assert programs.run() == "16"
    kept = programs.kept()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    copy = Programs(elsewhere)
    copy.write("kernel.py", "# Its lines stand lower.\n" + KERNEL)
    assert copy.run(programs.cache_home) == "16"
    assert programs.kept() == kept


def test_processes_that_compile_at_once_do_not_break_each_other(programs: Programs) -> None:
    together = [programs.begin() for _ in range(2)]
    assert [answer(process) for process in together] == ["16", "16"]
    kept = programs.kept()
    assert len(kept) == 1
    assert programs.run() == "16"
    assert programs.kept() == kept


def test_a_cache_directory_that_cannot_be_written_does_not_stop_a_run(programs: Programs) -> None:
    a_file = programs.folder / "file"
    a_file.touch()
    read_only = programs.folder / "read-only"
    read_only.mkdir(mode=0o500)
    # The last one refuses even the superuser, whom permissions do not stop.
    processes = [programs.begin(cache_home) for cache_home in (a_file, read_only, Path("/proc/self"))]
    assert [answer(process) for process in processes] == ["16", "16", "16"]
    # Nor does numba fall back to a folder beside the source, where it would not notice a changed policy.
    assert not (programs.folder / "__pycache__").exists()


def test_a_damaged_file_of_the_cache_does_not_stop_a_run(programs: Programs) -> None:
    assert programs.run() == "16"
    processes = []
    for suffix in ("nbc", "nbi"):
        copy = programs.folder / suffix
        shutil.copytree(programs.cache_home, copy)
        (damaged,) = copy.rglob(f"*.{suffix}")
        damaged.write_bytes(damaged.read_bytes()[:40])
        processes.append(programs.begin(copy))
    assert [answer(process) for process in processes] == ["16", "16"]


def unlike_all_others(number: int) -> Callable[[Any], int]:
    """A function that nobody has compiled yet, in no process."""

    def first(values: Any) -> int:
        return int(values[0]) + number

    return first


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "koala" / "kernels"


def test_what_is_kept_is_for_the_user_alone(kernels: Path) -> None:
    assert compiled(unlike_all_others(1))(numpy.arange(2)) == 1
    (own,) = kernels.iterdir()
    assert [folder.stat().st_mode & 0o777 for folder in (own, kernels, kernels.parent)] == [0o700] * 3
    assert len(list(own.rglob("*.nbc"))) == 1


@pytest.mark.parametrize("mode", [0o720, 0o702])
@pytest.mark.parametrize("above", [0, 1])
def test_a_folder_that_others_may_write_into_is_not_trusted(kernels: Path, above: int, mode: int) -> None:
    kernels.mkdir(parents=True)
    for folder in (kernels, kernels.parent):
        folder.chmod(0o700)
    (kernels, kernels.parent)[above].chmod(mode)
    assert compiled(unlike_all_others(2))(numpy.arange(2)) == 2
    assert list(kernels.rglob("*.nbc")) == []


def test_the_folder_of_another_user_is_not_trusted(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    another = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: another)
    assert compiled(unlike_all_others(3))(numpy.arange(2)) == 3
    assert list(kernels.rglob("*.nbc")) == []


def test_a_way_to_a_folder_elsewhere_is_not_followed(kernels: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    kernels.parent.mkdir(mode=0o700)
    kernels.symlink_to(elsewhere)
    assert compiled(unlike_all_others(4))(numpy.arange(2)) == 4
    assert list(elsewhere.iterdir()) == []


def test_what_nobody_has_used_for_long_is_deleted_when_something_new_is_kept(kernels: Path) -> None:
    def folder(name: str, unused_s: float) -> Path:
        made = kernels / name
        (made / "inside").mkdir(parents=True)
        lock = made / "lock"
        lock.touch()
        used_s = time.time() - unused_s
        os.utime(lock, (used_s, used_s))
        return made

    kernels.mkdir(mode=0o700, parents=True)
    kernels.parent.chmod(0o700)
    old = folder("0" * 32, KEPT_UNUSED_S + 60)
    young = folder("1" * 32, KEPT_UNUSED_S - 60)
    in_use = folder("2" * 32, KEPT_UNUSED_S + 60)
    foreign = folder("notes", KEPT_UNUSED_S + 60)
    with (in_use / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert compiled(unlike_all_others(5))(numpy.arange(2)) == 5
    assert not old.exists()
    assert all((kept / "inside").exists() for kept in (young, in_use, foreign))


def test_a_folder_that_is_deleted_under_a_process_is_made_again(programs: Programs) -> None:
    """One process has the lock, and the folder goes while the other waits for it, as one long unused would."""
    assert programs.run() == "16"
    (own,) = (programs.cache_home / "koala" / "kernels").iterdir()
    with (own / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = programs.begin()
        waits_for = f":{(own / 'lock').stat().st_ino} "
        while waits_for not in "".join(line for line in LOCKS.read_text().splitlines(True) if "->" in line):
            assert waiting[0].poll() is None
            time.sleep(0.01)
        shutil.rmtree(own)
    assert answer(waiting) == "16"
    assert len(programs.kept()) == 1
    assert (own / "lock").exists()


# ----------------------------------------------------------------------------------------------------- fingerprints

CALLED = """
from enum import IntEnum
from typing import NamedTuple

class Sizes(NamedTuple):
    least: int
    most: int

class Kind(IntEnum):
    SMALL = 1

LIMIT = 5
TABLE = (1, 2)

def inner(value):
    return min(value, LIMIT) + Kind.SMALL + TABLE[0] + (value in {7, 8})

def clipped(value, sizes: "Sizes | None"):
    return max(sizes.least, value)

def outer(value):
    return inner(clipped(value, None)) + 1
"""


def outer_of(text: str) -> Callable[..., Any]:
    """The function ``outer`` of a module with this text."""
    namespace: dict[str, Any] = {"__name__": "drawn"}
    exec(text, namespace)  # noqa: S102
    outer: Callable[..., Any] = namespace["outer"]
    return outer


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("None)) + 1", "None)) + 2"),
        ("{7, 8}", "{7, 9}"),
        ("least: int\n    most: int", "most: int\n    least: int"),
        ("min(value, LIMIT)", "max(value, LIMIT)"),
        ("LIMIT = 5", "LIMIT = 6"),
        ("TABLE = (1, 2)", "TABLE = (3, 2)"),
        ("SMALL = 1", "SMALL = 2"),
        ("def outer(value)", "def outer(value, more=1)"),
    ],
)
def test_whatever_a_kernel_is_made_of_changes_its_fingerprint(old: str, new: str) -> None:
    assert CALLED.count(old) == 1
    assert fingerprint(outer_of(CALLED)) != fingerprint(outer_of(CALLED.replace(old, new)))


def test_a_fingerprint_stays_with_the_code_wherever_that_stands() -> None:
    moved = "\n\n# A comment.\n" + CALLED.replace("LIMIT = 5", "UNUSED = 7\nLIMIT = 5")
    assert fingerprint(outer_of(CALLED)) == fingerprint(outer_of(moved))


def test_variables_of_an_enclosing_function_count_too() -> None:
    def adding(amount: int) -> Callable[[int], int]:
        def add(value: int) -> int:
            return value + amount

        return add

    assert fingerprint(adding(1)) == fingerprint(adding(1)) != fingerprint(adding(2))


def countdown(value: int) -> int:
    return 0 if value == 0 else through(value - 1)


def through(value: int) -> int:
    return countdown(value)


def test_a_function_that_leads_back_to_itself_is_refused() -> None:
    with pytest.raises(ValueError, match=r"countdown calls itself \(countdown -> through -> countdown\)"):
        compiled(countdown)


# --------------------------------------------------------------------------------------------------------- in place


def summed(values: Any) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


def test_sums_are_those_of_python_bit_by_bit_for_every_kind_of_argument() -> None:
    tenths = [0.1 * index - 7.7 for index in range(1001)]
    assert compiled(summed)(numpy.array(tenths)) == summed(tenths)
    assert compiled(summed)(numpy.arange(5)) == 10.0
    assert compiled(summed) is compiled(summed)


def nonsense(value: Any) -> Any:
    return value.no_such_thing


def test_what_is_wrong_with_a_function_is_told() -> None:
    with pytest.raises(Exception, match="no_such_thing"):
        compiled(nonsense)(numpy.zeros(1))


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"XDG_CACHE_HOME": "/somewhere", "HOME": "/home/ann"}, "/somewhere/koala/kernels"),
        ({"XDG_CACHE_HOME": "not/absolute", "HOME": "/home/ann"}, "/home/ann/.cache/koala/kernels"),
        ({"HOME": "/home/ann"}, "/home/ann/.cache/koala/kernels"),
    ],
)
def test_kernels_are_kept_in_the_cache_directory_of_the_user(
    environment: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert kernels_folder() == Path(folder)
