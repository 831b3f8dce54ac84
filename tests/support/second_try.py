"""The whole suite, as ``make test`` runs it: tests that fail in it get a second try, alone, and are listed.

Among thousands of parallel tests on a crowded machine one that waits too little fails now and then. Such a test is a
defect: it must be seen and mended, but must not refuse an unrelated change. If there are few failures, they are run
again one after another. A test that passes then is listed as unsteady, and the run passes.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

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


def whole_run(arguments: Sequence[str], scratch: Path, run: Runner = pytest_run) -> int:
    """Run the tests, and those that failed once more if they are few. Return the exit code of the whole.

    It is 0 only if every test passed, at once or alone. Each run has a cache of its own, so that no other run of
    pytest can change the list of failed tests. The first run goes on to its end, even where the environment asks
    pytest to stop at a failure: tests that never ran would be taken for passed.
    """
    code = run([*arguments, "--maxfail=0", "-o", f"cache_dir={scratch / 'first'}"])
    names = failed(scratch / "first")
    if code != TESTS_FAILED or not 0 < len(names) <= SECOND_TRIES_MAX or not all("::" in name for name in names):
        return code
    say(f"Failed in the whole run: {len(names)}. Each is run once more, alone.", *names)
    report = scratch / "second.xml"
    again = ["-n", "0", "-o", f"cache_dir={scratch / 'second'}", f"--junitxml={report}", *names]
    code = run(again)
    if code:
        say("FAILED twice, under load and alone:", *(failed(scratch / "second") or names))
        return code
    if not all_passed(report, len(names)):
        say("FAILED: not every one of these was run again and passed:", *names)
        return TESTS_FAILED
    say("UNSTEADY: failed under load, passed alone: mend them. How they failed stands above.", *names)
    return 0


def main() -> int:
    """Run pytest with the arguments of the command line."""
    with tempfile.TemporaryDirectory(prefix="koala-second-try-") as scratch:
        return whole_run(sys.argv[1:], Path(scratch))


if __name__ == "__main__":
    sys.exit(main())
