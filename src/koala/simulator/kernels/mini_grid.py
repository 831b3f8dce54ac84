"""The kernel for mini-grids: co-allocated jobs that slow each other down on shared links, millions of them a second.

This module has the grid, the run and its checks; ``mini_grid_loop`` the compiled event loop. The jobs come from
``koala.simulator.workloads.mini_grid`` or from any arrays. The times equal those of the scheduler in the simulated
world, bit by bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final

from koala.model.grid import Grid
from koala.model.network import ALL_TO_ALL, CUBE, SILENT, UNLIMITED_BIT_S, bisection_factor, capacity_bit_s
from koala.model.request import CUBE_DIMENSIONS_MAX
from koala.policies.catalogue import Catalogue
from koala.policies.forms import ModuleChoice
from koala.policies.minigrid.case import SharedRoutes
from koala.policies.minigrid.meta_scheduling import B5, is_monotone
from koala.policies.wiring import Wiring, compile_wiring, star
from koala.simulator.kernels.coallocated import Coallocated, LinkColumns, links_of, nobody_coallocated
from koala.simulator.kernels.compiling import compiled
from koala.simulator.kernels.heap import EndHeap, ends_of
from koala.simulator.kernels.mini_grid_loop import SEVERAL, Belief, JobColumns, Meta, Ran, run_events
from koala.simulator.kernels.queue import END, FIRST, HOLE, WaitingJobs, nobody_waiting
from koala.simulator.workloads.mini_grid import MiniGridJobs, mini_grid_workload

if TYPE_CHECKING:
    from numpy import float64, int16
    from numpy.typing import NDArray

__all__ = ["MiniGrid", "MiniGridError", "MiniGridJobs", "MiniGridRun", "mini_grid_workload", "run_mini_grid"]

# Limits of the kernel's arrays: sites of jobs in two bytes, numbers of jobs in four, and room for all jobs that may
# run at once.
KERNEL_SITES_MAX = 2**15 - 1
KERNEL_JOBS_MAX = 2**31 - 1
KERNEL_NODES_MAX = 10_000_000
# Arrays of any other kind would compile the kernel once more.
_LAYOUT: Final = ("C", "A", "W")
_ONE_FOR_ALL = ("share", "per_processor_bit_s", "pattern", "dimensions")
# The last possible instant; later times, and values that are no number, are refused. The ends stay finite however
# much links stretch such times, and however many jobs wait for each other.
_LAST_S: Final = 1e250


class MiniGridError(ValueError):
    """Jobs, a grid or a policy that the kernel cannot run: the message says what is wrong and what to change."""

    def for_user(self) -> str:
        """Return what is wrong, and what to do."""
        return str(self)


@dataclasses.dataclass(frozen=True, slots=True)
class MiniGrid:
    """Clusters with their numbers of nodes, and the links between them.

    >>> from koala.simulator import MiniGrid
    >>> MiniGrid.star([100, 100], uplink_mbit_s=1000.0).nodes
    (100, 100)
    """

    nodes: tuple[int, ...]
    wiring: Wiring

    def __post_init__(self) -> None:
        if not 1 <= len(self.nodes) <= KERNEL_SITES_MAX:
            raise MiniGridError(
                f"a grid of {len(self.nodes)} clusters; give 1 to {KERNEL_SITES_MAX} (KERNEL_SITES_MAX)"
            )
        if min(self.nodes) < 0 or not 1 <= sum(self.nodes) <= KERNEL_NODES_MAX:
            raise MiniGridError(
                f"clusters of {min(self.nodes)} to {max(self.nodes)} nodes, {sum(self.nodes)} in all; "
                f"give each 0 or more, and all together 1 to {KERNEL_NODES_MAX} (KERNEL_NODES_MAX)"
            )
        if (
            min(self.wiring.capacity_bit_s, default=1) < 1
            or max(self.wiring.capacity_bit_s, default=1) > UNLIMITED_BIT_S
        ):
            raise MiniGridError(
                f"links of {min(self.wiring.capacity_bit_s)} to {max(self.wiring.capacity_bit_s)} bit/s; give each "
                f"1 to {UNLIMITED_BIT_S}, which is unlimited"
            )
        if self.wiring.sites != len(self.nodes):
            raise MiniGridError(f"links for {self.wiring.sites} sites and {len(self.nodes)} clusters; give as many")

    @classmethod
    def star(cls, nodes: Sequence[int] = (100,) * 4, uplink_mbit_s: float | None = 1000.0) -> MiniGrid:
        """Return clusters with a link each, all of one capacity; None is unlimited. The defaults are the paper's
        grid."""
        if uplink_mbit_s is not None and not 0 < uplink_mbit_s < inf:
            raise MiniGridError(f"links of {uplink_mbit_s} Mbit/s; give a number above 0, or None for unlimited ones")
        names = [f"C{number}" for number in range(1, len(nodes) + 1)]
        return cls(tuple(nodes), star(names, [capacity_bit_s(uplink_mbit_s)] * len(nodes)))

    @classmethod
    def of(cls, grid: Grid) -> MiniGrid:
        """Return the sites and the network of a grid file; everything else in it is ignored."""
        return cls(tuple(site.processors for site in grid.sites), compile_wiring(grid))

    def unlimited(self) -> MiniGrid:
        """Return the same clusters with links that slow nobody down."""
        return dataclasses.replace(self, wiring=star(self.wiring.names[: len(self.nodes)]))


@dataclasses.dataclass(frozen=True, slots=True)
class MiniGridRun:
    """The results for each job, in the order in which they were given, and for the links.

    - ``start_s`` and ``end_s`` are nan for the ``unplaced`` jobs, which never found a place;
    - ``clusters``: the number of clusters of a job; ``site``: its cluster if there is only one, else -1;
    - ``saturation_most``: the greatest demand on each link, as a multiple of its capacity, and ``saturation_mean``
      over the time from the first submission to the last end;
    - ``wasted_node_s``: how much longer than on one cluster the co-allocated jobs held their nodes.

    >>> from koala.simulator import MiniGrid, mini_grid_workload, run_mini_grid
    >>> run = run_mini_grid(mini_grid_workload(jobs_per_cluster=100), MiniGrid.star(), "B1")
    >>> run.unplaced, bool((run.end_s > run.start_s).all())
    (0, True)
    """

    start_s: NDArray[float64]
    end_s: NDArray[float64]
    clusters: NDArray[int16]
    site: NDArray[int16]
    unplaced: int
    saturation_most: tuple[float, ...]
    saturation_mean: tuple[float, ...]
    wasted_node_s: float


def run_mini_grid(jobs: MiniGridJobs, grid: MiniGrid, policy: str | ModuleChoice) -> MiniGridRun:
    """Run all jobs to their ends under a policy such as ``B1`` or ``B3(chunk=0.8, lslt=0.9)``.

    A global queue in the order of submission is scanned whenever a job arrives or ends; a job goes whole to its home,
    or to the tightest cluster that holds it, or is divided by the policy's module. ``Ideal`` runs with unlimited
    links. Raises MiniGridError for jobs that cannot be run, and for an unknown policy the error of
    ``Catalogue.find``.

    >>> from koala.simulator import MiniGrid, mini_grid_workload, run_mini_grid
    >>> jobs = mini_grid_workload(jobs_per_cluster=100)
    >>> run = run_mini_grid(jobs, MiniGrid.star(), "B3(chunk=0.8)")
    >>> len(run.end_s)
    400
    """
    choice = policy
    if isinstance(choice, str):
        found = Catalogue.builtin().find(choice)
        if found.module is None:
            raise MiniGridError(f"the policy {found.name} is none of the kernel's; {_policies()}")
        choice = found.module
        if found.name == "Ideal":
            grid = grid.unlimited()
    if not (0.0 < choice.threshold < inf and 0.0 < choice.chunk <= 1.0):
        raise MiniGridError(f"{choice}; give a threshold above 0, and a chunk above 0 and up to 1")
    checked = _checked(jobs, grid)
    meta = _meta(checked, grid, choice)
    links = links_of(grid.wiring.capacity_bit_s)
    coallocated, ends = _nobody_running(checked, grid)
    waiting = nobody_waiting(len(jobs))
    ran = _nothing_ran(len(jobs))
    compiled(run_events)(
        checked, meta, _belief(checked, meta), links, _routes(grid.wiring), coallocated, ends, waiting, ran
    )
    return _run(checked, links, waiting, ran)


def _policies() -> str:
    names = ", ".join(each.name for each in Catalogue.builtin() if each.module is not None)
    return f"those are: {names}"


def _meta(jobs: JobColumns, grid: MiniGrid, choice: ModuleChoice) -> Meta:
    import numpy

    idle: Any = numpy.array(grid.nodes, numpy.int64)
    shared_links = not grid.wiring.is_star
    patterns = numpy.unique(jobs.pattern).tolist()
    return Meta(
        module=choice.module,
        threshold=float(choice.threshold),
        chunk=float(choice.chunk),
        believes=choice.module == B5,
        rescans=not all(is_monotone(choice.module, pattern, shared_links) for pattern in patterns),
        idle=idle,
        spare=idle.copy(),
        parts=idle.copy(),
    )


def _routes(wiring: Wiring) -> SharedRoutes | None:
    import numpy

    if wiring.is_star:
        return None

    def numbers(values: Sequence[int]) -> Any:
        return numpy.array(values, numpy.int64)

    by_link, by_site = [0] * len(wiring.capacity_bit_s), [0] * wiring.sites
    crossed: Any = numpy.zeros(len(by_link))
    return SharedRoutes(
        first=numbers(wiring.route_first),
        links=numbers(wiring.route_links),
        crossed=crossed,
        closed=numbers(by_link),
        group=numbers(by_site),
        masked=numbers(by_site),
    )


def _belief(jobs: JobColumns, meta: Meta) -> Belief:
    """Return an empty belief, with the bisection factors of the given jobs if they are needed."""
    import numpy

    if not meta.believes:
        return Belief(seen=numpy.zeros(2), factors=numpy.zeros((1, 1, 1)))
    size_max = int(jobs.size.max(initial=0))
    factors = numpy.zeros((SILENT + 1, CUBE_DIMENSIONS_MAX + 1, size_max + 1))
    kinds = {(ALL_TO_ALL, 0)}
    for pattern in numpy.unique(jobs.pattern):
        numbers = numpy.unique(jobs.dimensions).tolist() if pattern == CUBE else [0]
        kinds.update((int(pattern), dimensions) for dimensions in numbers)
    for size in numpy.unique(jobs.size).tolist():
        for pattern, dimensions in kinds:
            factors[pattern, dimensions, size] = bisection_factor(pattern, dimensions, size)
    return Belief(seen=numpy.zeros(2), factors=factors)


def _nobody_running(jobs: JobColumns, grid: MiniGrid) -> tuple[Coallocated, EndHeap]:
    """Return room for as many jobs as the nodes can hold at once, of the given sizes."""
    if len(jobs.size) == 0:
        return nobody_coallocated(1, 1, 1), ends_of(1)
    at_once = min(len(jobs.size), sum(grid.nodes) // int(jobs.size.min())) + 1
    sites = len(grid.nodes)
    sites_each = min(sites, int(jobs.size.max()))
    shared = len(grid.wiring.capacity_bit_s) - sites
    return nobody_coallocated(at_once, sites_each, sites_each + shared), ends_of(at_once)


def _nothing_ran(count: int) -> Ran:
    import numpy

    return Ran(
        start_s=numpy.empty(count),
        end_s=numpy.empty(count),
        clusters=numpy.empty(count, numpy.int16),
        site=numpy.empty(count, numpy.int16),
    )


def _run(jobs: JobColumns, links: LinkColumns, waiting: WaitingJobs, ran: Ran) -> MiniGridRun:
    """Return the run from the kernel's arrays."""
    import numpy

    queue = slice(waiting.bounds[FIRST], waiting.bounds[END])
    unplaced = waiting.job[queue][waiting.size[queue] != HOLE]
    ran.start_s[unplaced] = numpy.nan
    ran.end_s[unplaced] = numpy.nan
    ran.clusters[unplaced] = 0
    ran.site[unplaced] = SEVERAL
    apart = numpy.flatnonzero(ran.clusters > 1)
    wasted_s = ran.end_s[apart] - ran.start_s[apart] - jobs.work_s[apart]
    lasted_s = float(numpy.nanmax(ran.end_s) - jobs.submit_s[0]) if len(unplaced) < len(ran.end_s) else 0.0
    capacity_bit_s = numpy.array(links.capacity_bit_s, numpy.float64)
    most = numpy.array(links.demand_most_bit_s) / capacity_bit_s
    mean = numpy.array(links.demanded_bits) / capacity_bit_s / (lasted_s or 1.0)
    return MiniGridRun(
        start_s=ran.start_s,
        end_s=ran.end_s,
        clusters=ran.clusters,
        site=ran.site,
        unplaced=len(unplaced),
        saturation_most=tuple(most.tolist()),
        saturation_mean=tuple(mean.tolist()),
        wasted_node_s=float((wasted_s * jobs.size[apart]).sum()),
    )


# ------------------------------------------------------------------------------------------ the checks


def _checked(jobs: MiniGridJobs, grid: MiniGrid) -> JobColumns:
    """Return the jobs as arrays of the types that the kernel is compiled for; raise MiniGridError about the first bad
    one."""
    import numpy

    if len(jobs) > KERNEL_JOBS_MAX:
        raise MiniGridError(f"{len(jobs)} jobs are more than {KERNEL_JOBS_MAX} (KERNEL_JOBS_MAX); run them in parts")
    checked = JobColumns(
        submit_s=_array(jobs, "submit_s", numpy.float64),
        size=_array(jobs, "size", numpy.int32),
        home=_array(jobs, "home", numpy.int32),
        work_s=_array(jobs, "work_s", numpy.float64),
        share=_array(jobs, "share", numpy.float64),
        per_processor_bit_s=_array(jobs, "per_processor_bit_s", numpy.float64),
        pattern=_array(jobs, "pattern", numpy.int8),
        dimensions=_array(jobs, "dimensions", numpy.int8),
    )
    nodes = sum(grid.nodes)
    _refuse_outside(checked, "submit_s", -_LAST_S, _LAST_S, "give seconds")
    _refuse_outside(checked, "size", 1, nodes, f"there are {nodes} nodes in all: leave it out, or give 1 or more")
    _refuse_outside(checked, "home", -1, len(grid.nodes) - 1, "give the index of a cluster, or -1 for none")
    _refuse_outside(checked, "work_s", 0.0, _LAST_S, "give seconds, 0 or more")
    _refuse_outside(checked, "share", 0.0, 1.0, "give a fraction of the work")
    # The sum of all demands then fits into the kernel's integers.
    most_bit_s = UNLIMITED_BIT_S / nodes
    _refuse_outside(checked, "per_processor_bit_s", 0.0, most_bit_s, f"give 0 to {most_bit_s:.3g} bit/s")
    _refuse_outside(checked, "pattern", ALL_TO_ALL, SILENT, "give a number of koala.model.network")
    _refuse_outside(checked, "dimensions", 1, CUBE_DIMENSIONS_MAX, f"give 1 to {CUBE_DIMENSIONS_MAX}")
    if not (checked.submit_s[1:] >= checked.submit_s[:-1]).all():
        job = int((checked.submit_s[1:] < checked.submit_s[:-1]).argmax()) + 1
        raise MiniGridError(f"the job at index {job} is submitted before the one ahead of it; sort by submission")
    return checked


def _array(jobs: MiniGridJobs, name: str, kind: type[Any]) -> NDArray[Any]:
    """Return a field in the kernel's form; where permitted, one value stands for all jobs."""
    import numpy

    values = numpy.atleast_1d(getattr(jobs, name))
    if len(values) != len(jobs) and not (name in _ONE_FOR_ALL and len(values) == 1):
        raise MiniGridError(f"there are {len(values)} values of {name} for {len(jobs)} jobs; give each job one")
    with numpy.errstate(invalid="ignore"):
        wanted = numpy.require(values, kind, _LAYOUT)
    if wanted.dtype.kind == "i" and not numpy.array_equal(wanted, values):
        job = int((wanted != values).argmax())
        raise MiniGridError(
            f"the job at index {job} has {values[job]} as its {name}; give a whole number, not so large"
        )
    return wanted


def _refuse_outside(jobs: JobColumns, name: str, least: float, most: float, cure: str) -> None:
    """Raise an error about the first job with a value outside these bounds, or with no number."""
    values: NDArray[Any] = getattr(jobs, name)
    if len(values) == 0 or (values.min() >= least and values.max() <= most):
        return
    job = int((~((values >= least) & (values <= most))).argmax())
    raise MiniGridError(f"the job at index {job} has {values[job]} as its {name}; {cure}")
