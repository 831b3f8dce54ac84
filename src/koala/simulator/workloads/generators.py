"""From a workload file to jobs: every draw of a generator, in a fixed order, from its own stream.

The draws do not depend on the requests of the jobs: the same seed gives the same arrivals, applications, sizes and
execution times to a non-fixed workload and to its flexible variant.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial

from koala.descriptions.job.task_graph import spawned_of
from koala.descriptions.workload.communication import BandwidthsText, GeneratedCommunicationText
from koala.descriptions.workload.form import (
    ApplicationModelText,
    DistributionText,
    ExecutionText,
    GeneratorText,
    MixText,
    RequestKind,
    SizesText,
    SizeText,
    WorkloadFile,
    WorkloadText,
)
from koala.model.grid import Grid, StoredFile
from koala.model.request import (
    Application,
    Communication,
    Component,
    Flexibility,
    InputFile,
    Priority,
    Request,
    SiteName,
)
from koala.policies import Catalogue, UnknownPolicyError
from koala.policies.errors import PolicyParameterError, suggest
from koala.simulator.workloads.draws import Choice, Constant, Distribution, Exponential, Uniform, stream
from koala.simulator.workloads.workload import Arrival, Source, Workload, WorkloadError


def workload_from_file(file: WorkloadFile) -> Workload:
    """Return the workload that a file describes.

    >>> from koala.simulator import example_workload, workload_from_file
    >>> workload_from_file(example_workload("koala2006-w1")).name
    'koala2006-w1'
    """
    text = file.text
    sources: list[Source] = [
        _Generator(text, generator, number).arrivals for number, generator in enumerate(text.generate)
    ]
    if text.jobs:
        sources.append(_Listed(file).arrivals)
    return Workload(
        sources,
        len(text.jobs) + sum(generator.jobs for generator in text.generate),
        name=text.name,
        hold_when_waiting=text.hold_when_waiting,
        files=_Files(text).stored,
        check=partial(check_names, file),
    )


def _distribution(text: DistributionText) -> Distribution:
    if text.uniform is not None:
        return Uniform(*text.uniform)
    if text.exponential is not None:
        return Exponential(text.exponential)
    assert text.constant is not None, "checked when it was read"
    return Constant(text.constant)


class ExecutionModel:
    """The execution time of a job of a given size on one cluster."""

    def __init__(self, text: ExecutionText) -> None:
        self._table = sorted(text.by_size.items()) if text.by_size is not None else []
        self._distribution = None if self._table else _distribution(text)

    def draw(self, processors: int, rng: random.Random) -> float:
        """Draw its execution time in seconds."""
        if self._distribution is not None:
            return self._distribution.draw(rng)
        for (size, time_s), (next_size, next_s) in zip(self._table, self._table[1:], strict=False):
            if size <= processors < next_size:
                return time_s + (next_s - time_s) * (processors - size) / (next_size - size)
        return self._table[-1][1]


def _slow_down(application: ApplicationModelText | None) -> tuple[float, float, float]:
    """Return the fraction by which each further cluster slows it down, and the shares of it that depend on the
    links."""
    if application is None:
        return 0.0, 0.0, 0.0
    return application.per_extra_cluster, application.bandwidth_share, application.latency_share


class _Files:
    """The files of a workload."""

    def __init__(self, text: WorkloadText) -> None:
        self._text = text

    def stored(self, grid: Grid, seed: int) -> tuple[StoredFile, ...]:
        sites = [site.name for site in grid.sites]
        taken = {file.name for file in grid.files}
        rng = stream(seed, "files")
        files = []
        for name, file in self._text.files.items():
            if name in taken:
                raise WorkloadError(f"{self._text.name}: the grid already has a file {name}; rename one of the two")
            replicas = file.replicas.sites
            if replicas is None:
                count = file.replicas.drawn or 0
                if count > len(sites):
                    raise WorkloadError(
                        f"{self._text.name}: {name} wants {count} replicas and the grid has {len(sites)} sites; "
                        "ask for fewer"
                    )
                replicas = tuple(rng.sample(sites, count))
            for site in replicas:
                if site not in sites:
                    raise WorkloadError(
                        f"{self._text.name}: {name} has a replica at {site}, which the grid does not have; "
                        f"its sites are {', '.join(sites)}"
                    )
            files.append(StoredFile(name=name, size_bytes=file.bytes, replicas=replicas))
        return tuple(files)


class _Listed:
    """The jobs listed in a file."""

    def __init__(self, file: WorkloadFile) -> None:
        self._file = file

    def arrivals(self, grid: Grid, seed: int) -> Iterator[Arrival]:
        text = self._file.text
        rng = stream(seed, "workload", "listed")
        arrivals = []
        for listed, request in zip(text.jobs, self._file.requests, strict=True):
            application = text.applications.get(request.components[0].application.name)
            slowdown = _slow_down(application)
            if listed.per_extra_cluster is not None:
                slowdown = (listed.per_extra_cluster, *slowdown[1:])
            execution = listed.execution_s
            if execution is None:
                assert application is not None, "checked when it was read"
                execution = application.execution_s
            execution_s = ExecutionModel(execution).draw(request.processors, rng)
            spawns = [(each.after_s, spawned_of(each.tasks, each.edges)) for each in listed.spawns]
            spawns.sort(key=lambda each: each[0])
            arrivals.append(Arrival(listed.at_s, request, execution_s, *slowdown, spawns=tuple(spawns)))
        arrivals.sort(key=lambda arrival: arrival.at_s)
        return iter(arrivals)


class _Generator:
    """Jobs drawn by one generator of a file."""

    def __init__(self, workload: WorkloadText, text: GeneratorText, number: int) -> None:
        self._text = text
        self._number = number
        self._workload = workload.name
        self._interarrival = _distribution(text.interarrival_s)
        self._mix = Choice([mix.weight for mix in text.mix])
        self._sizes = [Choice([size.weight for size in mix.sizes]) for mix in text.mix]
        self._models: list[tuple[ExecutionModel, tuple[float, float, float]]] = []
        for mix in text.mix:
            application = workload.applications.get(mix.application)
            execution = text.execution_s
            if execution is None:
                assert application is not None, "checked when it was read"
                execution = application.execution_s
            self._models.append((ExecutionModel(execution), _slow_down(application)))
        self._communication = None if text.communication is None else CommunicationDraw(text.communication)
        self._high_share = text.priority.high / (text.priority.high + text.priority.low)

    def arrivals(self, grid: Grid, seed: int) -> Iterator[Arrival]:
        """Draw the jobs one by one. Every draw is made for every job, even if it has no effect."""
        rng = stream(seed, "workload", str(self._number))
        rng_sites = stream(seed, "workload", str(self._number), "sites")
        rng_homes = stream(seed, "workload", str(self._number), "homes")
        rng_communication = stream(seed, "workload", str(self._number), "communication")
        sites = [site.name for site in grid.sites]
        at_s = self._text.start_s
        homes = None if self._text.home is None else HomeDraw(self._text.home, sites)
        communicating = self._communication
        remembers = communicating is None or not communicating.is_continuous
        requests: dict[object, Request] = {}
        files = self._text.input_files
        for _ in range(self._text.jobs):
            at_s += self._interarrival.draw(rng)
            which = self._mix.draw(rng)
            mix = self._text.mix[which]
            size = mix.sizes[self._sizes[which].draw(rng)]
            processors = _draw_size(size.processors, rng)
            components = self._draw_components(size, processors, rng)
            high = rng.random() < self._high_share
            file = files[int(rng.random() * len(files))] if files else None
            model, slowdown = self._models[which]
            execution_s = model.draw(processors, rng)
            pinned = self._draw_sites(sites, components, rng_sites)
            home = None if homes is None else homes.draw(rng_homes)
            communication = None if communicating is None else communicating.draw(rng_communication)
            key = which, processors, components, high, file, pinned, home, communication
            request = requests.get(key)
            if request is None:
                request = self._request(mix, processors, components, high, file, pinned, home, communication)
                if remembers:
                    requests[key] = request
            yield Arrival(at_s, request, execution_s, *slowdown)

    def _draw_components(self, size: SizeText, processors: int, rng: random.Random) -> int:
        most = self._text.component_max
        allowed = [
            count
            for count in size.components
            if count <= processors and (most is None or -(-processors // count) <= most)
        ]
        if not allowed:
            raise WorkloadError(
                f"{self._workload}: {processors} processors fit none of the components {list(size.components)} "
                "under component_max; add a number of components that does"
            )
        return allowed[int(rng.random() * len(allowed))]

    def _draw_sites(self, sites: Sequence[str], components: int, rng: random.Random) -> tuple[str, ...]:
        """Draw sites for a fixed request, distinct as far as there are enough; more components reuse them in turn."""
        if self._text.request is not RequestKind.FIXED:
            return ()
        order = rng.sample(sites, len(sites))
        return tuple(order[index % len(order)] for index in range(components))

    def _request(
        self,
        mix: MixText,
        processors: int,
        components: int,
        high: bool,
        file: str | None,
        pinned: tuple[str, ...],
        home: SiteName | None,
        communication: Communication | None,
    ) -> Request:
        text = self._text
        application = Application(executable=mix.application)
        inputs = () if file is None else (InputFile(name=file, mode=text.input_mode),)
        flexible = text.request is RequestKind.FLEXIBLE
        sizes = [processors] if flexible else equal_parts(processors, components)
        return Request(
            name=mix.application,
            components=tuple(
                Component(
                    processors=part,
                    application=application,
                    input_files=inputs,
                    site=pinned[index] if pinned else None,
                )
                for index, part in enumerate(sizes)
            ),
            flexible=Flexibility() if flexible else None,
            priority=Priority.HIGH if high else Priority.LOW,
            policy=text.policy,
            walltime_s=text.walltime,
            home=home,
            communication=communication,
        )


def _draw_size(sizes: SizesText, rng: random.Random) -> int:
    least, most = sizes.bounds
    return least if least == most else rng.randint(least, most)


def equal_parts(processors: int, components: int) -> list[int]:
    """Return the processors divided as evenly as possible, the larger parts first.

    >>> from koala.simulator import equal_parts
    >>> equal_parts(10, 4)
    [3, 3, 2, 2]
    """
    each, more = divmod(processors, components)
    return [each + 1] * more + [each] * (components - more)


class HomeDraw:
    """The site where each job arrives: by weight, or with equal chances without weights."""

    def __init__(self, weights: dict[SiteName, float], sites: Sequence[SiteName]) -> None:
        self._sites = list(weights) or list(sites)
        self._choice = Choice([weights.get(site, 1.0) for site in self._sites])

    def draw(self, rng: random.Random) -> SiteName:
        """Draw the home of the next job."""
        return self._sites[self._choice.draw(rng)]


class CommunicationDraw:
    """The communication of each job. Every draw is made for every job, even if it has no effect."""

    def __init__(self, text: GeneratedCommunicationText) -> None:
        self._patterns = list(text.pattern)
        self._pattern = Choice(list(text.pattern.values()))
        self._bisection = text.bisection_mbit_s
        self._per_processor = text.per_processor_mbit_s
        self._share = text.share
        self._dimensions = text.dimensions

    @property
    def is_continuous(self) -> bool:
        """True if hardly any two jobs draw the same value, so that caching draws has no use."""
        bandwidths = self._bisection or self._per_processor
        return bandwidths is not None and bandwidths.uniform is not None

    def draw(self, rng: random.Random) -> Communication:
        """Draw the communication of the next job."""
        return Communication(
            pattern=self._patterns[self._pattern.draw(rng)],
            bisection_mbit_s=_bandwidth(self._bisection, rng),
            per_processor_mbit_s=_bandwidth(self._per_processor, rng),
            share=self._share,
            dimensions=self._dimensions,
        )


def _bandwidth(text: BandwidthsText | None, rng: random.Random) -> float | None:
    if text is None:
        return None
    if text.uniform is not None:
        return Uniform(*text.uniform).draw(rng)
    if text.choices is not None:
        return text.choices[int(rng.random() * len(text.choices))]
    assert text.constant is not None, "checked when it was read"
    return Constant(text.constant).draw(rng)


def check_names(file: WorkloadFile, grid: Grid, catalogue: Catalogue) -> None:
    """Raise WorkloadError for the first name that the grid, its files or the catalogue do not have."""
    known = {
        "site": dict.fromkeys(site.name for site in grid.sites),
        "input file": dict.fromkeys([*(stored.name for stored in grid.files), *file.text.files]),
    }
    for who, what, name in _names(file):
        if what == "policy":
            _check_policy(who, name, catalogue)
        elif name not in known[what]:
            raise WorkloadError(f"{who} names the {what} {name!r}; {suggest(name, known[what])}")


def _check_policy(who: str, name: str, catalogue: Catalogue) -> None:
    try:
        catalogue.find(name)
    except PolicyParameterError as error:
        raise WorkloadError(f"{who}: {error.for_user()}") from None
    except UnknownPolicyError as error:
        raise WorkloadError(f"{who} names the policy {error.name!r}; {suggest(error.name, error.known)}") from None


def _names(file: WorkloadFile) -> Iterator[tuple[str, str, str]]:
    """Yield every name with its origin and its kind."""
    for number, generator in enumerate(file.text.generate, 1):
        who = f"generator {number}"
        if generator.policy is not None:
            yield who, "policy", generator.policy
        for name in generator.home or ():
            yield who, "site", name
        for name in generator.input_files:
            yield who, "input file", name
    for number, request in enumerate(file.requests, 1):
        who = f"job {number} ({request.name})"
        if request.policy is not None:
            yield who, "policy", request.policy
        if request.home is not None:
            yield who, "site", request.home
        for component in request.components:
            if component.site is not None:
                yield who, "site", component.site
            for read in component.input_files:
                yield who, "input file", read.name
