"""The choice of jobs to preempt so that another finds places: little lost work, and no needless victim.

The cheapest set of victims is a knapsack, and only the policy can tell if a set suffices. So candidates are sorted in
a few ways. For each order, halving finds the shortest prefix that suffices, and victims that are not needed are let
off, the most costly first. The cheapest of these sets is taken. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from koala.core.life.job import Job
from koala.core.life.states import JobState
from koala.core.state.availability import expected_at
from koala.core.state.checkpoints import grace_s, work_lost_s
from koala.core.state.ledger import Ledger
from koala.core.state.nodes.pools import BelievedPools
from koala.core.state.reservations import fits, places_on
from koala.model.messages import Token
from koala.model.nodes import NodePool
from koala.policies.interface import Demand, Spots, View

# At most this many candidates are considered: those with the least to lose.
CANDIDATES_MAX = 256


class Candidate(NamedTuple):
    """A job that may be preempted, and its cost.

    It also has what the job holds as (site, processors, until when), by the tokens of its components.
    """

    job: Job
    lost_s: float
    processors: int
    holds: tuple[tuple[int, int, float], ...]
    tokens: tuple[Token, ...] = ()


class Victims(NamedTuple):
    """The victims whose processors give another job these places, and the processor time that is lost with them."""

    jobs: tuple[Job, ...]
    spots: Spots
    lost_s: float


class SpareRoom(NamedTuple):
    """What a job may have if nobody is preempted.

    That is what is free now, including what is being let go; and what earlier-ranking plans leave at their times,
    below zero if that is too little already. ``let_go`` are the components that are being let go.
    """

    now: list[int]
    beside_plans: Sequence[tuple[float, Sequence[int]]]
    let_go: tuple[Token, ...] = ()


class _PoolsWithout:
    """The nodes of the sites as they would be without some of our components; ``known`` are the sites
    examined so far."""

    changes = 0

    def __init__(
        self,
        pools: BelievedPools,
        tokens: dict[int, set[Token]],
        known: dict[tuple[int, frozenset[Token]], NodePool | None],
    ) -> None:
        self._pools = pools
        self._tokens = tokens
        self._known = known

    def free(self, site: int) -> NodePool | None:
        gone = frozenset(self._tokens.get(site, ()))
        if (site, gone) not in self._known:
            self._known[site, gone] = self._pools.without(site, gone)
        return self._known[site, gone]

    def whole(self, site: int) -> NodePool | None:
        return self._pools.whole(site)


class NodesWithout:
    """The nodes as a demand with shapes sees them without victims, where the site reports who is on which node."""

    def __init__(self, ledger: Ledger, room: SpareRoom) -> None:
        self._ledger = ledger
        self._let_go = room.let_go
        self._known: dict[tuple[int, frozenset[Token]], NodePool | None] = {}

    def view(self, victims: Sequence[Candidate]) -> View:
        """Return the view without these victims."""
        gone: dict[int, set[Token]] = {}
        for token in (*self._let_go, *(token for victim in victims for token in victim.tokens)):
            gone.setdefault(self._ledger.claims[token].site, set()).add(token)
        sites = self._ledger.sites
        return sites.view.with_pools(_PoolsWithout(sites.pools, gone, self._known))


def lost_processor_s(job: Job, now: float) -> float:
    """Return the processor time that is lost if the job starts anew. Before the barrier nothing is lost."""
    return work_lost_s(job, now) * job.request.processors if job.state is JobState.RUNNING else 0.0


def candidates(ledger: Ledger, demand: Demand, *, preempted_max: int) -> list[Candidate]:
    """Return the low-priority jobs that hold something where the demand may go, those with the least to lose first.

    A job that was preempted as often as allowed is safe from then on, so that every job comes to its end.
    """
    held: dict[int, list[tuple[int, int, float]]] = {}
    tokens: dict[int, list[Token]] = {}
    jobs: dict[int, Job] = {}
    closed = {index for index, site in enumerate(ledger.sites) if site.is_shut} | set(demand.barred)
    for claim in ledger.claims.values():
        job = claim.job
        if job.high or claim.aborting or claim.fenced or claim.site in closed or job.preemptions >= preempted_max:
            continue
        if grace_s(claim) >= ledger.parameters.barrier_timeout_s:
            continue  # it may need longer to save its state than any job waits for it
        jobs[job.id] = job
        held.setdefault(job.id, []).append((claim.site, claim.processors, expected_at(claim.due_at, ledger.now)))
        tokens.setdefault(job.id, []).append(claim.token)
    found = [
        Candidate(
            job,
            lost_processor_s(job, ledger.now),
            sum(each[1] for each in held[number]),
            tuple(held[number]),
            tuple(tokens[number]),
        )
        for number, job in jobs.items()
    ]
    found.sort(key=_by_loss)
    return found[:CANDIDATES_MAX]


def choose(
    ledger: Ledger, demand: Demand, room: SpareRoom, among: Sequence[Candidate], victims_max: int
) -> Victims | None:
    """Return the cheapest set found with at most ``victims_max`` victims; None if there is none."""
    nodes = NodesWithout(ledger, room) if demand.groups else None

    def places(victims: Sequence[Candidate]) -> Spots | None:
        view = ledger.sites.view if nodes is None else nodes.view(victims)
        return places_on(demand, idle_without(room, victims), view)

    if not among or places(among) is None:
        return None
    best: tuple[tuple[float, int], list[Candidate], Spots] | None = None
    for order in (_by_loss, _by_loss_each, _by_size):
        chosen = _shortest(sorted(among, key=order), places)
        victims, spots = _none_too_many(room, chosen, places, by_nodes=nodes is not None)
        cost = sum(each.lost_s for each in victims), len(victims)
        if len(victims) <= victims_max and (best is None or cost < best[0]):
            best = cost, victims, spots
    if best is None:
        return None
    (lost_s, _), victims, spots = best
    return Victims(tuple(sorted((each.job for each in victims), key=lambda job: job.id)), spots, lost_s)


def _by_loss(each: Candidate) -> tuple[float, int, int]:
    return each.lost_s, -each.processors, each.job.id


def _by_loss_each(each: Candidate) -> tuple[float, int, int]:
    return each.lost_s / each.processors, -each.processors, each.job.id


def _by_size(each: Candidate) -> tuple[int, float, int]:
    return -each.processors, each.lost_s, each.job.id


def idle_without(room: SpareRoom, victims: Sequence[Candidate]) -> list[int]:
    """Return what would be idle for the job without the victims, and is needed by no earlier-ranking plan."""
    idle = list(room.now)
    for victim in victims:
        for site, processors, _ in victim.holds:
            idle[site] += processors
    for at, left in room.beside_plans:
        then = list(left)
        for victim in victims:
            for site, processors, until in victim.holds:
                if until > at:
                    then[site] += processors
        idle = list(map(min, idle, then))
    return [processors if processors > 0 else 0 for processors in idle]


def _shortest(ranked: list[Candidate], places: Callable[[Sequence[Candidate]], Spots | None]) -> list[Candidate]:
    """Return the shortest prefix of ``ranked`` that gives the demand places, given that all of them do.

    Under a policy that is not monotone, return some prefix that does.
    """
    low, high = 1, len(ranked)
    while low < high:
        middle = (low + high) // 2
        if places(ranked[:middle]) is not None:
            high = middle
        else:
            low = middle + 1
    return ranked[:high]


def _none_too_many(
    room: SpareRoom,
    chosen: list[Candidate],
    places: Callable[[Sequence[Candidate]], Spots | None],
    *,
    by_nodes: bool,
) -> tuple[list[Candidate], Spots]:
    """Drop the victims that are not needed, the most costly first.

    ``by_nodes``: idle processors do not prove that the places exist, so the policy is asked each time.
    """
    spots = places(chosen)
    assert spots is not None
    for each in sorted(chosen, key=_by_loss, reverse=True):
        without = [other for other in chosen if other is not each]
        found = spots if not by_nodes and fits(spots, idle_without(room, without)) else places(without)
        if found is not None:
            chosen, spots = without, found
    return chosen, spots
