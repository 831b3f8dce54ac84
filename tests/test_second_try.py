"""The second try that tests get in ``make test``: who gets it, what is said, and the exit code of the run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.live_daemon import until
from tests.support.paths import ROOT
from tests.support.second_try import SECOND_TRIES_MAX, whole_run

# The test fails until a file says that it has been tried.
UNSTEADY = """
from pathlib import Path
import pytest

def test_steady(): pass

@pytest.mark.parametrize("at", ["a b[::]"])
def test_unsteady(at):
    tried = Path("tried")
    again, _ = tried.exists(), tried.touch()
    assert again, "the machine was crowded"
"""
FAILS = "def test_fails(): assert 1 == 2\ndef test_passes(): pass\n"
SKIPPED_LATER = """
from pathlib import Path
import pytest

def test_skipped_later():
    tried = Path("tried")
    if tried.exists():
        pytest.skip("not today")
    tried.touch()
    assert not tried.exists()
"""
TAKES_LONG = """
import os, time
from pathlib import Path

def test_takes_long():
    Path("pid.new").write_text(str(os.getpid()))
    Path("pid.new").rename("pid")
    time.sleep(600)
"""
UNSTEADY_ID = "test_it.py::test_unsteady[a b[::]]"


@contextlib.contextmanager
def begun(where: Path, text: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """What ``make test`` does with these tests; killed at the end of the block if it runs still."""
    (where / "test_it.py").write_text(text)
    (where / "pytest.ini").touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "-p xdist -x"}
    words = [sys.executable, "-m", "tests.support.second_try", *arguments]
    with subprocess.Popen(
        words, cwd=where, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def make_test(where: Path, text: str, *arguments: str) -> tuple[int, str]:
    """Its exit code and output."""
    with begun(where, text, *arguments) as process:
        output, _ = process.communicate(timeout=300)
    return process.returncode, output


def test_a_test_that_fails_in_processes_side_by_side_and_passes_alone_lets_the_run_pass_and_is_named(
    tmp_path: Path,
) -> None:
    code, output = make_test(tmp_path, UNSTEADY, "-n", "2")
    assert code == 0, output
    told = output.index("UNSTEADY: failed under load, passed alone: mend them")
    assert UNSTEADY_ID in output[told:]
    assert output.index("the machine was crowded") < told
    assert output.index("1 failed, 1 passed in") < output.index("1 passed in", output.index("run once more")) < told


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    code, output = make_test(tmp_path, FAILS)
    assert code == 1, output
    assert "1 failed, 1 passed in" in output  # the whole run did not stop at the failure
    assert output.index("FAILED twice") < output.rindex("test_it.py::test_fails")
    assert "UNSTEADY" not in output


@pytest.mark.parametrize(("text", "code"), [("def broken(:", 2), ("", 5)], ids=["no Python", "no test"])
def test_a_run_that_ended_otherwise_than_by_a_failed_test_ends_with_its_own_code(
    tmp_path: Path, text: str, code: int
) -> None:
    found, output = make_test(tmp_path, text)
    assert found == code, output
    assert "run once more" not in output


def test_a_test_that_is_not_run_the_second_time_has_not_passed(tmp_path: Path) -> None:
    code, output = make_test(tmp_path, SKIPPED_LATER)
    assert code == 1, output
    assert "FAILED: not every one of these was run again and passed" in output


def test_whoever_ends_the_run_ends_its_tests(tmp_path: Path) -> None:
    with begun(tmp_path, TAKES_LONG) as process:
        until(lambda: (tmp_path / "pid").exists(), "the test runs")
        process.terminate()
        process.communicate(timeout=300)
        assert process.returncode == 128 + signal.SIGTERM
        pid = int((tmp_path / "pid").read_text())
        until(lambda: not Path(f"/proc/{pid}").exists(), "pytest is gone")


class Played:
    """Runs of pytest that end with these codes; so many tests fail in the first."""

    def __init__(self, codes: Sequence[int], failures: Sequence[str]) -> None:
        self.codes = list(codes)
        self.failures = failures
        self.calls: list[Sequence[str]] = []

    def __call__(self, arguments: Sequence[str]) -> int:
        self.calls.append(arguments)
        cache = Path(next(each for each in arguments if each.startswith("cache_dir=")).removeprefix("cache_dir="))
        (cache / "v/cache").mkdir(parents=True)
        if self.failures:
            named = ", ".join(f'"{name}": true' for name in self.failures)
            (cache / "v/cache/lastfailed").write_text(f"{{{named}}}")
        return self.codes.pop(0)


@pytest.mark.parametrize(
    ("code", "failures"),
    [
        (0, []),
        (1, [f"tests/test_a.py::test_{each}" for each in range(SECOND_TRIES_MAX + 1)]),
        (1, []),
        (1, ["tests/test_a.py"]),
        (2, ["tests/test_a.py::test_a"]),
        (130, ["tests/test_a.py::test_a"]),
    ],
    ids=["all passed", "too many", "none is known", "a file", "interrupted", "killed"],
)
def test_there_is_no_second_try(tmp_path: Path, code: int, failures: list[str]) -> None:
    played = Played([code], failures)
    assert whole_run(["-n", "auto"], tmp_path, played) == code
    assert len(played.calls) == 1


def test_as_many_as_may_be_are_tried_again_without_processes_side_by_side(tmp_path: Path) -> None:
    names = [f"tests/test_a.py::test_{each}" for each in range(SECOND_TRIES_MAX)]
    played = Played([1, 3], names)
    assert whole_run(["-n", "auto"], tmp_path, played) == 3
    first, second = played.calls
    assert first[:2] == ["-n", "auto"]
    assert second[:2] == ["-n", "0"]
    assert second[-SECOND_TRIES_MAX:] == names
