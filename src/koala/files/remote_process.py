"""A process on a host that moves bytes, and survives both the connection that started it and this process.

Its whole state is in files of one directory there, which ``process.sh`` lists. So any later caller, on any machine
that sees the directory, can find it and stop it. This module does not know what it runs.
"""

from __future__ import annotations

import shlex

import msgspec

from koala.files.hosts import Host, quoted_path, shell_functions

# The file that identifies the process; it exists from its start to its end, and after a kill.
PROCESS = "process"
# At most this much of its output is read.
SAID_BYTES_MAX = 2_000
PROCESS_FUNCTIONS = shell_functions(__package__, "process.sh")


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """A process at one moment. ``code`` is None while it runs, and after a kill. ``size_bytes`` is the size of the
    watched file, 0 if there is none."""

    running: bool
    code: int | None
    size_bytes: int
    said: str


class RemoteProcess:
    """The process of one directory ``home`` of a host: an absolute path, or one that begins with '~/'."""

    def __init__(self, host: Host, home: str) -> None:
        self._host = host
        self._enter = f"cd {quoted_path(home)}"

    async def start(self, script: str) -> None:
        """Run a script, unless one runs here already, and return once it has begun.

        Raises ``OSError`` if it cannot be started; it may then still start a little later.
        """
        start = shlex.join(["koala_start", script, PROCESS_FUNCTIONS])
        await self._host.run(f"{self._enter}\n{PROCESS_FUNCTIONS}{start}\n")

    async def look(self, watched: str | None = None) -> ProcessState:
        """Return its state, and the size of a file on its host."""
        look = shlex.join(["koala_look", watched or "", str(SAID_BYTES_MAX)])
        answer = await self._host.run(f"{self._enter}\n{PROCESS_FUNCTIONS}{look}\n")
        size_bytes, state, said = answer.split("\n", 2)
        word, _, code = state.partition(" ")
        return ProcessState(
            running=word == "lives",
            code=int(code) if code.isdigit() else None,
            size_bytes=int(size_bytes),
            said=said.strip(),
        )

    async def stop(self) -> None:
        """End the process with all its children. Nothing of it runs when this returns. It need not have been
        started."""
        await self._host.run(f"{self._enter} 2>/dev/null || exit 0\n{PROCESS_FUNCTIONS}koala_stop\n")
