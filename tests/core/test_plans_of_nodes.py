"""Plans know nodes: when which come free, what is sure of that, and what may start beside it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from koala.core import JobState
from koala.core.state.nodes.guaranteed_places import BYTE, GPU, KnownNodes, LooseTasks, sure_places
from koala.core.state.nodes.pools import PLAIN
from koala.model.facts import JobRequeued
from koala.model.grid import Preemption
from koala.model.messages import Outcome, SiteReported
from koala.model.nodes import NodeClass, NodeSize, TaskNeeds, TaskShape, held_node_classes
from koala.model.request import Application, Component, Priority, Request
from tests.support.core_driver import CoreDriver, ask, part

GIB = 2**30
NODE = NodeSize(4, 32 * GIB, (("a100", 2),))

SHAPES = (
    PLAIN,
    TaskShape(2),
    TaskShape(1, GIB),
    TaskShape(1, 0, 1),
    TaskShape(2, 2 * GIB, 1, "a100"),
    TaskShape(1, 0, 2, "v100"),
    TaskShape(3, 0, 0, "", "big"),
)
SIZES = st.builds(
    NodeSize,
    st.integers(0, 4),
    st.sampled_from((-1, GIB, 3 * GIB)),
    st.sampled_from(((), (("a100", 1),), (("a100", 2),), (("a100", 1), ("v100", 2)))),
)
LARGER_SIZES = st.builds(
    NodeSize,
    st.integers(0, 9),
    st.sampled_from((-1, GIB, 3 * GIB, 8 * GIB)),
    st.sampled_from(((), (("a100", 1),), (("a100", 4),), (("a100", 1), ("v100", 2)))),
    st.booleans(),
)
FEATURES = st.sampled_from(((), ("big",)))


def spread(nodes: list[tuple[NodeSize, tuple[str, ...]]], tasks: list[TaskShape]) -> Iterator[list[NodeSize]]:
    """What may be left of the nodes, for every way in which the tasks may be on them."""
    if not tasks:
        yield [size for size, _ in nodes]
        return
    first, rest = tasks[0], tasks[1:]
    for index, (size, features) in enumerate(nodes):
        if KnownNodes([size], [features], [1]).places(first):
            for left in left_by(size, first):
                yield from spread([*nodes[:index], (left, features), *nodes[index + 1 :]], rest)


def left_by(size: NodeSize, shape: TaskShape) -> Iterator[NodeSize]:
    """What one task may leave: it has GPUs of any kind that will do."""
    kinds = [name for name, count in size.gpus if count >= shape.gpus and shape.gpu in ("", name)]
    for name in kinds if shape.gpus else [""]:
        gpus = tuple((each, count - shape.gpus * (each == name)) for each, count in size.gpus)
        yield size.without(shape, 1)._replace(gpus=gpus)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(SIZES, FEATURES), min_size=1, max_size=4),
    st.sampled_from(SHAPES[1:]),
    st.lists(st.sampled_from(SHAPES), max_size=3),
)
def test_a_sure_place_is_there_wherever_loose_tasks_are(
    nodes: list[tuple[NodeSize, tuple[str, ...]]], shape: TaskShape, tasks: list[TaskShape]
) -> None:
    sizes, features = [size for size, _ in nodes], [each for _, each in nodes]
    known = KnownNodes(sizes, features, [1] * len(nodes))
    loose = [LooseTasks(each, 1, known) for each in tasks]
    worst = [KnownNodes(left, features, [1] * len(nodes)).places(shape) for left in spread(nodes, tasks)]
    if worst:  # else there is no room for them, and they are not there
        assert 0 <= sure_places(known, shape, loose) <= min(worst)
    assert sure_places(known, shape, ()) == known.places(shape)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(LARGER_SIZES, FEATURES), min_size=1, max_size=3),
    st.sampled_from(SHAPES[1:]),
    st.lists(st.tuples(st.sampled_from(SHAPES), st.integers(1, 9)), max_size=3),
    st.sampled_from(SHAPES),
)
def test_a_report_of_where_a_loose_task_is_takes_no_sure_place(
    nodes: list[tuple[NodeSize, tuple[str, ...]]],
    shape: TaskShape,
    others: list[tuple[TaskShape, int]],
    reported: TaskShape,
) -> None:
    sizes, features, counts = [size for size, _ in nodes], [each for _, each in nodes], [1] * len(nodes)
    known = KnownNodes(sizes, features, counts)
    loose = [LooseTasks(each, tasks, known) for each, tasks in others]
    before = sure_places(known, shape, [LooseTasks(reported, 1, known), *loose])
    for left in spread(nodes, [reported]):
        assert sure_places(KnownNodes(left, features, counts), shape, loose) >= before


def test_a_report_of_where_a_plain_task_is_keeps_the_gpus_beside_others_sure() -> None:
    """A node of eight with one processor taken: four places there still take seven, though not each of them two."""
    gpu, loose, gpus = TaskShape(1, 0, 1), TaskShape(4, GIB, 2), (("v100", 4),)
    before = KnownNodes([NodeSize(8, 8 * GIB, gpus)], [()], [2])
    assert sure_places(before, gpu, [LooseTasks(PLAIN, 7, before), LooseTasks(loose, 1, before)]) == 1
    after = KnownNodes([NodeSize(8, 8 * GIB, gpus), NodeSize(7, 8 * GIB, gpus)], [(), ()], [1, 1])
    assert sure_places(after, gpu, [LooseTasks(PLAIN, 6, after), LooseTasks(loose, 1, after)]) == 1


def test_plain_tasks_that_leave_enough_processors_cost_no_place_for_gpus() -> None:
    known = KnownNodes([NodeSize(64, -1, (("a100", 2),))], [()], [10])
    gpu = TaskShape(1, 0, 1)
    assert sure_places(known, gpu, [LooseTasks(PLAIN, 62, known)]) == 20
    assert sure_places(known, gpu, [LooseTasks(PLAIN, 64, known)]) == 18
    whole = TaskShape(64)
    assert sure_places(known, whole, [LooseTasks(TaskShape(64), 3, known)]) == 7
    assert sure_places(known, whole, [LooseTasks(PLAIN, 3, known), LooseTasks(TaskShape(64), 3, known)]) == 4


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(SIZES, FEATURES), min_size=1, max_size=3),
    st.sampled_from(SHAPES[1:]),
    st.lists(st.sampled_from(SHAPES[:4]), max_size=1),
    st.integers(0, 2),
    st.integers(0, 2),
)
def test_a_sure_place_is_there_wherever_parts_without_processors_are(
    nodes: list[tuple[NodeSize, tuple[str, ...]]], shape: TaskShape, tasks: list[TaskShape], gpus: int, gib: int
) -> None:
    """Memory is spread by the byte and counted by the GiB here, so that as many ways are tried as can be."""
    sizes, features = [size for size, _ in nodes], [each for _, each in nodes]
    known = KnownNodes(sizes, features, [1] * len(nodes))
    loose = [LooseTasks(each, 1, known) for each in tasks]
    loose += [LooseTasks(part, count, known) for part, count in ((GPU, gpus), (BYTE, gib * GIB)) if count]
    worst = [
        KnownNodes(left, features, [1] * len(nodes)).places(shape)
        for beside in spread(nodes, tasks)
        for left in without_parts(beside, gpus, gib)
    ]
    if worst:
        assert 0 <= sure_places(known, shape, loose) <= min(worst)


def without_parts(nodes: list[NodeSize], gpus: int, gib: int) -> Iterator[list[NodeSize]]:
    """What may be left of the nodes without so many GPUs and so much memory of any of them."""
    if not gpus and not gib:
        yield nodes
        return
    for index, size in enumerate(nodes):
        shares = (
            [NodeSize(0, GIB)] if not gpus else [NodeSize(0, 0, ((kind, 1),)) for kind, left in size.gpus if left]
        )
        for share in shares:
            left = size.minus(share)
            if left != size:
                rest = [*nodes[:index], left, *nodes[index + 1 :]]
                yield from without_parts(rest, gpus - 1, gib) if gpus else without_parts(rest, 0, gib - 1)


def test_nodes_that_change_at_many_times_are_asked_at_the_last_one() -> None:
    known = KnownNodes([NodeSize(0)] * 2, [()] * 2, [1, 1])
    for processors in range(1, 2_001):
        known = known.changed([NodeSize(processors), NodeSize(1)], (0,) if processors > 1 else (0, 1))
    assert known.places(PLAIN) == 2_001
    assert known.changed([NodeSize(2_000), NodeSize(3)], (1,)).places_on(PLAIN) == [2_000, 3]


# ------------------------------------------------------------------------------------------- in the core


class Nodes:
    """A driver of one site whose nodes are told, one by one, with who holds what of them."""

    def __init__(self, count: int = 2, node: NodeSize = NODE, **parameters: Any) -> None:
        self._nodes = [node] * count
        self._processors = count * node.processors
        self._held: dict[str, list[tuple[int, NodeSize]]] = {}
        chosen: dict[str, Any] = {"scan_interval_s": 0.0, "plan_depth": 1, "check_interval_s": None} | parameters
        self.driver = CoreDriver({"a": self._processors}, **chosen)
        self.tell()

    def tell(self, *, who: bool = True) -> None:
        """The site tells of its nodes; ``who``: also who holds what."""
        rows = []
        for index, node in enumerate(self._nodes):
            held = tuple(
                (token, share) for token, shares in self._held.items() for number, share in shares if number == index
            )
            free = node
            for _, share in held:
                free = free.minus(share)
            rows.append((node, free, (), held if who else ()))
        now, shown = self.driver.now, tuple(self._held)
        classes = held_node_classes(rows)
        self.driver.send(
            SiteReported(at=now, site="a", processors=self._processors, others=0, nodes=classes, shown=shown)
        )
        self.driver.settle()

    def run(self, request: Request, *nodes: int, who: bool = True) -> str:
        """Start a job of one component, a task of it on each of these nodes."""
        (token,) = self.driver.run(request)
        shape = request.shape_of(0) or PLAIN
        gpus = (("a100", shape.gpus),)
        share = NodeSize(shape.processors, shape.memory_bytes, gpus)
        self._held[token] = [(node, share) for node in nodes]
        self.tell(who=who)
        return token

    def end(self, token: str, *, who: bool = True) -> None:
        self.driver.end(token)
        self.free(token, who=who)

    def free(self, token: str, *, who: bool = True) -> None:
        del self._held[token]
        self.tell(who=who)

    def submit(self, request: Request) -> None:
        self.driver.submit(request)
        self.driver.settle()


def gpus(tasks: int, each: int = 1, walltime_s: float = 100.0, **fields: Any) -> Request:
    needs = TaskNeeds(gpus=each, gpu="a100") if each else None
    component = Component(processors=tasks, application=Application(processors_per_task=1), needs=needs)
    return Request(components=(component,), policy="WF", walltime_s=walltime_s, **fields)


def test_a_job_is_planned_for_when_its_gpus_come_free_on_one_node() -> None:
    """Two of four GPUs are free at 100 s, on two nodes; on one node there are two at 300 s."""
    world = Nodes()
    for walltime_s, node in ((100.0, 0), (300.0, 0), (100.0, 1), (400.0, 1)):
        world.run(gpus(1, walltime_s=walltime_s), node)
    world.submit(gpus(1, 2))
    assert world.driver.job(5).plan_at == 300.0
    assert world.driver.scheduler.explain(5).expected_at == 300.0  # type: ignore[union-attr]


def test_a_job_that_lacks_gpus_is_told_to_wait_for_those_who_have_some() -> None:
    world = Nodes(count=1)
    world.run(gpus(1, 2, walltime_s=300.0), 0)
    world.run(gpus(1, 0, walltime_s=100.0), 0)
    world.submit(gpus(1, 2))
    assert world.driver.scheduler.explain(3).ends_before == [1]  # type: ignore[union-attr]


def test_a_job_with_gpus_that_lacks_memory_is_told_to_wait_for_those_who_have_some() -> None:
    """A GPU is idle, and 12 GiB are."""
    world = Nodes(count=1)
    world.run(gpus(1, walltime_s=50.0), 0)
    much = TaskNeeds(memory_bytes=20 * GIB)
    world.run(Request(components=(Component(processors=1, needs=much),), policy="WF", walltime_s=100.0), 0)
    both = replace(much, gpus=1)
    world.submit(Request(components=(Component(processors=1, needs=both),), policy="WF", walltime_s=100.0))
    assert world.driver.scheduler.explain(3).ends_before == [2]  # type: ignore[union-attr]


def test_a_job_with_gpus_that_lacks_processors_is_told_to_wait_for_those_who_end_last() -> None:
    """One of four processors is idle; three are when the second ends."""
    world = Nodes(count=1)
    world.run(gpus(1, 0, walltime_s=50.0), 0)
    world.run(gpus(2, 0, walltime_s=100.0), 0, 0)
    wide = Component(processors=3, application=Application(processors_per_task=3), needs=TaskNeeds(gpus=1))
    world.submit(Request(components=(wide,), policy="WF", walltime_s=100.0))
    assert world.driver.scheduler.explain(3).ends_before == [2]  # type: ignore[union-attr]


def test_where_nobody_tells_who_holds_what_the_plan_waits_until_it_is_sure() -> None:
    world = Nodes()
    for walltime_s, node in ((100.0, 0), (300.0, 0), (100.0, 1), (400.0, 1)):
        world.run(gpus(1, walltime_s=walltime_s), node, who=False)
    world.submit(gpus(1, 2))
    assert world.driver.job(5).plan_at == 300.0  # one is left, which may be on either node
    world.driver.wait_until(50.0)
    world.end("1.1", who=False)
    world.end("2.1", who=False)
    assert world.driver.state(5) is JobState.STARTING


def reports(driver: CoreDriver, nodes: list[tuple[NodeSize, NodeSize]], **fields: Any) -> None:
    """Site a tells what its nodes have and what is free of them, and not who is where."""
    classes = held_node_classes([(whole, free, (), ()) for whole, free in nodes])
    processors = sum(whole.processors for whole, _ in nodes)
    told: dict[str, Any] = {"others": 0, "shown": ()} | fields
    driver.send(SiteReported(at=driver.now, site="a", processors=processors, nodes=classes, **told))
    driver.settle()


@pytest.mark.parametrize("count", [1, 2])
def test_where_nobody_tells_who_has_them_all_gpus_of_others_are_theirs_until_the_last_ends(count: int) -> None:
    """Others hold all GPUs with a processor on each node."""
    driver = CoreDriver({"a": 4 * count}, scan_interval_s=0.0, plan_depth=1, check_interval_s=None)
    (token,) = driver.run(ask(1, walltime_s=5_000.0))
    free = NODE.minus(NodeSize(1, 0, (("a100", 2),)))
    nodes = [(NODE, free.minus(NodeSize(1))), *[(NODE, free)] * (count - 1)]
    releases = tuple((1_000.0 - 100.0 * number, 1) for number in range(count))
    reports(driver, nodes, others=count, releases=releases, shown=(token,))
    driver.submit(gpus(1))
    driver.settle()
    assert driver.job(2).plan_at == 1_000.0


def test_where_nobody_tells_who_has_it_all_memory_of_others_is_theirs_until_the_last_ends() -> None:
    """Who ends first has three processors and little memory, and those who need none of it get these."""
    node = NodeSize(8, 64 * GIB)
    driver = CoreDriver({"a": 8}, scan_interval_s=0.0, plan_depth=2, check_interval_s=None)
    (token,) = driver.run(ask(1, walltime_s=5_000.0))
    releases = ((100.0, 3), (1_000.0, 1))
    reports(driver, [(node, NodeSize(3, GIB))], others=4, releases=releases, shown=(token,))
    application = Application(processors_per_task=1)
    much = Component(processors=1, application=application, needs=TaskNeeds(memory_bytes=32 * GIB))
    driver.submit(Request(components=(much,), policy="WF", walltime_s=100.0))
    wide = Component(processors=6, application=Application(processors_per_task=6))
    driver.submit(Request(components=(wide,), policy="WF", walltime_s=100.0))
    driver.settle()
    assert (driver.job(2).plan_at, driver.job(3).plan_at) == (1_000.0, 100.0)


def test_where_nobody_tells_who_is_where_a_later_job_that_ends_in_time_puts_no_plan_off() -> None:
    """One node of two is free, as it is in the report; the rest of the job waits for site b until 300 s."""
    node = NodeSize(4)
    driver = CoreDriver({"a": 8, "b": 1}, scan_interval_s=0.0, plan_depth=1, check_interval_s=None)
    (first,) = driver.run(ask(part(2, "a"), walltime_s=400.0))
    reports(driver, [(node, NodeSize(2)), (node, node)], shown=(first,))
    driver.run(ask(part(1, "b"), walltime_s=300.0))
    whole = Component(processors=4, site="a", application=Application(processors_per_task=4))
    driver.submit(Request(components=(whole, part(1, "b")), walltime_s=100.0))
    driver.settle()
    planned = driver.job(3).plan_at
    (later,) = driver.run(ask(part(4, "a"), walltime_s=200.0))
    reports(driver, [(node, NodeSize(2)), (node, NodeSize(0))], shown=(first, later))
    driver.wait_until(1.0)
    driver.run(ask(part(1, "a"), walltime_s=10.0))
    assert driver.job(3).plan_at == planned == 400.0


def test_a_later_job_does_not_take_the_gpu_that_a_plan_waits_for() -> None:
    world = Nodes(count=1)
    world.run(gpus(1, walltime_s=300.0), 0)
    world.submit(gpus(1, 2))  # both GPUs of the node, at 300 s
    world.submit(gpus(1, walltime_s=301.0))
    assert world.driver.state(3) is JobState.WAITING
    world.submit(gpus(1, walltime_s=300.0))
    assert world.driver.state(4) is JobState.STARTING
    assert world.driver.job(2).plan_at == 300.0


def test_a_plain_job_leaves_the_processors_of_a_node_that_a_plan_waits_for() -> None:
    """The planned job wants two whole nodes of three; one of them is held. Plain tasks may go to any node."""
    world = Nodes(count=3, node=NodeSize(4))
    whole = Component(processors=4, application=Application(processors_per_task=4))
    world.run(Request(components=(whole,), walltime_s=300.0), 0)
    two = Component(processors=12, application=Application(processors_per_task=4))
    world.submit(Request(components=(two,), walltime_s=100.0))
    assert world.driver.job(2).plan_at == 300.0
    world.submit(ask(1, walltime_s=301.0))
    assert world.driver.state(3) is JobState.WAITING
    world.submit(ask(8, walltime_s=300.0))
    assert world.driver.state(4) is JobState.STARTING


def test_a_job_that_starts_where_no_plan_counts_on_nodes_is_not_kept_back() -> None:
    """A GPU is idle on the second node until long after the plan, which waits for the first one."""
    world = Nodes()
    world.run(gpus(1, 2, walltime_s=200.0), 0)
    world.run(gpus(1, walltime_s=900.0), 1)
    world.submit(gpus(1, 2))
    assert world.driver.job(3).plan_at == 200.0
    world.submit(gpus(1, walltime_s=5_000.0))
    assert world.driver.state(4) is JobState.STARTING


class BruteForce:
    """The nodes of a site second by second, by who holds what until when."""

    def __init__(self, nodes: list[NodeSize], holds: list[tuple[int, NodeSize, int]]) -> None:
        self._nodes = nodes
        self._holds = holds

    def earliest(self, shape: TaskShape, tasks: int) -> int:
        for second in itertools.count():
            left = list(self._nodes)
            for node, share, until in self._holds:
                if until > second:
                    left[node] = left[node].minus(share)
            if sum(size.places(shape) for size in left) >= tasks:
                return second
        raise AssertionError("a count has no end")


@pytest.mark.parametrize("seed", range(40))
def test_the_plan_is_for_when_a_search_over_single_nodes_finds_room(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 3)
    world = Nodes(count=count)
    holds: list[tuple[int, NodeSize, int]] = []
    left = [NODE] * count
    for _ in range(rng.randint(1, 8)):
        shape = TaskShape(1, 0, rng.choice((0, 1, 1, 2)), "a100")
        open_to = [index for index, size in enumerate(left) if size.places(shape)]
        if not open_to:
            break
        node, walltime_s = rng.choice(open_to), rng.randint(1, 30)
        share = NodeSize(1, 0, (("a100", shape.gpus),))
        left[node] = left[node].minus(share)
        holds.append((node, share, walltime_s))
        world.run(
            gpus(1, shape.gpus, walltime_s=float(walltime_s)) if shape.gpus else ask(1, walltime_s=walltime_s), node
        )
    each = rng.choice((1, 2))
    tasks = rng.randint(1, count * (2 // each))
    expected = BruteForce([NODE] * count, holds).earliest(TaskShape(1, 0, each, "a100"), tasks)
    number = len(holds) + 1
    world.submit(gpus(tasks, each))
    job = world.driver.job(number)
    assert (0.0 if job.plan_at is None else job.plan_at) == expected
    assert (job.state is JobState.STARTING) is (expected == 0)


# ------------------------------------------------------------------------- getting hold of nodes


def test_a_high_priority_job_preempts_whoever_is_on_the_node_that_it_needs() -> None:
    """Ending the younger two jobs would cost less, but leaves a GPU on each node."""
    world = Nodes(plan_depth=0, preemption=Preemption.PLACES)
    first = world.run(gpus(1, 2, walltime_s=900.0), 0)
    world.driver.wait_until(10.0)
    world.run(gpus(1, walltime_s=900.0), 1)
    world.driver.wait_until(500.0)
    world.run(ask(1, walltime_s=900.0), 1)
    world.submit(gpus(1, 2, priority=Priority.HIGH))
    assert [command.job for command in world.driver.all(JobRequeued)] == [2]
    assert first in world.driver.ledger.claims


def test_nobody_is_preempted_where_nobody_tells_which_nodes_come_free() -> None:
    world = Nodes(plan_depth=0, preemption=Preemption.PLACES)
    world.run(gpus(1, 2, walltime_s=900.0), 0, who=False)
    world.run(gpus(1, 2, walltime_s=900.0), 1, who=False)
    world.submit(gpus(1, 2, priority=Priority.HIGH))
    assert world.driver.all(JobRequeued) == []
    assert "finds no places by preempting" in world.driver.scheduler.explain(3).refusal.cure  # type: ignore[union-attr]


def test_what_a_victim_leaves_is_kept_for_the_tasks_that_wait_for_it() -> None:
    world = Nodes(count=1, plan_depth=0, preemption=Preemption.PLACES)
    low = world.run(gpus(1, 2, walltime_s=900.0), 0)
    world.submit(gpus(1, 2, priority=Priority.HIGH))
    world.driver.end(low, outcome=Outcome.ABORTED)
    world.submit(gpus(1))
    world.free(low)
    assert (world.driver.state(2), world.driver.state(3)) == (JobState.STARTING, JobState.WAITING)


def test_a_shaped_job_claims_nothing_early_and_starts_at_the_time_of_its_plan() -> None:
    world = Nodes(
        barrier_timeout_s=100.0, hold_budget=0.5, hold_budget_per_job=0.5, hold_ahead_s=50.0, hold_window_s=3_600.0
    )
    held = world.run(gpus(1, 2, walltime_s=300.0), 0)
    component = gpus(1, 2).components[0]
    world.submit(Request(components=(component, component), policy="WF", walltime_s=100.0))
    assert world.driver.job(2).plan_at == 300.0
    world.driver.wait_until(251.0)
    assert world.driver.state(2) is JobState.WAITING
    world.submit(gpus(1))  # what its plan needs is not for others
    assert world.driver.state(3) is JobState.WAITING
    world.driver.wait_until(299.0)
    world.end(held)
    assert world.driver.state(2) is JobState.STARTING


def test_classes_with_too_many_holders_are_told_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(NODE, NODE.minus(NodeSize(1)), (), ((f"{index}.1", NodeSize(1)),)) for index in range(3)]
    assert [each.held for each in held_node_classes(rows)] == [((f"{index}.1", NodeSize(1)),) for index in range(3)]
    monkeypatch.setattr("koala.model.nodes.HELD_CLASSES_MAX", 2)
    assert held_node_classes(rows) == (NodeClass(3, NODE, NODE.minus(NodeSize(1))),)
