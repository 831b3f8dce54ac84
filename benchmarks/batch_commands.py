"""Counts the single commands of batch systems that a daemon uses at each site of a lab.

Programs of the same names stand in front of the real ones on each site's path: they write a line and become the real
one, which costs a thousandth of a second or two. What jobs themselves use on their nodes is not counted.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from koala.lab import programs

PROGRAMS = (
    *("sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "squeue"),
    *("qacct", "qconf", "qdel", "qhost", "qquota", "qrdel", "qrstat", "qrsub", "qselect", "qstat", "qsub"),
)


class CountedCommands:
    """Below a directory: what stands in front of the programs, and how often each was used."""

    def __init__(self, directory: Path, sites: Sequence[str]) -> None:
        self._directory = directory
        self._sites = tuple(sites)
        for site in self._sites:
            (directory / site).mkdir(parents=True)
            self._log(site).touch()
            for program in PROGRAMS:
                real = programs.find(program)
                if real is not None:
                    self._put_in_front(site, program, real)

    def _log(self, site: str) -> Path:
        return self._directory / f"{site}.log"

    def _put_in_front(self, site: str, program: str, real: str) -> None:
        log = shlex.quote(str(self._log(site)))
        path = self._directory / site / program
        path.write_text(
            f'#!/bin/sh\n[ -n "${{SLURM_JOB_ID-}}${{JOB_ID-}}" ] || echo {program} >>{log}\n'
            f'exec {shlex.quote(real)} "$@"\n'
        )
        path.chmod(0o755)

    def settings(self) -> dict[str, dict[str, Any]]:
        """What a grid file must say of the sites besides."""
        return {
            site: {"environment": {"PATH": f"{self._directory / site}:{programs.search_path()}"}}
            for site in self._sites
        }

    def so_far(self) -> dict[str, Counter[str]]:
        """How often each program was used, by site."""
        return {site: Counter(self._log(site).read_text().split()) for site in self._sites}
