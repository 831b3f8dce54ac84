"""Promises about jobs whose runs fail: where they go next, how long they rest, when sites lose trust because of them,
and which nodes and sites others with the same program avoid."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from koala.core import Scheduler
from koala.core.failures.blame import NOT_FOUND
from koala.core.failures.program import program_of
from koala.core.life.job import Job
from koala.core.life.states import JobState
from koala.core.state.blame import TRUST_LOST_WEIGHT
from koala.core.state.site_belief import SiteBelief, Trust
from koala.model.facts import JobPlaced, JobRequeued, NodesAllowed, SiteDistrusted, Turn
from koala.model.messages import AnyEvent, ComponentEnded, ComponentReady, SiteReported, StartComponent
from koala.model.nodes import NamedNode
from koala.model.request import Component, JobId, SiteName
from koala.policies.interface import can_ever_fit

# The names of promises.
TRUSTED = "a job can cost nobody but its owner a site"
NODES_LEFT = "a job is placed only where its program may run"


class RestartPromises:
    """Follows the failures of one run; calls ``fail`` with the name of a broken promise and the detail."""

    def __init__(
        self,
        scheduler: Scheduler,
        fail: Callable[[str, str], None],
        closed_to: Callable[[Job], Collection[SiteName]] = lambda _: (),
    ) -> None:
        """Create a checker. ``closed_to`` returns the sites with too few nodes left for a job's program."""
        self._ledger = scheduler.ledger
        self._fail = fail
        self._closed_to = closed_to
        self._healthy = {
            site.name
            for site in scheduler.grid.sites
            if not (
                site.simulation.faults.component_failure
                or site.simulation.faults.application_failure
                or site.simulation.faults.bad_nodes
            )
        }
        self._failed: dict[JobId, tuple[SiteName, float]] = {}  # where and when a run of it failed last
        self._bad_node: dict[tuple[JobId, SiteName], tuple[str, float]] = {}  # the node to avoid, and since when
        self._allowed: set[JobId] = set()  # jobs that may run where they failed, without an alternative
        self._usable = scheduler.ledger.sites.usable()

    def after(self, event: AnyEvent, turn: Turn, site_of: dict[str, SiteName]) -> None:
        """Check the consequences of the event."""
        usable = self._ledger.sites.usable()
        # Events change what is usable: a site counts if it was usable both before and after this one.
        steady = [min(pair) for pair in zip(self._usable, usable, strict=True)]
        self._usable = usable
        for entry in turn.entries:
            if isinstance(entry, SiteDistrusted):
                self._keeps_its_trust(entry)
            elif isinstance(entry, JobPlaced):
                self._rests(entry, event.at)
                self._goes_elsewhere(entry, event.at, steady)
            elif isinstance(entry, NodesAllowed):
                self._allowed.add(entry.job)
            elif isinstance(entry, StartComponent):
                self._is_kept_off(entry, event.at)
            elif isinstance(entry, JobRequeued):
                self._failed.pop(entry.job, None)
                if isinstance(event, ComponentEnded) and event.outcome == "failed":
                    job = self._ledger.jobs.get(entry.job)
                    if job is not None and event.token.startswith(f"{job.id}."):
                        self._failed[job.id] = site_of[event.token], event.at
                        if event.exit_code == NOT_FOUND and len(event.nodes) == 1:
                            self._bad_node[job.id, site_of[event.token]] = event.nodes[0], event.at

    def _keeps_its_trust(self, fact: SiteDistrusted) -> None:
        if fact.site in self._healthy and fact.reason.startswith("failures"):
            self._fail("a healthy site keeps its trust under bad programs", f"{fact.site} lost it: {fact.reason}")

    def _is_kept_off(self, command: StartComponent, at: float) -> None:
        node, since = self._bad_node.get((command.job, command.site), ("", 0.0))
        if not node or at >= since + self._ledger.parameters.avoid_failed_s or node in command.exclude_nodes:
            return
        job = self._ledger.jobs.get(command.job)
        if job is not None and job.id not in self._allowed:
            detail = f"{command.token} may run on {node} of {command.site}, where its program was not found"
            self._fail("a job is kept off the node it failed on", detail)

    def _rests(self, fact: JobPlaced, at: float) -> None:
        failed = self._failed.get(fact.job)
        if failed is not None and at < failed[1] + self._ledger.parameters.restart_rest_s:
            self._fail("restarts rest", f"job {fact.job} failed at {failed[1]:.3f} and has a place already")

    def _goes_elsewhere(self, fact: JobPlaced, at: float, usable: list[int]) -> None:
        failed = self._failed.pop(fact.job, None)
        job = self._ledger.jobs.get(fact.job)
        if failed is None or job is None or not _is_plain(job):
            return
        site, since = failed
        if at >= since + self._ledger.parameters.avoid_failed_s or site not in dict(fact.places):
            return
        index = self._ledger.index
        other = job.demand.allowing(index[name] for name in job.avoiding).barring((index[site],))
        view = self._ledger.sites.view
        if not can_ever_fit(other, usable, view):
            return
        if can_ever_fit(other.barring(sorted(index[each] for each in self._closed_to(job))), usable, view):
            self._fail(
                "a job avoids the site it failed at while there is another way",
                f"job {job.id} failed on {site} and is placed there again",
            )


class TrustPromises:
    """Follows the failures and starts at each site; calls ``fail`` with the name of a broken promise and the
    detail."""

    def __init__(self, scheduler: Scheduler, fail: Callable[[str, str], None]) -> None:
        self._ledger = scheduler.ledger
        self._fail = fail
        self._reached: set[str] = set()  # components that have been at the barrier
        self._start: dict[SiteName, set[str]] = {}  # users whose components start there, and have not failed since
        self._before: dict[SiteName, tuple[Trust, int, dict[str, int]]] = {}

    def after(self, event: AnyEvent, turn: Turn) -> None:
        """Check the consequences of the event. Due work of its moment came before it."""
        distrusted = {each.site: each.reason for each in turn.entries if isinstance(each, SiteDistrusted)}
        for site in self._ledger.sites:
            trust, errors, by_user = self._before.get(site.name, (Trust.USABLE, 0, {}))
            new = {user: count - by_user.get(user, 0) for user, count in site.errors_of.items()}
            failed = {user: count for user, count in new.items() if count > 0}
            start = self._start.setdefault(site.name, set())
            start.difference_update(failed)
            if distrusted.get(site.name, "").startswith("failures"):
                self._not_by_one(site, _weights(site), 0, start, TRUST_LOST_WEIGHT)
            elif site.name in distrusted and trust is Trust.PROBING:
                self._not_by_one(site, failed, site.errors - errors - sum(failed.values()), start, 1)
            elif site.name in distrusted:
                nobodys = site.errors - sum(site.errors_of.values())
                self._not_by_one(site, site.errors_of, nobodys, start, self._ledger.parameters.error_threshold)
            self._before[site.name] = site.trust, site.errors, dict(site.errors_of)
        if isinstance(event, ComponentReady) and event.token not in self._reached:
            self._reached.add(event.token)
            claim = self._ledger.claims.get(event.token)
            if claim is not None and not claim.aborting:
                self._start[self._ledger.names[claim.site]].add(claim.job.submitter)

    def _not_by_one(
        self, site: SiteBelief, by_user: dict[str, int], nobodys: int, start: set[str], enough: int
    ) -> None:
        """Check that one user's jobs, at a site where others' start, have counted no more than all the rest."""
        loudest = max(by_user, key=by_user.__getitem__, default="")
        others = start - {loudest}
        rest = nobodys + sum(count for user, count in by_user.items() if user != loudest)
        if by_user and others and rest + min(rest, by_user[loudest]) < enough:
            detail = f"{site.name} lost its trust by those of {loudest}, where those of {sorted(others)} start"
            self._fail(TRUSTED, detail)


def _weights(site: SiteBelief) -> dict[str, int]:
    found: dict[str, int] = {}
    for accuser, each in site.record.accusations.items():
        user = accuser.partition("\n")[0]
        found[user] = found.get(user, 0) + each.weight * each.proved
    return found


def _is_plain(job: Job) -> bool:
    """Return True if only processors and sites decide where the job fits."""
    if job.asks is None or job.state is JobState.QUARANTINED:
        return False
    return job.request.communication is None and not any(each.input_files for each in job.request.components)


class _Failed(NamedTuple):
    """A node on which a user's program is known to fail, with the end of its exclusion."""

    site: SiteName
    node: str
    owner: str
    program: str
    until: float


class ExclusionPromises:
    """A job goes only to a site with nodes left that its program may run on, while such a site exists; and no
    component is sent to a site without the nodes that it would need there. The class follows the nodes that sites
    name; it calls ``fail`` with the name of a broken promise and the detail."""

    def __init__(self, scheduler: Scheduler, fail: Callable[[str, str], None]) -> None:
        self._ledger = scheduler.ledger
        self._fail = fail
        self._named: dict[SiteName, tuple[NamedNode, ...]] = {}
        self._processors = {site.name: site.processors for site in scheduler.grid.sites}
        self._failed: set[_Failed] = set()
        self._allowed: set[JobId] = set()  # jobs that may run where they failed, without an alternative
        self._usable = scheduler.ledger.sites.usable()

    def after(self, event: AnyEvent, turn: Turn) -> None:
        """Check the consequences of the event. Its changes of nodes and sites count from the next event on: due work
        of its moment is done before it."""
        failed, usable = self._all_failed(), self._ledger.sites.usable()
        known = failed & self._failed
        steady = [min(pair) for pair in zip(self._usable, usable, strict=True)]
        self._failed, self._usable = failed, usable
        for entry in turn.entries:
            if isinstance(entry, StartComponent) and entry.exclude_nodes:
                self._has_nodes(entry)
            elif isinstance(entry, JobPlaced) and known:
                self._goes_where_it_may(entry, known, steady)
        if isinstance(event, SiteReported):
            self._named[event.site] = event.named

    def _all_failed(self) -> set[_Failed]:
        ledger = self._ledger
        return {
            _Failed(site.name, each.node, each.owner, each.program, each.at + ledger.parameters.avoid_failed_s)
            for site in ledger.sites
            for each in site.record.nodes
            if each.proved and each.at + ledger.parameters.avoid_failed_s > ledger.now
        }

    def _has_nodes(self, command: StartComponent) -> None:
        left = self._left(command.site, command.exclude_nodes)
        if left is not None and left < command.processors:
            detail = f"{command.token} is kept off {', '.join(command.exclude_nodes)} of {command.site}"
            self._fail(NODES_LEFT, f"{detail}, whose other nodes have {left} of its {command.processors} processors")

    def _goes_where_it_may(self, fact: JobPlaced, known: set[_Failed], usable: list[int]) -> None:
        job = self._ledger.jobs.get(fact.job)
        if job is None or job.asks is None or job.state is JobState.QUARANTINED:
            return
        sites = self._closed_to(job, known)
        if not sites or set(sites).isdisjoint(dict(fact.places)):
            return
        index = self._ledger.index
        other = job.demand.allowing(index[site] for site in job.avoiding).barring(index[site] for site in sites)
        if can_ever_fit(other, usable, self._ledger.sites.view):
            detail = f"job {job.id} is placed on {', '.join(sorted(dict(fact.places)))}"
            self._fail(NODES_LEFT, f"{detail}; too few nodes are left for its program on {', '.join(sites)}")

    def closed_to(self, job: Job) -> list[SiteName]:
        """Return the sites without nodes for its program, before the present event or after it."""
        return self._closed_to(job, self._failed | self._all_failed())

    def _closed_to(self, job: Job, known: set[_Failed]) -> list[SiteName]:
        return [site for site in self._named if self._is_closed(site, job, known)]

    def _is_closed(self, site: SiteName, job: Job, known: set[_Failed]) -> bool:
        return any(
            self._is_closed_to(site, component, job, known)
            for component in job.request.components
            if component.site in (None, site)
        )

    def _is_closed_to(self, site: SiteName, component: Component, job: Job, known: set[_Failed]) -> bool:
        whose = job.submitter, program_of(job.request, component).digest
        left = self._left(site, {each.node for each in known if each.site == site and each[2:4] == whose})
        return left is not None and left < _least(job, component) <= self._processors[site]

    def _left(self, site: SiteName, excluded: Collection[str]) -> int | None:
        """Return the processors of the site's other nodes; None if it does not name all of them."""
        sizes = {node.name: node.whole.processors for node in self._named.get(site, ())}
        if sum(sizes.values()) < self._processors[site]:
            return None
        return sum(size for name, size in sizes.items() if name not in excluded)


def _least(job: Job, component: Component) -> int:
    """Return the fewest processors that the component may have at one site: a flexible one is divided among several,
    by whole tasks."""
    flexible, per_task = job.request.flexible, component.application.processors_per_task
    if flexible is None:
        return component.processors
    return -(-min([min(split) for split in flexible.splits] or [flexible.component_min]) // per_task) * per_task
