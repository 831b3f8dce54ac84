"""The whole suite, as ``make test`` runs it: few tests, those of whole grids, get a second try if they fail, alone.

On a crowded machine a test of real clusters and daemons fails now and then because it waited too little. Such a test
is a defect: it must be seen and mended, but must not refuse an unrelated change. So a few failures in the folders of
such tests are run again one after another. A test that passes then is counted and named as unsteady, and the run
passes. A failure anywhere else fails the run, and nothing is tried again.
"""

from __future__ import annotations

import datetime
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

# Tests of whole grids: real clusters, daemons and processes side by side.
OF_WHOLE_GRIDS = ("tests/end_to_end/", "tests/lab/")
# Other files whose tests start real batch systems, and folders whose tests start processes, each with the last day of
# its second try. From the next day on its line is an error: by then its tests are steady, and the line goes.
MENDED_BY = {
    file: datetime.date(2027, 1, 31)
    for file in (
        "tests/runners/test_slurm_mpi.py",
        "tests/sites/batch/check/test_real_sites.py",
        "tests/sites/batch/grid_engine/test_gpus_live.py",
        "tests/sites/batch/grid_engine/test_resources_live.py",
        "tests/sites/batch/grid_engine/test_scripts_live.py",
        "tests/sites/batch/grid_engine/test_site.py",
        "tests/sites/batch/slurm/test_gpus_live.py",
        "tests/sites/batch/slurm/test_resources_live.py",
        "tests/sites/batch/slurm/test_site.py",
        "tests/sites/batch/slurm/test_site_trouble.py",
        "tests/sites/batch/test_contract.py",
        "tests/sites/test_ssh.py",
        "tests/daemon/",
        "tests/cli/",
        "tests/files/",
        "tests/study/",
        "papers/tests/",
    )
}
# A crowded machine does not explain more failures than this.
SECOND_TRIES_MAX = 5
TESTS_FAILED = 1  # pytest's own exit code

Runner = Callable[[Sequence[str]], int]


def pytest_run(arguments: Sequence[str]) -> int:
    """Run pytest in a process of its own; return its exit code."""
    with subprocess.Popen([sys.executable, "-m", "pytest", *arguments]) as process:
        # An order to end this process is for pytest. Ctrl-C reaches pytest by itself, which then ends with its own
        # code.
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        signal.signal(signal.SIGINT, lambda *_: None)
        code = process.wait()
    return code if code >= 0 else 128 - code


def failed(cache: Path) -> list[str]:
    """Return the tests that failed in the run with this cache. A file that could not be read counts too."""
    path = cache / "v/cache/lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


def all_passed(report: Path, count: int) -> bool:
    """Return True if this many tests ran, and every one passed, according to pytest's report in XML."""
    suite = ElementTree.parse(report).find("testsuite")  # noqa: S314 - pytest wrote it just now
    assert suite is not None
    return [int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")] == [count, 0, 0, 0]


def say(*lines: str) -> None:
    """Print lines that stand out at the end of a long log, after pytest's own."""
    sys.stdout.write("\n".join(["", "=" * 100, *lines, "=" * 100, ""]))
    sys.stdout.flush()


def has_second_try(name: str) -> bool:
    """Return True if a crowded machine is an excuse for this test."""
    file, _, test = name.partition("::")
    return bool(test) and file.startswith((*OF_WHOLE_GRIDS, *MENDED_BY))


def overdue(mended_by: Mapping[str, datetime.date], today: datetime.date) -> list[str]:
    """Return the files whose second try has ended."""
    return [file for file, day in mended_by.items() if day < today]


def whole_run(
    arguments: Sequence[str], scratch: Path, run: Runner = pytest_run, today: datetime.date | None = None
) -> int:
    """Run the tests, and the failed ones once more if all may be and they are few. Return the exit code of the whole.

    It is 0 only if every test passed, at once or alone. Each run has a cache of its own, so that no other run of
    pytest can change the list of failed tests. The first run goes on to its end, even where the environment asks
    pytest to stop at a failure: tests that never ran would be taken for passed.
    """
    if late := overdue(MENDED_BY, today or datetime.date.today()):
        say("FAILED: the time to mend these files is over. Mend them, and take them out of MENDED_BY:", *late)
        return TESTS_FAILED
    code = run([*arguments, "--maxfail=0", "-o", f"cache_dir={scratch / 'first'}"])
    names = failed(scratch / "first")
    if code != TESTS_FAILED or not 0 < len(names) <= SECOND_TRIES_MAX or not all(map(has_second_try, names)):
        return code
    say(f"Second tries: {len(names)}. Each of these failed in the whole run, and is run once more, alone.", *names)
    report = scratch / "second.xml"
    again = ["-n", "0", "-o", f"cache_dir={scratch / 'second'}", f"--junitxml={report}", *names]
    code = run(again)
    if code:
        say("FAILED twice, under load and alone:", *(failed(scratch / "second") or names))
        return code
    if not all_passed(report, len(names)):
        say("FAILED: not every one of these was run again and passed:", *names)
        return TESTS_FAILED
    say(
        f"UNSTEADY: {len(names)} failed under load, passed alone: mend them. How they failed stands above.",
        *names,
    )
    return 0


def main() -> int:
    """Run pytest with the arguments of the command line."""
    with tempfile.TemporaryDirectory(prefix="koala-second-try-") as scratch:
        return whole_run(sys.argv[1:], Path(scratch))


if __name__ == "__main__":
    sys.exit(main())
