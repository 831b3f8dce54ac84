"""The faults of a simulated world, drawn from the seed: failing components, outages, unreliable messages.

This module decides what breaks and when; ``koala.simulator.world.world`` carries it out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from koala.model.grid import AnswerFaults, SiteFaults
from koala.model.request import SiteName
from koala.simulator.workloads.draws import exponential, stream
from koala.simulator.world.site import SimulatedSite

# The share of failing components that break on their way to the barrier; the others break during execution.
BREAKS_BEFORE_BARRIER_SHARE = 0.25


class Outage:
    """One period in which a whole site is down, or cannot be reached if it ``runs_on``. ``drawn`` ones end when the
    world heals."""

    __slots__ = ("begun", "drawn", "from_s", "runs_on", "site", "to_s")

    def __init__(
        self, site: SimulatedSite, from_s: float, to_s: float, *, drawn: bool, runs_on: bool = False
    ) -> None:
        self.site = site
        self.from_s = from_s
        self.to_s = to_s
        self.drawn = drawn
        self.runs_on = runs_on
        self.begun = False


def component_fails_at(seed: int, token: str, chance: float) -> float | None:
    """Return where in its execution a component breaks (below zero: before the barrier), or None if it will not."""
    rng = stream(seed, "component", token)
    if rng.random() >= chance:
        return None
    return -1.0 if rng.random() < BREAKS_BEFORE_BARRIER_SHARE else rng.random()


def application_fails_at(seed: int, token: str, chance: float) -> float | None:
    """Return where in its execution an application returns failure, or None if it will not."""
    rng = stream(seed, "application", token)
    return rng.random() if rng.random() < chance else None


def bad_nodes(site: SiteName, faults: SiteFaults, nodes: int, seed: int) -> frozenset[int]:
    """Return the misconfigured nodes, by their places; always the same ones."""
    return frozenset(stream(seed, "bad nodes", site).sample(range(nodes), min(nodes, faults.bad_nodes)))


def outages(site: SimulatedSite, faults: SiteFaults, seed: int) -> tuple[list[Outage], Iterator[Outage]]:
    """Return the outages and silences that the grid file lists, and an endless series of outages drawn for the
    site."""
    listed = [Outage(site, from_s, to_s, drawn=False) for from_s, to_s in faults.outages]
    listed += [Outage(site, from_s, to_s, drawn=False, runs_on=True) for from_s, to_s in faults.silences]
    return listed, _drawn_outages(site, faults, stream(seed, "outages", site.name))


def _drawn_outages(site: SimulatedSite, faults: SiteFaults, rng: random.Random) -> Iterator[Outage]:
    if faults.mean_time_between_outages_s is None:
        return
    to_s = 0.0
    while True:
        from_s = to_s + exponential(rng, faults.mean_time_between_outages_s)
        to_s = from_s + exponential(rng, faults.outage_mean_s)
        yield Outage(site, from_s, to_s, drawn=True)


class Channel:
    """The channel between the scheduler and the sites while messages can be lost, doubled or late."""

    __slots__ = ("_faults", "_rng")

    def __init__(self, faults: AnswerFaults, seed: int) -> None:
        self._faults = faults
        self._rng = stream(seed, "messages")

    def loses_command(self) -> bool:
        """Return True if a command never reaches its site."""
        return self._rng.random() < self._faults.never

    def answer_delays_s(self) -> list[float]:
        """Return the delays of an answer's copies: none if it is lost, two if it is doubled."""
        faults, rng = self._faults, self._rng
        if rng.random() < faults.never:
            return []
        first_s = exponential(rng, faults.late_mean_s) if rng.random() < faults.late else 0.0
        if rng.random() < faults.twice:
            return [first_s, first_s + exponential(rng, faults.late_mean_s)]
        return [first_s]

    def transfer_breaks_at(self, transfer: str, seed: int) -> float | None:
        """Return the fraction of its bytes after which a transfer breaks, or None if it will not."""
        rng = stream(seed, "transfer", transfer)
        return rng.random() if rng.random() < self._faults.transfer_break else None
