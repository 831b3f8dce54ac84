"""A process on a host that moves bytes, and outlives both the connection by which it was started and this process.

All that is known of it is in files of one directory there, which ``process.sh`` lists. So whoever comes later, from
whichever machine that sees the directory, finds it, and can stop it. What it runs is not known here.
"""

from __future__ import annotations

import shlex

import msgspec

from koala.files.hosts import Host, quoted_path, shell_functions

# The file that says which process it is; there from its start to its end, and after a kill.
PROCESS = "process"
# How much of what it said is read.
SAID_BYTES_MAX = 2_000
PROCESS_FUNCTIONS = shell_functions(__package__, "process.sh")


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """A process at one moment. ``code`` is None while it runs, and when it was killed; ``size_bytes`` is that of the
    file that was asked about, 0 where there is none."""

    running: bool
    code: int | None
    size_bytes: int
    said: str


class RemoteProcess:
    """The process of one directory ``home`` of a host, an absolute path or one from '~/' on."""

    def __init__(self, host: Host, home: str) -> None:
        self._host = host
        self._enter = f"cd {quoted_path(home)}"

    async def start(self, script: str) -> None:
        """Run a script, unless one runs here already, and return once it has begun.

        Raises ``OSError`` when it cannot be started; then it may still start a little later.
        """
        start = shlex.join(["koala_start", script, PROCESS_FUNCTIONS])
        await self._host.run(f"{self._enter}\n{PROCESS_FUNCTIONS}{start}\n")

    async def look(self, watched: str | None = None) -> ProcessState:
        """How it is, and how large a file of its host is."""
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
        """End it, with all that it started. When this returns nothing of it runs; it may never have been started."""
        await self._host.run(f"{self._enter} 2>/dev/null || exit 0\n{PROCESS_FUNCTIONS}koala_stop\n")
