"""What placed jobs demand of the links between sites: as declared, as observed for jobs of their name, and, once
measured, as they actually send."""

from __future__ import annotations

from koala.core.encoded import NO_ITEMS
from koala.core.life.job import Job
from koala.core.life.places import JobPlaces
from koala.core.state.network.learned_traffic import LearnedTraffic
from koala.core.state.sites import Sites
from koala.model.network import UNLIMITED_BIT_S, bisection_factor, crossing, per_processor_bit_s
from koala.model.request import JOB_NAME, JobId
from koala.policies.minigrid.reserve import believed_pattern

# If a link carries this share of its capacity, the jobs on it might send more than was measured.
FULL_SHARE = 0.9
# Smaller relative differences to the belief change nothing; smaller ones to the last report are not reported.
CHANGE_SHARE = 0.01
TOLD_AGAIN_SHARE = 0.2
MEASURED, LEARNED = "measured", "learned"


class LinkUse:
    """The demand of placed jobs for shared links, in the policies' view, and the observed bandwidths of started jobs.

    Jobs on one site load nothing, nor do jobs whose traffic is unknown. A job's demand counts from its placement
    until it gives its places back, so that policies see links as loaded as they will be. It follows from the job and
    its places alone.
    """

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self.observations = 0  # how many jobs make up the observed mean
        self.learned = LearnedTraffic(sites.view.learned_bisection_bit_s)
        self.loading: dict[JobId, Job] = {}  # the jobs that load links

    def concerns(self, job: Job, placed: JobPlaces) -> bool:
        """Return True if anything is known of the job's traffic."""
        return (
            job.request.communication is not None
            or placed.believed_bit_s is not None
            or job.request.name in self.learned.applications
        )

    def add(self, job: Job) -> None:
        """Count the demand of a job with these places until it is released."""
        placed = job.placed
        assert not placed.link_demands
        traffic = job.demand.traffic
        learned = self.learned.believed.get(job.request.name)
        if placed.believed_bit_s is None and not traffic.per_processor_bit_s and learned:
            pattern = believed_pattern(traffic.pattern)
            own_bit_s = per_processor_bit_s(pattern, traffic.dimensions, job.demand.total, learned)
            placed.believed_bit_s, placed.belief = own_bit_s, LEARNED
        if self._load(job):
            self._sites.links_changed(helped=False)

    def put(self, job: Job) -> None:
        """Restore a job that had these places before a restart."""
        if self._load(job):
            self._sites.links_changed(helped=False)

    def _load(self, job: Job) -> bool:
        """Count the job's traffic; return True if there is any."""
        placed = job.placed
        spots, demand = placed.spots, job.demand
        assert spots is not None
        view = self._sites.view
        parts = [0] * len(view.names)
        for site, size in zip(spots.sites, spots.sizes, strict=True):
            parts[site] += size
        pattern, dimensions, own_bit_s, _ = demand.traffic
        if placed.believed_bit_s is not None:
            pattern, own_bit_s = believed_pattern(pattern), placed.believed_bit_s
        placed.link_demands = view.wiring.demands_bit_s(pattern, dimensions, parts, own_bit_s)
        for link, bit_s in placed.link_demands:
            view.link_demand_bit_s[link] += bit_s
        if placed.link_demands:
            self.loading[job.id] = job
        return bool(placed.link_demands)

    def remove(self, job: Job) -> None:
        """Release the job's demand on its links."""
        self._unload(job)
        self._sites.links_changed(helped=True)

    def _unload(self, job: Job) -> None:
        demand_bit_s = self._sites.view.link_demand_bit_s
        for link, bit_s in job.placed.link_demands:
            demand_bit_s[link] -= bit_s
        job.placed.link_demands = NO_ITEMS
        self.loading.pop(job.id, None)

    def observe(self, job: Job) -> None:
        """Include the bisection bandwidth of a job that starts on several sites in the mean, once
        for each placement."""
        traffic = job.demand.traffic
        if job.placed.observed or traffic.per_processor_bit_s == 0.0 or len(set(job.placed.spots.sites)) == 1:
            return
        factor = bisection_factor(traffic.pattern, traffic.dimensions, job.demand.total)
        self._observe(job, traffic.per_processor_bit_s * factor)

    def _observe(self, job: Job, bisection_bit_s: float) -> None:
        view = self._sites.view
        placed = job.placed
        if placed.observed:
            view.observed_bisection_bit_s += (bisection_bit_s - placed.observed_bisection_bit_s) / self.observations
        elif bisection_bit_s > 0.0:
            self.observations += 1
            view.observed_bisection_bit_s += (bisection_bit_s - view.observed_bisection_bit_s) / self.observations
            placed.observed = True
        placed.observed_bisection_bit_s = bisection_bit_s

    # --------------------------------------------------------------------------------- as it is measured

    def measure(self, job: Job, now: float) -> bool:
        """Update the belief after a new measurement of a component of the running job; return True if it
        is worth reporting.

        The mean traffic of its processors is what its measured components send, divided by what they would if each
        processor sent one unit. If one of its links is full the job might send more: then the belief does not fall.
        """
        pattern, dimensions, declared_bit_s, _ = job.demand.traffic
        pattern = believed_pattern(pattern)
        placed = job.placed
        sizes = placed.spots.sizes
        sent_bit_s = crossed = 0.0
        for part, (bit_s, _) in job.running.sent.items():
            sent_bit_s += bit_s
            crossed += crossing(pattern, dimensions, sizes, sum(sizes), part)
        if crossed <= 0.0:
            return False
        before_bit_s = declared_bit_s if placed.believed_bit_s is None else placed.believed_bit_s
        told_bit_s = placed.measured_bit_s
        placed.measured_bit_s = own_bit_s = sent_bit_s / crossed
        if own_bit_s < before_bit_s and self._is_held_up(job, before_bit_s):
            own_bit_s = before_bit_s
        if abs(own_bit_s - before_bit_s) > CHANGE_SHARE * before_bit_s or placed.belief != MEASURED:
            placed.believed_bit_s, placed.belief = own_bit_s, MEASURED
            self._unload(job)
            self._load(job)
            self._sites.links_changed(helped=own_bit_s < before_bit_s)
        bisection_bit_s = own_bit_s * bisection_factor(pattern, dimensions, job.demand.total)
        self._observe(job, bisection_bit_s)
        if job.request.name != JOB_NAME:
            self.learned.learn(job.request.name, job.id, bisection_bit_s, now)
        return told_bit_s is None or abs(placed.measured_bit_s - told_bit_s) > TOLD_AGAIN_SHARE * told_bit_s

    def _is_held_up(self, job: Job, before_bit_s: float) -> bool:
        """Return True if a link of the job is full, by the measured traffic of the jobs on it, or else by the
        believed traffic."""
        capacity = self._sites.view.wiring.capacity_bit_s
        carried = {link: 0.0 for link, _ in job.placed.link_demands if capacity[link] < UNLIMITED_BIT_S}
        if not carried:
            return False
        for other in self.loading.values():
            believed_bit_s = other.demand.traffic.per_processor_bit_s
            if other is job:
                believed_bit_s = before_bit_s
            elif other.placed.believed_bit_s is not None:
                believed_bit_s = other.placed.believed_bit_s
            measured_bit_s = other.placed.measured_bit_s
            share = 1.0 if measured_bit_s is None or believed_bit_s <= 0.0 else measured_bit_s / believed_bit_s
            for link, bit_s in other.placed.link_demands:
                if link in carried:
                    carried[link] += bit_s * share
        return any(bits >= FULL_SHARE * capacity[link] for link, bits in carried.items())


def sent_between_sites_bit_s(job: Job, own_bit_s: float) -> float:
    """Return what all sites of a placed job send to the others if each processor sends ``own_bit_s``."""
    pattern, dimensions, _, _ = job.demand.traffic
    placed = job.placed
    by_site: dict[int, int] = dict.fromkeys(sorted(set(placed.spots.sites)), 0)
    for site, size in zip(placed.spots.sites, placed.spots.sizes, strict=True):
        by_site[site] += size
    parts = list(by_site.values())
    total = sum(parts)
    crossed = sum(crossing(believed_pattern(pattern), dimensions, parts, total, part) for part in range(len(parts)))
    return own_bit_s * crossed
