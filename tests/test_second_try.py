"""The second try that tests get in ``make test``: who gets it, what is said, and the exit code of the run."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.live_daemon import until
from tests.support.paths import ROOT
from tests.support.second_try import MENDED_BY, SECOND_TRIES_MAX, has_second_try, whole_run

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
# A file whose tests have a second try, and one whose tests have none.
OF_WHOLE_GRIDS = "tests/end_to_end/test_it.py"
ELSEWHERE = "tests/core/test_it.py"
UNSTEADY_TEST = "test_unsteady[a b[::]]"
LAST_DAY = min(MENDED_BY.values())


@contextlib.contextmanager
def begun(where: Path, text: str, *arguments: str, file: str) -> Iterator[subprocess.Popen[str]]:
    """What ``make test`` does with these tests; killed at the end of the block if it runs still."""
    (where / file).parent.mkdir(parents=True)
    (where / file).write_text(text)
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


def make_test(where: Path, text: str, *arguments: str, file: str = OF_WHOLE_GRIDS) -> tuple[int, str]:
    """Its exit code and output."""
    with begun(where, text, *arguments, file=file) as process:
        output, _ = process.communicate(timeout=300)
    return process.returncode, output


def test_a_test_that_fails_in_processes_side_by_side_and_passes_alone_lets_the_run_pass_and_is_named(
    tmp_path: Path,
) -> None:
    code, output = make_test(tmp_path, UNSTEADY, "-n", "2")
    assert code == 0, output
    again = output.index("Second tries: 1. Each of these failed in the whole run, and is run once more, alone.")
    told = output.index("UNSTEADY: 1 failed under load, passed alone: mend them")
    assert f"{OF_WHOLE_GRIDS}::{UNSTEADY_TEST}" in output[again:told]
    assert f"{OF_WHOLE_GRIDS}::{UNSTEADY_TEST}" in output[told:]
    assert output.index("the machine was crowded") < told
    assert output.index("1 failed, 1 passed in") < again < output.index("1 passed in", again) < told


def test_an_unsteady_test_of_anything_but_whole_grids_fails_the_run(tmp_path: Path) -> None:
    code, output = make_test(tmp_path, UNSTEADY, file=ELSEWHERE)
    assert code == 1, output
    assert "the machine was crowded" in output
    assert "Second tries" not in output


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    code, output = make_test(tmp_path, FAILS)
    assert code == 1, output
    assert "1 failed, 1 passed in" in output  # the whole run did not stop at the failure
    assert output.index("FAILED twice") < output.rindex(f"{OF_WHOLE_GRIDS}::test_fails")
    assert "UNSTEADY" not in output


@pytest.mark.parametrize(("text", "code"), [("def broken(:", 2), ("", 5)], ids=["no Python", "no test"])
def test_a_run_that_ended_otherwise_than_by_a_failed_test_ends_with_its_own_code(
    tmp_path: Path, text: str, code: int
) -> None:
    found, output = make_test(tmp_path, text)
    assert found == code, output
    assert "Second tries" not in output


def test_a_test_that_is_not_run_the_second_time_has_not_passed(tmp_path: Path) -> None:
    code, output = make_test(tmp_path, SKIPPED_LATER)
    assert code == 1, output
    assert "FAILED: not every one of these was run again and passed" in output


def test_whoever_ends_the_run_ends_its_tests(tmp_path: Path) -> None:
    with begun(tmp_path, TAKES_LONG, file=OF_WHOLE_GRIDS) as process:
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
        (1, [f"tests/lab/test_a.py::test_{each}" for each in range(SECOND_TRIES_MAX + 1)]),
        (1, []),
        (1, ["tests/lab/test_a.py"]),
        (1, ["tests/core/test_a.py::test_a", "tests/lab/test_a.py::test_a"]),
        (2, ["tests/lab/test_a.py::test_a"]),
        (130, ["tests/lab/test_a.py::test_a"]),
    ],
    ids=["all passed", "too many", "none is known", "a file", "one elsewhere", "interrupted", "killed"],
)
def test_there_is_no_second_try(tmp_path: Path, code: int, failures: list[str]) -> None:
    played = Played([code], failures)
    assert whole_run(["-n", "auto"], tmp_path, played, LAST_DAY) == code
    assert len(played.calls) == 1


def test_as_many_as_may_be_are_tried_again_without_processes_side_by_side(tmp_path: Path) -> None:
    names = [f"tests/lab/test_a.py::test_{each}" for each in range(SECOND_TRIES_MAX)]
    played = Played([1, 3], names)
    assert whole_run(["-n", "auto"], tmp_path, played, LAST_DAY) == 3
    first, second = played.calls
    assert first[:2] == ["-n", "auto"]
    assert second[:2] == ["-n", "0"]
    assert second[-SECOND_TRIES_MAX:] == names


def test_a_file_that_was_not_mended_in_time_fails_the_run_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = [file for file, day in MENDED_BY.items() if day == LAST_DAY]
    played = Played([], [])
    assert whole_run([], tmp_path, played, LAST_DAY + datetime.timedelta(days=1)) == 1
    assert played.calls == []
    output = capsys.readouterr().out
    assert "the time to mend these files is over" in output
    assert all(file in output for file in late)


def test_every_file_with_a_last_day_is_there_and_needs_it() -> None:
    for file in MENDED_BY:
        assert (ROOT / file).exists(), file
        assert has_second_try(f"{file}::test_a")
    assert not has_second_try("tests/sites/batch/test_crowded.py::test_a")
