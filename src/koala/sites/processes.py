"""The only module that starts processes and sends signals, and how it identifies a process.

A process is identified by its id, its start time and the boot, since ids are reused. The processes of a component are
the processes of its session; those that carry its directory in their environment, since MPI ranks and daemons leave a
session; the descendants of its supervisor, if it has one, since a program may leave its session and clear its
environment; and those in its control group, where the machine permits one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from koala.sites.control_groups import GROUP, group_in, group_name, kill_group

# What a component inherits from the driver's environment: enough to find programs, and no secrets.
INHERITED_VARIABLES = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
MARKER = "KOALA_HOME"
# The variable that a component's supervisor carries instead; see ``koala.sites.local.supervisor``.
SUPERVISES = "KOALA_SUPERVISES"
ENVIRON_BYTES_MAX = 4_194_304
_STAT_BYTES_MAX = 4_096
# System calls accept process ids below this.
_PIDS_END = 2**31
# The flag of the kernel's own threads (PF_KTHREAD), which never belong to a component.
_KERNEL_THREAD = 0x0020_0000
# How long a program's output is awaited after its end: a process that it left behind may keep the pipe open.
LAST_WORDS_S = 0.5
_PIECE_BYTES = 65_536
# Runs a module's ``main``, given its directory and its name: Python compiles a program at each start if it is run by
# its path.
_RUN_MODULE = "import sys; sys.path.append(sys.argv.pop(1)); __import__(sys.argv.pop(1)).main()"

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys/kernel/random/boot_id"
_UNKNOWN = "-"
_MARK = os.fsencode(f"\0{MARKER}=")  # variables end with NUL
_SUPERVISES_MARK = os.fsencode(f"\0{SUPERVISES}=")


class Identity(msgspec.Struct, frozen=True):
    """One process, for ever: '-' stands for a value that this machine does not provide."""

    pid: int
    started: str
    boot: str


class Child(msgspec.Struct, frozen=True):
    """A child of this process, which must reap it."""

    pid: int


class _Stat(msgspec.Struct, frozen=True):
    state: str
    parent: int
    session: int
    flags: int
    started: str


def inherited_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that a component inherits."""
    return {name: environment[name] for name in INHERITED_VARIABLES if name in environment}


def own_environment() -> dict[str, str]:
    """Return the part of this process's environment that a component inherits."""
    return inherited_environment(os.environ)


def spawn(home: Path, script: str, log: str, environment: Mapping[str, str], supervisor: Path | None = None) -> Child:
    """Run a script of a directory in a session of its own, so that it outlives this process and its terminal.

    The supervisor is a Python program that runs the script and ends everything the script leaves. Without /proc there
    is none.
    """
    words, mark = ["/bin/sh", f"./{script}"], MARKER
    if supervisor is not None and sys.executable and _BOOT_ID.exists():
        program = ["-c", _RUN_MODULE, str(supervisor.parent), supervisor.stem]
        words, mark = [sys.executable, "-I", "-S", *program, f"./{script}"], SUPERVISES
    # The directory may have been the job's before: opening a pipe there would wait for a reader.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(home / log, flags, 0o666), "wb", buffering=0) as output:  # noqa: PTH123 - it is open
        process = subprocess.Popen(  # noqa: S603 - the command is fixed; the script's text is a runner's
            words,
            cwd=home,
            env={**environment, mark: str(home), **({GROUP: group_name(home)} if mark == SUPERVISES else {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    # A Popen object complains when it is dropped before its process ends, which is normal here.
    process.returncode = 0
    return Child(process.pid)


def run_script(text: str, directory: Path) -> tuple[bytes, bytes]:
    """Run a shell script in a directory and wait for it; return its output and its errors."""
    done = subprocess.run(
        ["/bin/sh"],
        input=text.encode(),
        cwd=directory,
        env=own_environment(),
        capture_output=True,
        start_new_session=True,
        check=False,
    )
    return done.stdout, done.stderr


class ProcessResult(msgspec.Struct, frozen=True, kw_only=True):
    """A program's output and its exit code: negative for a signal, None if it was killed at its time limit.

    ``overflowed`` says that it was killed because it wrote too much.
    """

    code: int | None
    stdout: bytes
    stderr: bytes
    overflowed: bool = False


class Attended(asyncio.SubprocessProtocol):
    """A program with which one communicates while it runs, in a session of its own: see ``attend``.

    ``written`` is its output by descriptor, each up to a limit.
    """

    def __init__(self, output_bytes_max: int) -> None:
        self.written = {1: bytearray(), 2: bytearray()}
        self._limit = output_bytes_max
        self._open = {1, 2}
        self._left = False
        self._news = asyncio.Event()
        self._transport: asyncio.SubprocessTransport | None = None

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        assert self._transport is not None, "it was started"
        return self._transport.get_returncode()

    @property
    def has_left(self) -> bool:
        """True if it has ended; a process that it left behind may still hold its pipes open."""
        return self._left

    @property
    def is_silent(self) -> bool:
        """True if no more output can come."""
        return not self._open

    @property
    def is_full(self) -> bool:
        """True if it has written too much."""
        return any(len(each) >= self._limit for each in self.written.values())

    def write(self, data: bytes) -> None:
        """Write to its input. A program that has ended does not read it."""
        if not self._left:
            self._input().write(data)

    def write_no_more(self) -> None:
        """Close its input."""
        self._input().close()

    def _input(self) -> asyncio.WriteTransport:
        assert self._transport is not None, "it was started"
        pipe = self._transport.get_pipe_transport(0)
        assert isinstance(pipe, asyncio.WriteTransport)
        return pipe

    async def until(self, condition: Callable[[], bool], wait_s: float) -> None:
        """Wait until a condition holds, or for this long; the condition is checked after each output and after the
        end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not condition():
                    self._news.clear()
                    await self._news.wait()

    async def end(self) -> None:
        """Kill everything in its process group, unless it has ended. May be repeated."""
        assert self._transport is not None, "it was started"
        if self.code is None:
            _kill_group(self._transport.get_pid())
            await self.until(lambda: self._left, LAST_WORDS_S)  # so that no zombie stays behind
        self._transport.close()

    # ---------------------------------------------------------------------------- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        written = self.written[fd]
        written += data[: max(0, self._limit - len(written))]
        self._news.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        self._news.set()

    def process_exited(self) -> None:
        self._left = True
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._transport is not None, "it was started"
        self._transport.close()


async def attend(words: Sequence[str], *, environment: Mapping[str, str], output_bytes_max: int) -> Attended:
    """Start a program whose caller ends it by ``end``. Raises ``OSError`` if it cannot be started."""
    _, program = await asyncio.get_running_loop().subprocess_exec(
        lambda: Attended(output_bytes_max), *words, env=dict(environment), start_new_session=True
    )
    return program


async def run(
    words: Sequence[str], *, stdin: bytes, environment: Mapping[str, str], timeout_s: float, output_bytes_max: int
) -> ProcessResult:
    """Run a program in a session of its own and wait for it. Everything in its process group is killed when its time
    is up, when it writes too much, or when the caller gives up waiting.

    A program that ends without reading all of ``stdin`` is no error: its exit code says more. Raises ``OSError`` if
    it cannot be started.
    """
    program = await attend(words, environment=environment, output_bytes_max=output_bytes_max)
    try:
        program.write(stdin)
        program.write_no_more()
        await program.until(lambda: program.has_left or program.is_full, timeout_s)
        if program.has_left and not program.is_full:
            await program.until(lambda: program.is_silent, LAST_WORDS_S)
        code = program.code
    finally:
        await program.end()
    return ProcessResult(
        code=code,
        stdout=bytes(program.written[1]),
        stderr=bytes(program.written[2]),
        overflowed=program.is_full,
    )


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def has_left(child: Child) -> bool:
    """Return True if a child of this process has ended; it is then no longer a zombie."""
    try:
        return os.waitpid(child.pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def parse_identity(text: str) -> Identity | None:
    """Parse what a component's script wrote about its own process; None for anything else."""
    words = text.split()
    if len(words) != 3 or not words[0].isascii() or not words[0].isdigit() or not 2 <= int(words[0]) < _PIDS_END:
        return None
    return Identity(int(words[0]), words[1], words[2])


def is_alive(process: Identity) -> bool:
    """Return True if this very process runs: not another with its id, and not a zombie."""
    if process.boot != _UNKNOWN and process.boot != _boot():
        return False
    if process.started == _UNKNOWN:
        return _answers(process.pid)
    stat = _stat(process.pid)
    return stat is not None and stat.state not in "ZX" and stat.started == process.started


def identity_of(child: Child) -> Identity | None:
    """Return the identity of a child, for use after it has been reaped; None once it has ended."""
    if has_left(child):
        return None
    stat = _stat(child.pid)
    return Identity(child.pid, _UNKNOWN if stat is None else stat.started, _boot())


class Census:
    """The live processes at one moment. Later questions refer to that moment: for a component it has all that can
    still live, unless a process was started for it in between."""

    def __init__(self) -> None:
        self.processes: list[tuple[int, int, Path | None]] = []  # process, session, component's directory
        self.groups: dict[int, str] = {}  # the processes in a component's control group, with the group
        self.supervised: dict[int, Path] = {}  # supervisors, each with its component's directory
        found: list[tuple[int, int, Path | None]] = []
        parents: dict[int, int] = {}
        for pid in _pids() if _BOOT_ID.exists() else ():
            stat = _stat(pid)
            if stat is not None and stat.state not in "ZX" and not stat.flags & _KERNEL_THREAD:
                environment = b"\0" + _read(f"{_PROC}/{pid}/environ", ENVIRON_BYTES_MAX)
                supervised = _path_in(environment, _SUPERVISES_MARK)
                if supervised is not None:
                    self.supervised[pid] = supervised
                parents[pid] = stat.parent
                group = group_in(os.fsdecode(_read(f"{_PROC}/{pid}/cgroup", _STAT_BYTES_MAX, at_once=True)))
                if group:
                    self.groups[pid] = group
                found.append((pid, stat.session, supervised or _path_in(environment, _MARK)))
        for pid, session, home in found:
            self.processes.append((pid, session, home or self._home_by_descent(pid, parents)))

    def _home_by_descent(self, pid: int, parents: Mapping[int, int]) -> Path | None:
        """Return the directory of the component whose supervisor is the nearest above a process."""
        if not self.supervised:
            return None
        for _ in range(len(parents)):  # processes change during the search: there might be a cycle
            if pid in self.supervised:
                return self.supervised[pid]
            if pid not in parents:
                break
            pid = parents[pid]
        return None

    def members(self, process: Identity | None, home: Path) -> list[int]:
        """Return the processes of the component that ``process`` leads or led; None if they cannot be determined."""
        if not _BOOT_ID.exists():
            return [process.pid] if process is not None and _answers(process.pid) else []
        if process is not None and process.boot != _UNKNOWN and process.boot != _boot():
            return []
        session = None
        if process is not None:
            leader = _stat(process.pid)
            session = process.pid if leader is None or leader.started == process.started else None
        group = f"/{group_name(home)}"
        return [
            pid
            for pid, its_session, its_home in self.processes
            if its_session == session or its_home == home or self.groups.get(pid, "").endswith(group)
        ]


def end(process: Identity | None, home: Path, *, by_force: bool) -> None:
    """Send SIGTERM, or by force SIGKILL, to all processes of a component. Those already gone do not matter.

    Its supervisor ends by itself, after them; a stopped supervisor is continued.
    """
    signal_number = signal.SIGKILL if by_force else signal.SIGTERM
    if not _BOOT_ID.exists():
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal_number)
        return
    census = Census()
    members = census.members(process, home)
    if by_force:
        group = f"/{group_name(home)}"
        for each in {found for found in census.groups.values() if found.endswith(group)}:
            kill_group(each)
    _send(signal_number, [pid for pid in members if pid not in census.supervised])
    if by_force:
        _send(signal.SIGCONT, [pid for pid in members if pid in census.supervised])


def strays(components: Path, known: Container[str]) -> dict[str, list[int]]:
    """Return the running processes of components below a directory whose names are not known, by these names.

    Such a component also has all processes of its processes' sessions. Its supervisor provides the name but is not
    included, since it ends after them. Without /proc none are found.
    """
    found: dict[str, list[int]] = {}
    names: dict[int, str] = {}  # of the sessions
    census = Census()
    for pid, session, home in census.processes:
        if home is not None and home.parent == components and home.name not in known:
            found.setdefault(home.name, [])
            if pid not in census.supervised:
                found[home.name].append(pid)
            if session == pid:
                names[session] = home.name
    for pid, session, home in census.processes:
        if session in names and (home is None or home.parent != components):
            found[names[session]].append(pid)
    return found


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL to processes. Those already gone do not matter."""
    _send(signal.SIGKILL, pids)


def _send(signal_number: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal_number)


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@functools.cache
def _boot() -> str:
    """Return the boot id. No process outlives the boot, so it is read once."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return _UNKNOWN


def _pids() -> Iterator[int]:
    own = os.getpid()
    for name in os.listdir(_PROC):  # noqa: PTH208 - names are enough, and there are many
        if name.isdigit() and int(name) != own:
            yield int(name)


def _stat(pid: int) -> _Stat | None:
    """Return state, session and start time of a process; None if there is none."""
    text = _read(f"{_PROC}/{pid}/stat", _STAT_BYTES_MAX, at_once=True)
    # The program's name may contain anything, even ')', so the fields begin after the last one.
    fields = text.rpartition(b")")[2].split(None, 20)
    if len(fields) < 20:
        return None
    return _Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[6]), fields[19].decode())


def _path_in(environment: bytes, mark: bytes) -> Path | None:
    """Return the directory in a variable of a process's environment."""
    _, found, rest = environment.partition(mark)
    return Path(os.fsdecode(rest.partition(b"\0")[0])) if found else None


def _read(path: str, limit: int, *, at_once: bool = False) -> bytes:
    """Return a file of /proc; nothing if it cannot be read. There are many, and each system call counts, since the
    thread may have to wait for another one after it. Short files are read whole ``at_once``."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    pieces: list[bytes] = []
    try:
        if at_once:
            return os.read(descriptor, limit)
        while limit > 0 and (piece := os.read(descriptor, min(limit, _PIECE_BYTES))):
            pieces.append(piece)
            limit -= len(piece)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return b"".join(pieces)
