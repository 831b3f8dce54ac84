"""Storms: a grid, a workload and faults, all drawn from one seed, for ``koala.simulator.torture.torture`` to run.

Every drawn job could run undisturbed on the drawn grid, so after the storm every job must finish.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import msgspec

from koala.model.grid import (
    AnswerFaults,
    Background,
    Containers,
    ContainerTool,
    Estimates,
    Grid,
    GridSimulation,
    Link,
    LinkGroup,
    Links,
    LocalScheduler,
    Network,
    PairLink,
    Preemption,
    SchedulerParameters,
    Site,
    SiteFaults,
    SiteSimulation,
    Startup,
    StoredFile,
)
from koala.model.messages import AnyEvent, FileChanged, SiteDrained, SiteLost, SiteResumed
from koala.model.request import (
    Application,
    Communication,
    Component,
    Flexibility,
    InputFile,
    InputMode,
    Licenses,
    Pattern,
    Priority,
    Request,
    SiteName,
)
from koala.policies import Catalogue
from koala.policies.interface import View, compile_demand, try_place
from koala.simulator.torture.checkpoints import with_checkpoints
from koala.simulator.torture.order import changes, holds, with_arrays, with_order, with_queue_order
from koala.simulator.torture.outputs import with_outputs
from koala.simulator.torture.shapes import with_shapes
from koala.simulator.torture.spawning import with_spawning
from koala.simulator.torture.traffic import with_traffic
from koala.simulator.workloads.draws import stream
from koala.simulator.workloads.workload import REFUSED, Arrival

# A drawn job fits into this share of the idle grid, so that the sites' own users cannot starve it for ever.
FITS_INTO_SHARE = 0.6
# At most this many draws for a job before a job of one processor takes its place.
DRAWS_MAX = 20


class Storm(msgspec.Struct, frozen=True, kw_only=True):
    """One case. ``cancels`` are (time, index of the arrival); ``operators`` drain sites, change replicas, and restore
    them; ``defects`` are (index of the arrival, the number of messages about its job before the handling of the next
    one raises). ``calm`` means that nothing fails and that plans must hold."""

    seed: int
    grid: Grid
    arrivals: tuple[Arrival, ...]
    cancels: tuple[tuple[float, int], ...] = ()
    operators: tuple[AnyEvent, ...] = ()
    defects: tuple[tuple[int, int], ...] = ()
    calm: bool = False


def draw_storm(seed: int) -> Storm:
    """Return the storm of this seed, always the same."""
    rng = stream(seed, "storm")
    rng_network = stream(seed, "storm", "network")
    rng_startup = stream(seed, "storm", "startup")
    heal_at_s = rng.uniform(1_000.0, 4_000.0)
    sites = tuple(
        _site(rng, index, _startup(rng_startup) if rng_startup.random() < 0.2 else None)
        for index in range(rng.randint(2, 5))
    )
    names = [site.name for site in sites]
    rng_nodes = stream(seed, "storm", "bad nodes")
    if rng_nodes.random() < 0.3:
        sites = tuple(_with_bad_nodes(rng_nodes, site) if rng_nodes.random() < 0.5 else site for site in sites)
    rng_guests = stream(seed, "storm", "guests")
    if rng_guests.random() < 0.4:
        sites = _closed(rng_guests, sites)
    rng_silences = stream(seed, "storm", "silences")
    sites = tuple(_silenced(rng_silences, site, heal_at_s) for site in sites)
    startup = _startup(rng)
    grid = Grid(
        name=f"storm-{seed}",
        sites=sites,
        links=_links(rng, names),
        network=draw_network(rng_network, names),
        files=_files(rng, names),
        scheduler=msgspec.structs.replace(
            _restarts(stream(seed, "storm", "restarts"), _parameters(rng)),
            lost_after_s=rng_silences.choice((None, None, 200.0)),
        ),
        simulation=GridSimulation(
            startup=startup,
            answers=_answers(rng),
            report_interval_s=rng.choice((0.0, 30.0)),
            heal_at_s=heal_at_s,
        ),
    )
    arrivals = _with_guests(rng_guests, grid, _arrivals(rng, rng_network, grid))
    grid = _with_plans(stream(seed, "storm", "plans"), grid)
    grid = _with_preemption(stream(seed, "storm", "preemption"), grid)
    grid = with_early_claims(stream(seed, "storm", "early"), grid)
    grid = with_queue_order(stream(seed, "storm", "queue order"), grid)
    rng_probes = stream(seed, "storm", "probes")
    if rng_probes.random() < 0.3:
        scheduler = msgspec.structs.replace(grid.scheduler, probe_every_s=rng_probes.choice((30.0, 300.0)))
        grid = msgspec.structs.replace(grid, scheduler=scheduler)
    arrivals = _with_programs(stream(seed, "storm", "programs"), arrivals)
    arrivals = _with_refused(stream(seed, "storm", "refused"), arrivals)
    grid, arrivals = _with_images(stream(seed, "storm", "images"), grid, arrivals)
    grid, arrivals = _with_required(stream(seed, "storm", "required"), grid, arrivals)
    arrivals = with_arrays(stream(seed, "storm", "arrays"), arrivals)
    arrivals = with_order(stream(seed, "storm", "order"), arrivals)
    arrivals = with_checkpoints(stream(seed, "storm", "checkpoints"), arrivals)
    grid, arrivals = with_shapes(stream(seed, "storm", "shapes"), grid, arrivals)
    grid, arrivals = with_traffic(stream(seed, "storm", "traffic"), grid, arrivals)
    arrivals = with_outputs(stream(seed, "storm", "outputs"), arrivals, tuple(names))
    arrivals = with_spawning(stream(seed, "storm", "spawning"), grid, arrivals, FITS_INTO_SHARE)
    grid, arrivals = with_licenses(stream(seed, "storm", "licenses"), grid, arrivals, FITS_INTO_SHARE)
    return Storm(
        seed=seed,
        grid=grid,
        arrivals=arrivals,
        cancels=tuple((rng.uniform(0.0, heal_at_s), index) for index in range(len(arrivals)) if rng.random() < 0.1),
        operators=_operators(rng, names, grid.files, heal_at_s)
        + _declared_lost(rng_silences, sites, heal_at_s)
        + holds(stream(seed, "storm", "holds"), arrivals, heal_at_s)
        + changes(stream(seed, "storm", "changes"), arrivals, heal_at_s),
        defects=_defects(stream(seed, "storm", "defects"), len(arrivals)),
    )


def _defects(rng: random.Random, jobs: int) -> tuple[tuple[int, int], ...]:
    """Return the jobs on which our own code raises, early or late in their lives, in some storms."""
    if rng.random() < 0.75:
        return ()
    return tuple((index, rng.randint(1, 25)) for index in range(jobs) if rng.random() < 0.4)


def _startup(rng: random.Random) -> Startup:
    return Startup(
        base_s=rng.choice((0.0, 2.0, 15.0)),
        per_component_s=rng.choice((0.0, 1.0, 5.0)),
        load_factor=rng.choice((0.0, 1.0)),
        jitter=rng.choice((0.0, 0.5)),
    )


def _site(rng: random.Random, index: int, startup: Startup | None) -> Site:
    background = None
    if rng.random() < 0.3:
        background = Background(
            user_load=rng.uniform(0.02, 0.1),
            user_size_mean=2.0,
            user_execution_mean_s=150.0,
            band_low=0.05,
            band_high=0.2,
        )
    return Site(
        name=f"s{index + 1}",
        processors=rng.randint(4, 48),
        quota=rng.choice((1.0, 1.0, 1.0, 0.9, 0.75)),
        simulation=SiteSimulation(
            local_scheduler=rng.choice(list(LocalScheduler)),
            background=background,
            faults=SiteFaults(
                component_failure=rng.choice((0.0, 0.0, 0.05, 0.2, 0.6)),
                application_failure=rng.choice((0.0, 0.0, 0.1, 0.4)),
                outages=((100.0, 400.0),) if rng.random() < 0.1 else (),
                mean_time_between_outages_s=rng.choice((None, None, 800.0, 3_000.0)),
                outage_mean_s=rng.uniform(50.0, 500.0),
            ),
            startup=startup,
        ),
    )


def _links(rng: random.Random, names: list[str]) -> Links:
    def link() -> tuple[float, float]:
        return rng.choice((10.0, 100.0, 1_000.0)), rng.choice((0.0, 0.005, 0.1))

    default = link()
    pairs = []
    for one, name in enumerate(names):
        for other in names[one + 1 :]:
            if rng.random() < 0.3:
                bandwidth_mbit_s, latency_s = link()
                pairs.append(PairLink(between=(name, other), bandwidth_mbit_s=bandwidth_mbit_s, latency_s=latency_s))
    return Links(default=Link(bandwidth_mbit_s=default[0], latency_s=default[1]), pairs=tuple(pairs))


def _files(rng: random.Random, names: list[str]) -> tuple[StoredFile, ...]:
    return tuple(
        StoredFile(
            name=f"f{index + 1}",
            size_bytes=rng.choice((0, 1_000_000, 100_000_000, 400_000_000)),
            replicas=tuple(rng.sample(names, rng.randint(1, min(2, len(names))))),
        )
        for index in range(rng.randint(0, 4))
    )


def _parameters(rng: random.Random) -> SchedulerParameters:
    return SchedulerParameters(
        policy=rng.choice(("WF", "CM", "FCM", "CF")),
        scan_interval_s=rng.choice((0.0, 0.0, 4.0, 30.0, 100.0)),
        high_scans_per_low_scan=rng.randint(1, 3),
        claim_fraction=rng.choice((0.75, 0.5, 1.0)),
        claim_fraction_step=rng.choice((0.125, 0.0, 0.5)),
        restarts_max=None,
        claim_threshold=rng.choice((0.0, 0.0, 0.5, 1.0)),
        error_threshold=rng.randint(1, 5),
        cooldown_s=rng.uniform(50.0, 600.0),
        barrier_timeout_s=rng.uniform(150.0, 400.0),
        answer_timeout_s=rng.uniform(10.0, 60.0),
        check_interval_s=rng.uniform(60.0, 300.0),
        transfer_tries_max=rng.randint(1, 3),
        transfer_patience=rng.uniform(2.0, 10.0),
        hold_placed=rng.random() < 0.3,
        queue_patience_s=rng.choice((None, 2.0, 5.0, 60.0)),
    )


def _restarts(rng: random.Random, parameters: SchedulerParameters) -> SchedulerParameters:
    """Draw how long jobs rest between their runs, and avoid where they failed."""
    return msgspec.structs.replace(
        parameters,
        restart_rest_s=rng.choice((0.0, 1.0, 20.0)),
        avoid_failed_s=rng.choice((0.0, 100.0, 3_600.0, 3_600.0)),
    )


def _with_plans(rng: random.Random, grid: Grid) -> Grid:
    """In most storms plan the first jobs of the queues, by walltimes that are often wrong."""
    plan_depth = rng.choice((0, 1, 1, 2, 8))
    parameters = msgspec.structs.replace(
        grid.scheduler,
        plan_depth=plan_depth,
        default_walltime_s=rng.choice((100.0, 400.0, 3_600.0)),
        ageing_half_s=rng.choice((None, None, 60.0, 600.0)),
        estimates=Estimates.LAST_TWO if plan_depth > 1 and rng.random() < 0.5 else Estimates.WALLTIME,
    )
    return msgspec.structs.replace(grid, scheduler=parameters)


def _with_preemption(rng: random.Random, grid: Grid) -> Grid:
    """In half of the storms let high-priority jobs preempt others for their places, within wide or narrow bounds."""
    parameters = msgspec.structs.replace(
        grid.scheduler,
        preemption=rng.choice(list(Preemption)),
        preempts_per_job_max=rng.choice((1, 3, 16)),
        preempts_per_hour_max=rng.choice((2, 64)),
        preempted_per_job_max=rng.choice((1, 2, 5)),
    )
    return msgspec.structs.replace(grid, scheduler=parameters)


def with_early_claims(rng: random.Random, grid: Grid) -> Grid:
    """In some storms let jobs claim their places before the times of their plans."""
    parameters = msgspec.structs.replace(
        grid.scheduler,
        hold_budget=rng.choice((0.0, 0.0, 0.05, 0.5)),
        hold_budget_per_job=rng.choice((0.02, 0.5)),
        hold_window_s=rng.choice((1_000.0, 10_000.0)),
        hold_ahead_s=rng.choice((30.0, 300.0)),
    )
    return msgspec.structs.replace(grid, scheduler=parameters)


def _answers(rng: random.Random) -> AnswerFaults:
    return AnswerFaults(
        late=rng.choice((0.0, 0.1, 0.3)),
        late_mean_s=rng.uniform(5.0, 120.0),
        twice=rng.choice((0.0, 0.1, 0.3)),
        never=rng.choice((0.0, 0.0, 0.05, 0.2)),
        transfer_break=rng.choice((0.0, 0.1, 0.4)),
    )


def _arrivals(rng: random.Random, rng_network: random.Random, grid: Grid) -> tuple[Arrival, ...]:
    view = View.from_grid(grid)
    view.idle = [int(limit * FITS_INTO_SHARE) for limit in view.limit]
    catalogue = Catalogue.builtin()
    gap_s = rng.choice((5.0, 30.0, 100.0))
    at_s = 0.0
    arrivals = []
    for _ in range(rng.randint(4, 20)):
        at_s += rng.expovariate(1.0 / gap_s)
        request = _request(rng, rng_network, grid, view, catalogue)
        arrivals.append(Arrival(at_s, request, rng.uniform(5.0, 300.0), rng.choice((0.0, 0.3))))
    return tuple(arrivals)


def _closed(rng: random.Random, sites: tuple[Site, ...]) -> tuple[Site, ...]:
    """Return the sites with some of them closed to guests, and at least one open."""
    closed = rng.sample(range(len(sites)), rng.randint(1, len(sites) - 1))
    return tuple(msgspec.structs.replace(site, own_account=index not in closed) for index, site in enumerate(sites))


def _with_bad_nodes(rng: random.Random, site: Site) -> Site:
    """Return the site with some nodes on which nothing runs, or with only such nodes."""
    bad, nodes = rng.choice((1, 2, 1_000)), rng.choice((1, 2, 4, 16))
    faults = msgspec.structs.replace(
        site.simulation.faults, bad_nodes=bad, node_processors=max(1, site.processors // nodes)
    )
    return msgspec.structs.replace(site, simulation=msgspec.structs.replace(site.simulation, faults=faults))


def _with_programs(rng: random.Random, arrivals: tuple[Arrival, ...]) -> tuple[Arrival, ...]:
    """Return the jobs as those of a few users with a few programs each; in some storms there are bad programs, which
    fail wherever they run, and are not restarted for ever."""
    bad = rng.random() < 0.4
    found = []
    for arrival in arrivals:
        breaks = rng.choice((1, 127, 139)) if bad and rng.random() < 0.4 else 0
        program = Application(executable=f"{'bad' if breaks else 'good'}-{rng.randint(1, 3)}")
        components = tuple(
            msgspec.structs.replace(component, application=program) for component in arrival.request.components
        )
        request = msgspec.structs.replace(arrival.request, components=components)
        if breaks:
            request = msgspec.structs.replace(
                request, restarts_max=rng.randint(0, 3), never_on=(1,) if rng.random() < 0.3 else ()
            )
        found.append(arrival._replace(request=request, owner=rng.choice(("ann", "bob", "carol")), breaks=breaks))
    return tuple(found)


def _with_refused(rng: random.Random, arrivals: tuple[Arrival, ...]) -> tuple[Arrival, ...]:
    """In some storms let sites refuse some of the jobs as the job's own fault."""
    if rng.random() > 0.3:
        return arrivals
    found = []
    for arrival in arrivals:
        request = msgspec.structs.replace(arrival.request, restarts_max=rng.randint(0, 3))
        found.append(arrival._replace(request=request, breaks=REFUSED) if rng.random() < 0.1 else arrival)
    return tuple(found)


def _fits_without(grid: Grid, share: float = FITS_INTO_SHARE) -> Callable[[Request, Iterable[SiteName]], bool]:
    """Return a test that a request fits when these sites are closed to it."""
    view = View.from_grid(grid)
    view.idle = [int(limit * share) for limit in view.limit]
    catalogue = Catalogue.builtin()

    def fits(request: Request, closed: Iterable[SiteName]) -> bool:
        policy = catalogue.choose(request, grid.scheduler.policy)
        barred = [view.index[name] for name in closed]
        return try_place(compile_demand(request, policy, view.index).barring(barred), view) is not None

    return fits


def _with_guests(rng: random.Random, grid: Grid, arrivals: tuple[Arrival, ...]) -> tuple[Arrival, ...]:
    """Turn some of the jobs that fit at the open sites into guests'."""
    closed = grid.closed_to_guests
    if not closed:
        return arrivals
    fits = _fits_without(grid)
    return tuple(
        arrival._replace(guest=True) if rng.random() < 0.5 and fits(arrival.request, closed) else arrival
        for arrival in arrivals
    )


def _with_images(rng: random.Random, grid: Grid, arrivals: tuple[Arrival, ...]) -> tuple[Grid, tuple[Arrival, ...]]:
    """In some storms let one or more sites run container images, and give some of the jobs that fit there an
    image."""
    if rng.random() < 0.7:
        return grid, arrivals
    those = rng.sample(range(len(grid.sites)), rng.randint(1, len(grid.sites)))
    tool = Containers(tool=rng.choice(tuple(ContainerTool)))
    sites = [
        msgspec.structs.replace(site, containers=tool if index in those else None)
        for index, site in enumerate(grid.sites)
    ]
    grid = msgspec.structs.replace(grid, sites=tuple(sites))
    fits = _fits_without(grid)
    found = []
    for arrival in arrivals:
        closed = {site.name for site in sites if not site.runs_images(arrival.request.job_type)}
        if arrival.guest:
            closed.update(grid.closed_to_guests)
        if rng.random() < 0.5 and fits(arrival.request, closed):
            components = tuple(
                msgspec.structs.replace(
                    component, application=msgspec.structs.replace(component.application, image="solver.sif")
                )
                for component in arrival.request.components
            )
            arrival = arrival._replace(request=msgspec.structs.replace(arrival.request, components=components))
        found.append(arrival)
    return grid, tuple(found)


def _with_required(rng: random.Random, grid: Grid, arrivals: tuple[Arrival, ...]) -> tuple[Grid, tuple[Arrival, ...]]:
    """In some storms let one or more sites provide a launch program, and some of the jobs that fit there require
    it."""
    if rng.random() < 0.8:
        return grid, arrivals
    those = rng.sample(range(len(grid.sites)), rng.randint(1, len(grid.sites)))
    sites = [
        msgspec.structs.replace(site, provides=("srun",) if index in those else ())
        for index, site in enumerate(grid.sites)
    ]
    grid = msgspec.structs.replace(grid, sites=tuple(sites))
    fits = _fits_without(grid)
    found = []
    for arrival in arrivals:
        request = arrival.request
        closed = {site.name for site in sites if not site.provides}
        if arrival.guest:
            closed.update(grid.closed_to_guests)
        if rng.random() < 0.5 and not request.has_image and fits(request, closed):
            components = tuple(
                msgspec.structs.replace(
                    component, application=msgspec.structs.replace(component.application, requires=("srun",))
                )
                for component in request.components
            )
            arrival = arrival._replace(request=msgspec.structs.replace(request, components=components))
        found.append(arrival)
    return grid, tuple(found)


def with_licenses(
    rng: random.Random, grid: Grid, arrivals: tuple[Arrival, ...], share: float
) -> tuple[Grid, tuple[Arrival, ...]]:
    """In some storms add pools of licences, of sites or for all of them, and let some of the jobs that fit hold
    some."""
    if rng.random() < 0.7:
        return grid, arrivals

    def pools(likely: float) -> Licenses:
        return tuple((name, rng.randint(1, 4)) for name in ("ansys", "matlab") if rng.random() < likely)

    sites = tuple(msgspec.structs.replace(site, licenses=pools(0.5)) for site in grid.sites)
    grid = msgspec.structs.replace(grid, sites=sites, licenses=pools(0.5))
    fits, known = _fits_without(grid, share), View.from_grid(grid).licenses
    found = []
    for arrival in arrivals:
        wanted = tuple((name, rng.randint(1, 2)) for name in ("ansys", "matlab") if rng.random() < 0.5)
        request = msgspec.structs.replace(arrival.request, licenses=wanted)
        closed = {
            site.name
            for index, site in enumerate(sites)
            if any(known.most(name, index) < count for name, count in wanted)
            or (request.has_image and not site.runs_images(request.job_type))
            or not set(request.required).issubset(site.provides)
        }
        if arrival.guest:
            closed.update(grid.closed_to_guests)
        found.append(arrival._replace(request=request) if wanted and fits(request, closed) else arrival)
    return grid, tuple(found)


def _request(rng: random.Random, rng_network: random.Random, grid: Grid, view: View, catalogue: Catalogue) -> Request:
    """Return a job that fits, drawn repeatedly until it does."""

    def fits(request: Request) -> bool:
        policy = catalogue.choose(request, grid.scheduler.policy)
        return try_place(compile_demand(request, policy, view.index), view) is not None

    for _ in range(DRAWS_MAX):
        request = any_request(rng, grid)
        if fits(request):
            talking = draw_communication(rng_network, request, grid.network, view.names)
            return talking if fits(talking) else request
    return Request(components=(Component(processors=1),))


def any_request(rng: random.Random, grid: Grid) -> Request:
    """Return any job of any form, whether it fits or not."""
    names = [site.name for site in grid.sites]
    files: tuple[InputFile, ...] = ()
    if grid.files and rng.random() < 0.5:
        chosen = rng.sample(grid.files, rng.randint(1, min(2, len(grid.files))))
        files = tuple(InputFile(name=file.name, mode=rng.choice(list(InputMode))) for file in chosen)
    flexible = None
    kind = rng.random()
    if kind < 0.25:
        sizes = [rng.randint(2, 40)]
        if rng.random() < 0.25:
            half = sizes[0] // 2
            flexible = Flexibility(splits=((sizes[0],), (half, sizes[0] - half)))
        else:
            flexible = Flexibility(component_min=rng.choice((1, 2)), components_max=rng.choice((None, 2, 3)))
    elif kind < 0.55:
        sizes = [rng.randint(1, 24)]
    else:
        sizes = [rng.randint(1, 16) for _ in range(rng.randint(2, 4))]
    pins = kind >= 0.85
    return Request(
        components=tuple(
            Component(
                processors=size, input_files=files, site=rng.choice(names) if pins and rng.random() < 0.7 else None
            )
            for size in sizes
        ),
        flexible=flexible,
        priority=Priority.HIGH if rng.random() < 0.4 else Priority.LOW,
        policy=rng.choice((None, "WF", "CM", "FCM", "CF")),
        placement_tries_max=rng.randint(1, 20) if rng.random() < 0.05 else None,
        claiming_tries_max=rng.randint(1, 5) if rng.random() < 0.05 else None,
        restarts_max=rng.randint(0, 2) if rng.random() < 0.1 else None,
        walltime_s=rng.uniform(100.0, 400.0) if rng.random() < 0.1 else None,
    )


def may_fail(request: Request) -> bool:
    """Return True if the request itself sets a limit that a storm can exhaust."""
    limits = (request.placement_tries_max, request.claiming_tries_max, request.restarts_max, request.walltime_s)
    return any(limit is not None for limit in limits)


def _operators(
    rng: random.Random, names: list[str], files: tuple[StoredFile, ...], heal_at_s: float
) -> tuple[AnyEvent, ...]:
    events: list[AnyEvent] = []
    for file in files:
        if rng.random() < 0.2:  # forgotten for a while, then restored with other replicas
            gone_at = rng.uniform(0.0, heal_at_s)
            back_at = rng.uniform(gone_at, heal_at_s)
            replicas = tuple(rng.sample(names, rng.randint(1, min(2, len(names)))))
            events.append(FileChanged(at=gone_at, file=file.name, size_bytes=file.size_bytes, replicas=()))
            events.append(FileChanged(at=back_at, file=file.name, size_bytes=file.size_bytes, replicas=replicas))
    for name in names:
        if rng.random() < 0.15:
            drained_at = rng.uniform(0.0, heal_at_s)
            events.append(SiteDrained(at=drained_at, site=name))
            events.append(SiteResumed(at=rng.uniform(drained_at, heal_at_s), site=name))
    return tuple(events)


def _silenced(rng: random.Random, site: Site, heal_at_s: float) -> Site:
    """Return a site that is unreachable for long, once or twice, and comes back with all that it runs."""
    silences = []
    while rng.random() < 0.2:
        from_s = rng.uniform(0.0, heal_at_s)
        silences.append((from_s, min(heal_at_s, from_s + rng.choice((60.0, 300.0, 1_000.0)))))
    if not silences:
        return site
    faults = msgspec.structs.replace(site.simulation.faults, silences=tuple(silences))
    simulation = msgspec.structs.replace(site.simulation, faults=faults)
    lost_after_s = rng.choice((None, 100.0))
    return msgspec.structs.replace(site, simulation=simulation, lost_after_s=lost_after_s)


def _declared_lost(rng: random.Random, sites: tuple[Site, ...], heal_at_s: float) -> tuple[AnyEvent, ...]:
    """Return the events by which operators declare silent sites lost, and one answering site by mistake."""
    events: list[AnyEvent] = []
    for site in sites:
        for from_s, to_s in site.simulation.faults.silences:
            if rng.random() < 0.6:
                events.append(SiteLost(at=rng.uniform(from_s, to_s), site=site.name))
        if rng.random() < 0.05:
            events.append(SiteLost(at=rng.uniform(0.0, heal_at_s), site=site.name))
    return tuple(events)


# A module that considers a job's own bandwidth refuses some for ever; the draw of a job detects that.
_ANY_PATTERN = ("Initial", "Migration-Only", "B1", "B1(lslt=0.5)", "B2", "B3", "B4")
_ALL_TO_ALL = ("A1", "A1(order=most-free)")


def draw_network(rng: random.Random, names: list[SiteName]) -> Network | None:
    """Return a network with narrow links or without limits, or none at all."""
    if rng.random() < 0.4:
        return None
    groups: tuple[LinkGroup, ...] = ()
    if len(names) > 2 and rng.random() < 0.3:
        members = tuple(rng.sample(names, 2))
        groups = (LinkGroup(name="group", members=members, uplink_mbit_s=rng.choice((100.0, 400.0))),)
    return Network(uplink_mbit_s=rng.choice((100.0, 400.0, None)), groups=groups)


def draw_communication(
    rng: random.Random, request: Request, network: Network | None, names: list[SiteName]
) -> Request:
    """Return the request unchanged, or as one that communicates, has a home, or depends on the load of links."""
    if rng.random() < 0.5:
        return request
    pattern = rng.choice(list(Pattern))
    policy = request.policy
    if request.is_total and rng.random() < 0.7:
        policy = rng.choice(_ANY_PATTERN)
        if network is not None and not network.groups and pattern is Pattern.ALL_TO_ALL:
            policy = rng.choice((*_ANY_PATTERN, *_ALL_TO_ALL))
    return msgspec.structs.replace(
        request,
        policy=policy,
        home=rng.choice((None, *names)),
        communication=Communication(
            pattern=pattern, bisection_mbit_s=rng.choice((20.0, 100.0, 300.0)), share=rng.choice((0.3, 0.9))
        ),
    )
