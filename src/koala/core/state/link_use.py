"""What placed jobs ask of the links between sites, and what was observed of jobs that started."""

from __future__ import annotations

from koala.core.state.job import Job
from koala.core.state.sites import Sites
from koala.model.network import bisection_factor


class LinkUse:
    """What placed jobs ask of the links that they share, kept in the policies' view, and what was observed of the
    bandwidths of jobs that started. Jobs without communication, or on one site, load nothing.

    A job's demand counts from its placement until it gives its places back, so that policies see links as loaded as
    they will be. It follows from the job and its places alone.
    """

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self.observations = 0  # how many jobs make up the observed mean

    def add(self, job: Job) -> None:
        """The job has these places now: its demand counts until it is released."""
        spots, demand = job.spots, job.demand
        assert spots is not None
        assert demand is not None
        assert not job.link_demands
        view = self._sites.view
        parts = [0] * len(view.names)
        for site, size in zip(spots.sites, spots.sizes, strict=True):
            parts[site] += size
        traffic = demand.traffic
        job.link_demands = view.wiring.demands_bit_s(
            traffic.pattern, traffic.dimensions, parts, traffic.per_processor_bit_s
        )
        for link, bit_s in job.link_demands:
            view.link_demand_bit_s[link] += bit_s
        if job.link_demands:
            self._sites.links_changed(helped=False)

    def remove(self, job: Job) -> None:
        """What the job asked of links is free again."""
        demand_bit_s = self._sites.view.link_demand_bit_s
        for link, bit_s in job.link_demands:
            demand_bit_s[link] -= bit_s
        job.link_demands = []
        self._sites.links_changed(helped=True)

    def observe(self, job: Job) -> None:
        """The job starts on several sites: its bisection bandwidth counts in the mean, once a placement."""
        assert job.demand is not None
        assert job.spots is not None
        traffic = job.demand.traffic
        if job.observed or traffic.per_processor_bit_s == 0.0 or len(set(job.spots.sites)) == 1:
            return
        factor = bisection_factor(traffic.pattern, traffic.dimensions, job.demand.total)
        bisection_bit_s = traffic.per_processor_bit_s * factor
        if bisection_bit_s > 0.0:
            view = self._sites.view
            job.observed = True
            self.observations += 1
            view.observed_bisection_bit_s += (bisection_bit_s - view.observed_bisection_bit_s) / self.observations
