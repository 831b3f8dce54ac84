"""Parallel applications to run over several clusters: ``laplace``, ``heat``, ``poisson`` and ``alternate``.

They need nothing of Koala but what it tells every component in the environment, so they run under a bare ``mpiexec``
too. What they share is in modules of its own: who owns which points, messages, emulated distance, the report.
"""

from __future__ import annotations

import os
import sys

# They call nothing that numpy would share among threads, and a thread of its would spin from the start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
try:
    import mpi4py
    import numpy as np
except ImportError as missing:
    # Under python -m a user waits for an answer; anybody else gets the exception as always.
    if sys.argv[:1] != ["-m"]:
        raise
    sys.exit(f"the applications need numpy and mpi4py ({missing}); install koala-scheduler[mpi]")

__all__ = ["mpi4py", "np"]
