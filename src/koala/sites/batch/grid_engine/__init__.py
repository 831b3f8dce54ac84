"""Grid Engine (SGE, Son of Grid Engine, Univa and Altair): the rest of Koala uses only its record ``GRID_ENGINE``."""

from __future__ import annotations

from koala.sites.batch.grid_engine.keys import KEYS, contradictions
from koala.sites.batch.kind import BatchKind, BatchParts

__all__ = ["GRID_ENGINE"]


def _parts() -> BatchParts:
    from koala.sites.batch.grid_engine.check import CHECKS
    from koala.sites.batch.grid_engine.discovery import DISCOVERY
    from koala.sites.batch.grid_engine.system import GridEngineSystem

    return BatchParts(system=GridEngineSystem, checks=CHECKS, discovery=DISCOVERY)


GRID_ENGINE = BatchKind(
    name="grid_engine",
    title="Grid Engine",
    programs=("qrsh", "qsub", "qdel", "qstat", "qacct"),
    parts=_parts,
    keys=KEYS,
    findings=contradictions,
)
