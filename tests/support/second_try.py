"""The whole suite, as ``make test`` runs it: tests that fail in it get a second try, alone, and are named aloud.

Thousands of tests beside each other on a crowded machine fail now and then for one that waits too little. Such a
test is a defect. It shall be seen and mended, but it shall not refuse a change that has nothing to do with it. Few
failures are therefore run again one after another. Who passes then is listed as unsteady, and the run passes.
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

# More failures than this are no matter of a crowded machine.
SECOND_TRIES_MAX = 5
TESTS_FAILED = 1  # pytest's own exit code

Runner = Callable[[Sequence[str]], int]


def pytest_run(arguments: Sequence[str]) -> int:
    """Run pytest in a process of its own; its exit code."""
    with subprocess.Popen([sys.executable, "-m", "pytest", *arguments]) as process:
        # Whoever ends this process means pytest. Ctrl-C reaches pytest by itself, which then ends with its own code.
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        signal.signal(signal.SIGINT, lambda *_: None)
        code = process.wait()
    return code if code >= 0 else 128 - code


def failed(cache: Path) -> list[str]:
    """The tests that failed in the run that kept its cache here. A file that could not be read counts too."""
    path = cache / "v/cache/lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


def all_passed(report: Path, count: int) -> bool:
    """Whether this many tests ran, and every one passed, as pytest's report in XML has it."""
    suite = ElementTree.parse(report).find("testsuite")  # noqa: S314 - pytest wrote it just now
    assert suite is not None
    return [int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")] == [count, 0, 0, 0]


def say(*lines: str) -> None:
    """Lines that stand out at the end of a long log, after what pytest has written."""
    sys.stdout.write("\n".join(["", "=" * 100, *lines, "=" * 100, ""]))
    sys.stdout.flush()


def whole_run(arguments: Sequence[str], scratch: Path, run: Runner = pytest_run) -> int:
    """Run the tests, and those that failed once more if they are few. The exit code of the whole.

    It is 0 only when every test passed, at once or alone. Each run has a cache of its own, so that no other run of
    pytest can change what is known to have failed. The first goes on to its end, also where the environment asks
    pytest to stop at a failure: tests that never ran would be taken for passed."""
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
