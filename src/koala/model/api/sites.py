"""Sites and the links between them in the API."""

from __future__ import annotations

from koala.model.api.common import Answer
from koala.model.api.jobs import JobOnLinks


class GpuCount(Answer, frozen=True, kw_only=True):
    """GPUs of one kind at a site, in total and idle. ``kind`` is empty where the site names none."""

    kind: str
    total: int
    idle: int


class LicensePool(Answer, frozen=True, kw_only=True):
    """A pool of floating licences: how many there are, how many nobody holds, and the jobs that hold some, as far as
    the caller may see them. ``shared``: all sites share it."""

    name: str
    total: int
    left: int
    shared: bool = False
    jobs: list[int] = []


class MachineInfo(Answer, frozen=True, kw_only=True):
    """Processors of a site that are alike for jobs of tasks: their ``power`` in MFlop/s, and the fraction of it, from
    0 to 1, that others use. ``measured`` marks values that were measured rather than read from the grid file."""

    processors: int
    power: float
    load: float
    measured: bool = False


class ExcludedNode(Answer, frozen=True, kw_only=True):
    """A node that a user's program avoids until a given time. ``program`` is the name of the program for people,
    ``reason`` its failure on the node, with the job. ``closes`` means that the site has no node left for the program:
    no job with it goes there while another site has room."""

    node: str
    program: str
    owner: str
    reason: str
    until: float
    closes: bool = False


class SiteInfo(Answer, frozen=True, kw_only=True):
    """What Koala knows of a site. ``usable`` processors are those within its quota. ``trust`` is usable, unusable
    (too many errors, or failures of applications that succeeded elsewhere) or probing. ``distrusted`` explains why
    the site is not usable; ``accusations`` are failures of applications held against it; ``excluded`` are nodes that
    programs avoid: those of all users for a caller who may see all jobs, else those of the caller. ``drained_by`` is
    who drained it and why, such as ``anna: disk change``. ``silent_reason`` is empty while the site answers;
    ``misconfigured`` explains why a site that answers cannot be used as the grid file describes it. ``lost`` explains
    why it was declared lost, until it is used again, and ``fenced`` counts the components that it must end before
    that. ``problem`` states in words what is wrong at present and what to do; empty where nothing is wrong.
    ``jobs_to_restart`` would restart elsewhere if the site were declared lost. ``set_aside`` lists, for operators,
    commands that an error inside Koala keeps from being performed; the site is not to blame. ``gpus`` are counted by
    kind, memory in bytes, null where the site does not report them. Two fields count processor seconds of our
    components there: ``gained_processor_s`` were left to others because claims came late, ``wasted_processor_s`` were
    held before starts; the fields with ``early_`` are the share of jobs that claimed before the times of their plans.
    ``gpu_s`` are the GPU seconds of ended components. For jobs of tasks, the site has ``machines``, the region
    (``man``) and the wide area (``wan``) that it belongs to, either named in the grid file or derived from measured
    links, and its uplink, null for no limit. ``licenses`` are its pools and those that all sites share."""

    name: str
    kind: str
    processors: int
    usable: int
    ours: int
    others: int
    idle: int
    earmarked: int
    trust: str
    drained: bool
    drained_by: str = ""
    errors: int
    distrusted: str = ""
    accusations: list[str] = []
    excluded: list[ExcludedNode] = []
    silent_since: float | None = None
    silent_reason: str = ""
    misconfigured: str = ""
    lost: str = ""
    fenced: int = 0
    last_error: str = ""
    problem: str = ""
    jobs_to_restart: list[int] = []
    set_aside: list[str] = []
    reported_at: float | None = None
    jobs: list[int] = []
    gpus: list[GpuCount] = []
    memory_bytes: int | None = None
    memory_idle_bytes: int | None = None
    gained_processor_s: float = 0.0
    wasted_processor_s: float = 0.0
    early_gained_processor_s: float = 0.0
    early_wasted_processor_s: float = 0.0
    gpu_s: float = 0.0
    licenses: list[LicensePool] = []
    machines: list[MachineInfo] = []
    man: str = ""
    wan: str = ""
    uplink_mbit_s: float | None = None


class UsagePoint(Answer, frozen=True, kw_only=True):
    """The processors of a site from this time on, with the share of our jobs and of others."""

    at: float
    processors: int
    ours: int
    others: int


class SiteHistory(Answer, frozen=True, kw_only=True):
    """The use of a site over a period, as steps."""

    site: str
    from_at: float
    to_at: float
    points: list[UsagePoint]


class LinkInfo(Answer, frozen=True, kw_only=True):
    """The link between two sites, and the bandwidth that recent transfers had there."""

    between: tuple[str, str]
    bandwidth_mbit_s: float
    believed_mbit_s: float
    latency_s: float


class LinkMeasurement(Answer, frozen=True, kw_only=True):
    """One measurement of a link, by a ``probe``, a ``transfer`` or an ``overdue`` transfer. Its weight is at most
    1."""

    at: float
    value: float
    weight: float
    size_bytes: int
    by: str


class LinkQuantity(Answer, frozen=True, kw_only=True):
    """The believed value of one quantity of a link. ``origin`` is its source: ``declared`` by the grid file,
    ``forecast`` from measurements, or ``way back`` where only the other direction was measured. ``predictor`` made
    the forecast, with a mean error of ``error``. ``measurements`` counts the kept measurements of this direction, and
    ``measured`` is the last one."""

    declared: float
    believed: float
    origin: str
    predictor: str = ""
    error: float = 0.0
    measurements: int = 0
    measured: float | None = None
    measured_at: float | None = None
    measured_by: str = ""


class LinkState(Answer, frozen=True, kw_only=True):
    """One direction of a link between two sites. ``not_probed`` explains why it is not probed automatically. The last
    probe ended at ``probed_at``; ``probe_failure`` explains why it failed, and ``probe_failures`` counts the failures
    in a row."""

    source: str
    target: str
    bandwidth_mbit_s: LinkQuantity
    latency_s: LinkQuantity
    not_probed: str = ""
    probed_at: float | None = None
    probe_failure: str = ""
    probe_failures: int = 0


class NetworkInfo(Answer, frozen=True, kw_only=True):
    """The links between sites: all links, or in a large grid only those that differ from the default. ``jobs`` run at
    several sites and use the links; the answer holds the first ones that the caller may see."""

    now: float
    sites: list[str]
    default_bandwidth_mbit_s: float
    default_latency_s: float
    links: list[LinkState]
    jobs: list[JobOnLinks] = []


class LinkHistory(Answer, frozen=True, kw_only=True):
    """One direction of a link with its measurements, the oldest first."""

    now: float
    link: LinkState
    bandwidth_mbit_s: list[LinkMeasurement]
    latency_s: list[LinkMeasurement]
