"""A request compiled once against the sites' indexes, so that repeated tries to place it are cheap.

Equal requests share one demand. ``koala.policies.attempt`` makes the tries.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from koala.model.network import BIT_S_PER_MBIT_S, per_processor_bit_s
from koala.model.nodes import TaskShape
from koala.model.request import JOB_NAME, Communication, Component, Flexibility, InputMode, Pattern, Request
from koala.policies.catalogue import dividing
from koala.policies.errors import UnknownHomeError, UnknownSiteError
from koala.policies.forms import Form, Policy
from koala.policies.minigrid.chunking import chunk_processors
from koala.policies.minigrid.meta_scheduling import B3, B5, MIGRATION_ONLY, is_monotone
from koala.policies.tasks.wase import ClusteredTasks

DemandKey: TypeAlias = tuple[Hashable, ...]


class ComponentSizes(NamedTuple):
    """Components of given sizes, ready for a policy.

    ``sizes`` and ``sites`` are in the order of the request, ``sites`` -1 where the policy chooses. ``order``
    are the components that it chooses for, the largest first (ties by index), ``ordered`` their sizes.
    """

    sizes: tuple[int, ...]
    sites: tuple[int, ...]
    pinned: tuple[int, ...]
    order: tuple[int, ...]
    ordered: tuple[int, ...]


class Bounds(NamedTuple):
    """How a flexible total may be divided if no splits are listed; a job that must stay whole is a single part."""

    component_min: int
    components_max: int


class Traffic(NamedTuple):
    """What a job sends between its sites, in the terms of ``koala.model.network``."""

    pattern: int
    dimensions: int
    per_processor_bit_s: float
    share: float


SILENCE = Traffic(Pattern.NONE.number, 2, 0.0, 0.0)


class FileRead(NamedTuple):
    """One file that a component reads: the whole (None), or a chunk as (processors before, its own, all)."""

    file: str
    chunk: tuple[int, int, int] | None


class BarredSites(NamedTuple):
    """In a key: the sites that a demand must not go to."""

    sites: tuple[int, ...]


class TaskGroup(NamedTuple):
    """Components with tasks of one shape, and the demand that a policy sees for them, in tasks instead of processors.

    Plain components beside shaped ones are a group too.
    """

    shape: TaskShape
    components: tuple[int, ...]
    demand: Demand


class Demand:
    """What a policy can see of a request. Immutable; equal keys mean the same demand.

    - ``policy``: the requested policy; ``rule``: the policy that places components of given sizes (another one under
      a policy that divides totals, otherwise the same);
    - ``total``: processors in all; ``least``: no placement exists unless some single site has this many idle;
    - ``bounds``: set when the policy divides the total; otherwise ``shapes`` are tried in order;
    - ``divided``: the same request under a policy that divides, if this one takes a total for one component;
    - ``files``: the names of all files read; ``reads``: by component of the request (one for a flexible job);
    - ``application``: the name under which the policy learns the traffic of such jobs, if it learns any;
    - ``licenses``: the floating licences that it holds where it is placed;
    - ``home``: the site where it arrived, -1 for none; ``traffic``: what it asks of links;
    - ``steady``: fewer idle processors, or more on the links, never help it. For other demands that is open: the way
      in which a policy fills sites depends on what is idle, and with less it may find a way that fits;
    - ``tasks``: those of a job of tasks, with their clusters, which are found once;
    - ``lone``: the most idle site takes the whole whenever it can, see ``Policy.most_idle_takes_whole``;
    - ``barred``: sites that it must not go to, whatever is idle there;
    - ``groups``: if tasks are more than one processor, its components by the shape of their tasks; then policies see
      those instead, and all other numbers here are in processors;
    - ``claiming_order``: for components with tasks of several shapes, the order in which they are placed. They are
      claimed in it too, since sites serve claims as they arrive; empty if any order will do.
    """

    __slots__ = (
        "application",
        "barred",
        "bounds",
        "claiming_order",
        "divided",
        "files",
        "flexible",
        "groups",
        "has_files",
        "home",
        "key",
        "least",
        "licenses",
        "lone",
        "policy",
        "reads",
        "rule",
        "shapes",
        "steady",
        "tasks",
        "total",
        "traffic",
        "whole",
    )

    def __init__(
        self, request: Request, policy: Policy, index: Mapping[str, int], *, shared_links: bool = False
    ) -> None:
        self.application = application_of(request, policy)
        self.key = demand_key(request, policy.name, self.application)
        self.barred: tuple[int, ...] = ()
        self.policy = policy
        self.rule = policy.components_policy or policy
        self.flexible = request.flexible is not None
        self.total = request.processors
        self.whole = (self.total,)
        self.reads = _reads(request.components)
        self.files = tuple(dict.fromkeys(read.file for reads in self.reads for read in reads))
        self.has_files = bool(self.files)
        self.licenses = request.licenses
        self.tasks = ClusteredTasks.of(request)
        self.home = _home(request, index)
        self.traffic = traffic_of(request.communication, self.total)
        self.bounds = _bounds(request, policy, len(index))
        self.shapes = () if self.bounds is not None and self.flexible else _shapes(request, index)
        takes_total_whole = request.is_total and self.bounds is None
        self.divided = Demand(request, dividing(policy), index) if takes_total_whole else None
        self.least = _least(policy, self.total, self.bounds, self.shapes)
        free_and_single = len(self.shapes) == 1 and self.shapes[0].ordered == self.whole
        deciding = policy if self.bounds is not None else self.rule
        all_pinned = len(self.shapes) == 1 and not self.shapes[0].order
        any_division = self.bounds == Bounds(1, len(index))
        by_tasks = self.tasks is not None and policy.form is Form.TASKS
        steady = not policy.checked and not by_tasks and _is_monotone(policy, self.traffic, shared_links)
        self.steady = all_pinned or ((free_and_single or any_division) and steady)
        self.lone = (
            deciding.most_idle_takes_whole
            and not self.has_files
            and self.tasks is None
            and (self.bounds is not None or free_and_single)
        )
        self.groups: tuple[TaskGroup, ...] = ()
        self.claiming_order: tuple[int, ...] = ()
        if request.is_shaped:
            self.groups = _groups(self, request, index, shared_links=shared_links)
            self.least = max(group.demand.least * group.shape.processors for group in self.groups)
            self.steady = len(self.groups) == 1 and self.groups[0].demand.steady
            self.lone = False
            if len(self.groups) > 1:
                self.claiming_order = tuple([each for group in self.groups for each in group.components])

    def barring(self, sites: Iterable[int]) -> Demand:
        """Return the same demand for a job that must avoid these sites, and those that it was barred from before."""
        other = copy(self)
        other.barred = tuple(sorted({*self.barred, *sites}))
        other.key = (*(self.key[:-1] if self.barred else self.key), BarredSites(other.barred))
        other.divided = None if self.divided is None else self.divided.barring(sites)
        return other

    def allowing(self, sites: Iterable[int]) -> Demand:
        """Return the same demand for a job that may go to these sites again."""
        again = set(sites)
        if again.isdisjoint(self.barred):
            return self
        other = copy(self)
        other.barred = tuple([site for site in self.barred if site not in again])
        other.key = (*self.key[:-1], BarredSites(other.barred)) if other.barred else self.key[:-1]
        other.divided = None if self.divided is None else self.divided.allowing(again)
        return other

    def allowed(self, processors: Sequence[int]) -> Sequence[int]:
        """Return these processors by site, with none at the barred sites."""
        if not self.barred:
            return processors
        return [0 if site in self.barred else here for site, here in enumerate(processors)]


def _groups(
    demand: Demand, request: Request, index: Mapping[str, int], *, shared_links: bool
) -> tuple[TaskGroup, ...]:
    """Return the groups by shape: the most demanding tasks are placed first, as they have the least choice."""
    by_shape: dict[TaskShape, list[int]] = {}
    for position, component in enumerate(request.components):
        by_shape.setdefault(component.shape or TaskShape(), []).append(position)
    order = sorted(by_shape, key=_choosiness)
    groups = []
    for shape in order:
        positions = tuple(by_shape[shape])
        inner = Demand(_in_tasks(request, shape, positions), demand.policy, index, shared_links=shared_links)
        if not demand.flexible:
            inner.reads = tuple(demand.reads[position] for position in positions)
        groups.append(TaskGroup(shape, positions, inner))
    return tuple(groups)


def _choosiness(shape: TaskShape) -> tuple[int, bool, int, int]:
    return -shape.gpus, not shape.constraint, -shape.memory_bytes, -shape.processors


def _in_tasks(request: Request, shape: TaskShape, positions: Sequence[int]) -> Request:
    """Return the request for these components alone, with a processor for each task."""
    per_task = shape.processors
    components = []
    for position in positions:
        component = request.components[position]
        application = replace(component.application, processors_per_task=1)
        tasks = component.processors // per_task
        components.append(replace(component, processors=tasks, application=application, needs=None))
    flexible, communication = request.flexible, request.communication
    if flexible is not None:
        flexible = Flexibility(
            component_min=-(-flexible.component_min // per_task),
            components_max=flexible.components_max,
            splits=tuple(tuple(part // per_task for part in split) for split in flexible.splits),
        )
    if communication is not None and communication.per_processor_mbit_s is not None:
        communication = replace(communication, per_processor_mbit_s=communication.per_processor_mbit_s * per_task)
    return replace(request, components=tuple(components), flexible=flexible, communication=communication)


def application_of(request: Request, policy: Policy) -> str:
    """Return the name under which a policy learns the traffic of such jobs.

    Empty for a policy that learns nothing, and for a job without a name.
    """
    learns = policy.module is not None and policy.module.module == B5
    return request.name if learns and request.name != JOB_NAME else ""


def demand_key(request: Request, policy_name: str, application: str = "") -> DemandKey:
    """Return everything of a request that a policy can see, hashable: equal keys mean the same demand.

    ``application`` is the result of ``application_of``.
    """
    components = request.components
    more: DemandKey = (application,) if application else ()
    if components[0].shape is not None or (len(components) > 1 and request.is_shaped):
        more = (*more, tuple(component.shape for component in components))
    if request.licenses:
        more = (*more, request.licenses)
    if request.home is not None or request.communication is not None or request.tasks is not None:
        more = (*more, request.home, request.communication, request.tasks, request.task_clusters)
    if len(components) == 1 and components[0].site is None and not components[0].input_files:
        return (policy_name, components[0].processors, request.flexible, *more)
    return (
        policy_name,
        tuple(
            (component.processors, component.site, tuple((file.name, file.mode) for file in component.input_files))
            for component in components
        ),
        request.flexible,
        *more,
    )


def compile_demand(
    request: Request, policy: Policy, index: Mapping[str, int], *, shared_links: bool = False
) -> Demand:
    """Return the request as this policy sees it on these sites. Raises UnknownSiteError for an unknown site.

    ``shared_links`` is True if the grid's network is no star; some policies are not ``steady`` there.
    """
    return Demand(request, policy, index, shared_links=shared_links)


def traffic_of(communication: Communication | None, total: int) -> Traffic:
    """Return what a job of this size sends; nothing if it does not declare any."""
    if communication is None:
        return SILENCE
    pattern, dimensions = communication.pattern.number, communication.dimensions
    if communication.per_processor_mbit_s is not None:
        own_bit_s = communication.per_processor_mbit_s * BIT_S_PER_MBIT_S
    else:
        bisection_bit_s = (communication.bisection_mbit_s or 0.0) * BIT_S_PER_MBIT_S
        own_bit_s = per_processor_bit_s(pattern, dimensions, total, bisection_bit_s)
    return Traffic(pattern, dimensions, own_bit_s, communication.share)


def _home(request: Request, index: Mapping[str, int]) -> int:
    if request.home is None:
        return -1
    if request.home not in index:
        raise UnknownHomeError(request.home, index)
    return index[request.home]


def _least(policy: Policy, total: int, bounds: Bounds | None, shapes: tuple[ComponentSizes, ...]) -> int:
    """Return the processors that some single site must have idle."""
    if bounds is None:
        return min(max(shape.sizes) for shape in shapes)
    if policy.module is not None and policy.module.module == MIGRATION_ONLY:
        return total
    if policy.module is not None and policy.module.module == B3:
        return max(bounds.component_min, chunk_processors(policy.module.chunk, total))
    return bounds.component_min


def _is_monotone(policy: Policy, traffic: Traffic, shared_links: bool) -> bool:
    """Return True if a division that the policy refuses stays refused while less is idle and more is on the links."""
    if policy.module is None:
        return True
    return is_monotone(policy.module.module, traffic.pattern, shared_links)


def _bounds(request: Request, policy: Policy, sites: int) -> Bounds | None:
    flexible = request.flexible
    components = request.components
    if policy.form is Form.LINKS and flexible is None and len(components) == 1 and components[0].site is None:
        return Bounds(components[0].processors, 1)
    if not policy.form.divides or flexible is None or flexible.splits:
        return None
    return Bounds(flexible.component_min, sites if flexible.components_max is None else flexible.components_max)


def _shapes(request: Request, index: Mapping[str, int]) -> tuple[ComponentSizes, ...]:
    if request.flexible is not None and request.flexible.splits:
        return tuple(_shape(split, (-1,) * len(split)) for split in request.flexible.splits)
    sites = []
    for position, component in enumerate(request.components):
        if component.site is None:
            sites.append(-1)
        elif component.site in index:
            sites.append(index[component.site])
        else:
            raise UnknownSiteError(component.site, position, index)
    return (_shape(tuple(component.processors for component in request.components), tuple(sites)),)


def _shape(sizes: tuple[int, ...], sites: tuple[int, ...]) -> ComponentSizes:
    free = [component for component, site in enumerate(sites) if site < 0]
    free.sort(key=lambda component: -sizes[component])
    return ComponentSizes(
        sizes=sizes,
        sites=sites,
        pinned=tuple(component for component, site in enumerate(sites) if site >= 0),
        order=tuple(free),
        ordered=tuple(sizes[component] for component in free),
    )


def _reads(components: tuple[Component, ...]) -> tuple[tuple[FileRead, ...], ...]:
    """Return what each component reads; a chunked file is divided by processors among those that read
    it in chunks."""
    chunked: dict[str, int] = {}
    for component in components:
        for file in component.input_files:
            if file.mode is InputMode.CHUNK:
                chunked[file.name] = chunked.get(file.name, 0) + component.processors
    before = dict.fromkeys(chunked, 0)
    reads = []
    for component in components:
        own = []
        for file in component.input_files:
            if file.mode is InputMode.CHUNK:
                own.append(FileRead(file.name, (before[file.name], component.processors, chunked[file.name])))
                before[file.name] += component.processors
            else:
                own.append(FileRead(file.name, None))
        reads.append(tuple(own))
    return tuple(reads)


def reads_of(demand: Demand, sizes: tuple[int, ...], part: int) -> tuple[FileRead, ...]:
    """Return what component ``part`` reads when the components have these sizes (the parts of a
    flexible job vary)."""
    if not demand.flexible:
        return demand.reads[part]
    share = (sum(sizes[:part]), sizes[part], demand.total)
    return tuple(FileRead(read.file, None if read.chunk is None else share) for read in demand.reads[0])
