"""Slurm: the rest of Koala uses only its record ``SLURM``."""

from __future__ import annotations

from koala.sites.batch.kind import BatchKind, BatchParts

__all__ = ["SLURM"]


def _parts() -> BatchParts:
    from koala.sites.batch.slurm.check import CHECKS
    from koala.sites.batch.slurm.discovery import DISCOVERY
    from koala.sites.batch.slurm.system import SlurmSystem

    return BatchParts(system=SlurmSystem, checks=CHECKS, discovery=DISCOVERY)


SLURM = BatchKind(
    name="slurm",
    title="Slurm",
    programs=("srun", "sbatch", "scancel", "scontrol", "squeue", "sinfo", "sacct"),
    parts=_parts,
)
