"""A real daemon for tests: ``koala up`` as a process of its own, with its client; nothing of it is left behind."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from koala.cli.examples import read_named
from koala.client import ENDED_STATES, Client, ClientError
from tests.support.pauses import pause_s
from tests.support.short_paths import directory_for_socket
from tests.support.warm_koala import WarmProcess, start_koala

_logger = logging.getLogger(__name__)


WAIT_S = 120.0


def shared_embedded() -> str:
    """Return the grid ``embedded``, where jobs of guests may run as well."""
    return f"{read_named('grid', 'embedded')[0]}shared_account: true\n"


def until(condition: Callable[[], bool], what: str, wait_s: float = WAIT_S) -> None:
    """Wait until the condition holds; name ``what`` in a failure."""
    began = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began
        assert waited_s < wait_s, f"this did not come about within {wait_s:.0f} s: {what}"
        time.sleep(pause_s(waited_s))


def current_test() -> str:
    """Return the running test with its phase, as pytest has it."""
    return os.environ.get("PYTEST_CURRENT_TEST", "nobody")


class Daemon:
    """A daemon in a directory. ``start`` after ``kill`` or ``stop`` continues with the same state.

    ``used_by`` is the last test that called it, and is named if jobs do not end.
    """

    def __init__(
        self,
        directory: Path,
        state: Path,
        grid: str,
        options: tuple[str, ...],
        environment: Mapping[str, str],
        through: tuple[str, ...],
        program: Path | None = None,
    ) -> None:
        self.directory = directory
        self.state = state
        self.socket = state / "koala.sock"
        self.server = f"unix:{self.socket}"
        self.url: str | None = None
        self.used_by = current_test()
        self._client = Client(self.server)
        self._grid = grid
        self._options = options
        self._environment = dict(environment)
        self._through = through
        self._program = program
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None
        self._starts = 0

    @property
    def client(self) -> Client:
        """Its client."""
        self.note_use()
        return self._client

    def note_use(self) -> None:
        """Note the test that uses it."""
        test = current_test()
        if not test.endswith("(teardown)"):  # that of a shared daemon is of no test that used it
            self.used_by = test

    @property
    def pid(self) -> int:
        """The process that is or was the daemon."""
        assert self._process is not None, "it was never started"
        return self._process.pid

    @property
    def output(self) -> str:
        """The output of the newest start, on both streams."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def _log(self) -> Path:
        return self.directory / f"daemon-{self._starts}.log"

    def start(self, options: tuple[str, ...] | None = None) -> None:
        """Start it and wait until it answers; ``options`` replace its own."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        self._starts += 1
        words = [
            "up",
            *(("--state", str(self.state), "--grid", self._grid, *self._options) if options is None else options),
        ]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **self._environment}
        with self._log.open("wb") as log, Path(os.devnull).open("rb") as nothing:
            if self._through:
                self._process = subprocess.Popen(
                    [*self._through, sys.executable, "-m", "koala", *words],
                    stdin=nothing,
                    stdout=log,
                    stderr=log,
                    env=environment,
                )
            else:
                output = log.fileno()
                self._process = start_koala(
                    words,
                    stdin=nothing.fileno(),
                    stdout=output,
                    stderr=output,
                    env=environment,
                    program=self._program,
                )
        until(self._has_greeted, "the daemon is up")
        found = re.search(r"^  address +(\S+)$", self.output, re.MULTILINE)
        self.url = None if found is None else found[1]

    def _has_greeted(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the daemon ended at its start:\n{self.output}"
        return "koala is up" in self.output and "Ctrl-C" in self.output

    def kill(self) -> None:
        """End it like a power failure: at once, without an orderly end."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Stop it and wait; return its exit code."""
        return self._end(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, and do not wait."""
        assert self._process is not None, "it was never started"
        self._process.send_signal(number)

    def ended(self) -> int:
        """Wait for its end; return its exit code."""
        assert self._process is not None, "it was never started"
        return self._process.wait(WAIT_S)

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None, "it was never started"
        if self._process.poll() is None:
            self.send(number)
        return self.ended()

    def clear(self) -> None:
        """End its remaining jobs, then the daemon, then whatever its sites still run."""
        if self._process is not None and (code := self._process.poll()) is not None:
            _logger.warning(
                "the daemon had ended with exit code %s, and printed:\n%s", code, self.output
            )  # for a failed test
        try:
            with contextlib.suppress(ClientError):
                if self._process is not None and self._process.poll() is None:
                    self._cancel_all()
        finally:
            self._client.close()
            try:
                if self._process is not None and self._process.poll() is None:
                    self._stop_or_tell_why_not()
            finally:
                for pid in processes_below(self.state):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def _stop_or_tell_why_not(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.stop()
            return
        try:
            self._end(signal.SIGABRT)  # Python then writes what each of its threads was doing
        except subprocess.TimeoutExpired:
            self.kill()
        raise AssertionError(f"the daemon was told to stop and did not:\n{self.output}")

    def _cancel_all(self) -> None:
        client = self._client
        live = [job for job in client.each_job() if job.state not in ENDED_STATES]
        for job in live:
            client.cancel(job.id)
        left = [f"job {job.id} ({job.name}) was {job.state}" for job in live]
        what = f"the sites let go of what {self.used_by} left: {', '.join(left) or 'no jobs'}"
        until(lambda: not any(site.ours for site in client.sites()), what)


def processes_below(directory: Path) -> list[int]:
    """Return every living process that was started for a component of a site below this directory."""
    mark = os.fsencode(f"KOALA_HOME={directory.resolve()}/")
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if any(line.startswith(mark) for line in (entry / "environ").read_bytes().split(b"\0")):
                found.append(int(entry.name))
    return found


@contextlib.contextmanager
def running_daemon(
    directory: Path,
    *,
    grid: str = "embedded",
    listen: bool = False,
    options: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    through: tuple[str, ...] = (),
    program: Path | None = None,
) -> Iterator[Daemon]:
    """Run a daemon during the block. ``grid`` is an example's name, a file, or the text of a grid file. ``listen``
    gives it a port of 127.0.0.1, whose address is then ``url``. ``options`` go to ``koala up``, which has
    ``environment`` beside this process's own. ``through`` are words in front of it that become it; alternatively a
    ``program`` of the tests becomes it."""
    assert not (through and program), "one of them becomes the daemon"
    if "\n" in grid:
        file = directory / "grid.yaml"
        file.write_text(grid, encoding="utf-8")
        grid = str(file)
    address = ("--listen", "127.0.0.1:0") if listen else ()
    with directory_for_socket(directory, "state/koala.sock") as above:
        daemon = Daemon(directory, above / "state", grid, (*address, *options), environment or {}, through, program)
        try:
            daemon.start()
            yield daemon
        finally:
            daemon.clear()
