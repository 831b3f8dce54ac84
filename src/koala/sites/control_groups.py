"""Control groups (cgroup v2) of components on this machine: nothing leaves a group by changing its session,
environment or parents, and the kernel kills all processes of a group at once.

They protect against accidents, not malice: a component has the user of the daemon, and may write itself into the
group above.

A supervisor creates the group of its component if it may (``koala.sites.local.supervisor``); the group's name follows
from the component's directory. This module is the site's side. Without a group, only the descendants of the
supervisor are known.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

# The variable that gives a supervisor the name of its group.
GROUP = "KOALA_CGROUP"
_PREFIX = "koala-component-"
_DIGITS = 32
_UNIFIED = "0::"
_MOUNTS = Path("/proc/self/mounts")
_OWN = Path("/proc/self/cgroup")


def group_name(home: Path) -> str:
    """Return the name of the group of the component that lives in a directory."""
    return _PREFIX + hashlib.sha256(str(home).encode(errors="surrogateescape")).hexdigest()[:_DIGITS]


def group_in(text: str) -> str:
    """Return the component's group that contains a process, as a path below the hierarchy, from its
    ``/proc/PID/cgroup``; empty if there is none. The process may be in a nested group that the component made
    itself."""
    if _PREFIX not in text:  # the case of nearly all processes
        return ""
    for line in text.splitlines():
        if line.startswith(_UNIFIED) and f"/{_PREFIX}" in line:
            above, prefix, rest = line.removeprefix(_UNIFIED).partition(f"/{_PREFIX}")
            return above + prefix + rest.partition("/")[0]
    return ""


def hierarchy(mounts: Path = _MOUNTS) -> Path | None:
    """Return the mount point of cgroup v2; None if it is not mounted."""
    with contextlib.suppress(OSError):
        for line in mounts.read_text(errors="surrogateescape").splitlines():
            fields = line.split(" ")
            if len(fields) > 2 and fields[2] == "cgroup2":
                return Path(fields[1].encode(errors="surrogateescape").decode("unicode_escape"))
    return None


def kill_group(group: str, mounts: Path = _MOUNTS) -> None:
    """Have the kernel kill all processes in a group. If that fails, they are killed one by one anyway."""
    root = hierarchy(mounts)
    if root is not None and group:
        with contextlib.suppress(OSError):
            (root / group.lstrip("/") / "cgroup.kill").write_text("1")


def remove_group(home: Path, mounts: Path = _MOUNTS, own: Path = _OWN) -> None:
    """Remove the group of a component that is over, if its supervisor could not."""
    root = hierarchy(mounts)
    with contextlib.suppress(OSError):
        above = next(line for line in own.read_text().splitlines() if line.startswith(_UNIFIED))
        if root is not None:
            (root / above.removeprefix(_UNIFIED).lstrip("/") / group_name(home)).rmdir()
