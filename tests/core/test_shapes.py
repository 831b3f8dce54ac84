"""Tasks with shapes in the core: places instead of processors, what is committed and not yet shown, refusals."""

from __future__ import annotations

from typing import Any

from koala.core import JobState
from koala.core.standing import JobExplanation
from koala.model.api import Refusal
from koala.model.messages import SiteReported, StartComponent, Tick
from koala.model.nodes import NodeClass, NodePool, NodeSize, TaskNeeds
from koala.model.request import Application, Component, Flexibility, Request
from tests.support.core_driver import CoreDriver, ask_total, kind
from tests.support.core_records import records_of, scheduler_of

GIB = 2**30
GPU_NODE = NodeSize(8, 64 * GIB, (("a100", 2),))


def shaped(
    tasks: int, processors: int = 1, site: str | None = None, *, gpus: int = 0, memory_bytes: int = 0, **needs: Any
) -> Component:
    """A component of so many tasks."""
    return Component(
        processors=tasks * processors,
        site=site,
        application=Application(processors_per_task=processors),
        needs=TaskNeeds(gpus=gpus, memory_bytes=memory_bytes, **needs),
    )


def job(*components: Component, **fields: Any) -> Request:
    return Request(components=components, **{"policy": "WF"} | fields)


def driver_of(**parameters: Any) -> CoreDriver:
    """``a`` has three nodes with two a100 each, ``b`` two plain ones, and both have said so."""
    driver = CoreDriver({"a": 24, "b": 16}, scan_interval_s=0.0, **parameters)
    tell(driver, "a", 24, [(GPU_NODE, GPU_NODE)] * 3)
    tell(driver, "b", 16, [(NodeSize(8, 32 * GIB), NodeSize(8, 32 * GIB))] * 2)
    return driver


def tell(
    driver: CoreDriver,
    site: str,
    processors: int,
    nodes: list[tuple[NodeSize, NodeSize]],
    *shown: str,
    others: int = 0,
) -> None:
    classes = tuple(NodeClass(1, whole, free) for whole, free in nodes)
    driver.send(
        SiteReported(
            at=driver.now, site=site, processors=processors, others=others, nodes=classes, shown=tuple(shown)
        )
    )


def explained(driver: CoreDriver, number: int) -> JobExplanation:
    found = driver.scheduler.explain(number)
    assert found is not None
    return found


def starts(driver: CoreDriver) -> list[tuple[int, str, int]]:
    return [
        (each.job, each.site, each.processors)
        for each in kind((command for _, command in driver.log), StartComponent)
    ]


def test_a_job_goes_where_its_gpus_are() -> None:
    driver = driver_of()
    driver.submit(job(shaped(2, 4, gpus=1)))
    assert starts(driver) == [(1, "a", 8)]


def test_a_total_is_divided_by_whole_tasks() -> None:
    """No splits are needed: 5 tasks of 6 processors fit once on each node of 8, whatever is idle in all."""
    driver = driver_of()
    component = Component(processors=30, application=Application(processors_per_task=6))
    driver.submit(Request(components=(component,), flexible=Flexibility(), policy="FCM"))
    assert sorted(starts(driver)) == [(1, "a", 18), (1, "b", 12)]
    driver.submit(Request(components=(component,), flexible=Flexibility(), policy="FCM"))
    assert driver.state(2) is JobState.WAITING


def test_what_is_committed_counts_before_the_site_shows_it() -> None:
    driver = driver_of()
    driver.submit(job(shaped(5, 1, gpus=1)))
    driver.submit(job(shaped(2, 1, gpus=1)))
    assert driver.state(2) is JobState.WAITING
    driver.submit(job(shaped(1, 1, gpus=1)))
    assert driver.state(3) is JobState.STARTING


def test_what_the_site_shows_is_not_taken_off_twice() -> None:
    driver = driver_of()
    driver.submit(job(shaped(4, 1, gpus=1)))
    full = GPU_NODE._replace(processors=6, gpus=(("a100", 0),))
    tell(driver, "a", 24, [(GPU_NODE, full), (GPU_NODE, full), (GPU_NODE, GPU_NODE)], "1.1")
    driver.submit(job(shaped(2, 1, gpus=1)))
    assert driver.state(2) is JobState.STARTING


def test_what_a_component_leaves_is_there_when_the_site_says_on_which_nodes() -> None:
    driver = driver_of()
    driver.submit(job(shaped(6, 1, gpus=1)))
    full = GPU_NODE._replace(processors=6, gpus=(("a100", 0),))
    tell(driver, "a", 24, [(GPU_NODE, full)] * 3, "1.1")
    driver.submit(job(shaped(1, 1, gpus=1)))
    driver.ready("1.1")
    driver.end("1.1")
    driver.settle()
    assert driver.state(2) is JobState.WAITING
    tell(driver, "a", 24, [(GPU_NODE, GPU_NODE)] * 3)
    driver.settle()
    assert driver.state(2) is JobState.STARTING


def test_components_of_several_shapes_are_placed_together_or_not_at_all() -> None:
    driver = driver_of()
    driver.submit(job(shaped(3, 4, memory_bytes=8 * GIB), shaped(6, 1, gpus=1), shaped(1, 4)))
    assert sorted(starts(driver)) == [(1, "a", 4), (1, "a", 6), (1, "b", 12)]
    driver.submit(job(Component(processors=1), shaped(1, 1, gpus=1)))
    assert driver.state(2) is JobState.WAITING


def test_a_refusal_names_the_resource_and_the_cure() -> None:
    driver = driver_of()
    driver.submit(job(shaped(5, 1, gpus=1)))
    driver.submit(job(shaped(3, 1, gpus=1, gpu="a100")))
    explanation = driver.scheduler.explain(2)
    assert explanation is not None
    refusal = explanation.refusal
    assert refusal is not None
    assert refusal.cure.startswith("2 more a100 on a")
    assert "a task holds 1 processor and 1 a100" in refusal.reason
    assert {each.site: (each.resource, each.cure) for each in refusal.shortages} == {
        "a": ("a100", "2 more a100 on a"),
        "b": ("a100", "none: b has no GPUs"),
    }
    assert not refusal.permanent


def test_a_refusal_for_good_says_what_no_site_has() -> None:
    driver = driver_of()
    driver.submit(job(shaped(1, 1, gpus=1, gpu="h100")))
    driver.submit(job(shaped(1, 1, memory_bytes=128 * GIB)))
    driver.submit(job(shaped(1, 1, constraint="fast")))
    for number, words in (
        (1, "a has no h100"),
        (2, "no node of a has more than 64 GiB of memory"),
        (3, "no node of a is fast"),
    ):
        explanation = driver.scheduler.explain(number)
        assert explanation is not None
        assert explanation.refusal is not None
        assert explanation.refusal.permanent
        assert words in explanation.refusal.shortages[0].cure


def test_memory_is_missed_in_words() -> None:
    driver = driver_of()
    driver.submit(job(shaped(2, 1, "b", memory_bytes=32 * GIB)))
    driver.submit(job(shaped(1, 1, "b", memory_bytes=16 * GIB)))
    explanation = driver.scheduler.explain(2)
    assert explanation is not None
    assert explanation.refusal is not None
    assert explanation.refusal.cure == "16 GiB more memory on b"


def test_a_site_that_tells_nothing_has_places_by_processors_alone() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    component = Component(processors=8, application=Application(processors_per_task=4))
    driver.submit(Request(components=(component,)))
    assert starts(driver) == [(1, "a", 8)]
    driver.submit(job(shaped(1, 1, gpus=1)))
    assert driver.state(2) is JobState.WAITING


def test_a_plain_job_is_placed_by_processors_whatever_nodes_are_told() -> None:
    driver = driver_of()
    driver.submit(ask_total(40))
    assert sorted(starts(driver)) == [(1, "a", 24), (1, "b", 16)]


def test_a_scheduler_from_records_knows_the_nodes_and_what_they_showed() -> None:
    driver = driver_of()
    driver.submit(job(shaped(4, 1, gpus=1)))
    full = GPU_NODE._replace(processors=6, gpus=(("a100", 0),))
    tell(driver, "a", 24, [(GPU_NODE, full), (GPU_NODE, full), (GPU_NODE, GPU_NODE)], "1.1")
    driver.submit(job(shaped(1, 1, gpus=1)))
    again = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler))
    again.handle(Tick(at=driver.now))
    for scheduler in (driver.scheduler, again):
        view = scheduler.ledger.sites.view
        pool = view.pool(0)
        assert isinstance(pool, NodePool)
        assert sum(size.gpus_of() * count for size, _, count in pool) == 1


def test_a_shaped_job_with_plans_waits_for_its_nodes_and_starts_on_them() -> None:
    driver = driver_of(plan_depth=2)
    driver.submit(job(shaped(6, 1, gpus=1), walltime_s=100.0))
    driver.submit(job(shaped(6, 1, gpus=1), walltime_s=100.0))
    assert driver.state(2) is JobState.WAITING
    planned = driver.job(2).plan_at
    assert planned is not None
    assert planned > driver.now
    full = GPU_NODE._replace(processors=6, gpus=(("a100", 0),))
    tell(driver, "a", 24, [(GPU_NODE, full)] * 3, "1.1")
    driver.ready("1.1")
    driver.wait_until(90.0)
    driver.end("1.1")
    tell(driver, "a", 24, [(GPU_NODE, GPU_NODE)] * 3)
    driver.settle()
    assert driver.state(2) is JobState.STARTING


def test_what_no_site_has_is_named_with_what_there_is() -> None:
    driver = driver_of()
    refusals: list[Refusal | None] = []
    for needs in ({"gpus": 1, "gpu": "h100"}, {"gpus": 3}, {"memory_bytes": 128 * GIB}, {"constraint": "ib"}):
        driver.submit(job(shaped(1, 1, **needs)))
        refusals.append(explained(driver, len(refusals) + 1).refusal)
    assert all(refusal is not None and refusal.permanent for refusal in refusals)
    assert [refusal.cure for refusal in refusals if refusal is not None] == [
        "ask for another kind of GPU, since no site has an h100; there is a100",
        "ask for fewer GPUs a task, since no node has more than 2 GPUs",
        "ask for less memory a task, since no node has more than 64 GiB",
        "ask for another constraint, since no node of any site is ib",
    ]
    driver.submit(job(shaped(2, gpus=1, gpu="h100"), policy="FCM", flexible=Flexibility()))
    refusal = explained(driver, 5).refusal
    assert refusal is not None
    assert "no site has an h100" in refusal.cure


def test_where_no_site_has_gpus_no_other_kind_is_advised() -> None:
    driver = CoreDriver({"b": 16}, scan_interval_s=0.0)
    tell(driver, "b", 16, [(NodeSize(8, 32 * GIB), NodeSize(8, 32 * GIB))] * 2)
    driver.submit(job(shaped(1, 1, gpus=1, gpu="a100")))
    refusal = explained(driver, 1).refusal
    assert refusal is not None
    assert refusal.cure == "ask for no GPUs, since no site has a GPU"


def test_where_nobody_counts_memory_tasks_need_nodes_with_as_much_and_take_nothing_of_it() -> None:
    driver = CoreDriver({"a": 8}, scan_interval_s=0.0)
    size = NodeSize(4, 8 * GIB, counts_memory=False)
    tell(driver, "a", 8, [(size, size)] * 2)
    driver.submit(job(shaped(6, 1, memory_bytes=8 * GIB)))
    assert starts(driver) == [(1, "a", 6)]
    driver.submit(job(shaped(1, 1, memory_bytes=9 * GIB)))
    driver.submit(job(shaped(3, 1, memory_bytes=GIB)))
    driver.submit(job(shaped(1, 1, gpus=1)))
    never, later, none = (explained(driver, number).refusal for number in (2, 3, 4))
    assert never is not None
    assert never.permanent
    assert never.shortages[0].cure == "none: no node of a has more than 8 GiB of memory"
    assert later is not None
    assert later.cure == "1 more idle processor on a, or a request with smaller components"
    assert none is not None
    assert none.shortages[0].cure == "none: a has no GPUs"


def test_a_site_that_has_not_told_of_its_nodes_yet_is_waited_for() -> None:
    driver = CoreDriver({"b": 16}, scan_interval_s=0.0)
    driver.ledger.sites.pools._described[0] = None  # as under a batch system that has not answered yet
    driver.submit(job(shaped(1, 1, gpus=1)))
    refusal = explained(driver, 1).refusal
    assert refusal is not None
    assert refusal.cure == "wait until the sites have told of their nodes"


def test_the_story_of_a_job_with_gpus_counts_its_tasks() -> None:
    driver = driver_of()
    driver.submit(job(shaped(2, 4, gpus=1, gpu="a100")))
    told = driver.story(1)
    assert told[0] == "submitted: non-fixed request for 2 tasks of 4 processors and 1 a100"
    assert told[1] == "placed: 2 tasks with 2 a100 on a"
    driver.submit(job(shaped(7, 1, gpus=1)))
    refused = driver.story(2)[-1]
    assert refused.startswith(
        "no place found (idle processors: a 16, b 16; room for tasks of 1 processor and 1 GPU: a "
    )


def test_a_site_that_tells_nothing_of_its_nodes_has_no_room_for_gpus_in_the_story_either() -> None:
    driver = CoreDriver({"b": 16}, scan_interval_s=0.0)
    driver.ledger.sites.pools._described[0] = None  # as under a batch system that has not answered yet
    driver.submit(job(shaped(1, 1, gpus=1)))
    refused = driver.story(1)[-1]
    assert "room for tasks of 1 processor and 1 GPU: b 0)" in refused
