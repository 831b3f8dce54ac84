"""The faults at the sites of a lab while a workload runs: one breaks every component, another loses its power for a
while, and on one node the program of the jobs is missing."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from koala.lab import Lab
from koala.model.request import JobId

# How often the breaking site is examined.
LOOK_S = 0.5
# The prefix of Koala's components in the batch systems.
OURS = "koala-"
NOT_FOUND = "/nonexistent/program"


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """The site that breaks all its components, the site that is off with the start (after the first job was due) and
    the length of its outage, and the node without a program. Both sites run Slurm."""

    breaking_site: str
    outage_site: str
    outage_at_s: float
    outage_s: float
    bad_node: str


class TroubleSeen(msgspec.Struct, kw_only=True):
    """The effects: the broken components, the jobs at the site when its power failed, and whether it came back."""

    broken: set[str] = msgspec.field(default_factory=set)
    hit: list[JobId] = msgspec.field(default_factory=list)
    is_back: bool = False


def program(execution_s: float, bad_node: str | None) -> str:
    """Return a shell script that takes this long, and on the bad node finds no program to run."""
    found = f"exec sleep {execution_s:.3f}\n"
    if bad_node is None:
        return found
    return f'[ "$SLURMD_NODENAME" != {shlex.quote(bad_node)} ] || exec {NOT_FOUND}\n{found}'


class TroubleMaker:
    """Makes trouble in a lab, as a context. ``jobs_at`` returns the jobs of a site; ``seen`` is what was done."""

    def __init__(self, lab: Lab, trouble: Trouble, jobs_at: Callable[[str], Awaitable[list[JobId]]]) -> None:
        self._lab = lab
        self._trouble = trouble
        self._jobs_at = jobs_at
        self.seen = TroubleSeen()

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Make trouble while the block lasts; at its end the site without power is up again."""
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
        """End Koala's components there with the batch system's own command, like a broken resource manager."""
        site = self._trouble.breaking_site
        listed = self._lab.run(site, "squeue", "--noheader", "--states=RUNNING", "--format=%i %j").stdout
        ours = [line.split()[0] for line in listed.splitlines() if line.split()[-1].startswith(OURS)]
        if ours:
            self._lab.run(site, "scancel", *ours)
            self.seen.broken.update(ours)
