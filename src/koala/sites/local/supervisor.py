"""The program between an embedded site and the script of one component. It ends everything the script leaves.

Every process of a component, in any session and with any environment, stays a descendant of this process: it is a
subreaper, to which the kernel gives orphans. Where this machine permits, the script and its descendants are also in a
control group (cgroup v2) of their own: the kernel kills it as a whole, even after this process was killed. Only
processes that move themselves into another group, which the user of the daemon may do, escape that. When the script
has ended, this program kills everything left and ends last, with the script's exit code. It depends on nobody: a site
that was killed finds it again by its environment. It imports nothing from Koala, and from the library only what
starts fast: each component has one such process, and its main cost is its start.
"""

from __future__ import annotations

import _ctypes  # ctypes itself takes a third of the start
import _signal as signal  # type: ignore[import-not-found]  # without the enumerations, which take half of the start
import os
import sys

# The variable by which this process is recognised; it contains the component's directory.
SUPERVISES = "KOALA_SUPERVISES"
# The variable that contains the name of its control group.
GROUP = "KOALA_CGROUP"
# The variable that the script's own processes carry instead.
MARKER = "KOALA_HOME"
# The memory limit of each process of the script, if there is one.
MEMORY_BYTES = "KOALA_MEMORY_BYTES"
# A shell that limits itself (in KiB) and becomes the shell of the script. This process must not have the limit: it
# may be larger than that itself.
_WITH_MEMORY = 'ulimit -d "$1"; exec /bin/sh "$2"'
PR_SET_CHILD_SUBREAPER = 36
# Signals for the script, whose senders signal the script directly.
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Signals that Python ignores and a shell must not.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def descendants() -> list[int]:
    """Return all processes below this one, by the parents in /proc."""
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
    return below[1:]


def shell_words(script: str, memory_bytes: int | None) -> list[str]:
    """Return the command that runs the script. Each process of it is limited to that much memory, heap and other
    writable memory together."""
    if memory_bytes is None:
        return ["/bin/sh", script]
    import resource  # few need it

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    return ["/bin/sh", "-c", _WITH_MEMORY, "sh", str(limit // 1024), script]


class ControlGroup:
    """The control group of a component; ``is_used`` only if it could be created."""

    def __init__(self, name: str, *, mounts: str = "/proc/self/mounts", own: str = "/proc/self/cgroup") -> None:
        self.above = above = _own_group(mounts, own) if name else ""
        self.path = f"{above}/{name}"
        self.is_used = False
        if above:
            try:
                try:  # noqa: SIM105 - contextlib takes long to import
                    os.mkdir(self.path)  # noqa: PTH102
                except FileExistsError:
                    pass
                self.is_used = os.access(f"{self.path}/cgroup.kill", os.W_OK)
            except OSError:
                return

    def enter(self) -> None:
        """Enter the group: what this process starts from now on is in it."""
        if self.is_used:
            self.is_used = _write(f"{self.path}/cgroup.procs", str(os.getpid()))

    def leave(self) -> None:
        """Leave the group, so that this process outlives the others. If it cannot leave, nobody kills the group."""
        if self.is_used:
            self.is_used = _write(f"{self.above}/cgroup.procs", str(os.getpid()))

    def kill(self) -> None:
        """Kill all processes in the group."""
        if self.is_used:
            _write(f"{self.path}/cgroup.kill", "1")

    def remove(self) -> None:
        """Remove the empty group, after the groups that the component made in it."""
        if self.is_used:
            for path, _, _ in os.walk(self.path, topdown=False):
                try:  # noqa: SIM105 - contextlib takes long to import
                    os.rmdir(path)  # noqa: PTH106
                except OSError:
                    pass


def _own_group(mounts: str, own: str) -> str:
    """Return the directory of the group that this process is in; empty if none may be created in it.

    A group that an ordinary user can write to was given to that user. Root can write everywhere: a group that a
    service manager controls, and has not delegated, is left alone.
    """
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
            roots = [fields[1] for line in file if len(fields := line.split(" ")) > 2 and fields[2] == "cgroup2"]
        with open(own, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
            paths = [line[3:].strip() for line in file if line.startswith("0::")]
        if not roots or not paths:
            return ""
        found = f"{roots[0]}{paths[0].rstrip('/')}"
        if os.geteuid() == 0 and paths[0] != "/" and os.getxattr(found, "trusted.delegate") != b"1":
            return ""
    except OSError:
        return ""
    return found if os.access(f"{found}/cgroup.procs", os.W_OK) else ""


def _write(path: str, text: str) -> bool:
    try:
        with open(path, "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(text)
    except OSError:
        return False
    return True


def _kill(pid: int) -> None:
    try:  # noqa: SIM105 - contextlib takes long to import
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _adopt_orphans() -> None:
    """Become the parent of the component's orphans."""
    asked = (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # of this program itself
        _ctypes.call_cdeclfunction(prctl, asked)
    except AttributeError:  # some Pythons lack them
        import ctypes

        ctypes.CDLL(None).prctl(*asked)


def supervise(script: str) -> int:
    """Run the script and end everything it leaves; return its exit code."""
    _adopt_orphans()
    environment = {**os.environ, MARKER: os.environ[SUPERVISES]}
    del environment[SUPERVISES]
    group = ControlGroup(environment.pop(GROUP, ""))
    group.enter()
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    memory = int(environment[MEMORY_BYTES]) if MEMORY_BYTES in environment else None
    main = os.posix_spawn(
        "/bin/sh",
        shell_words(script, memory),
        environment,
        setsid=True,
        setsigdef=(*IGNORED, *_IGNORED_BY_PYTHON),
    )
    group.leave()
    os.chdir("/")
    code = None
    while True:
        try:
            ended, status = os.waitpid(-1, 0 if code is None else os.WNOHANG)
            if ended == 0:
                group.kill()
                # The children of each process that dies become ours and wake us, until there are none.
                for pid in descendants():
                    _kill(pid)
                os.waitpid(-1, 0)
        except ChildProcessError:
            break
        if ended == main:
            code = os.waitstatus_to_exitcode(status)
    group.remove()
    return 1 if code is None else code if code >= 0 else 128 - code


def main() -> None:
    """Supervise the script that the command line names."""
    os._exit(supervise(sys.argv[1]))


# A daemon that was started before an upgrade runs the file by its path.
if __name__ == "__main__":
    main()
