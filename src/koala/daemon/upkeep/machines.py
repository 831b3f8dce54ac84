"""What the machines of the sites can do now, for jobs of tasks: their power, and the load of others on them.

A batch system tells of its nodes. A small program in the sites' own shells tells of the machine that it runs on
(``koala.daemon.upkeep.machine_program``); it needs a python3 there. The power is that of the host where the commands
of the site run, and is measured once; a site with other nodes says so in the grid file. What cannot be measured stays
as the grid file says, and is no word on a site.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources

from koala.daemon.perform.interface import EngineInterface
from koala.daemon.upkeep.rounds import Rounds
from koala.files import FileArea
from koala.model.grid import NODE_POWER, Site, SiteKind
from koala.model.messages import SiteMachines
from koala.model.request import SiteName
from koala.sites.batch.system import BatchOutputError, NodeLoad
from koala.sites.batch.systems import system_of

_log = logging.getLogger(__name__)

# The interval between looks at a site's machines, the delay of the first, and the longest duration of one.
MACHINES_EVERY_S = 300.0
MACHINES_FIRST_S = 60.0
MACHINES_S = 60.0
# A processor that does this many steps of the program's loop per second has the default power.
REFERENCE_STEPS_PER_S = 10_000_000.0
# Loads are told in so many steps from idle to busy, as smaller changes are noise; a processor is never wholly busy.
LOAD_STEPS = 10
LOAD_MAX = 0.9
_END = "KOALA_MACHINES"


class MachinesUnknownError(Exception):
    """Why a site's machines are unknown."""


class MachineWatch:
    """Looks at the machines of all sites from time to time. ``held`` returns how many processors of a site our jobs
    hold. Sites that are not to be probed are left alone, as is every site if probes are off."""

    def __init__(
        self,
        engine: EngineInterface,
        sites: Iterable[Site],
        areas: Mapping[SiteName, FileArea],
        held: Callable[[SiteName], int],
        *,
        off: bool = False,
        first_s: float = MACHINES_FIRST_S,
        every_s: float = MACHINES_EVERY_S,
        look_s: float = MACHINES_S,
    ) -> None:
        self._engine = engine
        self._sites = {
            site.name: site for site in sites if site.probes and not off and site.kind != SiteKind.SIMULATED
        }
        self._areas = areas
        self._held = held
        self._every_s = every_s
        self._look_s = look_s
        self._program = resources.files(__package__).joinpath("machine_program.py").read_text(encoding="utf-8")
        self._powers: dict[SiteName, float] = {}
        self._told: dict[SiteName, SiteMachines] = {}
        self._rounds = Rounds(
            self._round, problem="the machines could not be looked at", retry_s=every_s, first_s=first_s
        )
        self.stop = self._rounds.stop

    def start(self) -> None:
        """Begin to look."""
        if self._sites:
            self._rounds.start()

    async def _round(self) -> float:
        for name in self._sites:
            await self.look(name)
        return self._every_s

    async def look(self, name: SiteName) -> None:
        """Look at the machines of a site, and report changes to the core; the log says why nothing is known."""
        try:
            async with asyncio.timeout(self._look_s):
                seen = await self._see(self._sites[name])
        except TimeoutError:
            _log.info("the machines of %s were not seen within %g s (MACHINES_S)", name, self._look_s)
        except (MachinesUnknownError, BatchOutputError, OSError) as error:
            _log.info("nothing is known of the machines of %s: %s", name, error)
        except Exception:  # ours, and says nothing about the site
            _log.exception("the machines of %s could not be looked at", name)
        else:
            before = self._told.get(name)
            if before is None or before.machines != seen.machines:
                self._told[name] = seen
                self._engine.report(seen)

    async def _see(self, site: Site) -> SiteMachines:
        timed = site.name not in self._powers
        system = None if site.batch is None else system_of(site)
        script = f"{'' if system is None else system.loads()}echo {_END}\n"
        if system is None or timed:
            script += (
                "command -v python3 >/dev/null || { echo python3 is missing there; exit 0; }\n"
                f"exec python3 - {int(timed)} <<'{_END}'\n{self._program}{_END}\n"
            )
        said = await self._areas[site.name].host.run(script, timeout_s=self._look_s)
        loads, _, told = said.rpartition(f"{_END}\n")
        here, rate = read_machine(told)
        if system is not None:
            nodes = system.parse_loads(loads)
        else:
            nodes = [
                NodeLoad(each.processors, min(self._held(site.name), each.processors), each.load) for each in here
            ]
        classes = classes_of(nodes)
        if rate is not None:
            self._powers[site.name] = round(NODE_POWER * rate / REFERENCE_STEPS_PER_S)
        power = max(1.0, self._powers.get(site.name, NODE_POWER))
        machines = tuple((processors, power, load) for processors, load in classes)
        return SiteMachines(at=self._engine.now(), site=site.name, machines=machines)


def read_machine(output: str) -> tuple[list[NodeLoad], float | None]:
    """Return the machine and its rate from the output of the program; None for a rate that is not there.

    Raises ``MachinesUnknownError`` for output that makes no sense.
    """
    here: list[NodeLoad] = []
    rate = None
    for line in output.splitlines():
        words = line.split()
        try:
            if words[:1] == ["machine"]:
                here.append(NodeLoad(int(words[1]), 0, float(words[2])))
            elif words[:1] == ["rate"]:
                rate = float(words[1])
            elif words:
                raise MachinesUnknownError(line.strip()[:300])
        except (IndexError, ValueError):
            raise MachinesUnknownError(f"it wrote {line[:100]!r}") from None
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        raise MachinesUnknownError(f"its rate is {rate} steps a second")
    return here, rate


def classes_of(nodes: Sequence[NodeLoad]) -> list[tuple[int, float]]:
    """(processors, load) of machines that are alike, the least loaded first. ``MachinesUnknownError`` for none, or
    for what cannot be."""
    found: dict[float, int] = {}
    for node in nodes:
        if node.processors <= 0 or node.held < 0 or not (math.isfinite(node.load) and node.load >= 0):
            raise MachinesUnknownError(f"it tells of {node.processors} processors with a load of {node.load}")
        load = load_of_idle(node.load, node.processors, node.held)
        found[load] = found.get(load, 0) + node.processors
    if not found:
        raise MachinesUnknownError("it tells of no machines")
    return [(found[load], load) for load in sorted(found)]


def load_of_idle(load: float, processors: int, held: int) -> float:
    """What a task loses on each idle processor to those who compute there all the same and hold none, where every
    idle processor has a task and all share alike."""
    idle, others = processors - held, max(0.0, load - held)
    if idle <= 0:
        return 0.0
    return min(LOAD_MAX, round(LOAD_STEPS * others / (others + idle)) / LOAD_STEPS)
