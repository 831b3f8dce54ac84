"""Real batch systems on one machine, to try Koala on: Slurm clusters and a Grid Engine cell as sites of a grid.

``up(LabOptions(directory=...))`` returns a ``Lab``; ``koala lab`` does the same from the command line. Everything
runs on loopback, or with an emulated wide area in network namespaces, as the calling user.
"""

from __future__ import annotations

from koala.lab.errors import LabError, LabFailedError, LabIsUpError
from koala.lab.lab import Lab, down, find, status, up
from koala.lab.options import LabOptions, LabSystem, PairOfSites, WideAreaLink, default_directory

__all__ = [
    "Lab",
    "LabError",
    "LabFailedError",
    "LabIsUpError",
    "LabOptions",
    "LabSystem",
    "PairOfSites",
    "WideAreaLink",
    "default_directory",
    "down",
    "find",
    "status",
    "up",
]
