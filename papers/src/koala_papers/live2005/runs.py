"""The live runs: jobs of two priorities with input files, and their measures, live and simulated."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from koala import AsyncClient
from koala.model.api import JobDetail, SiteInfo
from koala.model.grid import Background, Grid, Startup, StoredFile
from koala.model.request import Application, JobId
from koala.simulator import DONE, Arrival, PageHold, Result, Workload, read_workload, simulate, workload_from_file
from koala.study import done_rows, means
from koala.study.live import LiveGrid
from koala.study.replay import Replay, Replayed, ReplaySettings, plan_replay
from koala_papers.koala2005.data import cells_of
from koala_papers.live2005.trouble import Trouble, TroubleMaker, TroubleSeen, program
from koala_papers.live2006.model import simulated_grid

WALLTIME_S = 300
# A job start time is reached at this distance, as in the core.
REACHED_S = 1.0
# The exit code of a shell that does not find a program.
NOT_FOUND_CODE = 127
NOBODY = Background(user_load=0.0, band_low=0.0, band_high=0.0)

replace = msgspec.structs.replace


class FileWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a run: their number, their interarrival time, their files, and the execution time of those of 4
    processors; those of 8 take half as long."""

    jobs: int
    interarrival_s: float
    files: int
    file_mb: float
    execution_s: float
    seed: int

    def file(self) -> Workload:
        """Return the workload. Half of the files are twice as large as the others, as in the paper, and all have two
        replicas."""
        names = [f"input-{number}.dat" for number in range(1, self.files + 1)]
        sizes = [round(self.file_mb * 1_000_000) * (1 + number % 2) for number in range(self.files)]
        files = "".join(
            f"  {name}: {{size_bytes: {size}, replicas: 2}}\n" for name, size in zip(names, sizes, strict=True)
        )
        text = f"""
name: live2005
files:
{files}applications:
  solver: {{execution_s: {{by_size: {{4: {self.execution_s}, 8: {self.execution_s / 2}}}}}}}
generate:
  - jobs: {self.jobs}
    interarrival_s: {{exponential: {self.interarrival_s}}}
    priority: {{high: 0.5, low: 0.5}}
    walltime: {WALLTIME_S}
    input_files: [{", ".join(names)}]
    mix:
      - application: solver
        sizes: [{{processors: 4, components: [2]}}, {{processors: 8, components: [2, 4]}}]
"""
        return workload_from_file(read_workload(text, "live2005"))

    def drawn(self, grid: Grid) -> tuple[list[Arrival], tuple[StoredFile, ...]]:
        """Return the jobs, and the files with the sites of their replicas."""
        workload = self.file()
        return list(workload.arrivals(grid, self.seed)), workload.files(grid, self.seed)


def running(arrivals: Iterable[Arrival], bad_node: str | None) -> list[Arrival]:
    """Return the jobs with the programs that they really run."""
    found = []
    for arrival in arrivals:
        application = Application(script=program(arrival.execution_s, bad_node))
        components = tuple(replace(each, application=application) for each in arrival.request.components)
        found.append(arrival._replace(request=replace(arrival.request, components=components)))
    return found


# --------------------------------------------------------------------------------------------------- live


async def run_live(live: LiveGrid, workload: FileWorkload, trouble: Trouble | None) -> dict[str, Any]:
    """Run the workload on the lab, with trouble or without it, and return its measures."""
    arrivals, files = workload.drawn(live.grid)
    jobs = running(arrivals, None if trouble is None else trouble.bad_node)
    settings = ReplaySettings(files=[file.name for file in files])
    made = plan_replay("live2005", jobs, live.grid, settings)
    seen = TroubleSeen()
    async with AsyncClient(live.server) as client, AsyncExitStack() as stack:
        await register(client, files, workload.seed)
        overview = await client.overview()
        if trouble is not None:
            maker = TroubleMaker(live.lab, trouble, lambda site: _jobs_at(client, site))
            await stack.enter_async_context(maker.going_on())
            seen = maker.seen
        replay = Replay(client, made, stop=lambda: False)
        replayed = await replay.run(overview, policy=overview.policy, seed=workload.seed)
        details = [await client.job(each.job) for each in replayed.submissions]
        sites = await client.sites()
    return {**measures(replayed.result, len(jobs)), **_live_measures(replayed, seen, sites, details)}


async def register(client: AsyncClient, files: Sequence[StoredFile], seed: int) -> None:
    """Give every site its replicas; all pieces differ."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="koala-files-") as folder:
        for file in files:
            path = Path(folder) / file.name
            path.write_bytes(rng.randbytes(file.size_bytes))
            for site in file.replicas:
                await client.register(file.name, site, path=str(path))
            path.unlink()


async def _jobs_at(client: AsyncClient, site: str) -> list[JobId]:
    return (await client.site(site)).jobs


def _live_measures(
    replayed: Replayed, seen: TroubleSeen, sites: Sequence[SiteInfo], jobs: Sequence[JobDetail]
) -> dict[str, Any]:
    """Return the measures of a live run alone: claims, faults, and their consequences."""
    done = {row.job for row in replayed.result.rows() if row.outcome == DONE}
    return {
        "claims_ahead_s": claims_ahead_s(replayed.result, replayed.holds),
        "taken_out": {site.name: site.distrusted for site in sites if site.trust != "usable"},
        "broken": len(seen.broken),
        "hit": len(seen.hit),
        "hit_not_done": len(set(seen.hit) - done),
        "is_back": seen.is_back,
        "not_found": sum(each.exit_code == NOT_FOUND_CODE for job in jobs for each in job.components),
        "transfers": len({each.id for job in jobs for each in job.transfers if each.ok}),
        "lag_s": max((each.lag_s for each in replayed.submissions), default=0.0),
        "wasted_share": replayed.waste.share,
    }


def claims_ahead_s(result: Result, holds: Iterable[PageHold]) -> list[float]:
    """Return how long before the job start time each component of a last run was claimed, for jobs whose files had to
    be transferred."""
    ends = {each.job: each for each in result.ends}
    found = []
    for hold in holds:
        end = ends.get(hold.job)
        if end is None or end.started_at is None or end.placed_at is None or end.last_start_estimate is None:
            continue
        was_brought = end.last_start_estimate - end.placed_at > REACHED_S
        if was_brought and end.placed_at <= hold.from_s <= end.started_at <= hold.to_s:
            found.append(end.last_start_estimate - hold.from_s)
    return found


# ---------------------------------------------------------------------------------------------- measures


def measures(result: Result, jobs: int) -> dict[str, Any]:
    """Return one run in numbers, live or simulated."""
    rows = list(result.rows())
    metrics = result.metrics()
    return {
        "outcomes": metrics["outcomes"],
        "not_completed": jobs - metrics["outcomes"].get(DONE, 0),
        "cells": {name: cell.as_json() for name, cell in cells_of(rows).items()},
        "means": means(done_rows(result)),
        "restarts": metrics["restarts"],
        "component_failures": metrics["failures"],
        "preemptions": metrics["preemptions"],
        "makespan_s": metrics["makespan_s"],
        "reasons": [each["reason"] for each in metrics["failed"]],
    }


def simulated(grid: Grid, workload: FileWorkload, startup_s: float) -> dict[str, Any]:
    """Return the simulator's result for the same jobs with the same files, without failures."""
    arrivals, files = workload.drawn(grid)
    first_s = arrivals[0].at_s
    jobs = [each._replace(at_s=each.at_s - first_s) for each in arrivals]
    startup = Startup(base_s=startup_s)
    made = simulated_grid(grid, {site.name: startup for site in grid.sites}, NOBODY)
    result = simulate(replace(made, files=files), Workload.from_arrivals(jobs), seed=workload.seed)
    return measures(result, len(jobs))
