"""The names in a workload file against what there is: policies, sites of the grid and input files.

What a file can know alone (numbers, fields, applications) was checked when it was read.
"""

from __future__ import annotations

from collections.abc import Iterator

from koala.descriptions.workload.form import WorkloadFile
from koala.model.grid import Grid
from koala.policies import Catalogue, UnknownPolicyError
from koala.policies.errors import PolicyParameterError, suggest
from koala.simulator.workloads.workload import WorkloadError


def check_names(file: WorkloadFile, grid: Grid, catalogue: Catalogue) -> None:
    """Raise WorkloadError for the first name that the grid, its files or the catalogue do not have."""
    known = {
        "site": dict.fromkeys(site.name for site in grid.sites),
        "input file": dict.fromkeys([*(stored.name for stored in grid.files), *file.text.files]),
    }
    for who, what, name in _names(file):
        if what == "policy":
            _check_policy(who, name, catalogue)
        elif name not in known[what]:
            raise WorkloadError(f"{who} names the {what} {name!r}; {suggest(name, known[what])}")


def _check_policy(who: str, name: str, catalogue: Catalogue) -> None:
    try:
        catalogue.find(name)
    except PolicyParameterError as error:
        raise WorkloadError(f"{who}: {error.for_user()}") from None
    except UnknownPolicyError as error:
        raise WorkloadError(f"{who} names the policy {error.name!r}; {suggest(error.name, error.known)}") from None


def _names(file: WorkloadFile) -> Iterator[tuple[str, str, str]]:
    """Every name with who names it and what it should be."""
    for number, generator in enumerate(file.text.generate, 1):
        who = f"generator {number}"
        if generator.policy is not None:
            yield who, "policy", generator.policy
        for name in generator.home or ():
            yield who, "site", name
        for name in generator.input_files:
            yield who, "input file", name
    for number, request in enumerate(file.requests, 1):
        who = f"job {number} ({request.name})"
        if request.policy is not None:
            yield who, "policy", request.policy
        if request.home is not None:
            yield who, "site", request.home
        for component in request.components:
            if component.site is not None:
                yield who, "site", component.site
            for read in component.input_files:
                yield who, "input file", read.name
