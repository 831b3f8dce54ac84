"""What would help a refused demand: more idle processors, found step by step and verified at each step.

``koala.policies.refusals.refusal`` and ``koala.policies.refusals.links`` compose the words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple, TypeAlias

from koala.model.api import Refusal, Shortage
from koala.policies.demand import Demand
from koala.policies.view import View

# If more sites than this must grow, one after the other, a cure is too long to be worth reporting.
CURE_STEPS_MAX = 64

Growth: TypeAlias = dict[int, int]


class Wanted(NamedTuple):
    """What a site would need idle for the failed part to fit there, including this job's other parts."""

    site: int
    processors: int
    reachable: bool = True


class Failure(NamedTuple):
    """Where one try stopped: at a component of a shape (None for a division), and what would have let it continue."""

    component: int | None
    wanted: tuple[Wanted, ...]
    unplaced: int


Attempt: TypeAlias = Callable[[Sequence[int]], Failure | None]


def find_growth(attempt: Attempt, idle: Sequence[int], view: View) -> Growth | None:
    """Return more idle processors, by site, with which the same try succeeds: each step grows where the
    least is missing.

    None if no such growth is found within what the sites offer.
    """
    grown = list(idle)
    for _ in range(CURE_STEPS_MAX):
        failure = attempt(grown)
        if failure is None:
            return {site: now - idle[site] for site, now in enumerate(grown) if now > idle[site]}
        options = [
            (want.processors - grown[want.site], want.site)
            for want in failure.wanted
            if want.reachable and grown[want.site] < want.processors <= view.limit[want.site]
        ]
        if not options:
            return None
        missing, site = min(options)
        grown[site] += missing
    return None


def growth_cost(growth: Growth | None) -> float:
    """Return how many processors it is; no growth at all costs the most."""
    return inf if growth is None else sum(growth.values())


def growth_text(growth: Growth | None, view: View) -> str:
    """Return the growth in words."""
    if growth is None:
        return f"more idle {view.units.many} on several sites at once; with all sites idle it fits"
    units = view.units
    return " and ".join(
        f"{units.more(missing, site)} on {view.names[site]}" for site, missing in sorted(growth.items())
    )


def list_shortages(failure: Failure, idle: Sequence[int], view: View) -> tuple[Shortage, ...]:
    """Return what each site lacks, and what would help there."""
    return tuple(
        Shortage(
            site=view.names[want.site],
            wanted=want.processors,
            idle=idle[want.site],
            missing=max(0, want.processors - idle[want.site]),
            cure=_site_cure(want, idle[want.site], view),
            resource=view.units.resource(max(1, want.processors - idle[want.site]), want.site),
        )
        for want in failure.wanted
    )


def _site_cure(want: Wanted, idle: int, view: View) -> str:
    name = view.names[want.site]
    if not want.reachable:
        return f"none: no replica of its input files can be brought to {name}"
    if want.processors > view.limit[want.site]:
        return f"none: {view.units.never(want.site, name, view.limit[want.site])}"
    if want.processors <= idle:
        return f"none: {name} has room, and the policy did not use it"
    return f"{view.units.more(want.processors - idle, want.site)} on {name}"


def refuse_now_fitting(demand: Demand) -> Refusal:
    """Return the refusal of a demand that fits by now: the world has changed since the try."""
    return Refusal(
        policy=demand.policy.name,
        reason="what was missing when the job was last tried is there now",
        cure="nothing: the next scan of the queue will try the job again",
    )
