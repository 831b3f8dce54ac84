"""A plain shell that runs one text after the other, at the other end of a command such as ssh.

An ssh server starts the shell of the account for every command, which reads start files and may take long. Here it
does so once for many texts: it becomes a ``sh`` that reads them from its standard input, and starts another ``sh``
for each. ``koala.sites.remote_shell`` opens, keeps and ends the sessions.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from koala.sites import processes
from koala.sites.shell_script import shell_file

# The command for an ssh server: words that the shells of all accounts read alike.
SESSION_COMMAND = "exec sh"
_MARK_LINE_BYTES_MAX = 64
_STREAMS = (1, 2)


class ShellSession:
    """A shell session, until ``end``. ``greeting`` is what the start files of the account printed."""

    def __init__(self, program: processes.Attended) -> None:
        self.greeting = b""
        self._program = program
        self._begins = _new_mark()
        self._has_begun = False
        self._is_sound = True
        self._searched = dict.fromkeys(_STREAMS, 0)
        program.write(f"{shell_file(__package__, 'session.sh')}koala_tell {self._begins} 0\n".encode())

    @classmethod
    async def start(
        cls, words: Sequence[str], *, environment: Mapping[str, str], output_bytes_max: int
    ) -> ShellSession:
        """Run words that lead to ``SESSION_COMMAND``, with a limit on the output of each text. Raises ``OSError`` if
        they cannot be started."""
        limit = output_bytes_max + _MARK_LINE_BYTES_MAX
        return cls(await processes.attend(words, environment=environment, output_bytes_max=limit))

    @property
    def has_left(self) -> bool:
        """True if the words that lead there have ended."""
        return self._program.has_left

    @property
    def is_sound(self) -> bool:
        """True if another text can be run."""
        return self._is_sound and not self._program.has_left

    async def run(self, text: str, *, timeout_s: float, timeout_there_s: float) -> processes.ProcessResult:
        """Run whole lines, one text at a time. The exit code is the text's, or that of the words if they have ended
        before it; None if its time was up. It is run only if all of it has arrived.

        A text that does not reach its end, or whose caller gives up, leaves a session that is not sound.
        """
        self._is_sound = False
        program, mark = self._program, _new_mark()
        lines = f"koala_run {timeout_there_s:.0f} <<'{mark}'\n{text}{mark}\nkoala_tell {mark} $?\n"
        program.write(lines.encode())
        await program.until(lambda: self._has_come(mark) or program.has_left or program.is_full, timeout_s)
        if program.has_left:
            await program.until(lambda: self._has_come(mark) or program.is_silent, processes.LAST_WORDS_S)
        self._is_sound = self._has_come(mark)
        overflowed = program.is_full and not self._is_sound
        (stdout, code), (stderr, _) = (self._taken(stream, mark) for stream in _STREAMS)
        self._has_begun = True
        return processes.ProcessResult(
            code=program.code if code is None else code, stdout=stdout, stderr=stderr, overflowed=overflowed
        )

    def dismiss(self) -> None:
        """Let it end by itself, if nothing runs in it."""
        self._is_sound = False
        self._program.write_no_more()

    async def end(self) -> None:
        """End it on this side. May be repeated."""
        await self._program.end()

    def _has_come(self, mark: str) -> bool:
        return all(self._found(stream, mark) is not None for stream in _STREAMS)

    def _found(self, stream: int, mark: str) -> tuple[int, int] | None:
        """Return where the line of a mark begins and ends. Text that was searched before is not searched again."""
        written, begin = self._program.written[stream], f"\n{mark} ".encode()
        at = written.find(begin, self._searched[stream])
        if at < 0:
            self._searched[stream] = max(0, len(written) - len(begin))
            return None
        self._searched[stream] = at
        end = written.find(b"\n", at + 1)
        return None if end < 0 else (at, end + 1)

    def _taken(self, stream: int, mark: str) -> tuple[bytes, int | None]:
        """Return a text's output and its exit code, if it reached its end."""
        written, found = self._program.written[stream], self._found(stream, mark)
        at, end = (len(written), len(written)) if found is None else found
        body = bytes(written[:at])
        code = None if found is None else int(written[at:end].split()[1])
        del written[:end]
        self._searched[stream] = 0
        return (body if self._has_begun else self._without_greeting(stream, body)), code

    def _without_greeting(self, stream: int, body: bytes) -> bytes:
        """Return the body without the greeting. If the shell never read anything, its output says why."""
        greeting, begun, rest = body.partition(f"\n{self._begins} 0\n".encode())
        if not begun:
            return body if self._program.has_left else b""
        if stream == 1:
            self.greeting = greeting
        return rest


def _new_mark() -> str:
    return f"@{secrets.token_hex(8)}"
