"""The queues against a naive twin: a plain list, every job tried head to tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from koala.core.changes import Changes
from koala.core.life.job import Job
from koala.core.life.placed import Placed
from koala.core.life.places import JobPlaces
from koala.core.state.follow_ups import FollowUps
from koala.core.state.queues.claiming import ClaimingQueue
from koala.core.state.queues.placement import LIMITS_SLACK, PlacementQueue
from koala.core.state.queues.scan import Found, scan
from koala.core.state.sites import Sites
from koala.model.request import Request
from koala.policies import Catalogue, PolicyError
from koala.policies.interface import Spots, View, compile_demand, try_place
from tests.support.core_driver import CoreDriver, ask, ask_total, make_grid, part

SITES_MAX = 4
CATALOGUE = Catalogue.builtin()


@st.composite
def requests(draw: st.DrawFn, sites: int) -> Request:
    """Single, multi-component, pinned and flexible requests, from a small choice so that many are equal."""
    rule = draw(st.sampled_from(["WF", "CM", "FCM"]))
    if draw(st.booleans()):
        total = draw(st.integers(1, 14))
        most = draw(st.sampled_from([None, 1, 2]))
        return ask_total(total, component_min=draw(st.integers(1, min(4, total))), components_max=most)
    where = st.sampled_from([None, None, *(f"s{site}" for site in range(sites))])
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    return ask(*(part(size, draw(where)) for size in sizes), policy=rule)


@dataclass
class Worlds:
    """The queue and its naive twin, each with a view of its own."""

    queue: PlacementQueue
    book: Sites
    naive: list[Job]
    naive_view: View
    jobs: dict[int, Job] = field(default_factory=dict)

    @property
    def view(self) -> View:
        return self.book.view

    def push(self, request: Request) -> None:
        rule = CATALOGUE.find(request.policy or "WF")
        job = Job.submitted(len(self.jobs), request, 0.0, 0.75)
        job.asks = compile_demand(request, rule, self.view.index)
        self.jobs[job.id] = job
        self.queue.push(job, exhausted_at_scan=None, untried=True)
        self.naive.append(job)

    def remove(self, place: int) -> None:
        if self.naive:
            self.queue.remove(self.naive.pop(place % len(self.naive)))

    def scan(self) -> list[tuple[int, Spots]]:
        placed: list[tuple[int, Spots]] = []

        def take(job: Job, spots: Spots) -> None:
            subtract(self.view, spots)
            placed.append((job.id, spots))

        scan(self.queue, self.book, None, Found(take, never, nobody))
        return placed

    def scan_naively(self) -> list[tuple[int, Spots]]:
        placed = []
        for job in list(self.naive):
            spots = try_place(job.demand, self.naive_view)
            if spots is not None:
                subtract(self.naive_view, spots)
                self.naive.remove(job)
                placed.append((job.id, spots))
        return placed


def subtract(view: View, spots: Spots) -> None:
    for site, size in zip(spots.sites, spots.sizes, strict=True):
        view.idle[site] -= size


def never(job: Job, error: PolicyError) -> None:
    raise AssertionError(f"job {job.id} broke its policy: {error}")


def nobody(jobs: Sequence[Job]) -> None:
    raise AssertionError(f"something was raised on {jobs}")


def worlds(idle: list[int]) -> Worlds:
    grid = make_grid({f"s{site}": 20 for site in range(len(idle))})
    book, naive_view = Sites(grid, FollowUps(), Changes()), View.from_grid(grid)
    book.view.idle, naive_view.idle = list(idle), list(idle)
    return Worlds(PlacementQueue(high=False), book, [], naive_view)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_scan_places_the_same_jobs_in_the_same_order_as_trying_every_one(data: st.DataObject) -> None:
    sites = data.draw(st.integers(1, SITES_MAX))
    idles = st.lists(st.integers(0, 12), min_size=sites, max_size=sites)
    twins = worlds(data.draw(idles))
    for _ in range(data.draw(st.integers(1, 3))):
        for request in data.draw(st.lists(requests(sites), max_size=14)):
            twins.push(request)
        for place in data.draw(st.lists(st.integers(0, 20), max_size=3)):
            twins.remove(place)
        assert twins.scan() == twins.scan_naively()
        assert twins.view.idle == twins.naive_view.idle
        assert [job.id for job in twins.queue] == [job.id for job in twins.naive]
        assert len(twins.queue) == len(twins.naive)
        for place, job in enumerate(twins.naive, 1):
            assert twins.queue.place_in_line(job) == place
        idle = data.draw(idles)
        twins.view.idle, twins.naive_view.idle = list(idle), list(idle)


def test_a_small_job_behind_a_large_one_is_placed_in_the_same_scan() -> None:
    twins = worlds([5])
    for size in (6, 2, 4, 3):
        twins.push(ask(size))
    assert [job for job, _ in twins.scan()] == [1, 3]
    assert [job.id for job in twins.queue] == [0, 2]


def test_a_removed_job_is_gone_and_the_others_move_up() -> None:
    twins = worlds([0])
    for size in (1, 2, 1):
        twins.push(ask(size))
    twins.queue.remove(twins.jobs[0])
    assert [job.id for job in twins.queue] == [1, 2]
    assert twins.queue.place_in_line(twins.jobs[2]) == 2


def test_a_job_out_of_tries_is_taken_out_once_and_only_if_it_is_still_there() -> None:
    twins = worlds([0])
    queue = PlacementQueue(high=True)
    jobs = []
    for number, exhausted in enumerate((3, None, 2, 2)):
        job = Job.submitted(number, ask(1), 0.0, 0.75)
        job.asks = compile_demand(job.request, CATALOGUE.find("WF"), twins.view.index)
        queue.push(job, exhausted_at_scan=exhausted, untried=False)
        jobs.append(job)
    assert queue.limited
    queue.remove(jobs[2])
    assert queue.pop_exhausted(1) == []
    assert queue.pop_exhausted(2) == [jobs[3]]
    assert queue.pop_exhausted(5) == [jobs[0]]
    assert list(queue) == [jobs[1]]


def test_a_policy_that_breaks_stops_the_jobs_from_there_on_and_none_before() -> None:
    """As trying every job would: the first is refused on 10 idle processors, the third meets the fault on 5."""

    catalogue = Catalogue.builtin()
    catalogue.add_from_source(MOODY, "moody.py")
    book = Sites(make_grid({"s0": 10}), FollowUps(), Changes())
    view = book.view
    queue = PlacementQueue(high=False)
    jobs = []
    for number, name in enumerate(("moody", "WF", "moody", "moody")):
        job = Job.submitted(number, ask(5, policy=name), 0.0, 0.75)
        job.asks = compile_demand(job.request, catalogue.find(name), view.index)
        queue.push(job, exhausted_at_scan=None, untried=True)
        jobs.append(job)
    broken: list[int] = []
    found = Found(lambda _, spots: subtract(view, spots), lambda job, _: broken.append(job.id), nobody)
    scan(queue, book, None, found)
    assert broken == [2, 3]
    assert list(queue) == [jobs[0]]


MOODY = """
from koala.policies import policy

@policy("moody")
def moody(idle, sizes, left, chosen):
    if idle[0] == 5:
        raise RuntimeError("not at five")
    return 0
"""


# --------------------------------------------------------------------------------- the claiming queue


def with_a_place(number: int) -> Job:
    job = Job.submitted(number, ask(1), 0.0, 0.75)
    job.become(Placed(JobPlaces(Spots((0,), (1,)), (("a", 1),), 0.0)))
    return job


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0, 2.5, 7.0]), st.integers(0, 3)), max_size=20))
def test_the_claiming_queue_is_ordered_by_claiming_time_then_by_arrival(steps: list[tuple[float, int]]) -> None:
    queue = ClaimingQueue()
    naive: list[tuple[float, Job]] = []
    for number, (claim_at, drop) in enumerate(steps):
        job = with_a_place(number)
        queue.push(job, claim_at)
        naive.append((claim_at, job))
        if drop == 0:
            _, dropped = naive.pop(number % len(naive))
            queue.remove(dropped)
            queue.remove(dropped)
        naive.sort(key=lambda entry: entry[0])
        assert list(queue) == [job for _, job in naive]
        assert queue.next_at == (naive[0][0] if naive else float("inf"))
        if naive:
            assert queue.head() is naive[0][1]


def test_a_job_that_was_never_in_the_claiming_queue_can_be_removed_from_it() -> None:
    queue = ClaimingQueue()
    queue.push(with_a_place(1), 0.0)
    queue.remove(with_a_place(2))
    assert len(queue) == 1


def test_limits_of_jobs_that_have_left_are_forgotten() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=4.0)
    driver.report("a", others=10)
    driver.submit(ask(5))
    for job in range(2, 1_002):
        driver.submit(ask(3, placement_tries_max=1_000))
        driver.cancel(job)
    queue = driver.ledger.low
    assert not queue.limited
    assert len(queue._limits) <= LIMITS_SLACK + 1
    driver.settle()
    assert queue.scan_due_at == float("inf")
