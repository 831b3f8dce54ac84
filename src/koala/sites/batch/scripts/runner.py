"""The runner of shell scripts at a site: one after the other or several at a time, each to its end.

``koala.sites.batch.scripts.directory`` writes the scripts, ``koala.sites.remote_shell`` carries them to the site.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import msgspec

from koala.sites.remote_shell import RemoteShell, ShellError, ShellTimeoutError, last_words
from koala.sites.shell_script import FramedScript, OutputSection

# Time limits of scripts: for scripts that only touch files, and for scripts that ask the batch system. A daemon gives
# a call of a site 120 s.
FILES_S = 30.0
BATCH_S = 45.0
REMOVE_S = 100.0
# A listing of a hundred thousand jobs takes seconds to parse: longer output is parsed outside the event loop.
PARSE_IN_LOOP_BYTES_MAX = 65_536

T = TypeVar("T")


class ScriptResult(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a script: its sections, and its standard error."""

    sections: list[OutputSection]
    complaint: str

    def section(self, name: str) -> OutputSection | None:
        """Return the first section whose mark begins with that word."""
        return next((each for each in self.sections if each.words[:1] == (name,)), None)

    def code(self, name: str) -> int | None:
        """Return the exit code in the mark of a section; None if there is no such section."""
        section = self.section(name)
        return None if section is None else int(section.words[1])


class ScriptRunner:
    """Runs scripts. ``calls`` counts uses of the batch system, by the methods of ``BatchSystem``."""

    def __init__(self, shell: RemoteShell) -> None:
        self.shell = shell
        self.calls: Counter[str] = Counter()

    async def run(self, body: str, *, timeout_s: float = FILES_S, calls: str = "", times: int = 1) -> ScriptResult:
        """Run a script to its end. Raises ``ShellError`` if it did not get there; it may still have taken effect."""
        done, error = await self.try_to_run(body, timeout_s=timeout_s, calls=calls, times=times)
        if error is not None:
            raise error
        return done

    async def try_to_run(
        self, body: str, *, timeout_s: float = FILES_S, calls: str = "", times: int = 1
    ) -> tuple[ScriptResult, ShellError | None]:
        """Run a script as far as possible; return its output, and what kept it from its end."""
        script = FramedScript(body)
        if calls:
            self.calls[calls] += times
        try:
            answer = await self.shell.run(script.text, timeout_s=timeout_s)
        except ShellTimeoutError as error:
            return ScriptResult(sections=script.sections(error.printed), complaint=""), error
        done = ScriptResult(sections=script.sections(answer.stdout), complaint=last_words(answer.stderr))
        if script.is_done(done.sections):
            return done, None
        why = done.complaint or f"a command ended with exit code {answer.code} before its end"
        return done, ShellError(self.shell.host, why, answer.stdout)


async def offload_if_large(size_bytes: int, read: Callable[[], T]) -> T:
    """Return the result of ``read``, computed in a thread of its own for a large input. It must be pure."""
    return read() if size_bytes <= PARSE_IN_LOOP_BYTES_MAX else await asyncio.to_thread(read)
