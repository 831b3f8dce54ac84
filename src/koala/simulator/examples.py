"""The grids and workloads that ship with Koala, by name, and a hash of their text.

The hash goes into the units of work of an experiment, so that results never count for another version of a file.
``koala examples`` copies examples to the disk.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

from koala.descriptions import read_grid
from koala.descriptions.workload.form import WorkloadFile, read_workload
from koala.model.grid import Grid
from koala.policies.errors import suggest


class ExampleError(ValueError):
    """There is no example of that name.

    >>> from koala.simulator import ExampleError, example_grid
    >>> try:
    ...     example_grid("demos")
    ... except ExampleError as error:
    ...     print(error)
    there is no example grid 'demos'; did you mean demo? There are: das2, das2-2005, demo, embedded, minigrid, \
two-continents, two-islands
    """

    def for_user(self) -> str:
        """Return the name, similar names, and all names."""
        return str(self)


def example_names(kind: str) -> list[str]:
    """Return the names of the examples in a folder: ``grids`` or ``workloads``."""
    folder = resources.files("koala") / "examples" / kind
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


def example_text(kind: str, name: str) -> str:
    """Return the text of an example in a folder. Raises ExampleError for an unknown name."""
    known = example_names(kind)
    if name not in known:
        raise ExampleError(f"there is no example {kind.removesuffix('s')} {name!r}; {suggest(name, known)}")
    return (resources.files("koala") / "examples" / kind / f"{name}.yaml").read_text(encoding="utf-8")


@cache
def example_grid(name: str) -> Grid:
    """Return a grid that ships with Koala; ``koala examples`` lists them. Raises ``ExampleError`` for any other name.

    >>> from koala.simulator import example_grid
    >>> [site.name for site in example_grid("das2").sites]
    ['vu', 'amsterdam', 'delft', 'utrecht', 'leiden']
    """
    return read_grid(example_text("grids", name), f"{name}.yaml")


@cache
def example_workload(name: str) -> WorkloadFile:
    """Return a workload that ships with Koala; ``koala examples`` lists them. Raises ``ExampleError`` for any other
    name.

    >>> from koala.simulator import example_workload
    >>> example_workload("koala2006-w1").text.name
    'koala2006-w1'
    """
    return read_workload(example_text("workloads", name), f"{name}.yaml")


def fingerprint(*, grids: tuple[str, ...] = (), workloads: tuple[str, ...] = ()) -> str:
    """Return a hash over the texts of these examples.

    >>> from koala.simulator import fingerprint
    >>> len(fingerprint(grids=("das2",), workloads=("koala2006-w1",)))
    16
    """
    texts = [example_text("grids", name) for name in grids] + [example_text("workloads", name) for name in workloads]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
