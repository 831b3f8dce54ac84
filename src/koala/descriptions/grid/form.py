"""Grid files in YAML: their form, and the way to a Grid.

The models below are also the JSON schema that ``koala schema grid`` prints, so every field has its meaning. Defaults
are those of ``koala.model.grid``; they are not written a second time. ``koala.descriptions.grid.site`` describes
sites, ``koala.descriptions.grid.simulation`` the behaviour of a grid in a simulation.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from koala.descriptions.errors import Problem, refuse_any, shown
from koala.descriptions.fields import (
    NAME_CHARACTERS_MAX,
    NAME_PATTERN,
    Count,
    CountOrZero,
    Description,
    Fraction01,
    FractionAboveZero,
    Label,
    LicenseCounts,
    Name,
    Number,
    PolicyName,
    Seconds,
    SecondsAboveZero,
    Size,
    SizeBytes,
    SomeText,
)
from koala.descriptions.grid.network import NetworkText
from koala.descriptions.grid.simulation import GridSimulationText
from koala.descriptions.grid.site import SiteText
from koala.descriptions.yaml.problems import nearest
from koala.descriptions.yaml.text import Document, read_document
from koala.model.grid import (
    EASY,
    FCFS,
    FILES_MAX,
    ORDER_DEFAULT,
    PLAN_DEPTH_DEFAULT,
    PLAN_DEPTH_MAX,
    PLAN_DEPTH_OF_EASY,
    POLICY_FILES_MAX,
    RESTART_REST_S_MAX,
    SCAN_INTERVAL_S_DEFAULT,
    SITES_MAX,
    Estimates,
    Grid,
    Link,
    Links,
    Network,
    PairLink,
    PolicyFile,
    Preemption,
    SchedulerParameters,
    StoredFile,
)
from koala.model.outputs import COLLECTED_BYTES_MAX
from koala.model.request import KEEP_FOR_S_MAX

_LINK = Links().default
_SCHEDULER = SchedulerParameters()

_LATENCY_TWICE = "latency_ms and latency_s are given together"


class LinkText(Description):
    """A link; what is left out is as in the default link."""

    bandwidth_mbit_s: Annotated[Number, Field(gt=0)] | None = Field(
        default=None, description=f"megabits per second; the default link has {_LINK.bandwidth_mbit_s:g}"
    )
    latency_ms: Annotated[Number, Field(ge=0)] | None = Field(
        default=None, description=f"milliseconds; the default link has {_LINK.latency_s * 1000:g}"
    )
    latency_s: Seconds | None = Field(default=None, description="seconds, instead of latency_ms")

    def link(self, default: Link) -> Link:
        """Return the link, with missing values taken from another one."""
        latency_s = self.latency_s
        if self.latency_ms is not None:
            latency_s = self.latency_ms / 1000
        return Link(
            bandwidth_mbit_s=default.bandwidth_mbit_s if self.bandwidth_mbit_s is None else self.bandwidth_mbit_s,
            latency_s=default.latency_s if latency_s is None else latency_s,
        )


class PairText(LinkText):
    """A link between two sites that differs from the default link."""

    between: tuple[Name, Name] = Field(description="the two sites, such as [vu, delft]; both directions are alike")


class LinksText(Description):
    """The wide-area network."""

    default: LinkText = Field(default=LinkText(), description="the link between every two sites")
    pairs: tuple[PairText, ...] = Field(default=(), description="the links that differ from the default link")


class FileText(Description):
    """A file and the sites that hold a copy of it."""

    size: Size | None = Field(default=None, description="such as 500 MB, 4 GB (10^9 bytes) or 4 GiB (2^30 bytes)")
    size_bytes: SizeBytes | None = Field(default=None, description="the size in bytes, instead of size")
    replicas: Annotated[tuple[Name, ...], Field(min_length=1)] = Field(description="the sites that hold a copy")


class SchedulerText(Description):
    """The scheduler's parameters."""

    policy: PolicyName = Field(default=_SCHEDULER.policy, description="the placement policy for jobs that name none")
    scan_interval_s: Seconds = Field(
        default=SCAN_INTERVAL_S_DEFAULT,
        description="seconds between scans of the placement queues, as in the papers; 0 scans whenever something "
        "happened that could help, and when the time of a plan comes",
    )
    high_scans_per_low_scan: Count = Field(
        default=_SCHEDULER.high_scans_per_low_scan,
        description="scans of the high-priority queue for each scan of the low one (S in the papers)",
    )
    claim_fraction: FractionAboveZero = Field(
        default=_SCHEDULER.claim_fraction,
        description="the part of the time to the job start after which claiming is tried (L in the papers)",
    )
    claim_fraction_step: Fraction01 = Field(
        default=_SCHEDULER.claim_fraction_step,
        description="what claim_fraction loses each time a job goes back to its placement queue",
    )
    claim_fraction_min: FractionAboveZero = Field(
        default=_SCHEDULER.claim_fraction_min, description="the floor of claim_fraction"
    )
    claim_threshold: Fraction01 = Field(
        default=_SCHEDULER.claim_threshold,
        description="the least fraction of components that must be startable for a claim to go on (T in the papers)",
    )
    error_threshold: Count = Field(
        default=_SCHEDULER.error_threshold, description="consecutive errors that make a site unusable"
    )
    cooldown_s: Seconds = Field(
        default=_SCHEDULER.cooldown_s, description="seconds until an unusable site is probed with one job"
    )
    barrier_timeout_s: SecondsAboveZero = Field(
        default=_SCHEDULER.barrier_timeout_s,
        description="seconds that a component may take to the barrier before the whole claim is given up",
    )
    queue_patience_s: SecondsAboveZero | None = Field(
        default=_SCHEDULER.queue_patience_s,
        description="seconds that a component may wait in its site's own queue, while other users hold its "
        "processors, before it is claimed where there are idle ones; null waits for the barrier's end",
    )
    answer_timeout_s: SecondsAboveZero = Field(
        default=_SCHEDULER.answer_timeout_s,
        description="seconds that a command may go unanswered before the site is asked again",
    )
    check_interval_s: SecondsAboveZero | None = Field(
        default=_SCHEDULER.check_interval_s,
        description="seconds between questions about components that should be running; null never asks",
    )
    lost_after_s: SecondsAboveZero | None = Field(
        default=_SCHEDULER.lost_after_s,
        description="seconds of silence after which a site is lost: its jobs start again elsewhere, and what it "
        "still runs is ended when it comes back; null leaves that to an operator",
    )
    probe_every_s: Seconds | None = Field(
        default=_SCHEDULER.probe_every_s,
        description="seconds between two probes of the same link; 0 never probes; null is an hour for live sites and "
        "never for simulated ones",
    )
    transfer_tries_max: Count = Field(
        default=_SCHEDULER.transfer_tries_max, description="the most tries to transfer one file for one placement"
    )
    transfer_patience: Annotated[Number, Field(ge=1)] = Field(
        default=_SCHEDULER.transfer_patience,
        description="a transfer is overdue after this many times its estimate",
    )
    hold_placed: bool | None = Field(
        default=_SCHEDULER.hold_placed,
        description="whether the processors of placed jobs are kept from other placements until they are claimed; "
        "null: where plans are made, so that no later job takes what a job waited for while its files come",
    )
    placement_tries_max: Count | None = Field(
        default=_SCHEDULER.placement_tries_max,
        description="the most tries to place a job, one a scan of its queue: with a `scan_interval_s` of 0 whenever "
        "something came free; null is no limit",
    )
    claiming_tries_max: Count | None = Field(
        default=_SCHEDULER.claiming_tries_max, description="the most tries to claim for a job; null is no limit"
    )
    restarts_max: CountOrZero | None = Field(
        default=_SCHEDULER.restarts_max,
        description="restarts of a job after its application failed, at most; null: no limit",
    )
    keep_for_s: Annotated[Seconds, Field(le=KEEP_FOR_S_MAX)] = Field(
        default=_SCHEDULER.keep_for_s,
        description="seconds that the workspaces of a job that has ended are kept, unless it says keep_for itself",
    )
    keep_outputs_for_s: Annotated[Seconds, Field(le=KEEP_FOR_S_MAX)] | None = Field(
        default=_SCHEDULER.keep_outputs_for_s,
        description="seconds that the outputs of a job that has ended are kept, unless it says keep_outputs_for; "
        "null: until somebody forgets them",
    )
    output_bytes_max: Annotated[SizeBytes, Field(ge=1, le=COLLECTED_BYTES_MAX)] = Field(
        default=_SCHEDULER.output_bytes_max,
        description="bytes that one output of a job may have, holes included, and one checkpoint; a larger output "
        "fails its job",
    )
    collect_s_max: SecondsAboveZero = Field(
        default=_SCHEDULER.collect_s_max,
        description="seconds that it may take to pack one output and to compute its checksum",
    )
    restart_rest_s: Seconds = Field(
        default=_SCHEDULER.restart_rest_s,
        description="seconds that a job whose run failed rests before it is placed again, twice as long each time, "
        f"up to {RESTART_REST_S_MAX:.0f} (RESTART_REST_S_MAX)",
    )
    avoid_failed_s: Seconds = Field(
        default=_SCHEDULER.avoid_failed_s,
        description="seconds for which a job avoids a site where a run of it failed, as long as there is another way",
    )
    site_restarts_max: CountOrZero = Field(
        default=_SCHEDULER.site_restarts_max,
        description="restarts in a row of a job after components broke at their sites, at most",
    )
    order: PolicyName = Field(
        default=ORDER_DEFAULT,
        description="which of the waiting jobs of a priority comes first: `round-robin` (users take turns), `fcfs` "
        "(first come, first served), `easy` (the same with plan_depth 1), `sjf` (shortest job first), or an order of "
        "your own in policy_files",
    )
    order_patience_s: SecondsAboveZero = Field(
        default=_SCHEDULER.order_patience_s,
        description="seconds after which a job comes before all that wait for less, first come, first served, "
        "whatever the order; `round-robin`, `fcfs` and `easy` need none, as no job waits for ever behind later ones",
    )
    plan_depth: Annotated[CountOrZero, Field(le=PLAN_DEPTH_MAX)] = Field(
        default=PLAN_DEPTH_DEFAULT,
        description="for how many of the first jobs in the order room is kept, so that no later job puts them off: 1 "
        "is EASY backfilling over all sites, more comes near conservative backfilling, 0 keeps no room for anybody",
    )
    default_walltime_s: SecondsAboveZero = Field(
        default=_SCHEDULER.default_walltime_s,
        description="seconds that plans believe a job without a walltime to run",
    )
    estimates: Estimates = Field(
        default=_SCHEDULER.estimates,
        description="how long plans believe that jobs run: `walltime` is as long as they may, `last-two` as long as "
        "the last two jobs of the same user took on average, never longer than they may",
    )
    ageing_half_s: Seconds | None = Field(
        default=_SCHEDULER.ageing_half_s,
        description="in plans a low-priority job ranks as a high-priority one that came so many seconds later; null "
        "ranks every high-priority job before it",
    )
    preemption: Preemption = Field(
        default=Preemption.PLACES,
        description="when a high-priority job preempts low-priority ones: `places` when it finds no places, and "
        "when it cannot claim those that it has; `claiming-only` in the latter case alone",
    )
    preempts_per_job_max: CountOrZero = Field(
        default=_SCHEDULER.preempts_per_job_max, description="the most jobs that one job preempts for its places"
    )
    preempts_per_hour_max: CountOrZero = Field(
        default=_SCHEDULER.preempts_per_hour_max,
        description="the most jobs that are preempted for places of others within an hour",
    )
    preempted_per_job_max: CountOrZero = Field(
        default=_SCHEDULER.preempted_per_job_max,
        description="a job that was preempted so often is not preempted for places of others any more",
    )
    hold_budget: Fraction01 = Field(
        default=_SCHEDULER.hold_budget,
        description="the share of the grid's processor time that jobs may claim and keep idle before the times of "
        "their plans, so that local users do not take it; 0 claims nothing before",
    )
    hold_budget_per_job: Fraction01 = Field(
        default=_SCHEDULER.hold_budget_per_job, description="the share of it that one job may keep at most"
    )
    hold_window_s: SecondsAboveZero = Field(
        default=_SCHEDULER.hold_window_s, description="seconds within which these shares are counted"
    )
    hold_ahead_s: Seconds = Field(
        default=_SCHEDULER.hold_ahead_s,
        description="seconds before the time of its plan at which a job claims at the earliest",
    )


SiteKey = Annotated[str, Field(pattern=NAME_PATTERN, max_length=NAME_CHARACTERS_MAX)]


class GridText(Description):
    """A grid: its sites, links and files, and how its scheduler works."""

    name: Label = Field(default="grid", description="a name for reports")
    sites: Annotated[dict[SiteKey, SiteText], Field(min_length=1, max_length=SITES_MAX)] = Field(
        description="the sites by name; ties between sites go to the one that stands first"
    )
    links: LinksText = Field(default=LinksText(), description="the wide-area network, as file transfers see it")
    network: NetworkText | None = Field(
        default=None, description="the capacities that communicating jobs share; without it nothing limits them"
    )
    files: Annotated[dict[Label, FileText], Field(max_length=FILES_MAX)] = Field(
        default={}, description="the replica catalogue: the files by logical name"
    )
    scheduler: SchedulerText = Field(default=SchedulerText(), description="the scheduler's parameters")
    simulation: GridSimulationText = Field(
        default=GridSimulationText(), description="how the grid behaves in a simulation"
    )
    shared_account: bool = Field(
        default=False,
        description="whether jobs of users other than the daemon's own may run under its account, at sites without "
        "an account of their own; such a job can do all that the daemon's owner can",
    )
    licenses: LicenseCounts = Field(
        default={},
        description="the pools of floating licences that all sites share: how many of each there are, such as "
        "{ansys: 10}",
    )
    policy_files: Annotated[tuple[SomeText, ...], Field(max_length=POLICY_FILES_MAX)] = Field(
        default=(),
        description="Python files that register policies of your own, by their paths from the grid file's folder; "
        "they run with the rights of whoever runs the grid",
    )


def read_grid_yaml(text: str, source: str) -> Grid:
    """Return the Grid that a YAML text describes; raise DescriptionError with all problems if it is invalid."""
    document: Document[GridText] = read_document(text, source, GridText)
    refuse_any(source, _contradictions(document))
    grid = document.model
    default = grid.links.default.link(_LINK)
    return Grid(
        name=grid.name,
        sites=tuple(site.site(name) for name, site in grid.sites.items()),
        links=Links(default=default, pairs=tuple(_pair(pair, default) for pair in grid.links.pairs)),
        network=_network(grid),
        files=tuple(_file(name, file) for name, file in grid.files.items()),
        scheduler=SchedulerParameters(**grid.scheduler.model_dump()),
        simulation=grid.simulation.simulation(),
        shared_account=grid.shared_account,
        licenses=tuple(sorted(grid.licenses.items())),
        policy_files=tuple(
            PolicyFile(path=posixpath.join(posixpath.dirname(source), path)) for path in grid.policy_files
        ),
    )


def _network(grid: GridText) -> Network | None:
    if grid.network is not None:
        return grid.network.network()
    has_uplinks = any(site.uplink_mbit_s is not None for site in grid.sites.values())
    return Network() if has_uplinks else None


def _pair(pair: PairText, default: Link) -> PairLink:
    link = pair.link(default)
    return PairLink(between=pair.between, bandwidth_mbit_s=link.bandwidth_mbit_s, latency_s=link.latency_s)


def _file(name: str, file: FileText) -> StoredFile:
    size_bytes = file.size_bytes if file.size is None else file.size
    assert size_bytes is not None, "a file without a size was refused before"
    return StoredFile(name=name, size_bytes=size_bytes, replicas=file.replicas)


def _contradictions(document: Document[GridText]) -> Iterator[Problem]:
    """Yield the problems that no part of the document can detect alone."""
    for name, site in document.model.sites.items():
        for key, message, advice in (*site.findings(site.kind), *site.node_findings()):
            yield document.problem(("sites", name, key), message, advice, at_key=True)
    yield from _node_problems(document)
    yield from _gpu_problems(document)
    yield from _link_problems(document)
    network = document.model.network
    if network is not None:
        for path, message, advice in network.findings(document.model.sites):
            yield document.problem(("network", *path), message, advice)
    yield from _file_problems(document)
    scheduler = document.model.scheduler
    if scheduler.claim_fraction_min > scheduler.claim_fraction:
        key = "claim_fraction_min" if "claim_fraction_min" in scheduler.model_fields_set else "claim_fraction"
        yield document.problem(
            ("scheduler", key),
            f"claim_fraction_min ({scheduler.claim_fraction_min:g}) is above claim_fraction "
            f"({scheduler.claim_fraction:g})",
            "write a claim_fraction_min of at most claim_fraction",
        )
    yield from _order_problems(document)


def _order_problems(document: Document[GridText]) -> Iterator[Problem]:
    scheduler = document.model.scheduler
    order = scheduler.order.casefold()
    if order == EASY and scheduler.plan_depth != PLAN_DEPTH_OF_EASY:
        yield document.problem(
            ("scheduler", "plan_depth"),
            f"order: {EASY} keeps room for the first job alone, and plan_depth is {scheduler.plan_depth}",
            f"leave plan_depth out, or write order: {FCFS}",
        )
    if scheduler.ageing_half_s is not None and order not in (FCFS, EASY):
        yield document.problem(
            ("scheduler", "ageing_half_s"),
            "ageing_half_s ranks all jobs by when they came, and so goes with first come, first served alone",
            f"write order: {FCFS}, or leave ageing_half_s out",
        )


def _gpu_problems(document: Document[GridText]) -> Iterator[Problem]:
    """Yield problems with GPUs: each embedded site counts this machine's from 0, so two would assign
    the same ones."""
    first, *others = [name for name, site in document.model.sites.items() if site.has_own_gpus] or [""]
    for name in others:
        yield document.problem(
            ("sites", name, "gpus"),
            f"embedded sites share the GPUs of one machine, and {first} has them already",
            f"write the GPUs of this machine at one embedded site, and take gpus out of {name} or of {first}",
            at_key=True,
        )


def _node_problems(document: Document[GridText]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for name, site in document.model.sites.items():
        path = ("sites", name, "nodes")
        if len(site.nodes) > site.processors:
            yield document.problem(
                path,
                f"{len(site.nodes)} nodes are more than the site's processors, {site.processors}",
                "name one node for each processor, or fewer: the others have node_power and node_load",
                at_key=True,
            )
        for index, node in enumerate(site.nodes):
            if node.name in seen:
                yield document.problem(
                    (*path, index, "name"),
                    f"there is a node {shown(node.name)} at {seen[node.name]} already",
                    "give it another name",
                )
            seen.setdefault(node.name, name)


def _link_problems(document: Document[GridText]) -> Iterator[Problem]:
    links = document.model.links
    if links.default.latency_ms is not None and links.default.latency_s is not None:
        yield document.problem(("links", "default", "latency_s"), _LATENCY_TWICE, "keep one of the two", at_key=True)
    seen: dict[frozenset[str], int] = {}
    for index, pair in enumerate(links.pairs):
        path = ("links", "pairs", index)
        if pair.latency_ms is not None and pair.latency_s is not None:
            yield document.problem((*path, "latency_s"), _LATENCY_TWICE, "keep one of the two", at_key=True)
        for end, site in enumerate(pair.between):
            if site not in document.model.sites:
                yield _unknown_site(document, (*path, "between", end), site)
        both = frozenset(pair.between)
        if len(both) == 1:
            yield document.problem(
                (*path, "between"), f"the link joins {pair.between[0]} with itself", "name two different sites"
            )
        elif both in seen:
            yield document.problem(
                (*path, "between"),
                f"the pair {' and '.join(pair.between)} is given twice; first as entry {seen[both] + 1}",
                "keep one of the two; a link is the same in both directions",
            )
        seen.setdefault(both, index)


def _file_problems(document: Document[GridText]) -> Iterator[Problem]:
    for name, file in document.model.files.items():
        path = ("files", name)
        if (file.size is None) == (file.size_bytes is None):
            what = "no size is given" if file.size is None else "size and size_bytes are given together"
            yield document.problem(
                path, f"{shown(name)}: {what}", "write one of them, such as 'size: 4 GB'", at_key=True
            )
        for index, site in enumerate(file.replicas):
            if site not in document.model.sites:
                yield _unknown_site(document, (*path, "replicas", index), site)
            elif site in file.replicas[:index]:
                yield document.problem(
                    (*path, "replicas", index), f"the replica at {site} is given twice", "name each site once"
                )


def _unknown_site(document: Document[GridText], path: tuple[str | int, ...], site: str) -> Problem:
    return document.problem(path, f"there is no site {shown(site)}", nearest(site, list(document.model.sites)))
