"""The command line against a daemon, for tests: verbs run in this process, or in one of their own on a terminal."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import select
import struct
import termios
import time
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from koala.cli import koala
from tests.support.live_daemon import WAIT_S, Daemon
from tests.support.warm_koala import start_koala


class Shell:
    """Runs verbs as a user would, with 80 columns and without a terminal."""

    def __init__(self, server: str, **environment: str) -> None:
        self.environment = {"COLUMNS": "80", "KOALA_SERVER": server, "KOALA_TOKEN": "", **environment}

    def __call__(self, *arguments: str, code: int = 0, stdin: str | None = None) -> Result:
        """Run a verb, which must end with this exit code."""
        result = CliRunner(env=self.environment).invoke(koala, list(arguments), input=stdin)
        assert result.exit_code == code, (
            f"{arguments} ended with {result.exit_code}: {result.output}{result.exception!r}"
        )
        return result

    def lines(self, *arguments: str, code: int = 0) -> list[str]:
        """Return the output of a verb, which fits the terminal except for the paths of workspaces."""
        lines = self(*arguments, code=code).stdout.splitlines()
        assert all(len(line) <= 80 or line.startswith("workspace ") for line in lines), lines
        return lines

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Return a verb's output for a program."""
        return json.loads(self(*arguments, "--json", code=code).stdout)

    def submit(self, directory: Path, script: str, request: str = "components: [{processors: 1}]") -> int:
        """Submit a job that runs a script; return its number."""
        submitted = self.json("submit", str(job_file(directory, script, request)))
        return int(submitted["job"]["id"])


def job_file(directory: Path, script: str, request: str = "components: [{processors: 1}]") -> Path:
    """Write a file with a job that runs a script."""
    path = directory / "job.yaml"
    application = json.dumps({"script": script})
    path.write_text(f"name: mine\napplication: {application}\nlimits: {{restarts: 0}}\n{request}\n", encoding="utf-8")
    return path


class Terminal:
    """A verb, or a ``program`` of the tests, in a process of its own, on a terminal of a given size."""

    def __init__(
        self, daemon: Daemon, *arguments: str, columns: int = 80, rows: int = 24, program: Path | None = None
    ) -> None:
        self._screen, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {
            name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        environment |= {"TERM": "xterm", "KOALA_SERVER": daemon.server}
        self.process = start_koala(
            arguments,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=environment,
            start_new_session=True,
            program=program,
        )
        os.close(inner)
        self.shown = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may come in two pieces

    def until(self, text: str) -> None:
        """Read until the text has been shown."""
        end = time.monotonic() + WAIT_S
        while text not in self.shown:
            assert time.monotonic() < end, f"{text!r} was not shown: {self.shown[-2000:]!r}"
            if not self.read():
                break
        assert text in self.shown, self.shown[-2000:]

    def read(self) -> bool:
        """Read what is shown within a moment, if anything; return True if more may come."""
        ready, _, _ = select.select([self._screen], [], [], 0.1)
        if not ready:
            return True
        try:
            piece = os.read(self._screen, 65_536)
        except OSError:  # Linux says so when the other side is closed
            return False
        self.shown += self._decoder.decode(piece)
        return bool(piece)

    def press(self, keys: str) -> None:
        """Type these keys."""
        os.write(self._screen, keys.encode())

    def ended(self) -> int:
        """Read until the verb ends; return its exit code."""
        end = time.monotonic() + WAIT_S
        while self.read():
            assert time.monotonic() < end, f"it does not end: {self.shown[-2000:]!r}"
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        """End it if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_S)
        os.close(self._screen)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
