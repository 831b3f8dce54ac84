"""What a batch system is to the rest of Koala: one record, which its folder exports and ``systems.py`` lists.

Nothing outside ``koala.sites.batch`` names a batch system. What works at a site, ``BatchParts``, is imported when it
is first asked for: a reader of grid files needs none of it.
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

# A key of the grid file, what is wrong with it, and what to do.
KeyFinding: TypeAlias = tuple[str, str, str]


class GridKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the grid file that sites under this batch system have beside those of all. Its value is one word.

    With ``pattern`` the whole value must match it, or it is not ``noun``, such as "the name of a resource", and
    ``advice`` is given.
    """

    name: str
    description: str
    pattern: re.Pattern[str] | None = None
    noun: str = ""
    advice: str = ""


class BatchParts(msgspec.Struct, frozen=True, kw_only=True):
    """What works at a site: ``system`` makes the batch system with the settings of one site, ``checks`` are the steps
    of a check that know it, and ``discovery`` finds its clusters."""

    system: Callable[[BatchSettings], BatchSystem]
    checks: SystemChecks
    discovery: SystemDiscovery


def no_findings(values: Mapping[str, str]) -> Iterator[KeyFinding]:
    """Any values go together."""
    del values
    yield from ()


class BatchKind(msgspec.Struct, frozen=True, kw_only=True):
    """A batch system.

    - ``name``: the kind of its sites in the grid file and in answers; ``title``: its name for people.
    - ``programs``: those that it has on its nodes, which jobs may require; the first is the ``launcher``.
    - ``keys``: the keys of the grid file that are its own; ``findings`` tells which of their values contradict each
      other.
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
