"""How fast the kernel for mini-grids is: modules of the paper on its workload, with links that jobs contend for.

``python mini_grid_speed.py MODULE MBIT_S JOBS_PER_CLUSTER`` measures one in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

ROUNDS = 3
# Module, and the bisection bandwidth of every job.
MEASURED = (("B1", 300.0), ("B1", 600.0), ("A1", 300.0))


class MiniGridSpeed(NamedTuple):
    """What came of one module."""

    module: str
    bisection_mbit_s: float
    jobs: int
    jobs_per_s: float
    mean_turnaround_s: float


def mini_grid_rows(jobs_per_cluster: int, told: Callable[[str], None]) -> list[MiniGridSpeed]:
    """A row for each of ``MEASURED``; further modules are added there."""
    rows = []
    for module, mbit_s in MEASURED:
        told(f"mini-grid, {module} at {mbit_s:.0f} Mbit/s ...")
        command = [sys.executable, __file__, module, str(mbit_s), str(jobs_per_cluster)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        rows.append(MiniGridSpeed(**json.loads(done.stdout)))
    return rows


def measured(module: str, mbit_s: float, jobs_per_cluster: int) -> MiniGridSpeed:
    from koala.simulator.kernels.mini_grid import MiniGrid, mini_grid_workload, run_mini_grid

    grid = MiniGrid.star()  # the paper's: 4 clusters of 100 nodes, links of 1000 Mbit/s
    run_mini_grid(mini_grid_workload(4, 10, mbit_s), grid, module)  # compiled, or read from disk
    jobs = mini_grid_workload(4, jobs_per_cluster, mbit_s)
    best_s = float("inf")
    for _ in range(ROUNDS):
        before_s = time.process_time()
        ran = run_mini_grid(jobs, grid, module)
        best_s = min(best_s, time.process_time() - before_s)
    count = len(jobs.submit_s)
    return MiniGridSpeed(module, mbit_s, count, count / best_s, float((ran.end_s - jobs.submit_s).mean()))


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))._asdict()))
