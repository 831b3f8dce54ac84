"""The grids and workloads that ship with Koala, read for an experiment, and a hash of their text.

The hash goes into the units of work, so that results are never taken for those of another version of a file.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

from koala.descriptions import read_grid
from koala.descriptions.workload.form import WorkloadFile, read_workload
from koala.model.grid import Grid


def shipped_names(kind: str) -> list[str]:
    """The names of the examples in a folder: ``grids`` or ``workloads``."""
    folder = resources.files("koala") / "examples" / kind
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


def shipped_text(kind: str, name: str) -> str:
    """The text of an example in a folder."""
    return (resources.files("koala") / "examples" / kind / f"{name}.yaml").read_text(encoding="utf-8")


@cache
def shipped_grid(name: str) -> Grid:
    """A grid among the examples."""
    return read_grid(shipped_text("grids", name), f"{name}.yaml")


@cache
def shipped_workload(name: str) -> WorkloadFile:
    """A workload among the examples."""
    return read_workload(shipped_text("workloads", name), f"{name}.yaml")


def fingerprint(*, grids: tuple[str, ...] = (), workloads: tuple[str, ...] = ()) -> str:
    """A hash over the texts of these examples."""
    texts = [shipped_text("grids", name) for name in grids] + [shipped_text("workloads", name) for name in workloads]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
