"""A batch system for tests, of which Koala knows no more than this folder and a line where it is registered.

Its programs are one file, ``program.py``; its clusters are directories (``cluster.py``). It has one key of its own.
"""

from __future__ import annotations

import re

from koala.sites.batch.kind import BatchKind, BatchParts, GridKey

__all__ = ["SPOOL"]


def _parts() -> BatchParts:
    from tests.sites.batch.spool.check import CHECKS
    from tests.sites.batch.spool.discovery import DISCOVERY
    from tests.sites.batch.spool.system import SpoolSystem

    return BatchParts(system=SpoolSystem, checks=CHECKS, discovery=DISCOVERY)


SPOOL = BatchKind(
    name="spool",
    title="the Spool",
    programs=("spstep", "spsub", "spstat", "spdel"),
    parts=_parts,
    keys=(
        GridKey(
            name="job_class",
            description="the class of jobs, low or high",
            pattern=re.compile("low|high"),
            noun="a class of jobs",
            advice="write low or high",
        ),
    ),
)
