"""A site without nodes for a program is no place for it: nothing is placed, planned or claimed there while there is
another way. Another program of the same user is not concerned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from koala.core import JobState, Scheduler
from koala.core.failures.program import program_of
from koala.core.state.blame import NodeAccusation
from koala.model.facts import JobPlaced
from koala.model.job_array import ArraySpec
from koala.model.messages import (
    AbortComponent,
    JobSubmitted,
    Outcome,
    SiteDrained,
    SiteReported,
    SiteResumed,
    StartComponent,
    Tick,
)
from koala.model.nodes import (
    EXCLUDED_NODES_MAX,
    NAMED_NODES_MAX,
    NamedNode,
    NodeClass,
    NodeSize,
    TaskNeeds,
    few_alike,
)
from koala.model.request import Application, Component, Flexibility, InputFile, Request
from koala.model.travelling import TravellingFile
from koala.words.standing import meaning
from tests.support.core_driver import CoreDriver, ask, assert_ledger_balances
from tests.support.core_records import records_of, scheduler_of

PATIENCE_S = 5.0
AVOID_S = 3_600.0
NODES = {"a": ("a1", "a2"), "b": ("b1",)}
SCRIPT = "#!/bin/sh\nsrun ./solve\n"


def grid(nodes: dict[str, tuple[str, ...]] | None = None, **parameters: Any) -> CoreDriver:
    """Sites of nodes with 4 processors each, by name; a is preferred while more is idle there."""
    nodes = nodes or NODES
    driver = CoreDriver({site: 4 * len(names) for site, names in nodes.items()}, scan_interval_s=0.0, **parameters)
    for site in nodes:
        report(driver, site, nodes[site])
    return driver


def report(driver: CoreDriver, site: str, names: Sequence[str], *, others: int = 0, processors: int = 0) -> None:
    named = tuple(NamedNode(name, NodeSize(4)) for name in names)
    driver.send(
        SiteReported(at=driver.now, site=site, processors=processors or 4 * len(names), others=others, named=named)
    )


def script(text: str = SCRIPT, processors: int = 4, **fields: Any) -> Request:
    return ask(Component(processors=processors, application=Application(script=text)), **fields)


def submit(driver: CoreDriver, request: Request, owner: str = "ann") -> int:
    job = max(driver.scheduler._placement.last_job + 1, 1)
    driver.send(JobSubmitted(at=driver.now, job=job, request=request, owner=owner))
    return job


def started(driver: CoreDriver, job: int, after_s: float = 2.0) -> StartComponent:
    """Its last start, ``after_s`` from now."""
    driver.pass_time(after_s)
    return [start for start in driver.all(StartComponent) if start.job == job][-1]


def ends(driver: CoreDriver, job: int, exit_code: int, *nodes: str) -> str:
    """The job's component runs to its end; the site where."""
    start = started(driver, job)
    driver.ready(start.token)
    driver.pass_time(5.0)
    outcome = Outcome.FAILED if exit_code else Outcome.DONE
    driver.end(start.token, outcome=outcome, exit_code=exit_code, nodes=nodes)
    return start.site


def learn(driver: CoreDriver, request: Request, *nodes: str, at: str = "a") -> None:
    """The program fails on each of these nodes, and then does well elsewhere."""
    for node in nodes:
        job = submit(driver, request)
        assert ends(driver, job, 127, node) == at
        assert ends(driver, job, 0) != at


def places(driver: CoreDriver, job: int) -> list[str]:
    return [site for command in driver.all(JobPlaced) if command.job == job for site, _ in command.places]


# ------------------------------------------------------------------------------------------- never another program


def test_a_script_that_fails_on_a_node_excludes_it_for_no_other_script_of_its_user() -> None:
    driver = grid()
    learn(driver, script(), "a1")
    assert started(driver, submit(driver, script("#!/bin/sh\necho well\n"))).exclude_nodes == ()
    assert started(driver, submit(driver, script())).exclude_nodes == ("a1",)


@pytest.mark.parametrize(
    "other",
    [
        Application(executable="python", arguments=("b.py",)),
        Application(executable="python", arguments=("a.py",), directory="other"),
    ],
)
def test_another_command_line_is_another_program(other: Application) -> None:
    driver = grid()
    first = Application(executable="python", arguments=("a.py",), environment=(("SEED", "1"),))
    learn(driver, ask(Component(processors=4, application=first)), "a1")
    assert started(driver, submit(driver, ask(Component(processors=1, application=other)))).exclude_nodes == ()
    same = Application(executable="python", arguments=("a.py",), environment=(("SEED", "2"),), stdout="out")
    again = submit(driver, ask(Component(processors=1, application=same), name="renamed"))
    assert started(driver, again).exclude_nodes == ("a1",)


def test_a_program_that_travels_is_known_by_its_content_and_input_files_by_their_names() -> None:
    driver = grid()

    def solve(content: str, reads: str = "f") -> Request:
        files = (TravellingFile(path="solve", checksum=content * 64, size_bytes=9),)
        run = Application(executable="./solve")
        return ask(Component(processors=4, application=run, input_files=(InputFile(name=reads),)), files=files)

    driver = CoreDriver({"a": 8, "b": 4}, files={"f": (0.0, ("a", "b")), "g": (0.0, ("a", "b"))}, scan_interval_s=0.0)
    learn(driver, solve("1"), "a1")
    assert started(driver, submit(driver, solve("2"))).exclude_nodes == ()
    assert started(driver, submit(driver, solve("1", "g"))).exclude_nodes == ()
    driver.end(*driver.ledger.claims)
    assert started(driver, submit(driver, solve("1"))).exclude_nodes == ("a1",)


# ------------------------------------------------------------------------------------------------ no place


def test_a_site_whose_nodes_are_all_excluded_for_the_program_is_no_place_for_it() -> None:
    driver = grid({"a": ("a1", "a2"), "b": ("b1",)})
    learn(driver, script(), "a1", "a2")
    job = submit(driver, script())
    assert places(driver, job) == ["b"]
    assert "it avoids a, where its program failed on nodes and too few others are left for it" in driver.story(job)[1]
    second = submit(driver, script())
    driver.pass_time(100.0)
    assert driver.state(second) is JobState.WAITING, "b is full, and a is no place"
    assert places(driver, submit(driver, script("#!/bin/sh\necho\n"))) == ["a"]
    explanation = driver.scheduler.explain(second)
    assert explanation is not None
    assert explanation.refusal is not None
    assert {each.site: each.cure for each in explanation.refusal.shortages}["a"] == (
        "none: a has too few nodes left for its program, which failed on others there; it goes elsewhere while it can"
    )
    assert_ledger_balances(driver.ledger)


def test_a_component_wider_than_the_nodes_that_are_left_has_no_place_and_a_narrower_one_has() -> None:
    driver = grid({"a": ("a1", "a2", "a3"), "b": ("b1", "b2")})
    learn(driver, script(), "a1", "a2")
    assert places(driver, submit(driver, script(processors=5))) == ["b"]
    assert places(driver, submit(driver, script(processors=4))) == ["a"]


def test_tasks_with_gpus_have_no_place_where_the_only_node_with_gpus_is_excluded() -> None:
    nodes = {"plain": NodeSize(4, 10**9), "fast": NodeSize(4, 10**9, (("a100", 4),))}
    classes = tuple(NodeClass(1, size, size) for size in nodes.values())
    named = tuple(NamedNode(name, size) for name, size in nodes.items())
    driver = CoreDriver({"a": 9, "b": 8}, scan_interval_s=0.0)
    for site, processors in (("a", 9), ("b", 8)):
        driver.send(SiteReported(at=0.0, site=site, processors=processors, others=0, nodes=classes, named=named))
    trains = ask(Component(processors=1, application=Application(script=SCRIPT), needs=TaskNeeds(gpus=1)))
    learn(driver, trains, "fast")
    assert places(driver, submit(driver, trains)) == ["b"]
    assert places(driver, submit(driver, script(processors=1))) == ["a"], "the other node has processors"


def test_parts_of_a_divided_job_go_to_no_site_without_nodes_for_them() -> None:
    driver = grid({"a": ("a1",), "b": ("b1",), "c": ("c1", "c2")})
    learn(driver, script(), "c1", "c2", at="c")
    flexible = ask(
        Component(processors=8, application=Application(script=SCRIPT)), flexible=Flexibility(component_min=1)
    )
    assert places(driver, submit(driver, flexible)) == ["a", "b"]


def test_a_part_of_a_divided_job_is_whole_tasks_and_goes_to_no_site_without_nodes_for_one() -> None:
    """It may be of one processor, and its tasks have four each."""
    driver = grid({"a": ("a1",), "b": ("b1",), "c": ("c1", "c2")})
    learn(driver, script(), "c1", "c2", at="c")
    tasks = Component(processors=8, application=Application(script=SCRIPT, processors_per_task=4))
    assert places(driver, submit(driver, ask(tasks, flexible=Flexibility(component_min=1)))) == ["a", "b"]


def test_a_site_that_does_not_name_its_nodes_stays_a_place() -> None:
    driver = CoreDriver({"a": 8, "b": 4}, scan_interval_s=0.0)
    learn(driver, script(), "a1")
    assert started(driver, submit(driver, script())).site == "a"


def test_jobs_in_line_have_places_again_once_the_site_has_another_node() -> None:
    driver = grid({"a": ("a1",), "b": ("b1",)})
    driver.send(SiteReported(at=0.0, site="a", processors=8, others=0, named=(NamedNode("a1", NodeSize(8)),)))
    learn(driver, script(), "a1")
    running, waiting = submit(driver, script()), submit(driver, script())
    assert (places(driver, running), places(driver, waiting)) == (["b"], [])
    report(driver, "a", ("a1", "a2"), processors=8)
    assert started(driver, waiting).exclude_nodes == ("a1",)
    assert places(driver, waiting) == ["a"]


def test_jobs_in_line_have_places_again_when_the_exclusion_ends() -> None:
    driver = grid({"a": ("a1",), "b": ("b1",)}, avoid_failed_s=1_000.0)
    driver.send(SiteReported(at=0.0, site="a", processors=8, others=0, named=(NamedNode("a1", NodeSize(8)),)))
    learn(driver, script(), "a1")
    submit(driver, script())
    waiting = submit(driver, script())
    driver.pass_time(900.0)
    assert places(driver, waiting) == []
    assert started(driver, waiting, 100.0).site == "a"


def test_a_site_without_what_the_job_requires_stays_closed_when_its_nodes_are_excluded_no_more() -> None:
    driver = grid({"a": ("a1",), "b": ("b1",)}, avoid_failed_s=AVOID_S)
    first, second = driver.scheduler.grid.sites
    sites = (first, msgspec.structs.replace(second, provides=("srun",)))
    driver.scheduler = Scheduler(msgspec.structs.replace(driver.scheduler.grid, sites=sites), recorded=True)
    driver.ledger = driver.scheduler.ledger
    for site, nodes in (("a", ["a1"]), ("b", ["b1"])):
        report(driver, site, nodes)
    learn(driver, script(), "a1")
    run = Application(script=SCRIPT, requires=("srun",))
    holder, waiter = [submit(driver, ask(Component(processors=4, application=run))) for _ in range(2)]
    assert places(driver, holder) == ["b"]
    driver.pass_time(AVOID_S)
    report(driver, "a", ["a1"])
    driver.pass_time(10.0)
    assert places(driver, waiter) == [], "b is full, and a does not provide srun"


def test_where_the_nodes_of_all_sites_are_excluded_the_job_runs_all_the_same_and_says_so() -> None:
    driver = grid({"a": ("a1", "a2"), "b": ("b1",)})
    learn(driver, script(), "a1", "a2")
    job = submit(driver, script(restarts_max=5))
    assert ends(driver, job, 127, "b1") == "b"
    start = started(driver, job)
    assert (start.site, start.exclude_nodes) == ("b", ()), "nobody else says anything against b"
    assert any("it may run on every node of b this time, even where it failed" in line for line in driver.story(job))
    driver.ready(start.token)
    driver.pass_time(5.0)
    driver.end(start.token, nodes=("b1",))
    assert driver.state(job) is JobState.DONE


def test_of_sites_where_only_the_job_itself_failed_the_last_one_is_avoided_whatever_its_nodes() -> None:
    driver = grid({"a": ("a1",), "b": ("b1", "b2")}, restart_rest_s=0.0)
    job = submit(driver, script(restarts_max=9))
    assert ends(driver, job, 1) == "b", "its application failed: no node is held against it"
    assert ends(driver, job, 127, "a1") == "a", "and no other node is there"
    assert ends(driver, job, 1) == "b"
    assert ends(driver, job, 1) == "a", "it ran at b last, and nobody but itself says anything against a"
    assert places(driver, job) == ["b", "a", "b", "a"]
    assert_ledger_balances(driver.ledger)


def test_it_waits_nowhere_for_a_site_that_is_taken_out() -> None:
    """With b drained there is no way but a, so that the exclusion lapses; once b is back it counts again."""
    driver = grid()
    learn(driver, script(), "a1", "a2")
    submit(driver, script())
    waiting = submit(driver, script())
    assert places(driver, waiting) == []
    driver.send(SiteDrained(at=driver.now, site="b"))
    assert started(driver, waiting).site == "a"
    driver.send(SiteResumed(at=driver.now, site="b"))
    driver.pass_time(1.0)
    assert places(driver, submit(driver, script())) == []


def test_plans_and_elements_of_arrays_go_by_it_too() -> None:
    driver = grid(plan_depth=10)
    learn(driver, script(walltime_s=100.0), "a1", "a2")
    planned = [submit(driver, script(walltime_s=100.0)) for _ in range(2)]
    assert places(driver, planned[0]) == ["b"]
    plan = driver.job(planned[1]).planned.spots
    assert plan is not None
    assert plan.sites == (1,)
    array = submit(driver, script(walltime_s=100.0, array=ArraySpec(ranges=((1, 3, 1),))))
    driver.pass_time(10.0)
    assert [places(driver, array + element) for element in (1, 2)] == [[], []]


def test_a_component_is_not_claimed_where_no_nodes_are_left_since_it_was_placed() -> None:
    driver = CoreDriver({"a": 8, "b": 7}, files={"f": (100.0, ("a",)), "g": (1.0, ("b",))}, scan_interval_s=0.0)
    report(driver, "a", ("a1", "a2"))
    reads = (InputFile(name="f"), InputFile(name="g"))
    job = submit(driver, ask(Component(processors=4, application=Application(script=SCRIPT), input_files=reads)))
    assert places(driver, job) == ["a"]
    assert driver.state(job) is JobState.PLACED
    request = driver.job(job).request
    program = program_of(request, request.components[0]).digest
    sites = driver.ledger.sites
    for node in NODES["a"]:
        sites.sites[0].record.accuse_node(NodeAccusation(node, "ann", program, 0.0, 99, "w"))
    sites.sites[0].record.prove_nodes("w", 99)
    sites.node_accused[0] = driver.ledger.changes.sites[0] = None
    driver.pass_time(20.0)
    assert not [start for start in driver.all(StartComponent) if start.site == "a"]


def test_it_survives_a_restart() -> None:
    driver = grid()
    learn(driver, script(), "a1", "a2")
    submit(driver, script())
    waiting = submit(driver, script())
    driver.scheduler = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler))
    driver.ledger = driver.scheduler.ledger
    driver.send(Tick(at=driver.now))
    driver.pass_time(10.0)
    assert driver.state(waiting) is JobState.WAITING
    assert places(driver, submit(driver, script())) == []
    assert started(driver, waiting, AVOID_S).site == "a"


# ------------------------------------------------------------------------------------------------- in a queue


def test_a_component_that_waits_beside_idle_processors_on_excluded_nodes_is_moved() -> None:
    driver = grid({"a": ("a1", "a2"), "b": ("b1",)}, queue_patience_s=PATIENCE_S, barrier_timeout_s=100.0)
    learn(driver, script(), "a1")
    report(driver, "a", NODES["a"], others=4)
    report(driver, "b", NODES["b"], others=1)
    job = submit(driver, script(processors=3))
    start = started(driver, job, 0.0)
    assert (start.site, start.exclude_nodes) == ("a", ("a1",))
    driver.accept(start.token)
    driver.pass_time(PATIENCE_S)
    assert [abort.token for abort in driver.all(AbortComponent)] == [start.token]
    assert started(driver, job, 0.0).site == "b"
    assert any("component 0 moved from a, where it could not start, to b" in line for line in driver.story(job))
    assert_ledger_balances(driver.ledger)


def test_it_is_not_moved_to_where_it_is_and_runs_on_all_nodes_after_the_barriers_timeout() -> None:
    driver = grid({"a": ("a1", "a2")}, queue_patience_s=PATIENCE_S, barrier_timeout_s=100.0)
    job = submit(driver, script(processors=3))
    ends(driver, job, 127, "a1")
    report(driver, "a", NODES["a"], others=4)
    start = started(driver, job)
    assert start.exclude_nodes == ("a1",)
    driver.accept(start.token)
    driver.pass_time(90.0)
    assert started(driver, job, 0.0) is start
    explanation = driver.scheduler.explain(job)
    assert explanation is not None
    assert "avoids nodes of a where its program failed" in meaning(explanation)
    driver.pass_time(20.0)
    driver.end(start.token, outcome=Outcome.ABORTED)
    assert started(driver, job).exclude_nodes == ()


# --------------------------------------------------------------------------------------------- nodes by name


def test_nodes_are_named_where_a_component_could_be_kept_off_all_that_are_alike() -> None:
    many = [NamedNode(f"n{number}", NodeSize(4)) for number in range(EXCLUDED_NODES_MAX + 1)]
    gpu = NamedNode("g1", NodeSize(4, gpus=(("a100", 1),)))
    assert few_alike([*many, gpu]) == (gpu,)
    assert len(few_alike(many[1:])) == EXCLUDED_NODES_MAX
    kinds = [NamedNode(f"n{number}", NodeSize(number)) for number in range(NAMED_NODES_MAX + 1)]
    assert few_alike(kinds) == ()
