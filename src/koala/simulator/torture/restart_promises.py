"""Promises about jobs whose runs fail: where they go next, how long they rest, and whom they cost its trust."""

from __future__ import annotations

from collections.abc import Callable

from koala.core import Scheduler
from koala.core.failures.blame import NOT_FOUND
from koala.core.lifecycle import JobState
from koala.core.state.blame import TRUST_LOST_WEIGHT
from koala.core.state.job import Job
from koala.core.state.site_belief import SiteBelief, Trust
from koala.model.messages import (
    AnyCommand,
    AnyEvent,
    ComponentEnded,
    ComponentReady,
    JobPlaced,
    JobRequeued,
    SiteDistrusted,
    StartComponent,
)
from koala.model.request import JobId, SiteName
from koala.policies.interface import can_ever_fit

# The name of a promise.
TRUSTED = "a job can cost nobody but its owner a site"


class RestartPromises:
    """Follows the failures of one run; ``fail`` is called with the name of a broken promise and the detail."""

    def __init__(self, scheduler: Scheduler, fail: Callable[[str, str], None]) -> None:
        self._ledger = scheduler.ledger
        self._fail = fail
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
        self._bad_node: dict[tuple[JobId, SiteName], tuple[str, float]] = {}  # where it is missing, and since when
        self._usable = scheduler.ledger.sites.usable()

    def after(self, event: AnyEvent, commands: list[AnyCommand], site_of: dict[str, SiteName]) -> None:
        """Check what the event led to."""
        usable = self._ledger.sites.usable()
        # What may be used changes with events: a way counts that was there before this one and is there after it.
        steady = [min(pair) for pair in zip(self._usable, usable, strict=True)]
        self._usable = usable
        for command in commands:
            if isinstance(command, SiteDistrusted):
                self._keeps_its_trust(command)
            elif isinstance(command, JobPlaced):
                self._rests(command, event.at)
                self._goes_elsewhere(command, event.at, steady)
            elif isinstance(command, StartComponent):
                self._is_kept_off(command, event.at)
            elif isinstance(command, JobRequeued):
                self._failed.pop(command.job, None)
                if isinstance(event, ComponentEnded) and event.outcome == "failed":
                    job = self._ledger.jobs.get(command.job)
                    if job is not None and event.token.startswith(f"{job.id}."):
                        self._failed[job.id] = site_of[event.token], event.at
                        if event.exit_code == NOT_FOUND and len(event.nodes) == 1:
                            self._bad_node[job.id, site_of[event.token]] = event.nodes[0], event.at

    def _keeps_its_trust(self, command: SiteDistrusted) -> None:
        if command.site in self._healthy and command.reason.startswith("failures"):
            self._fail(
                "a healthy site keeps its trust under bad programs", f"{command.site} lost it: {command.reason}"
            )

    def _is_kept_off(self, command: StartComponent, at: float) -> None:
        node, since = self._bad_node.get((command.job, command.site), ("", 0.0))
        if not node or at >= since + self._ledger.parameters.avoid_failed_s or node in command.exclude_nodes:
            return
        job = self._ledger.jobs.get(command.job)
        if job is not None and not any(entry[1] in ("all_nodes", "left_out") for entry in job.story):
            detail = f"{command.token} may run on {node} of {command.site}, where its program was not found"
            self._fail("a job is kept off the node it failed on", detail)

    def _rests(self, command: JobPlaced, at: float) -> None:
        failed = self._failed.get(command.job)
        if failed is not None and at < failed[1] + self._ledger.parameters.restart_rest_s:
            self._fail("restarts rest", f"job {command.job} failed at {failed[1]:.3f} and has a place already")

    def _goes_elsewhere(self, command: JobPlaced, at: float, usable: list[int]) -> None:
        failed = self._failed.pop(command.job, None)
        job = self._ledger.jobs.get(command.job)
        if failed is None or job is None or not _is_plain(job):
            return
        site, since = failed
        if at >= since + self._ledger.parameters.avoid_failed_s or site not in dict(command.places):
            return
        assert job.demand is not None
        index = self._ledger.index
        other = job.demand.allowing(index[name] for name in job.avoiding).barring((index[site],))
        if can_ever_fit(other, usable, self._ledger.sites.view):
            self._fail(
                "a job avoids the site it failed at while there is another way",
                f"job {job.id} failed on {site} and is placed there again",
            )


class TrustPromises:
    """Follows who fails and who starts at each site; ``fail`` is called with the name of a broken promise and the
    detail."""

    def __init__(self, scheduler: Scheduler, fail: Callable[[str, str], None]) -> None:
        self._ledger = scheduler.ledger
        self._fail = fail
        self._reached: set[str] = set()  # components that have been at the barrier
        self._start: dict[SiteName, set[str]] = {}  # users whose components start there, and have not failed since
        self._before: dict[SiteName, tuple[Trust, int, dict[str, int]]] = {}

    def after(self, event: AnyEvent, commands: list[AnyCommand]) -> None:
        """Check what the event led to. What was due at its moment came before it."""
        distrusted = {each.site: each.reason for each in commands if isinstance(each, SiteDistrusted)}
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
        """That of one user's jobs, where others' start, has counted no more than all the rest."""
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
    """Whether nothing but processors and sites decides where the job fits."""
    if job.demand is None or job.state is JobState.QUARANTINED:
        return False
    return job.request.communication is None and not any(each.input_files for each in job.request.components)
