"""A user's own policy in Python: as a function, as a file, and as what the grid names."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from koala.model.grid import Grid, PolicyFile
from koala.policies import PolicyFileError, UnknownPolicyError, WaitingJob, order, policy
from koala.simulator import (
    BrokenPolicyError,
    Workload,
    clusters_in_short,
    poisson,
    read_grid_file,
    read_trace,
    read_workload_file,
    simulate,
    trace_workload,
)
from tests.support.hand_driven import at_once, grid, job, site

TIGHT = '''
from koala.policies import policy


@policy("TIGHT")
def tight(idle, sizes, left, chosen):
    """All on the last site."""
    for component, size in enumerate(sizes):
        if left[-1] < size:
            return component
        chosen[component] = len(idle) - 1
        left[-1] -= size
    return -1
'''


@policy("OWN")
def own(idle: Sequence[int], sizes: Sequence[int], left: MutableSequence[int], chosen: MutableSequence[int]) -> int:
    """All on the first site."""
    for component, size in enumerate(sizes):
        if left[0] < size:
            return component
        chosen[component] = 0
        left[0] -= size
    return -1


def two_sites() -> Grid:
    return at_once(grid(site("a", 10), site("b", 10)))


def a_job() -> Workload:
    return Workload.from_arrivals([job(0.0, 4)])


def went_to(where: Grid, **arguments: Any) -> str:
    (row,) = simulate(where, a_job(), **arguments).rows()
    return row.sites


def test_a_policy_is_given_as_a_function(tmp_path: Path) -> None:
    assert went_to(two_sites(), policy=own) == "a"
    assert simulate(two_sites(), a_job(), policy=own).metrics()["policy"] == "OWN"
    with pytest.raises(PolicyFileError, match="not marked as a policy"):
        simulate(two_sites(), a_job(), policy=len)


def test_the_function_of_an_imported_module_is_found_by_its_name() -> None:
    assert went_to(two_sites(), policy="OWN") == "a"
    assert went_to(two_sites(), policy="own") == "a"
    named_by_grid = two_sites()
    parameters = msgspec.structs.replace(named_by_grid.scheduler, policy="OWN")
    assert went_to(msgspec.structs.replace(named_by_grid, scheduler=parameters)) == "a"


def test_of_two_functions_of_one_name_the_newer_counts() -> None:
    """As in a notebook, whose cells run again."""

    @policy("AGAIN")
    def first(idle: Sequence[int], sizes: Sequence[int], left: Any, chosen: MutableSequence[int]) -> int:
        chosen[0] = 0
        return -1

    @policy("AGAIN")
    def second(idle: Sequence[int], sizes: Sequence[int], left: Any, chosen: MutableSequence[int]) -> int:
        chosen[0] = 1
        return -1

    assert went_to(two_sites(), policy="AGAIN") == "b"


def test_a_function_that_answers_wrongly_ends_the_run_also_by_its_name() -> None:
    @policy("NOWHERE")
    def nowhere(idle: Sequence[int], sizes: Sequence[int], left: Any, chosen: MutableSequence[int]) -> int:
        chosen[0] = 7
        return -1

    with pytest.raises(BrokenPolicyError, match="NOWHERE"):
        simulate(two_sites(), a_job(), policy="NOWHERE")


def test_a_policy_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "tight.py"
    path.write_text(TIGHT, encoding="utf-8")
    assert went_to(two_sites(), policy="TIGHT", policy_files=[path]) == "b"
    with pytest.raises(UnknownPolicyError):
        simulate(two_sites(), a_job(), policy="TIGHT")
    with pytest.raises(PolicyFileError, match=r"gone\.py: it cannot be read"):
        simulate(two_sites(), a_job(), policy="TIGHT", policy_files=[tmp_path / "gone.py"])


WIDEST = """
from koala.policies import order

@order("widest")
def widest(waiting, users, now):
    return sorted(waiting, key=lambda job: -job.processors)
"""


@order("narrowest")
def narrowest(waiting: Sequence[WaitingJob], _users: object, _now: float) -> Sequence[WaitingJob]:
    """The narrowest first."""
    return sorted(waiting, key=lambda job: job.processors)


@order("forgetful")
def forgetful(waiting: Sequence[WaitingJob], _users: object, _now: float) -> Sequence[WaitingJob]:
    """Forgets the first."""
    return waiting[1:]


def started(order_of: Any, **arguments: Any) -> list[int]:
    """The sizes of the jobs in the order in which they started, on one site that the first fills."""
    sizes = [10, 6, 8, 7]
    workload = Workload.from_arrays([0.0] * 4, sizes, [100.0] * 4)
    rows = list(simulate(at_once(grid(site("a", 10))), workload, order=order_of, **arguments).rows())
    rows.sort(key=lambda row: row.started or 0.0)
    return [sizes[row.job - 1] for row in rows]


def test_an_order_is_a_name_or_a_function(tmp_path: Path) -> None:
    path = tmp_path / "widest.py"
    path.write_text(WIDEST, encoding="utf-8")
    assert started(None) == [10, 6, 8, 7]
    assert started("widest", policy_files=[path]) == [10, 8, 7, 6]
    assert started(narrowest) == started("Narrowest") == [10, 6, 7, 8]
    with pytest.raises(UnknownPolicyError, match="there is no order 'widest'"):
        started("widest")


def test_an_order_that_answers_wrongly_ends_the_run() -> None:
    with pytest.raises(
        BrokenPolicyError, match=r"the order 'forgetful' .* left out job 2; repair it, or choose another"
    ):
        started(forgetful)


def test_a_file_with_an_order_that_is_no_function_of_three_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "widest.py"
    path.write_text(WIDEST.replace("waiting, users, now", "waiting"), encoding="utf-8")
    with pytest.raises(PolicyFileError, match="order 'widest' cannot be called with 3 arguments"):
        started("widest", policy_files=[path])


def test_a_grid_file_brings_the_policies_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "tight.py").write_text(TIGHT, encoding="utf-8")
    (tmp_path / "grid.yaml").write_text(
        "sites: {a: {processors: 10}, b: {processors: 10}}\npolicy_files: [tight.py]\nscheduler: {policy: TIGHT}\n"
    )
    found = read_grid_file(tmp_path / "grid.yaml")
    assert found.policy_files == (PolicyFile(path=str(tmp_path / "tight.py"), text=TIGHT),)
    (tmp_path / "tight.py").unlink()  # its text is in the grid
    assert went_to(found) == "b"


def test_a_policy_file_counts_once_however_its_path_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the grid of the last start names it in full, and the command line as before."""
    (tmp_path / "tight.py").write_text(TIGHT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    kept = msgspec.structs.replace(two_sites(), policy_files=(PolicyFile(path=str(tmp_path / "tight.py")),))
    assert went_to(kept, policy="TIGHT", policy_files=["tight.py", "./tight.py"]) == "b"


def test_traces_and_workload_files_are_read_in_python(tmp_path: Path) -> None:
    trace = tmp_path / "two.swf"
    row = "{} {} -1 50 2 -1 -1 2 60 -1 1 1 1 -1 -1 -1 -1 -1\n"
    trace.write_text("; MaxProcs: 4\n" + row.format(1, 0) + row.format(2, 5), encoding="utf-8")
    found = read_trace(str(trace))
    assert (found.jobs, found.processors) == (2, 4)
    assert [each.execution_s for each in simulate(two_sites(), trace_workload(found), policy="WF").rows()] == [50, 50]
    (tmp_path / "jobs.yaml").write_text("jobs: [{at_s: 0, execution_s: 7, job: {components: [{processors: 1}]}}]\n")
    (only,) = simulate(two_sites(), read_workload_file(tmp_path / "jobs.yaml")).rows()
    assert only.execution_s == 7


def test_jobs_of_a_trace_have_walltimes_where_the_grid_makes_plans() -> None:
    drawn = poisson(10, 1, interarrival_mean_s=60, run_mean_s=600, size_min=1, size_max=4, nodes=8)
    planning = clusters_in_short("1x8")
    without = msgspec.structs.replace(planning, scheduler=msgspec.structs.replace(planning.scheduler, plan_depth=0))
    for where, told in ((planning, True), (without, False)):
        arrivals = trace_workload(drawn).arrivals(where, 1)
        assert all((arrival.request.walltime_s is not None) is told for arrival in arrivals)
