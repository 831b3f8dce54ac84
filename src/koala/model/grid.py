"""The grid as its owner describes it: sites, links, files, the scheduler's parameters, and how to simulate them.

Plain frozen values; ``koala.descriptions.grid.form`` reads them from a grid file. Simulator and live scheduler use
the same values; only the ``simulation`` parts are for the simulator alone.
"""

from __future__ import annotations

import enum

import msgspec

from koala.model.dendrogram import Machine
from koala.model.nodes import NodeClass
from koala.model.outputs import COLLECT_S_MAX, OUTPUT_BYTES_MAX, CollectLimits
from koala.model.request import FileName, JobType, Licenses, SiteName

# Limits on one grid file.
SITES_MAX = 10_000
FILES_MAX = 1_000_000
POLICY_FILES_MAX = 16
NETWORK_GROUPS_MAX = 1_000
NETWORK_LINKS_MAX = 1_000
ROUTES_MAX = 10_000
NODES_NAMED_MAX = 10_000
# A job restarts at most this often after failures that are blamed on sites, unless the grid file sets another limit.
SITE_RESTARTS_MAX = 100
# The longest rest of a job whose runs fail, before it is placed again.
RESTART_REST_S_MAX = 600.0
# A job has at most this many restarts without a rest, where the grid asks for no rests. Then it rests all the same:
# an application that fails at once and may restart for ever would keep the scheduler and a site busy for nothing.
RESTARTS_WITHOUT_REST_MAX = 100
# At most this many jobs of a queue have plans.
PLAN_DEPTH_MAX = 1_000
# The number of planned jobs where the grid file sets none; the papers' grids make no plans.
PLAN_DEPTH_DEFAULT = 1
# The orders of the queues: for parameters made in code, and for a grid file that sets none.
FCFS = "fcfs"
ORDER_DEFAULT = "round-robin"
# First come, first served with one plan a queue.
EASY = "easy"
PLAN_DEPTH_OF_EASY = 1
# No order lets later jobs overtake one that has waited longer than this, unless the grid file sets another time.
ORDER_PATIENCE_S = 86_400.0
# Seconds between scans where the grid file sets none. 0: every event that could help brings a scan.
SCAN_INTERVAL_S_DEFAULT = 0.0
# The interval between probes of a link between live sites, unless the grid file sets another.
PROBE_EVERY_S = 3_600.0
# The running time that plans assume for a job without a walltime, unless the grid file sets another.
DEFAULT_WALLTIME_S = 86_400.0
# Limits on preemption, unless the grid file sets others: victims of one job, victims of all jobs within an hour, and
# how often one job is preempted.
PREEMPTS_PER_JOB_MAX = 16
PREEMPTS_PER_HOUR_MAX = 64
PREEMPTED_PER_JOB_MAX = 2

# The default power of a processor, in MFlop/s.
NODE_POWER = 1_000.0


class SiteKind(enum.StrEnum):
    """The kinds of sites without a batch system. Any other kind is the name of a batch system."""

    SIMULATED = "simulated"
    LOCAL = "local"


class Claims(enum.StrEnum):
    """How processors of a batch system are claimed for the common start of all components of a job."""

    BARRIER = "barrier"  # the component's batch job starts as soon as it can, and waits for the others
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
    """The load that the band of other users' jobs applies to, in a simulation."""

    SITE = "site"  # the load of each site
    GRID = "grid"  # the load of all sites that have a band, together


class Background(msgspec.Struct, frozen=True, kw_only=True):
    """A site's own users, and the dummy jobs that hold their load inside a band (fractions of the site).

    Users arrive with exponential gaps and run exponential times; ``user_load`` is the mean load that they offer.
    Below ``band_low`` dummies are injected; above ``band_high`` dummies are killed. When the demand of the users of
    all sites stays above all their bands for longer than ``void_after_s``, the run is void. The users are drawn from
    the seed of the run, or from ``seed``: runs with the same ``seed`` have the same users even if they differ
    otherwise.
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
    ``application_failure`` the chance that the application itself returns failure there. ``outages`` are (from, to)
    times at which the whole site is down: it loses what it held, and nothing starts. ``mean_time_between_outages_s``
    draws further outages of ``outage_mean_s``; None draws none. ``bad_nodes`` of its nodes, drawn from the seed, are
    misconfigured: every application that touches one ends at once with exit code 127. For this purpose a node has
    ``node_processors``. ``silences`` are times at which the site cannot be reached while its components run on.
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
    """How one site behaves in a simulation. ``startup`` is how its components start; None means as in the whole
    grid."""

    local_scheduler: LocalScheduler = LocalScheduler.FIRST_FIT
    background: Background | None = None
    faults: SiteFaults = SiteFaults()
    startup: Startup | None = None


class TrafficSimulation(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs really send, and when sites report it: ``report_after_s`` after the start of a component, and again
    each time that its age has doubled. A job sends what it declares times a factor that is drawn between
    ``factor_low`` and ``factor_high``, once for each name."""

    report_after_s: float = 30.0
    factor_low: float = 1.0
    factor_high: float = 1.0


class GridSimulation(msgspec.Struct, frozen=True, kw_only=True):
    """How the whole grid behaves in a simulation.

    ``report_interval_s`` is the time between two reports of a site's state to the scheduler; 0 reports every change
    at once. ``background_band`` says which load the band applies to: that of each site, or of the grid. Faults of
    answers stop at ``heal_at_s``, as do drawn outages and component failures; None never heals. Without ``traffic``
    jobs send what they declare, and nobody measures it.
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
        """Return the partition or queue for a component that asks for this partition."""
        return dict(self.partitions).get(partition or "", self.queue)


class ContainerTool(enum.StrEnum):
    """The program that starts a container image."""

    APPTAINER = "apptainer"
    CHARLIECLOUD = "charliecloud"
    ENROOT = "enroot"
    PODMAN = "podman"


class Containers(msgspec.Struct, frozen=True, kw_only=True):
    """How a site runs container images: the tool, and the directory of images that jobs name without a path."""

    tool: ContainerTool
    images: str | None = None

    @property
    def program(self) -> str:
        """The tool's command."""
        return "ch-run" if self.tool is ContainerTool.CHARLIECLOUD else str(self.tool)

    def image(self, name: str) -> str:
        """Return the tool's argument for an image that a job names: a path or an address stays as it is."""
        if self.images is None or name.startswith("/") or "://" in name:
            return name
        return f"{self.images.rstrip('/')}/{name}"


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """One autonomous cluster. ``quota`` is the fraction that may be in use before Koala takes no more of it.

    ``uplink_mbit_s`` is the capacity of its own link in the grid's ``network``; None means as the network has it.

    For jobs of tasks: ``man`` and ``wan`` are its region and its wide area, None for those of the network's groups.
    ``nodes`` are processors with a power and a load of their own; all others have ``node_power`` (MFlop/s) and
    ``node_load``.

    ``node_classes`` are its nodes with their processors, memory and GPUs, all free, where the grid file lists them; a
    batch system reports its nodes itself.

    ``lost_after_s`` is the scheduler's parameter of that name, for this site; None means as for all sites.

    ``containers`` is how it runs container images; without it, jobs with an image do not go there.

    ``kind`` is a ``SiteKind``, or the name of its batch system. ``provides`` are programs that jobs may require,
    those of the batch system among them.

    ``licenses`` are its pools of floating licences: how many of each there are.

    ``own_account`` is True if jobs run there under another account than the daemon's, or if the daemon's account
    there cannot reach the daemon; None means as ``shares_account`` guesses.

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
    licenses: Licenses = ()
    own_account: bool | None = None
    lost_after_s: float | None = None
    probes: bool = True
    simulation: SiteSimulation = SiteSimulation()

    @property
    def is_here(self) -> bool:
        """True if the site is on the daemon's machine, with no network in between."""
        return self.batch is None or (self.batch.ssh is None and not self.batch.through)

    @property
    def shares_account(self) -> bool:
        """True if a job there could reach the daemon as its owner. The default is True for an embedded site, and for
        a batch system whose commands run on the daemon's machine."""
        if self.own_account is not None:
            return not self.own_account
        return self.kind == SiteKind.LOCAL or (self.batch is not None and self.batch.ssh is None)

    def runs_images(self, job_type: JobType) -> bool:
        """Return True if a job of this type can run in an image there. MPI ranks inherit an open connection to their
        launcher, which podman does not pass on."""
        if self.containers is None:
            return False
        return job_type is not JobType.MPI or self.containers.tool is not ContainerTool.PODMAN


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A link between two sites, the same in both directions."""

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
    """Sites, or groups of them, behind one uplink: traffic that leaves the group crosses it. None is unlimited."""

    name: str
    members: tuple[str, ...]
    uplink_mbit_s: float | None = None


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Named links that traffic between two sites crosses, beside the uplinks of the sites and of their groups."""

    between: tuple[SiteName, SiteName]
    over: tuple[str, ...]


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """Links that communicating jobs share: where their demand exceeds the capacity of a link, they slow down.

    Every site has an uplink of ``uplink_mbit_s``, or of its own; None is unlimited. With these alone the network is a
    star. Traffic between two sites crosses both uplinks, the uplink of every group that holds one of them and not the
    other, and the named ``links`` (name and Mbit/s) of the route between them, if there is one. A site or group is a
    member of at most one group, so groups nest.
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
    """How long plans expect a job to run: its walltime, or the mean of the last two runs of its user, but never
    longer than its walltime. The walltime stays the limit either way."""

    WALLTIME = "walltime"
    LAST_TWO = "last-two"


# How long workspaces are kept, unless the grid file or the job sets another time.
WORKSPACES_KEPT_S = 7 * 86_400.0


class SchedulerParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler's parameters, named as in docs/reference/grid.md; the papers' letters stand beside them.

    - ``scan_interval_s``: time between scans of the placement queues; 0 scans at every event that could help. The
      default of a grid file is SCAN_INTERVAL_S_DEFAULT.
    - ``high_scans_per_low_scan`` (S), ``claim_fraction`` (L), ``claim_fraction_step``, ``claim_fraction_min``.
    - ``claim_threshold`` (T): the least fraction of components that must be startable for a claim to go on.
    - ``error_threshold``: consecutive errors that make a site unusable; ``cooldown_s``: the time until it is probed.
    - ``barrier_timeout_s``: how long after the job start time (or the last claim) a component may take to
      reach the barrier before the whole claim is given up.
    - ``queue_patience_s``: how long a component may wait in its site's own queue, behind other users who hold its
      processors, before it is claimed at another site; None lets it wait until the barrier times out.
    - ``answer_timeout_s``: how long a command may stay unanswered before it is repeated or the site is asked.
    - ``check_interval_s``: how often sites are asked about components that should be running; None never asks.
    - ``lost_after_s``: how long a site may stay silent before it is lost; None leaves that to an operator.
    - ``probe_every_s``: the interval between probes of each link; 0 never probes. None is ``PROBE_EVERY_S`` for live
      sites, and never for simulated ones.
    - ``transfer_tries_max``: tries per file and placement; a transfer is overdue after ``transfer_patience`` times
      its estimate, and never before ``answer_timeout_s``.
    - ``hold_placed``: keep the processors of placed jobs from other placements until they are claimed; None does so
      where plans are made.
    - ``restart_rest_s``: how long a job whose run failed rests before it is placed again, twice as long each time
      up to RESTART_REST_S_MAX; ``avoid_failed_s``: how long it avoids the site where it failed while others have
      room.
    - ``site_restarts_max``: how often in a row a job starts again after failures without an exit status: those
      blamed on sites, and those blamed on itself where ``restarts_max`` sets no limit.
    - ``order``: the order of waiting jobs of one priority, by its name in the catalogue. The default of a grid file
      is ORDER_DEFAULT. ``order_patience_s``: in orders in which a job might wait for ever, a job that has waited
      this long comes before all that have not, first come, first served.
    - ``plan_depth``: this many waiting jobs get a plan, which no later job may put off: 1 is EASY backfilling over
      all sites, more is towards conservative backfilling, 0 makes no plans. The default of a grid file is
      PLAN_DEPTH_DEFAULT.
    - ``default_walltime_s``: how long plans expect a job without a walltime to run.
    - ``estimates``: how long plans expect jobs to run, see ``Estimates``.
    - ``ageing_half_s``: in plans a low-priority job ranks as a high-priority one that came this much later; None
      never.
    - ``preemption``: when a high-priority job preempts low-priority ones. For places it preempts at most
      ``preempts_per_job_max`` jobs in its life, all jobs together at most ``preempts_per_hour_max`` within an hour,
      and none that was preempted ``preempted_per_job_max`` times. The default of a grid file is ``places``.
    - ``hold_budget``: the share of the grid's processor time, within ``hold_window_s``, that jobs may keep before the
      times of their plans; ``hold_budget_per_job`` is the share of one job. A job claims at most ``hold_ahead_s``
      before its time. 0 never keeps any.
    - ``keep_for_s``: how long a live driver keeps the workspaces of an ended job that sets no time itself;
      ``keep_outputs_for_s``: the same for outputs, None until somebody forgets them.
    - ``output_bytes_max``: how large one output of a job may be; ``collect_s_max``: how long it may take to collect.
    - the other ``..._max`` limits are the defaults for jobs that set none; None is no limit.
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
        """Return these parameters with another plan depth: EASY with a depth other than its own is first come, first
        served."""
        is_easy = self.order.casefold() == EASY and plan_depth != PLAN_DEPTH_OF_EASY
        return msgspec.structs.replace(self, plan_depth=plan_depth, order=FCFS if is_easy else self.order)

    def with_order(self, order: str) -> SchedulerParameters:
        """Return these parameters with another order, and the plan depth that belongs to it."""
        plan_depth = PLAN_DEPTH_OF_EASY if order.casefold() == EASY else self.plan_depth
        return msgspec.structs.replace(self, order=order, plan_depth=plan_depth)

    @property
    def collect_limits(self) -> CollectLimits:
        """The limits on the size of one output and on the time to collect it."""
        return CollectLimits(bytes_max=self.output_bytes_max, time_s=self.collect_s_max)

    @property
    def holds_placed(self) -> bool:
        """True if the processors of a placed job are kept for it until it claims."""
        return self.plan_depth > 0 if self.hold_placed is None else self.hold_placed


class PolicyFile(msgspec.Struct, frozen=True, kw_only=True):
    """A Python file that registers placement policies: its path, and its text once it has been read. It is code of
    the grid's operator and has the rights of the process that runs the grid."""

    path: str
    text: str | None = None


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a grid file says. With ``shared_account`` jobs of guests, users other than the daemon's own, may run
    under the daemon's account, with all rights of its owner. ``licenses`` are the pools of floating licences that all
    sites share."""

    sites: tuple[Site, ...]
    name: str = "grid"
    links: Links = Links()
    network: Network | None = None
    files: tuple[StoredFile, ...] = ()
    scheduler: SchedulerParameters = SchedulerParameters()
    simulation: GridSimulation = GridSimulation()
    shared_account: bool = False
    licenses: Licenses = ()
    policy_files: tuple[PolicyFile, ...] = ()

    @property
    def closed_to_guests(self) -> tuple[SiteName, ...]:
        """The sites where jobs of guests must not run."""
        return () if self.shared_account else tuple(site.name for site in self.sites if site.shares_account)
