"""The record by which the rest of Koala knows a batch system: its folder exports it, and ``systems.py`` lists it.

Nothing outside ``koala.sites.batch`` names a batch system. ``BatchParts``, which works at a site, is imported at its
first use: a reader of grid files needs none of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from koala.model.grid import BatchSettings
    from koala.sites.batch.check.steps import SystemChecks
    from koala.sites.batch.discovery import SystemDiscovery
    from koala.sites.batch.system import BatchSystem

# A key of the grid file, its problem, and advice.
KeyFinding: TypeAlias = tuple[str, str, str]


class GridKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the grid file for sites under this batch system only. Its value is one word.

    With ``pattern`` the whole value must match it; otherwise the value is not ``noun``, such as "the name of a
    resource", and ``advice`` is given.
    """

    name: str
    description: str
    pattern: re.Pattern[str] | None = None
    noun: str = ""
    advice: str = ""


class BatchParts(msgspec.Struct, frozen=True, kw_only=True):
    """What works at a site: ``system`` builds the batch system from the settings of one site, ``checks`` are the
    steps of a check that are specific to it, and ``discovery`` finds its clusters."""

    system: Callable[[BatchSettings], BatchSystem]
    checks: SystemChecks
    discovery: SystemDiscovery


def no_findings(values: Mapping[str, str]) -> Iterator[KeyFinding]:
    """Accept any combination of values."""
    del values
    yield from ()


class BatchKind(msgspec.Struct, frozen=True, kw_only=True):
    """A batch system.

    - ``name``: the kind of its sites in the grid file and in answers; ``title``: its name for people.
    - ``programs``: the programs on its nodes, which jobs may require; the first is the ``launcher``.
    - ``keys``: its own keys of the grid file; ``findings`` reports values that contradict each other.
    - ``parts``: what works at a site.
    """

    name: str
    title: str
    programs: tuple[str, ...]
    parts: Callable[[], BatchParts]
    keys: tuple[GridKey, ...] = ()
    findings: Callable[[Mapping[str, str]], Iterator[KeyFinding]] = no_findings

    @property
    def launcher(self) -> str:
        """The program that starts processes over the nodes of a job."""
        return self.programs[0]
