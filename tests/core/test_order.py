"""Which waiting job comes first: by each order, with plans and without, with arrays, and by one's own function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.core import Scheduler
from koala.model.facts import JobPlaced
from koala.model.grid import Grid, SchedulerParameters, Site
from koala.model.job_array import ArraySpec
from koala.model.messages import (
    CancelAsked,
    ChangeAsked,
    ComponentEnded,
    ComponentReady,
    HoldAsked,
    JobSubmitted,
    Outcome,
    SiteReported,
    StartComponent,
    UnholdAsked,
)
from koala.model.request import Component, Priority, Request
from koala.policies import Catalogue, UnknownPolicyError, UserJobs, WaitingJob
from koala.policies.orders.builtin import OWN_ORDERS
from tests.support.core_records import records_of, scheduler_of

DAY_S = 86_400.0


class Queue:
    """One site of one processor, or of some; one job after the other ends, and what starts is noted."""

    def __init__(
        self, order: str, *, processors: int = 1, plan_depth: int = 1, own: str = "", patience_s: float = DAY_S
    ) -> None:
        catalogue = Catalogue.builtin()
        if own:
            catalogue.add_from_source(own, "own.py")
        self.catalogue = catalogue
        self.grid = Grid(
            sites=(Site(name="a", processors=processors),),
            scheduler=SchedulerParameters(
                scan_interval_s=0.0,
                check_interval_s=None,
                order=order,
                plan_depth=plan_depth,
                order_patience_s=patience_s,
            ),
        )
        self.scheduler = Scheduler(self.grid, catalogue)
        self.now = 0.0
        self.last = 0
        self.running: list[tuple[int, str]] = []
        self.placed: list[int] = []
        self.handle(SiteReported(at=0.0, site="a", processors=processors, others=0))

    def handle(self, event: object) -> None:
        for command in self.scheduler.handle(event).entries:  # type: ignore[arg-type]
            if isinstance(command, JobPlaced):
                self.placed.append(command.job)
            elif isinstance(command, StartComponent):
                self.running.append((command.job, command.token))
                self.handle(ComponentReady(at=self.now, token=command.token))

    def submit(
        self,
        user: str = "ann",
        *,
        processors: int = 1,
        walltime_s: float = 100.0,
        elements: int = 0,
        priority: Priority = Priority.LOW,
    ) -> int:
        """The number of the new job."""
        request = Request(
            components=(Component(processors=processors),),
            walltime_s=walltime_s,
            priority=priority,
            array=ArraySpec(ranges=((1, elements, 1),)) if elements else None,
        )
        self.last += 1
        number = self.last
        self.last += elements
        self.handle(JobSubmitted(at=self.now, job=number, request=request, owner=user))
        return number

    def end(self, jobs: int = 1, after_s: float = 1.0) -> None:
        """The jobs that started first end, all at one time."""
        self.now += after_s
        for _ in range(min(jobs, len(self.running))):
            _, token = self.running.pop(0)
            self.handle(ComponentEnded(at=self.now, token=token, outcome=Outcome.DONE))
        self.look()

    def look(self) -> None:
        from koala.model.messages import Tick

        while self.scheduler.due_at <= self.now:
            self.handle(Tick(at=self.now))

    def all_placed(self, after: int = 0) -> list[int]:
        """The jobs in the order in which they were placed, once all that run have ended; without the first."""
        while self.running:
            self.end()
        return self.placed[after:]

    def place_of(self, job: int) -> int | None:
        found = self.scheduler.explain(job)
        assert found is not None
        return found.place_in_line

    def restarted(self) -> None:
        """Go on from its records."""
        taken = records_of(self.scheduler)
        self.scheduler = scheduler_of(self.grid, self.catalogue, taken)
        self.look()


# ------------------------------------------------------------------------------------------------ worked examples


@pytest.mark.parametrize("order", ["fcfs", "easy"])
def test_first_come_is_first_served(order: str) -> None:
    queue = Queue(order)
    for user in ("ann", "ann", "bob", "ann", "bob"):
        queue.submit(user)
    assert [queue.place_of(job) for job in (2, 3, 4, 5)] == [1, 2, 3, 4]
    assert queue.all_placed() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("plan_depth", [0, 1])
def test_the_shortest_job_comes_first(plan_depth: int) -> None:
    """While the first runs a long job waits, which has the plan where there are plans; of the others the shortest."""
    queue = Queue("sjf", plan_depth=plan_depth)
    for walltime_s in (50.0, 900.0, 500.0, 700.0, 500.0):
        queue.submit(walltime_s=walltime_s)
    shortest = [3, 5, 4]
    assert queue.all_placed(after=1) == ([2, *shortest] if plan_depth else [*shortest, 2])


def test_a_job_that_waits_too_long_comes_before_shorter_ones() -> None:
    """Short jobs come for ever; the long one starts once it has waited for as long as the order may let it."""
    queue = Queue("sjf", plan_depth=0, patience_s=1_000.0)
    queue.submit()
    long = queue.submit(walltime_s=5_000.0)
    while long not in queue.placed and queue.now < 2_000.0:
        queue.submit(walltime_s=10.0)
        queue.end(after_s=10.0)
    assert 1_000.0 <= queue.now <= 1_020.0


@pytest.mark.parametrize("plan_depth", [0, 1])
def test_users_take_turns(plan_depth: int) -> None:
    """Ann's jobs came first. Bob's first comes after her first, and Cy's before Bob's second."""
    queue = Queue("round-robin", plan_depth=plan_depth)
    for user in ("zoe", "ann", "ann", "ann", "bob", "bob", "cy"):
        queue.submit(user)
    assert [queue.place_of(job) for job in (2, 3, 4, 5, 6, 7)] == [1, 4, 6, 2, 5, 3]
    assert queue.all_placed() == [1, 2, 5, 7, 3, 6, 4]


@pytest.mark.parametrize("plan_depth", [0, 1])
def test_one_job_does_not_wait_for_a_whole_array_of_somebody_else(plan_depth: int) -> None:
    """200 elements of Ann came first, eight run. Bob's job is the next but for the one with a plan."""
    queue = Queue("round-robin", processors=8, plan_depth=plan_depth)
    queue.submit("ann", elements=200)
    bob = queue.submit("bob")
    assert queue.place_of(bob) == 2
    queue.end(jobs=2)
    assert bob in queue.placed


def test_who_comes_later_begins_in_the_round_that_goes_on() -> None:
    queue = Queue("round-robin", plan_depth=0)
    for user in ("ann", "ann", "ann", "ann", "bob", "bob", "bob"):
        queue.submit(user)
    queue.end()
    queue.end()
    assert queue.placed == [1, 2, 5]
    cy = queue.submit("cy")
    assert queue.place_of(cy) == 3  # after the second jobs of both
    assert queue.all_placed(after=3) == [3, 6, cy, 4, 7]


def test_a_user_who_always_has_one_job_waiting_gains_no_turns() -> None:
    """Cy submits the next job as soon as the last has started, and still has one turn a round."""
    queue = Queue("round-robin", plan_depth=0)
    queue.submit("zoe")
    for user in ("ann", "ann", "ann", "bob", "bob", "bob"):
        queue.submit(user)
    owners = {2: "a", 3: "a", 4: "a", 5: "b", 6: "b", 7: "b"}
    owners[queue.submit("cy")] = "c"
    for _ in range(9):
        placed = len(queue.placed)
        queue.end()
        for job in queue.placed[placed:]:
            if owners[job] == "c":
                owners[queue.submit("cy")] = "c"
    turns = "".join(owners[job] for job in queue.placed[1:10])
    assert turns == "abcabcabc"


def test_jobs_that_are_cancelled_take_no_turns() -> None:
    queue = Queue("round-robin", plan_depth=0)
    for user in ("zoe", "ann", "ann", "ann", "bob", "bob"):
        queue.submit(user)
    queue.handle(CancelAsked(at=queue.now, job=2))
    queue.handle(CancelAsked(at=queue.now, job=3))
    assert queue.place_of(4) == 1
    assert queue.all_placed(after=1) == [4, 5, 6]


def test_small_jobs_that_pass_a_wide_one_of_their_user_count_as_turns() -> None:
    """Ann's wide job waits; her small ones that start meanwhile are her turns, and it keeps its own."""
    queue = Queue("round-robin", processors=4, plan_depth=0)
    queue.submit("zoe", processors=2)
    wide = queue.submit("ann", processors=4)
    small = [queue.submit("ann") for _ in range(5)]
    bobs = [queue.submit("bob") for _ in range(3)]
    assert queue.placed == [1, small[0], small[1]]
    assert queue.place_of(wide) == 1
    assert queue.place_of(bobs[0]) == 2  # Ann had two turns, and her next is the fourth
    assert [queue.place_of(job) for job in small[2:]] == [5, 6, 7]


def test_a_plan_is_kept_before_whoever_comes() -> None:
    """Ann's second job has a plan; Bob, who would come before it, does not put it off."""
    queue = Queue("round-robin", processors=4, plan_depth=2)
    queue.submit("zoe", processors=4)
    first, second = queue.submit("ann", processors=4), queue.submit("ann", processors=4)
    bob = queue.submit("bob", processors=4)
    assert [queue.place_of(job) for job in (first, second, bob)] == [1, 2, 3]
    assert queue.all_placed(after=1) == [first, second, bob]


def test_what_is_held_and_let_go_has_a_turn() -> None:
    queue = Queue("round-robin", plan_depth=0)
    for user in ("zoe", "ann", "ann", "bob"):
        queue.submit(user)
    queue.handle(HoldAsked(at=queue.now, job=4))
    queue.handle(UnholdAsked(at=queue.now, job=4))
    assert queue.all_placed(after=1) == [2, 4, 3]


@pytest.mark.parametrize("order", [each.name for each in OWN_ORDERS])
def test_high_priority_comes_before_low_in_every_order(order: str) -> None:
    queue = Queue(order)
    queue.submit("zoe")
    queue.submit("ann", walltime_s=50.0)
    high = queue.submit("bob", priority=Priority.HIGH, walltime_s=500.0)
    assert queue.all_placed(after=1)[0] == high


def test_a_changed_walltime_changes_the_place() -> None:
    queue = Queue("sjf", plan_depth=0)
    for walltime_s in (50.0, 300.0, 400.0):
        queue.submit(walltime_s=walltime_s)
    assert [queue.place_of(2), queue.place_of(3)] == [1, 2]
    queue.handle(ChangeAsked(at=queue.now, job=3, walltime_s=100.0))
    assert [queue.place_of(2), queue.place_of(3)] == [2, 1]


# ------------------------------------------------------------------------------------------------ one's own function

ALPHABETICAL = """
from koala.policies import order

@order("by-name")
def by_name(waiting, users, now):
    return sorted(waiting, key=lambda job: job.user)
"""


@pytest.mark.parametrize("plan_depth", [0, 1])
def test_a_function_of_ones_own_gets_its_way(plan_depth: int) -> None:
    queue = Queue("by-name", own=ALPHABETICAL, plan_depth=plan_depth)
    for user in ("zoe", "cy", "bob", "ann", "bob", "ann"):
        queue.submit(user)
    first = [2] if plan_depth else []
    rest = [4, 6, 3, 5] if plan_depth else [4, 6, 3, 5, 2]
    assert queue.all_placed(after=1) == [*first, *rest]


@pytest.mark.parametrize("plan_depth", [0, 1])
def test_elements_that_come_in_a_pass_stand_where_the_function_says(plan_depth: int) -> None:
    """Bob's single jobs came before Ann's array, and the order is by name: all of hers start first, and then his."""
    queue = Queue("by-name", own=ALPHABETICAL, processors=10, plan_depth=plan_depth)
    queue.submit("zoe", processors=10)
    bobs = [queue.submit("bob") for _ in range(6)]
    array = queue.submit("ann", elements=8)
    queue.end()
    expected = [*range(array + 1, array + 9), *bobs[:2]]
    if plan_depth:  # the one that came first had a plan
        expected = [bobs[0], *range(array + 1, array + 9), bobs[1]]
    assert queue.placed[1:] == expected


@given(
    jobs=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 5), st.sampled_from([10.0, 20.0, 300.0])), max_size=12
    ),
    by=st.sampled_from(["user", "processors", "-processors", "-submitted_at", "estimate_s"]),
)
@settings(max_examples=60, deadline=None)
def test_any_order_of_ones_own_is_that_in_which_jobs_start(jobs: list[tuple[str, int, float]], by: str) -> None:
    """Without plans, on a site that is let go as a whole, the first that fits in the function's order starts."""
    sign, field = ("-", by[1:]) if by.startswith("-") else ("", by)
    own = (
        "from koala.policies import order\n@order('mine')\ndef mine(waiting, users, now):\n"
        f"    return sorted(waiting, key=lambda job: {sign}job.{field})\n"
    )
    queue = Queue("mine", own=own, processors=5, plan_depth=0)
    queue.submit("zoe", processors=5)
    waiting: list[tuple[float | str, int, int]] = []
    for at, (user, processors, walltime_s) in enumerate(jobs):
        queue.now += 1.0
        job = queue.submit(user, processors=processors, walltime_s=walltime_s)
        numbers = {"processors": processors, "submitted_at": at, "estimate_s": walltime_s}
        by_number = numbers.get(field, 0) * (-1 if sign else 1)
        waiting.append((user if field == "user" else by_number, job, processors))
    waiting.sort(key=lambda entry: entry[0])
    expected = []
    while waiting:
        idle = 5
        for entry in list(waiting):
            if entry[2] <= idle:
                idle -= entry[2]
                expected.append(entry[1])
                waiting.remove(entry)
    while queue.running:
        queue.end(jobs=len(queue.running))
    assert queue.placed[1:] == expected


def bad(body: str) -> str:
    return f"from koala.policies import order\n@order('bad')\ndef bad(waiting, users, now):\n    {body}\n"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("raise KeyError('x')", "raised KeyError at line 4: 'x'"),
        ("raise SystemExit", "raised SystemExit at line 4"),
        ("return None", "raised TypeError"),
        ("return ['x']", "raised AttributeError"),
        ("return [*waiting, waiting[0]]", "returned job 2 twice"),
        ("return waiting[1:]", "left out job 2"),
        ("return [*waiting, 99]", "returned job 99, which does not wait here"),
    ],
)
def test_a_bad_function_is_named_and_costs_nobody_a_job(body: str, problem: str) -> None:
    queue = Queue("bad", own=bad(body), plan_depth=0)
    for user in ("zoe", "ann", "bob", "ann"):
        queue.submit(user)
    queue.end()
    assert problem in queue.scheduler.ledger.order_problem
    assert queue.scheduler.ledger.order_problem.startswith("the order 'bad' (from own.py) ")
    assert queue.all_placed() == [1, 2, 3, 4]


def test_a_function_sees_what_waits_and_what_runs() -> None:
    seen: list[tuple[Sequence[WaitingJob], Mapping[str, UserJobs], float]] = []
    catalogue = Catalogue.builtin()

    from koala.policies import order

    @order("watching")
    def watching(waiting: Sequence[WaitingJob], users: Mapping[str, UserJobs], now: float) -> Sequence[WaitingJob]:
        seen.append((waiting, users, now))
        return waiting

    catalogue.add_function(watching)
    queue = Queue("fcfs", processors=4)
    queue.catalogue = catalogue
    queue.grid = msgspec.structs.replace(
        queue.grid, scheduler=msgspec.structs.replace(queue.grid.scheduler, order="watching", plan_depth=0)
    )
    queue.scheduler = Scheduler(queue.grid, catalogue)
    queue.handle(SiteReported(at=0.0, site="a", processors=4, others=0))
    queue.submit("zoe", processors=3)
    queue.submit("ann", processors=4, walltime_s=77.0)
    queue.submit("bob", processors=2, elements=5)
    queue.end()
    waiting, users, now = seen[-1]
    ann = next(job for job in waiting if job.user == "ann")
    assert (ann.number, ann.processors, ann.walltime_s, ann.estimate_s, ann.priority) == (2, 4, 77.0, 77.0, "low")
    assert ann.tries >= 1
    assert users["ann"].waiting == 1
    assert now == 1.0
    bobs = [job for each in seen for job in each[0] if job.user == "bob"]
    assert {job.array for job in bobs} == {3}
    assert {job.to_come for job in bobs} == {3}


def test_an_unknown_order_is_an_error_at_once() -> None:
    with pytest.raises(UnknownPolicyError) as error:
        Queue("round-robbin")
    assert "did you mean round-robin?" in error.value.for_user()


# ------------------------------------------------------------------------------------------------ fast and slow alike

COPIES = """
from koala.policies import order
from koala.policies.orders.builtin import first_come, shortest_first
from tests.support.core_records import records_of, scheduler_of

@order("slow-fcfs")
def slow_fcfs(waiting, users, now):
    return first_come(waiting, users, now)

@order("slow-sjf")
def slow_sjf(waiting, users, now):
    return shortest_first(waiting, users, now)
"""

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("submit"),
            st.sampled_from("abc"),
            st.integers(1, 6),
            st.sampled_from([30.0, 60.0, 200.0, 900.0]),
            st.sampled_from([0, 0, 0, 1, 5]),
        ),
        st.tuples(st.just("end"), st.integers(1, 3)),
        st.tuples(st.just("cancel"), st.integers(1, 30)),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)


def run(queue: Queue, steps: list[tuple[object, ...]], *, restarts: bool = True) -> list[int]:
    for what, *how in steps:
        if what == "submit":
            user, processors, walltime_s, elements = how
            queue.submit(
                str(user),
                processors=int(str(processors)),
                walltime_s=float(str(walltime_s)),
                elements=int(str(elements)),
            )
        elif what == "end":
            queue.end(jobs=int(str(how[0])), after_s=7.0)
        elif what == "cancel":
            queue.handle(CancelAsked(at=queue.now, job=int(str(how[0]))))
            queue.running = [each for each in queue.running if each[1] in queue.scheduler.ledger.claims]
        elif restarts:
            queue.restarted()
    return queue.placed


@pytest.mark.parametrize("order", ["fcfs", "sjf"])
@pytest.mark.parametrize("plan_depth", [0, 1, 3])
@given(steps=STEPS)
@settings(max_examples=25, deadline=None)
def test_what_is_kept_in_order_agrees_with_the_plain_function(
    order: str, plan_depth: int, steps: list[tuple[object, ...]]
) -> None:
    no_cancels = [step for step in steps if step[0] != "cancel"]
    fast = run(Queue(order, processors=8, plan_depth=plan_depth), no_cancels)
    slow = run(Queue(f"slow-{order}", own=COPIES, processors=8, plan_depth=plan_depth), no_cancels)
    assert fast == slow


@pytest.mark.parametrize("order", ["round-robin", "sjf"])
@pytest.mark.parametrize("plan_depth", [0, 1, 3])
@given(steps=STEPS)
@settings(max_examples=25, deadline=None)
def test_a_restart_changes_no_order(order: str, plan_depth: int, steps: list[tuple[object, ...]]) -> None:
    through = run(Queue(order, processors=8, plan_depth=plan_depth), steps, restarts=False)
    assert run(Queue(order, processors=8, plan_depth=plan_depth), steps) == through


@pytest.mark.parametrize("order", [each.name for each in OWN_ORDERS])
@given(steps=STEPS)
@settings(max_examples=25, deadline=None)
def test_told_places_are_the_order_in_the_queue(order: str, steps: list[tuple[object, ...]]) -> None:
    queue = Queue(order, processors=8)
    run(queue, steps, restarts=False)
    low = queue.scheduler.ledger.low
    assert [low.place_in_line(job) for job in low.in_line()] == list(range(1, low.size + 1))
    assert low.first(5) == [*low][:5]


# ------------------------------------------------------------------------------------------------ what is told


@pytest.mark.parametrize(("order", "place"), [("fcfs", 4), ("round-robin", 2), ("sjf", 1)])
def test_a_job_that_would_come_is_told_its_place_in_the_order(order: str, place: int) -> None:
    queue = Queue(order, plan_depth=0)
    for walltime_s in (500.0, 600.0, 700.0, 800.0):
        queue.submit("ann", walltime_s=walltime_s)
    request = Request(components=(Component(processors=1),), walltime_s=10.0)
    demand = queue.scheduler._placement.demand_of_one(request)
    assert queue.scheduler.place_of_new(demand, request, "bob") == place


def test_elements_that_are_no_jobs_yet_are_told_beside_the_place() -> None:
    """By turns no more of them come before a job than the rounds until its own."""
    told = {}
    for order in ("fcfs", "round-robin"):
        queue = Queue(order, plan_depth=0)
        queue.submit("zoe")
        queue.submit("ann", elements=100)
        bobs = [queue.submit("bob") for _ in range(5)]
        found = [queue.scheduler.explain(job) for job in bobs]
        told[order] = [(each.place_in_line, each.elements_before) for each in found if each is not None]
    assert told == {
        "fcfs": [(3, 98), (4, 98), (5, 98), (6, 98), (7, 98)],
        "round-robin": [(2, 0), (4, 0), (5, 1), (6, 2), (7, 3)],
    }
