"""The way to run shell scripts at a site: on this machine, behind words such as ``ip netns exec``, or over ssh.

The script goes to standard input, so no part of it is ever an argument that an intermediate shell could split. Koala
uses the ssh program instead of a library, since it knows the user's hosts, keys, agents and jump hosts; all commands
share one connection to a host, and the shells that it opens. This module does not care about the content of scripts.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import shlex
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from koala.sites import processes
from koala.sites.shell_session import SESSION_COMMAND, ShellSession

# Limits on the output of one command, and on concurrent commands: sshd allows 10 sessions per connection.
COMMAND_OUTPUT_BYTES_MAX = 67_108_864
COMMANDS_AT_A_TIME_MAX = 8
# How long a connection may take, how long a silent one lives, and how long an unused one is kept.
CONNECT_S = 10
ALIVE_S = 5
ALIVE_MISSES = 3
PERSIST_S = 60
# How long an unused shell is kept, and the maximum age of a shell that receives another command: changes to the
# account, such as to its start files, must take effect soon.
SHELL_IDLE_S = 60
SHELL_AGE_S = 600
# The other end stops a command a little before we would, so that nothing is left behind there.
_HEAD_START_S = 2.0
# Variables of the driver's environment, for ssh alone: the user's agent and tickets.
SSH_VARIABLES = ("SSH_AUTH_SOCK", "KRB5CCNAME")
# Names a file that replaces ~/.ssh/config wherever this machine calls ssh. HOME has no effect: ssh asks the system
# for the user's home directory.
SSH_CONFIG_VARIABLE = "KOALA_SSH_CONFIG"

# The program that runs texts on this machine.
_SHELL = ("/bin/sh",)
# The exit codes of ssh itself, and of the program that limits the time at the other end.
_SSH_FAILED = 255
_TIME_UP = 124
# At most this much of a program's standard error is examined, and this much is reported.
_COMPLAINT_BYTES = 16_384
_COMPLAINT_CHARACTERS = 400
_HOST = re.compile(r"[A-Za-z0-9_.@:%\[\]-]+")

# The sockets are not below TMPDIR: their path must be short.
_SOCKETS_ABOVE = Path("/tmp")  # noqa: S108 - what is in it is checked to be ours alone
_SOCKETS_LOCK = ".lock"


class ShellError(OSError):
    """A command could not be run, or not to its end: it may or may not have happened.

    ``host`` is the place, ``what`` the error, ``printed`` all output that came back before.
    """

    def __init__(self, host: str, what: str, printed: bytes = b"") -> None:
        super().__init__(f"{host}: {what}")
        self.host = host
        self.what = what
        self.printed = printed


class ShellTimeoutError(ShellError):
    """A command exceeded its time limit and was killed."""


class ShellResult(msgspec.Struct, frozen=True, kw_only=True):
    """A command's output and exit code; the code is negative if a signal ended it.

    ``greeting`` is what the start files of the account print before any command.
    """

    code: int
    stdout: bytes
    stderr: bytes
    greeting: bytes = b""


class RemoteShell:
    """Runs texts at one place: at the host ``ssh``, or on this machine, in both cases behind the words ``through``.

    ``environment`` is set for every text, wherever it runs. A command on this machine has no more of this process's
    own environment than a component would, so that it neither sees secrets nor takes itself for a part of some batch
    job. ``ssh_config`` replaces the user's own configuration of ssh; see ``ssh_program``.
    """

    def __init__(
        self,
        *,
        ssh: str | None = None,
        through: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        ssh_config: Path | None = None,
    ) -> None:
        if ssh is not None and (ssh.startswith("-") or _HOST.fullmatch(ssh) is None):
            raise ValueError(f"{ssh!r} is not the name of a host; write one of your ssh configuration")
        self.host = ssh or "this machine"
        self._ssh = ssh
        self._through = tuple(through)
        self._ssh_config = ssh_config
        self._sockets: SocketDirectory | None = None
        self._exports = "".join(
            f"export {name}={shlex.quote(value)}\n" for name, value in sorted((environment or {}).items())
        )
        self._turns = asyncio.Semaphore(COMMANDS_AT_A_TIME_MAX)
        self._idle: list[_KeptShell] = []

    async def run(self, text: str, *, timeout_s: float) -> ShellResult:
        """Run a text, and return its output once it has ended.

        It is run only if all of it has arrived. Raises ``ShellError`` if it cannot be run or did not end by itself;
        after that, or if the caller gives up, it may or may not have happened.
        """
        whole = f"koala_text() {{\n{self._exports}{text}\n}}\nkoala_text </dev/null\n"
        async with self._turns:
            try:
                if self._ssh is not None:
                    return await self._run_there(self._ssh, whole, timeout_s)
                finished = await processes.run(
                    [*self._through, *_SHELL],
                    stdin=whole.encode(),
                    environment=self._environment(),
                    timeout_s=timeout_s,
                    output_bytes_max=COMMAND_OUTPUT_BYTES_MAX,
                )
            except ShellError:
                raise
            except OSError as error:
                raise ShellError(self.host, f"{error.filename or 'a command'}: {error.strerror}") from None
        return self._answer(finished, timeout_s)

    async def _run_there(self, ssh: str, whole: str, timeout_s: float) -> ShellResult:
        kept = await self._shell(ssh)
        session = kept.session
        try:
            finished = await session.run(
                whole, timeout_s=timeout_s, timeout_there_s=max(1.0, timeout_s - _HEAD_START_S)
            )
        finally:
            await self._keep(kept)
        if finished.code == _TIME_UP:
            finished = msgspec.structs.replace(finished, code=None)
        elif session.has_left and finished.code == _SSH_FAILED:
            raise ShellError(self.host, last_words(finished.stderr) or "ssh failed", finished.stdout)
        return self._answer(finished, timeout_s, session.greeting)

    def _answer(self, finished: processes.ProcessResult, timeout_s: float, greeting: bytes = b"") -> ShellResult:
        if finished.overflowed:
            limit = f"{COMMAND_OUTPUT_BYTES_MAX} bytes (COMMAND_OUTPUT_BYTES_MAX)"
            raise ShellError(self.host, f"a command wrote more than {limit}")
        if finished.code is None:
            raise ShellTimeoutError(self.host, f"no answer within {timeout_s:g} s", finished.stdout)
        return ShellResult(code=finished.code, stdout=finished.stdout, stderr=finished.stderr, greeting=greeting)

    # ------------------------------------------------------------------------------------- shells that are kept

    async def _shell(self, ssh: str) -> _KeptShell:
        """Return an unused shell, the most recently used first, or else a new one."""
        while self._idle:
            kept = self._idle.pop()
            kept.cancel_expiry()
            if kept.session.is_sound:
                return kept
            await kept.session.end()
        sockets = self._socket_directory()
        session = await ShellSession.start(
            [*self._through, *self._ssh_words(sockets.path), "--", ssh, SESSION_COMMAND],
            environment=self._environment(),
            output_bytes_max=COMMAND_OUTPUT_BYTES_MAX,
        )
        return _KeptShell(session, sockets)

    async def _keep(self, kept: _KeptShell) -> None:
        """Keep a shell for the next text for a while, if there may be one."""
        loop = asyncio.get_running_loop()
        if kept.sockets is not self._sockets or not kept.session.is_sound or loop.time() >= kept.until:
            await kept.session.end()
            return
        kept.expiry = loop.call_later(SHELL_IDLE_S, self._dismiss, kept)
        self._idle.append(kept)

    def _dismiss(self, kept: _KeptShell) -> None:
        self._idle.remove(kept)
        kept.session.dismiss()

    async def close(self) -> None:
        """End the shared connection, if there is one. Another ``run`` opens a new one."""
        sockets, self._sockets = self._sockets, None
        if sockets is None:
            return
        idle, self._idle = self._idle, []
        words = [*self._through, *self._ssh_words(sockets.path), "-O", "exit", self._ssh or ""]
        try:
            for kept in idle:
                kept.cancel_expiry()
            await asyncio.gather(*(kept.session.end() for kept in idle))
            with contextlib.suppress(OSError):
                await processes.run(
                    words, stdin=b"", environment=self._environment(), timeout_s=CONNECT_S, output_bytes_max=65_536
                )
        finally:
            sockets.remove()

    def _socket_directory(self) -> SocketDirectory:
        if self._sockets is None or not self._sockets.path.is_dir():  # somebody may have cleaned up
            self._sockets = SocketDirectory()
            # If nobody closes it, the directory goes with this object, and the connection after its idle time.
            weakref.finalize(self, self._sockets.remove)
        return self._sockets

    def _ssh_words(self, sockets: Path) -> list[str]:
        options = (
            "BatchMode=yes",
            f"ConnectTimeout={CONNECT_S}",
            f"ServerAliveInterval={ALIVE_S}",
            f"ServerAliveCountMax={ALIVE_MISSES}",
            "ControlMaster=auto",
            f"ControlPath={sockets}/%C",
            f"ControlPersist={PERSIST_S}",
        )
        return [*ssh_program(self._ssh_config), "-T", *(word for option in options for word in ("-o", option))]

    def _environment(self) -> dict[str, str]:
        environment = processes.own_environment()
        if self._ssh is not None:
            environment.update((name, os.environ[name]) for name in SSH_VARIABLES if name in os.environ)
        return environment


class _KeptShell:
    """A session, its connection, and the time until which it accepts texts."""

    def __init__(self, session: ShellSession, sockets: SocketDirectory) -> None:
        self.session = session
        self.sockets = sockets
        self.until = asyncio.get_running_loop().time() + SHELL_AGE_S
        self.expiry: asyncio.TimerHandle | None = None

    def cancel_expiry(self) -> None:
        """Do not dismiss it for being idle."""
        if self.expiry is not None:
            self.expiry.cancel()


def ssh_program(config: Path | None = None) -> tuple[str, ...]:
    """Return the ssh command of this machine: with this configuration, or else KOALA_SSH_CONFIG, or else the user's
    own."""
    chosen = named_ssh_config() if config is None else config
    return ("ssh",) if chosen is None else ("ssh", "-F", str(chosen))


def named_ssh_config() -> Path | None:
    """Return the file that KOALA_SSH_CONFIG names, if it names one."""
    named = os.environ.get(SSH_CONFIG_VARIABLE)
    return Path(named).expanduser().absolute() if named else None


def last_words(complaint: bytes) -> str:
    """Return the end of a program's standard error, short enough for one line of a report."""
    end = complaint[-_COMPLAINT_BYTES:].decode(errors="replace")
    lines = [line.strip() for line in end.splitlines() if line.strip()]
    text = "; ".join(lines[-3:])
    return text if len(text) <= _COMPLAINT_CHARACTERS else f"{text[:_COMPLAINT_CHARACTERS]}..."


class SocketDirectory:
    """A directory for the sockets of shared ssh connections, inside a directory of this user alone.

    It exists until ``remove``, or until this process ends in any way: then another process finds that its lock is
    free, and removes it.
    """

    def __init__(self, above: Path = _SOCKETS_ABOVE) -> None:
        home = above / f"koala-ssh-{os.getuid()}"
        try:
            home.mkdir(mode=0o700, exist_ok=True)
            if not _is_ours_alone(home):
                raise PermissionError
            with _locked(home / _SOCKETS_LOCK, make=True):
                _sweep(home)
                self.path, self._lock = _make(home)
        except OSError:
            # The name is taken by another user. The directory goes only with its creator.
            self.path, self._lock = _make(above, "koala-ssh-")

    def remove(self) -> None:
        """Remove the directory. May be repeated."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def _make(above: Path, prefix: str = "") -> tuple[Path, int | None]:
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=above))
    lock = os.open(path / _SOCKETS_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return path, lock


def _sweep(home: Path) -> None:
    """Remove unlocked directories. A connection that still has its socket there ends by itself after its idle
    time."""
    for each in home.iterdir():
        if each.name == _SOCKETS_LOCK:
            continue
        try:
            with _locked(each / _SOCKETS_LOCK, make=False):
                shutil.rmtree(each, ignore_errors=True)
        except BlockingIOError:
            continue  # it is in use
        except OSError:
            # Its creator did not even lock it, or somebody cleaned up: then sockets may be in use.
            with contextlib.suppress(OSError):
                each.rmdir()


@contextlib.contextmanager
def _locked(path: Path, *, make: bool) -> Iterator[None]:
    """Hold the lock of a file: wait for a file that may be created here; any other file must be unlocked."""
    wanted = os.O_CREAT if make else 0
    descriptor = os.open(path, os.O_RDWR | wanted | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if make else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


def _is_ours_alone(home: Path) -> bool:
    found = home.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
