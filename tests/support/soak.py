"""``make soak``: looks for rare failures, which a run of all tests does not find since it draws the same every time.

In turns it runs the tests that time can upset, while other processes load the machine; properties with new examples;
storms of faults with new seeds; and kills with new seeds. Each of these is a command. Those that fail are listed at
the end as one types them to repeat what they found.

``python -m tests.support.soak --minutes 10 -- COMMAND`` runs one command again and again on the loaded machine.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.support.paths import ROOT
from tests.support.second_try import MENDED_BY, OF_WHOLE_GRIDS

# Tests that race with a crowded machine: they have a second try in a run of all tests, or kill and wait for daemons.
UNSTEADY = (*OF_WHOLE_GRIDS, *MENDED_BY)
KILLS = "tests/daemon/engine/test_kills.py"
TESTS = ("tests", "papers/tests")
# A turn is to take minutes at most, so that all kinds get theirs.
STORMS, PROPERTY_FILES = 50, 5
SEEDS = 1_000_000
# Processes that load the machine, for each processor.
LOADERS = 2
# A command that takes longer is ended, and counts as failed.
COMMAND_S_MAX = 3600.0
COMMAND_ENDED = 124  # as timeout(1) has it
# What is interrupted has this long to end its daemons and clusters.
CLEANUP_S_MAX = 60.0


@dataclass(frozen=True)
class Trial:
    """A command that is to end with 0, with what it needs in its environment; perhaps on a loaded machine."""

    command: Sequence[str]
    environment: Sequence[tuple[str, str]] = ()
    loaded: bool = False

    def to_repeat(self) -> str:
        """Return what one types to run it again."""
        given = [f"{name}={shlex.quote(value)}" for name, value in self.environment]
        under = [sys.executable, "-m", "tests.support.soak", "--minutes", "10", "--"] if self.loaded else []
        return " ".join([*given, shlex.join([*under, *self.command])])


Turn = Callable[[], Trial]


def pytest_of(*arguments: str) -> list[str]:
    """Return the command for these tests, one after another, up to the first failure."""
    return [sys.executable, "-m", "pytest", "-q", "-n", "0", "--maxfail=1", *arguments]


def every_turn(rng: random.Random) -> Sequence[Turn]:
    """Return the kinds of trials; each gives another one every time."""
    files = sorted(path.relative_to(ROOT).as_posix() for at in TESTS for path in (ROOT / at).rglob("test_*.py"))
    unsteady = shuffled([file for file in files if file.startswith(UNSTEADY)], rng)
    properties = shuffled([file for file in files if "\nfrom hypothesis import" in (ROOT / file).read_text()], rng)

    def seed() -> str:
        return str(rng.randrange(SEEDS))

    def some_properties() -> Trial:
        drawn = itertools.islice(properties, PROPERTY_FILES)
        return Trial(pytest_of("--hypothesis-profile=random", f"--hypothesis-seed={seed()}", *drawn))

    return (
        lambda: Trial(pytest_of(next(unsteady)), loaded=True),
        some_properties,
        lambda: Trial([sys.executable, "-m", "koala", "torture", "--first", seed(), "--seeds", str(STORMS)]),
        lambda: Trial(pytest_of(KILLS), [("KOALA_KILLS_SEED", seed())]),
    )


def shuffled(names: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Give all of them in a random order, then in another, without an end."""
    while True:
        yield from rng.sample(names, len(names))


@contextlib.contextmanager
def loaded_machine() -> Iterator[None]:
    """Keep every processor busy for the block."""
    # A loader whose parent was killed ends too.
    text = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))"
    with contextlib.ExitStack() as loaders:
        for _ in range(LOADERS * len(os.sched_getaffinity(0))):
            loader = loaders.enter_context(subprocess.Popen([sys.executable, "-c", text]))
            loaders.callback(loader.kill)
        yield


def perform(trial: Trial) -> int:
    """Run the command and return its exit code; show its output if it fails."""
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(tempfile.TemporaryFile())
        if trial.loaded:
            stack.enter_context(loaded_machine())
        process = stack.enter_context(
            subprocess.Popen(
                trial.command,
                env={**os.environ, **dict(trial.environment)},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )
        stack.callback(end_all, process)
        try:
            code = process.wait(COMMAND_S_MAX)
        except subprocess.TimeoutExpired:
            code = COMMAND_ENDED
        if code:
            output.seek(0)
            say(output.read().decode(errors="replace"))
    return code


def end_all(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the process if it still runs, and end what it left in its group."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(CLEANUP_S_MAX)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def say(text: str) -> None:
    """Print a line, or several, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def soak(turns: Sequence[Turn], minutes: float) -> list[str]:
    """Take turns until the time is up, each kind once at least; return what repeats the failures."""
    until = time.monotonic() + 60.0 * minutes
    found: list[str] = []
    count = 0
    try:
        for count, turn in enumerate(itertools.cycle(turns)):
            if count >= len(turns) and time.monotonic() >= until:
                break
            trial = turn()
            say(f"{count + 1}: {trial.to_repeat()}")
            if code := perform(trial):
                say(f"FAILED with exit code {code}")
                found.append(trial.to_repeat())
    except KeyboardInterrupt:
        say("interrupted")
    say(f"\nCommands run: {count}. Failed: {len(found)}{'. To repeat them:' if found else ''}")
    for command in dict.fromkeys(found):
        say(command)
    return found


def main() -> int:
    """Soak for the minutes of the command line; return 1 if anything was found."""
    parser = argparse.ArgumentParser(description="Look for rare failures until the minutes are over.")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long; each kind of trial runs once at least")
    parser.add_argument("command", nargs="*", help="run only this, again and again, on the loaded machine")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    turns = [lambda: Trial(given.command, loaded=True)] if given.command else every_turn(random.Random())
    return 1 if soak(turns, given.minutes) else 0


if __name__ == "__main__":
    sys.exit(main())
