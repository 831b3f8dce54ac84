"""Control groups (cgroup v2) of components on this machine: nothing leaves one by what it does to its session, its
environment and its parents, and the kernel kills all of one at once.

They are against accidents, and not against malice: a component has the user of the daemon, and may write itself into
the group above. Then the descendants of its supervisor are all that is known of it.

A supervisor makes the group of its component where it may (``koala.sites.local.supervisor``); it is known by its
name, which follows from the component's directory. Here is what a site does with it. Where there is none, the
descendants of the supervisor are all that is known of a component.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

# The variable by which a supervisor learns the name of its group.
GROUP = "KOALA_CGROUP"
_PREFIX = "koala-component-"
_DIGITS = 32
_UNIFIED = "0::"
_MOUNTS = Path("/proc/self/mounts")
_OWN = Path("/proc/self/cgroup")


def group_name(home: Path) -> str:
    """The name of the group of the component that lives in a directory."""
    return _PREFIX + hashlib.sha256(str(home).encode(errors="surrogateescape")).hexdigest()[:_DIGITS]


def group_in(text: str) -> str:
    """The group of a component that a process is in, as a path below the hierarchy, by its ``/proc/PID/cgroup``;
    empty for none. It may be in a group that the component made itself, which is below its own."""
    if _PREFIX not in text:  # as with nearly all processes
        return ""
    for line in text.splitlines():
        if line.startswith(_UNIFIED) and f"/{_PREFIX}" in line:
            above, prefix, rest = line.removeprefix(_UNIFIED).partition(f"/{_PREFIX}")
            return above + prefix + rest.partition("/")[0]
    return ""


def hierarchy(mounts: Path = _MOUNTS) -> Path | None:
    """Where cgroup v2 is mounted; None where it is not."""
    with contextlib.suppress(OSError):
        for line in mounts.read_text(errors="surrogateescape").splitlines():
            fields = line.split(" ")
            if len(fields) > 2 and fields[2] == "cgroup2":
                return Path(fields[1].encode(errors="surrogateescape").decode("unicode_escape"))
    return None


def kill_group(group: str, mounts: Path = _MOUNTS) -> None:
    """Have the kernel kill all that is in a group. Where that fails, its processes are killed one by one anyway."""
    root = hierarchy(mounts)
    if root is not None and group:
        with contextlib.suppress(OSError):
            (root / group.lstrip("/") / "cgroup.kill").write_text("1")


def remove_group(home: Path, mounts: Path = _MOUNTS, own: Path = _OWN) -> None:
    """The component is over: its group goes, if its supervisor could not see to that."""
    root = hierarchy(mounts)
    with contextlib.suppress(OSError):
        above = next(line for line in own.read_text().splitlines() if line.startswith(_UNIFIED))
        if root is not None:
            (root / above.removeprefix(_UNIFIED).lstrip("/") / group_name(home)).rmdir()
