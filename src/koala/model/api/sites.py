"""Sites and the links between them in the API."""

from __future__ import annotations

from koala.model.api.common import Answer
from koala.model.api.jobs import JobOnLinks


class GpuCount(Answer, frozen=True, kw_only=True):
    """GPUs of one kind at a site, in all and those that nobody holds; ``kind`` is empty where the site names none."""

    kind: str
    total: int
    idle: int


class MachineInfo(Answer, frozen=True, kw_only=True):
    """Processors of a site that are alike for jobs of tasks: their ``power`` in MFlop/s, and the part of it, from 0
    to 1, that others use; ``measured`` where it is not the grid file's word."""

    processors: int
    power: float
    load: float
    measured: bool = False


class ExcludedNode(Answer, frozen=True, kw_only=True):
    """A node that a user's program is kept off until then, by its name and what people call the program. ``reason``
    says how it failed there, in which job. ``closes``: no node of the site is left for the program, and no job with
    it goes there while it can go elsewhere."""

    node: str
    program: str
    owner: str
    reason: str
    until: float
    closes: bool = False


class SiteInfo(Answer, frozen=True, kw_only=True):
    """What Koala knows of a site. ``usable`` processors are those within its quota. ``trust``: usable, unusable (too
    many errors, or failures of applications that did well elsewhere), probing. ``distrusted`` is why it is not
    usable, ``accusations`` are failures of applications held against it; ``excluded`` are nodes that programs are
    kept off, of all users to who sees all and else of the caller's. ``drained_by`` is who drained it
    and why, as ``anna: disk change``.
    ``silent_reason`` is empty while the site answers; ``misconfigured`` says why one that
    answers cannot be used as the grid file describes it. ``lost`` says why it was declared lost, until it is used
    again, and ``fenced`` counts what it must end before that. ``problem`` is what is wrong at present and what to do,
    in words; empty where nothing is. ``jobs_to_restart`` would start again elsewhere were the site declared lost.
    ``set_aside`` are commands that an error inside Koala keeps from being performed, for operators: no fault of the
    site. ``gpus`` are counted by kind, and memory in bytes, null where the site does not tell. Of our components
    there ``gained_processor_s`` is what claiming late left to others, ``wasted_processor_s`` what was held before
    starts, both in processor seconds, and with ``early_`` the part of it of jobs that claimed before the times of
    their plans; ``gpu_s`` are the GPU seconds of those that have ended. For jobs of tasks: its ``machines``, the
    region (``man``) and wide area (``wan``) that it is in, as named or by what was measured of links, and its uplink,
    null for no limit."""

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
    machines: list[MachineInfo] = []
    man: str = ""
    wan: str = ""
    uplink_mbit_s: float | None = None


class UsagePoint(Answer, frozen=True, kw_only=True):
    """Who held how much of a site from this time on."""

    at: float
    processors: int
    ours: int
    others: int


class SiteHistory(Answer, frozen=True, kw_only=True):
    """A site's use over a stretch of time, as steps."""

    site: str
    from_at: float
    to_at: float
    points: list[UsagePoint]


class LinkInfo(Answer, frozen=True, kw_only=True):
    """The way between two sites, and the bandwidth that transfers have seen there lately."""

    between: tuple[str, str]
    bandwidth_mbit_s: float
    believed_mbit_s: float
    latency_s: float


class LinkMeasurement(Answer, frozen=True, kw_only=True):
    """What was measured once, by a ``probe``, a ``transfer`` or one that is ``overdue``; its weight is 1 at most."""

    at: float
    value: float
    weight: float
    size_bytes: int
    by: str


class LinkQuantity(Answer, frozen=True, kw_only=True):
    """What is believed of one thing about a link. ``origin`` says by whom: ``declared`` by the grid file,
    ``forecast`` from measurements, or ``way back`` where only the other direction was measured. ``predictor`` made
    the forecast, and was wrong by ``error`` on average; ``measurements`` of this direction are kept, the last one is
    ``measured``."""

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
    """One direction of a link between two sites. ``not_probed`` says why it is never probed by itself. The last probe
    ended at ``probed_at``; ``probe_failure`` is why it could not be made, after so many failures in a row."""

    source: str
    target: str
    bandwidth_mbit_s: LinkQuantity
    latency_s: LinkQuantity
    not_probed: str = ""
    probed_at: float | None = None
    probe_failure: str = ""
    probe_failures: int = 0


class NetworkInfo(Answer, frozen=True, kw_only=True):
    """What is known of the links between sites: of all, or in a large grid of those that are not as the default.
    ``jobs`` run at several sites and send over them, as far as the caller may see them, the first of them."""

    now: float
    sites: list[str]
    default_bandwidth_mbit_s: float
    default_latency_s: float
    links: list[LinkState]
    jobs: list[JobOnLinks] = []


class LinkHistory(Answer, frozen=True, kw_only=True):
    """One direction of a link, with what was measured there, the oldest first."""

    now: float
    link: LinkState
    bandwidth_mbit_s: list[LinkMeasurement]
    latency_s: list[LinkMeasurement]
