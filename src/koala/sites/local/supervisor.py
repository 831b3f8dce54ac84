"""The program that stands between an embedded site and the script of one component, and ends what the script leaves.

Whatever a component starts, in whatever session and with whatever environment, stays a descendant of this process: it
is a subreaper, to which the kernel gives orphans. When the script has ended it kills all that is left and ends last,
with the script's exit code. It needs nobody: a site that is killed finds it again by its environment. It is run by
its path and imports nothing of Koala.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterator

# The variable by which this process is known; it holds the component's directory.
SUPERVISES = "KOALA_SUPERVISES"
# What the script's own processes carry instead.
MARKER = "KOALA_HOME"
# How much memory a process of the script may have at most, where that is limited.
MEMORY_BYTES = "KOALA_MEMORY_BYTES"
PR_SET_CHILD_SUBREAPER = 36
# They are for the script; it is told by those who mean it.
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# What Python ignores by itself, and a shell must not.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def descendants() -> Iterator[int]:
    """All processes below this one, by what /proc tells of their parents."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - a program that must start fast
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if len(fields) > 1:
                children.setdefault(int(fields[1]), []).append(int(name))
    below = [os.getpid()]
    for pid in below:
        below += children.get(pid, ())
    yield from below[1:]


def limit_memory(size_bytes: int) -> None:
    """No process from here on has more than that: its heap and what else it writes to. It counts each alone."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = size_bytes if hard == resource.RLIM_INFINITY else min(size_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def supervise(script: str) -> int:
    """Run the script and end all that it leaves; its exit code."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    environment = {**os.environ, MARKER: os.environ[SUPERVISES]}
    del environment[SUPERVISES]
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    if MEMORY_BYTES in environment:
        limit_memory(int(environment[MEMORY_BYTES]))
    main = os.posix_spawn(
        "/bin/sh", ["/bin/sh", script], environment, setsid=True, setsigdef=(*IGNORED, *_IGNORED_BY_PYTHON)
    )
    os.chdir("/")
    code = None
    while True:
        try:
            ended, status = os.waitpid(-1, 0 if code is None else os.WNOHANG)
            if ended == 0:
                # Each that dies leaves its children to us, and wakes us: in the end there are none.
                for pid in descendants():
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                os.waitpid(-1, 0)
        except ChildProcessError:
            break
        if ended == main:
            code = os.waitstatus_to_exitcode(status)
    return 1 if code is None else code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(supervise(sys.argv[1]))
