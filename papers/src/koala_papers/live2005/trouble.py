"""What goes wrong at the sites of a lab while a workload runs: one breaks every component, another loses its power
for a while, and on one node the program of the jobs is missing.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from koala.lab import Lab
from koala.model.request import JobId

# How often the breaking site is looked at.
LOOK_S = 0.5
# How the batch systems' names of Koala's components begin.
OURS = "koala-"
NOT_FOUND = "/nonexistent/program"


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Which site breaks all that comes to it, which is off from when for how long after the first job was due, and
    which node has no program. Both sites run Slurm."""

    breaking_site: str
    outage_site: str
    outage_at_s: float
    outage_s: float
    bad_node: str


class TroubleSeen(msgspec.Struct, kw_only=True):
    """What it did: the components that were broken, the jobs at the site when its power went, and whether it came
    back."""

    broken: set[str] = msgspec.field(default_factory=set)
    hit: list[JobId] = msgspec.field(default_factory=list)
    is_back: bool = False


def program(execution_s: float, bad_node: str | None) -> str:
    """A shell script that takes so long, and on the bad node finds no program to run."""
    found = f"exec sleep {execution_s:.3f}\n"
    if bad_node is None:
        return found
    return f'[ "$SLURMD_NODENAME" != {shlex.quote(bad_node)} ] || exec {NOT_FOUND}\n{found}'


class TroubleMaker:
    """Makes trouble in a lab, as a context. ``jobs_at`` tells which jobs a site has; ``seen`` what was done."""

    def __init__(self, lab: Lab, trouble: Trouble, jobs_at: Callable[[str], Awaitable[list[JobId]]]) -> None:
        self._lab = lab
        self._trouble = trouble
        self._jobs_at = jobs_at
        self.seen = TroubleSeen()

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Make it while the block lasts; at its end the site whose power went is up again."""
        outage = asyncio.create_task(self._outage())
        breaking = asyncio.create_task(self._break_all())
        try:
            yield
            await outage
            if breaking.done():
                breaking.result()
        finally:
            for task in (outage, breaking):
                task.cancel()
            await asyncio.gather(outage, breaking, return_exceptions=True)

    async def _outage(self) -> None:
        trouble, seen = self._trouble, self.seen
        await asyncio.sleep(trouble.outage_at_s)
        seen.hit = await self._jobs_at(trouble.outage_site)
        await asyncio.to_thread(self._lab.kill_site, trouble.outage_site)
        await asyncio.sleep(trouble.outage_s)
        await asyncio.to_thread(self._lab.start_site, trouble.outage_site)
        seen.is_back = True

    async def _break_all(self) -> None:
        while True:
            await asyncio.to_thread(self._break_running)
            await asyncio.sleep(LOOK_S)

    def _break_running(self) -> None:
        """End what Koala runs there with the batch system's own command, as a broken resource manager would."""
        site = self._trouble.breaking_site
        listed = self._lab.run(site, "squeue", "--noheader", "--states=RUNNING", "--format=%i %j").stdout
        ours = [line.split()[0] for line in listed.splitlines() if line.split()[-1].startswith(OURS)]
        if ours:
            self._lab.run(site, "scancel", *ours)
            self.seen.broken.update(ours)
