"""The grid as its owner describes it: sites, links, files, the scheduler's parameters, and how to simulate it all.

Plain frozen values; ``koala.descriptions.grid.form`` reads them from a grid file. The same values serve the
simulator and the live scheduler; only the ``simulation`` parts are for the simulator alone.
"""

from __future__ import annotations

import enum

import msgspec

from koala.model.dendrogram import Machine
from koala.model.nodes import NodeClass
from koala.model.outputs import COLLECT_S_MAX, OUTPUT_BYTES_MAX, CollectLimits
from koala.model.request import FileName, JobType, SiteName

# Limits on one grid file.
SITES_MAX = 10_000
FILES_MAX = 1_000_000
POLICY_FILES_MAX = 16
NETWORK_GROUPS_MAX = 1_000
NETWORK_LINKS_MAX = 1_000
ROUTES_MAX = 10_000
NODES_NAMED_MAX = 10_000
# How often a job starts again after failures that are blamed on sites, where the grid file says nothing else.
SITE_RESTARTS_MAX = 100
# A job whose runs fail rests no longer than this before it is placed again.
RESTART_REST_S_MAX = 600.0
# So many restarts a job may have without a rest, where the grid asks for none. From then on it rests all the same: an
# application that fails at once and may restart for ever would keep the scheduler and a site busy for nothing.
RESTARTS_WITHOUT_REST_MAX = 100
# How many jobs of a queue may have plans.
PLAN_DEPTH_MAX = 1_000
# How many have them where the grid file says nothing else; the papers' grids have none.
PLAN_DEPTH_DEFAULT = 1
# The order of the queues in parameters that are made in code, and in a grid file that says nothing else.
FCFS = "fcfs"
ORDER_DEFAULT = "round-robin"
# First come, first served with one plan a queue.
EASY = "easy"
PLAN_DEPTH_OF_EASY = 1
# No order keeps a job waiting longer than this for those that came later, where the grid file says nothing else.
ORDER_PATIENCE_S = 86_400.0
# Seconds between scans where a grid file says nothing: none, whatever could help brings a scan.
SCAN_INTERVAL_S_DEFAULT = 0.0
# How often a link between live sites is probed, where the grid file says nothing else.
PROBE_EVERY_S = 3_600.0
# How long plans believe that a job without a walltime runs, where the grid file says nothing else.
DEFAULT_WALLTIME_S = 86_400.0
# Where a grid says nothing else: so many jobs one job may preempt for its places, all together within an hour, and so
# often a job is preempted.
PREEMPTS_PER_JOB_MAX = 16
PREEMPTS_PER_HOUR_MAX = 64
PREEMPTED_PER_JOB_MAX = 2

# The power of a processor of which nothing is said, in MFlop/s.
NODE_POWER = 1_000.0


class SiteKind(enum.StrEnum):
    """The kinds of sites without a batch system. Any other kind is the name of a batch system."""

    SIMULATED = "simulated"
    LOCAL = "local"


class Claims(enum.StrEnum):
    """How processors of a batch system are claimed for the moment at which all components of a job start."""

    BARRIER = "barrier"  # the component's job starts as soon as it can, and waits for the others
    RESERVATION = "reservation"  # processors are reserved from the job's start time on; others use them until then


class Preemption(enum.StrEnum):
    """When a high-priority job may preempt low-priority ones."""

    PLACES = "places"  # when it finds no places, and when it cannot claim those that it has
    CLAIMING_ONLY = "claiming-only"  # when it cannot claim the places that it has


class LocalScheduler(enum.StrEnum):
    """How a simulated site's own scheduler serves its queue."""

    FCFS = "fcfs"
    FIRST_FIT = "first_fit"
    EASY = "easy"


PLAN_DEPTH_OF_EASY = 1


class BandOver(enum.StrEnum):
    """Of what the load of other users is held inside its band, in a simulation."""

    SITE = "site"  # of each site
    GRID = "grid"  # of all sites that have one, together


class Background(msgspec.Struct, frozen=True, kw_only=True):
    """A site's own users, and the dummy jobs that hold their load inside a band (fractions of the site).

    Users arrive with exponential gaps and run exponential times; ``user_load`` is the load they offer on
    average. Below ``band_low`` dummies are injected; above ``band_high`` dummies are killed. When what the users
    of all sites want together stays above all their bands for longer than ``void_after_s`` the run is void.
    Users are drawn by the seed of the run, or by ``seed``: then runs that differ in all else have the same ones.
    """

    user_load: float = 0.1
    user_size_mean: float = 4.0
    user_execution_mean_s: float = 600.0
    band_low: float = 0.15
    band_high: float = 0.20
    void_after_s: float = 60.0
    seed: int | None = None


class SiteFaults(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong at one simulated site.

    ``component_failure`` is the chance that the site breaks a component started here before its application ends,
    ``application_failure`` the chance that the application itself returns failure there;
    ``outages`` are (from, to) times at which the whole site is down: what it held is lost, and nothing starts.
    ``mean_time_between_outages_s`` draws further outages of ``outage_mean_s``; None draws none. ``bad_nodes`` of its
    nodes, drawn by the seed, are misconfigured: every application that touches one ends at once with exit code 127.
    For that the site has nodes of ``node_processors`` each.
    ``silences`` are times at which the site cannot be reached, and all that it holds runs on.
    """

    component_failure: float = 0.0
    application_failure: float = 0.0
    outages: tuple[tuple[float, float], ...] = ()
    silences: tuple[tuple[float, float], ...] = ()
    mean_time_between_outages_s: float | None = None
    outage_mean_s: float = 600.0
    bad_nodes: int = 0
    node_processors: int = 1


class Startup(msgspec.Struct, frozen=True, kw_only=True):
    """How long a component takes from the claim to the barrier (the middleware's overhead), in a simulation.

    ``(base_s + per_component_s * (components - 1)) * (1 + load_factor * load) * jitter``, where load is the
    used share of the component's site and jitter is uniform between 1 - ``jitter`` and 1 + ``jitter``.
    """

    base_s: float = 0.0
    per_component_s: float = 0.0
    load_factor: float = 0.0
    jitter: float = 0.0


class AnswerFaults(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to answers and commands between the scheduler and simulated sites, as chances per message."""

    late: float = 0.0
    late_mean_s: float = 60.0
    twice: float = 0.0
    never: float = 0.0
    transfer_break: float = 0.0


class SiteSimulation(msgspec.Struct, frozen=True, kw_only=True):
    """How one site behaves in a simulation. ``startup`` is how its components start; None is as in the whole grid."""

    local_scheduler: LocalScheduler = LocalScheduler.FIRST_FIT
    background: Background | None = None
    faults: SiteFaults = SiteFaults()
    startup: Startup | None = None


class TrafficSimulation(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs really send, and when sites tell of it: so long after the start of a component, and again each time
    that has doubled. A job sends what it declares times a factor that is drawn between these two, once for a name."""

    report_after_s: float = 30.0
    factor_low: float = 1.0
    factor_high: float = 1.0


class GridSimulation(msgspec.Struct, frozen=True, kw_only=True):
    """How the whole grid behaves in a simulation.

    ``report_interval_s`` is how often a site tells the scheduler its state; 0 tells every change at once.
    ``background_band`` is of what the background load is held inside its band: of each site, or of the grid.
    Faults of answers stop at ``heal_at_s`` (as do drawn outages and component failures); None never heals. Without
    ``traffic`` jobs send what they declare, and nobody measures it.
    """

    startup: Startup = Startup()
    answers: AnswerFaults = AnswerFaults()
    report_interval_s: float = 0.0
    background_band: BandOver = BandOver.SITE
    heal_at_s: float | None = None
    traffic: TrafficSimulation | None = None


class BatchSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a site under a batch system is reached and used.

    ``work_directory`` is a directory that all its nodes see; '~/' in front of it is the user's home there. Commands
    run on this machine, or with ``ssh`` at that host of the user's ssh configuration; ``through`` are words in front
    of every command, such as ``ip netns exec NAME``; ``environment`` is set for every command. Components are
    submitted to ``queue`` (a partition or a queue) for ``account``, with ``submit_options`` for what has no name
    here. ``own`` are the keys that its batch system alone has, with their values. ``job_environment`` and
    ``search_path`` (in front of PATH) are for the components. Components of other sites reach a node at ``host``
    where all share one address, at its address in ``network`` (such as 10.0.0.0/8), or else by its name.
    ``partitions`` are what jobs ask for by other names: such a component goes there instead.
    """

    work_directory: str
    ssh: str | None = None
    through: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    queue: str | None = None
    account: str | None = None
    own: tuple[tuple[str, str], ...] = ()
    submit_options: tuple[str, ...] = ()
    job_environment: tuple[tuple[str, str], ...] = ()
    search_path: tuple[str, ...] = ()
    claims: Claims = Claims.BARRIER
    host: str | None = None
    network: str | None = None
    partitions: tuple[tuple[str, str], ...] = ()

    def queue_for(self, partition: str | None) -> str | None:
        """The partition or queue of a component that asks for this one."""
        return dict(self.partitions).get(partition or "", self.queue)


class ContainerTool(enum.StrEnum):
    """What starts a program in a container image."""

    APPTAINER = "apptainer"
    CHARLIECLOUD = "charliecloud"
    ENROOT = "enroot"
    PODMAN = "podman"


class Containers(msgspec.Struct, frozen=True, kw_only=True):
    """How a site runs container images: with which tool, and where those are that a job names without a path."""

    tool: ContainerTool
    images: str | None = None

    @property
    def program(self) -> str:
        """The tool's command."""
        return "ch-run" if self.tool is ContainerTool.CHARLIECLOUD else str(self.tool)

    def image(self, name: str) -> str:
        """What the tool is given for an image that a job names: a path or an address is taken as it is."""
        if self.images is None or name.startswith("/") or "://" in name:
            return name
        return f"{self.images.rstrip('/')}/{name}"


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """One autonomous cluster. ``quota`` is the fraction that may be in use before we take no more of it.

    ``uplink_mbit_s`` is the capacity of its own link in the grid's ``network``; None is as the network says.

    For jobs of tasks: ``man`` and ``wan`` are the region and the wide area that it is in, None as the network's
    groups say; ``nodes`` are processors with a power and a load of their own, and the others have ``node_power``
    (MFlop/s) and ``node_load``.

    ``node_classes`` are its nodes with their processors, memory and GPUs, all free, where the grid file says so; a
    batch system tells of its nodes itself.

    ``lost_after_s`` is the scheduler's of that name, for this site; None is as for all.

    ``containers`` is how it runs container images; without, jobs with an image do not go there.

    ``kind`` is a ``SiteKind``, or the name of its batch system. ``provides`` are programs that jobs may require,
    those of the batch system among them.

    ``own_account`` says whether jobs run there under another account than the daemon's, or where its own reaches
    nothing of the daemon; None is as ``shares_account`` guesses.

    Without ``probes`` its links are never probed.
    """

    name: SiteName
    processors: int
    kind: str = SiteKind.SIMULATED
    quota: float = 1.0
    file_server: str | None = None
    uplink_mbit_s: float | None = None
    man: str | None = None
    wan: str | None = None
    nodes: tuple[Machine, ...] = ()
    node_power: float = NODE_POWER
    node_load: float = 0.0
    node_classes: tuple[NodeClass, ...] = ()
    batch: BatchSettings | None = None  # of a site under a batch system
    containers: Containers | None = None
    provides: tuple[str, ...] = ()
    own_account: bool | None = None
    lost_after_s: float | None = None
    probes: bool = True
    simulation: SiteSimulation = SiteSimulation()

    @property
    def is_here(self) -> bool:
        """Whether it is on the daemon's machine, with no network in front of it."""
        return self.batch is None or (self.batch.ssh is None and not self.batch.through)

    @property
    def shares_account(self) -> bool:
        """Whether a job there could reach the daemon as its owner. Where nothing is said: at an embedded site, and
        under a batch system whose commands run on the daemon's machine."""
        if self.own_account is not None:
            return not self.own_account
        return self.kind == SiteKind.LOCAL or (self.batch is not None and self.batch.ssh is None)

    def runs_images(self, job_type: JobType) -> bool:
        """Whether a job of this type can run in an image there. The ranks of MPI are handed an open connection to
        their launcher, which podman does not let through."""
        if self.containers is None:
            return False
        return job_type is not JobType.MPI or self.containers.tool is not ContainerTool.PODMAN


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A way between two sites, the same in both directions."""

    bandwidth_mbit_s: float
    latency_s: float


class PairLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that differs from the default one."""

    between: tuple[SiteName, SiteName]
    bandwidth_mbit_s: float
    latency_s: float


class Links(msgspec.Struct, frozen=True, kw_only=True):
    """The wide-area network: one default link between every two sites, and the pairs that differ from it."""

    default: Link = Link(bandwidth_mbit_s=100.0, latency_s=0.005)
    pairs: tuple[PairLink, ...] = ()


class LinkGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Sites (or groups of them) behind one uplink: what leaves the group crosses it. None is unlimited."""

    name: str
    members: tuple[str, ...]
    uplink_mbit_s: float | None = None


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Named links that traffic between two sites crosses, beside the uplinks of the sites and of their groups."""

    between: tuple[SiteName, SiteName]
    over: tuple[str, ...]


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """Links that communicating jobs share: where they demand more of one than it has, they slow down.

    Every site has an uplink of ``uplink_mbit_s``, or of its own; None is unlimited. With no more than that the
    network is a star. Traffic between two sites crosses both uplinks, the uplink of every group that holds one of
    them and not the other, and the named ``links`` (name and Mbit/s) of the route between them, if there is one.
    A site or group is a member of one group at most, so that groups nest.
    """

    uplink_mbit_s: float | None = None
    groups: tuple[LinkGroup, ...] = ()
    links: tuple[tuple[str, float], ...] = ()
    routes: tuple[Route, ...] = ()


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A logical file and the sites that hold a replica of it."""

    name: FileName
    size_bytes: int
    replicas: tuple[SiteName, ...]


class Estimates(enum.StrEnum):
    """How long plans believe that a job runs: for its walltime, or as long as the last two runs of its user took on
    average, never longer than its walltime. The walltime stays the limit either way."""

    WALLTIME = "walltime"
    LAST_TWO = "last-two"


# Workspaces are kept for so long where neither the grid file nor the job says otherwise.
WORKSPACES_KEPT_S = 7 * 86_400.0


class SchedulerParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler's knobs, named as in docs/reference/grid.md; the papers' letters stand beside them.

    - ``scan_interval_s``: time between scans of the placement queues; 0 scans at every event that could help. A grid
      file that says nothing means SCAN_INTERVAL_S_DEFAULT.
    - ``high_scans_per_low_scan`` (S), ``claim_fraction`` (L), ``claim_fraction_step``, ``claim_fraction_min``.
    - ``claim_threshold`` (T): the least fraction of components that must be startable for a claim to go on.
    - ``error_threshold``: consecutive errors that make a site unusable; ``cooldown_s`` until it is probed.
    - ``barrier_timeout_s``: how long after the job start time (or the last claim) a component may take to
      reach the barrier before the whole claim is given up.
    - ``queue_patience_s``: how long a component may wait in its site's own queue, behind other users who hold its
      processors, before it is claimed at another site; None lets it wait until the barrier times out.
    - ``answer_timeout_s``: how long a command may go unanswered before the site is asked or told again.
    - ``check_interval_s``: how often sites are asked about components that should be running; None never asks.
    - ``lost_after_s``: how long a site may stay silent before it is lost; None leaves that to an operator.
    - ``probe_every_s``: how often each link is probed; 0 never does. None is ``PROBE_EVERY_S`` for live sites, and
      never for simulated ones.
    - ``transfer_tries_max`` per file and placement; a transfer is overdue after ``transfer_patience`` times
      its estimate, and never before ``answer_timeout_s``.
    - ``hold_placed``: keep the processors of placed jobs from other placements until they are claimed; None: where
      plans are made.
    - ``restart_rest_s``: how long a job whose run failed rests before it is placed again, twice as long each time
      up to RESTART_REST_S_MAX; ``avoid_failed_s``: how long it avoids the site where it failed while there is another
      way.
    - ``site_restarts_max``: how often in a row a job starts again after failures without an exit status: those
      blamed on sites, and those blamed on itself where ``restarts_max`` sets no limit.
    - ``order``: which waiting job of a priority comes first, by the name of an order in the catalogue. A grid file
      that says nothing means ORDER_DEFAULT. ``order_patience_s``: a job that has waited for so long comes before all
      that have not, first come, first served, in orders in which it might wait for ever.
    - ``plan_depth``: of these so many that cannot start get a plan, which no later job may put off: 1 is EASY
      backfilling over all sites, more is towards conservative backfilling, 0 makes no plans. A grid file that says
      nothing means PLAN_DEPTH_DEFAULT.
    - ``default_walltime_s``: how long plans believe that a job without a walltime runs.
    - ``estimates``: how long plans believe that jobs run, see ``Estimates``.
    - ``ageing_half_s``: in plans a low-priority job ranks as a high-priority one that came so much later; None never.
    - ``preemption``: when a high-priority job preempts low-priority ones. For places it preempts at most
      ``preempts_per_job_max`` jobs in its life, all together at most ``preempts_per_hour_max`` within an hour, and
      none that was preempted ``preempted_per_job_max`` times. A grid file that says nothing means ``places``.
    - ``hold_budget``: the share of the grid's processor time that jobs may keep before the times of their plans,
      within ``hold_window_s``; one job ``hold_budget_per_job``. They claim at most ``hold_ahead_s`` before. 0: never.
    - ``keep_for_s``: how long a live driver keeps the workspaces of a job that has ended and does not say it itself;
      ``keep_outputs_for_s`` outputs, None until somebody forgets them.
    - ``output_bytes_max``: how large one output of a job may be; ``collect_s_max``: how long it may take to collect.
    - the other ``..._max`` limits are the defaults for jobs that name none; None is no limit.
    """

    policy: str = "WF"
    scan_interval_s: float = 4.0
    high_scans_per_low_scan: int = 2
    claim_fraction: float = 0.75
    claim_fraction_step: float = 0.125
    claim_fraction_min: float = 0.25
    claim_threshold: float = 0.0
    error_threshold: int = 5
    cooldown_s: float = 600.0
    barrier_timeout_s: float = 300.0
    queue_patience_s: float | None = 5.0
    answer_timeout_s: float = 60.0
    check_interval_s: float | None = 600.0
    lost_after_s: float | None = None
    probe_every_s: float | None = None
    transfer_tries_max: int = 3
    transfer_patience: float = 10.0
    hold_placed: bool | None = None
    placement_tries_max: int | None = None
    claiming_tries_max: int | None = None
    restarts_max: int | None = 2
    restart_rest_s: float = 2.0
    avoid_failed_s: float = 3_600.0
    site_restarts_max: int = SITE_RESTARTS_MAX
    order: str = FCFS
    order_patience_s: float = ORDER_PATIENCE_S
    plan_depth: int = 0
    default_walltime_s: float = DEFAULT_WALLTIME_S
    estimates: Estimates = Estimates.WALLTIME
    ageing_half_s: float | None = None
    preemption: Preemption = Preemption.CLAIMING_ONLY
    preempts_per_job_max: int = PREEMPTS_PER_JOB_MAX
    preempts_per_hour_max: int = PREEMPTS_PER_HOUR_MAX
    preempted_per_job_max: int = PREEMPTED_PER_JOB_MAX
    hold_budget: float = 0.0
    hold_budget_per_job: float = 0.02
    hold_window_s: float = 86_400.0
    hold_ahead_s: float = 600.0
    keep_for_s: float = WORKSPACES_KEPT_S
    keep_outputs_for_s: float | None = None
    output_bytes_max: int = OUTPUT_BYTES_MAX
    collect_s_max: float = COLLECT_S_MAX

    def with_plans(self, plan_depth: int) -> SchedulerParameters:
        """The same with so many plans: EASY with another number is first come, first served."""
        is_easy = self.order.casefold() == EASY and plan_depth != PLAN_DEPTH_OF_EASY
        return msgspec.structs.replace(self, plan_depth=plan_depth, order=FCFS if is_easy else self.order)

    def with_order(self, order: str) -> SchedulerParameters:
        """The same in that order, with the plans that belong to it."""
        plan_depth = PLAN_DEPTH_OF_EASY if order.casefold() == EASY else self.plan_depth
        return msgspec.structs.replace(self, order=order, plan_depth=plan_depth)

    @property
    def collect_limits(self) -> CollectLimits:
        """What one output may be, and how long it may take."""
        return CollectLimits(bytes_max=self.output_bytes_max, time_s=self.collect_s_max)

    @property
    def holds_placed(self) -> bool:
        """Whether what a job was placed on is kept for it until it claims."""
        return self.plan_depth > 0 if self.hold_placed is None else self.hold_placed


class PolicyFile(msgspec.Struct, frozen=True, kw_only=True):
    """A Python file that registers placement policies: its path, and its text once somebody has read it. It is code
    of the grid's operator, and runs with the rights of whoever runs the grid."""

    path: str
    text: str | None = None


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a grid file says. With ``shared_account`` jobs of guests, users other than the daemon's own, may run
    under the daemon's account, with which they can do all that its owner can."""

    sites: tuple[Site, ...]
    name: str = "grid"
    links: Links = Links()
    network: Network | None = None
    files: tuple[StoredFile, ...] = ()
    scheduler: SchedulerParameters = SchedulerParameters()
    simulation: GridSimulation = GridSimulation()
    shared_account: bool = False
    policy_files: tuple[PolicyFile, ...] = ()

    @property
    def closed_to_guests(self) -> tuple[SiteName, ...]:
        """The sites where jobs of guests must not run."""
        return () if self.shared_account else tuple(site.name for site in self.sites if site.shares_account)
