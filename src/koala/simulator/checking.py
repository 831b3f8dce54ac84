"""The names in a workload file against what there is: policies, sites of the grid and input files.

What a file can know alone (numbers, fields, applications) was checked when it was read.
"""

from __future__ import annotations

from collections.abc import Iterator

from koala.descriptions.workload import WorkloadFile
from koala.grid import Grid
from koala.policies import Catalogue
from koala.policies.errors import suggest
from koala.simulator.workload import WorkloadError


def check_names(file: WorkloadFile, grid: Grid, catalogue: Catalogue) -> None:
    """Raise WorkloadError for the first name that the grid, its files or the catalogue do not have."""
    known = {
        "policy": (catalogue.names(), {name.casefold() for name in catalogue.names()}),
        "site": _exactly(site.name for site in grid.sites),
        "input file": _exactly([*(stored.name for stored in grid.files), *file.text.files]),
    }
    for who, what, name in _names(file):
        names, accepted = known[what]
        if (name.casefold() if what == "policy" else name) not in accepted:
            raise WorkloadError(f"{who} names the {what} {name!r}; {suggest(name, names)}")


def _exactly(names: Iterator[str] | list[str]) -> tuple[tuple[str, ...], set[str]]:
    listed = tuple(dict.fromkeys(names))
    return listed, set(listed)


def _names(file: WorkloadFile) -> Iterator[tuple[str, str, str]]:
    """Every name with who names it and what it should be."""
    for number, generator in enumerate(file.text.generate, 1):
        who = f"generator {number}"
        if generator.policy is not None:
            yield who, "policy", generator.policy
        for name in generator.input_files:
            yield who, "input file", name
    for number, request in enumerate(file.requests, 1):
        who = f"job {number} ({request.name})"
        if request.policy is not None:
            yield who, "policy", request.policy
        for component in request.components:
            if component.site is not None:
                yield who, "site", component.site
            for read in component.input_files:
                yield who, "input file", read.name
