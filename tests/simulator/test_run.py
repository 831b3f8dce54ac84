"""Whole runs with the real scheduler: metrics checked by hand, repeatable logs, and runs that cannot finish."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import koala
from koala.core import Scheduler
from koala.model.facts import JobEnded
from koala.model.grid import Background, Grid, GridSimulation, SchedulerParameters, StoredFile
from koala.model.messages import JobSubmitted
from koala.model.request import Flexibility, Priority
from koala.policies import Catalogue, Form, Policy, UnknownPolicyError
from koala.simulator import JobRow, Workload, simulate
from koala.simulator.examples import example_grid, example_workload
from koala.simulator.report.timeline import Timeline
from koala.simulator.result import percentile, summary
from koala.simulator.run import BrokenPolicyError
from koala.simulator.workloads.generators import workload_from_file
from koala.simulator.world.world import World
from tests.support.hand_driven import HandDriven, at_once, by_hand, grid, job, site
from tests.support.paths import ROOT


def test_the_table_of_jobs_is_what_one_computes_by_hand() -> None:
    first, second = simulate(*by_hand()).rows()
    assert (first.queue_s, first.overhead_s, first.wait_s, first.execution_s, first.response_s) == (0, 0, 0, 130, 130)
    assert (first.processors, first.components, first.clusters, first.sites) == (20, 2, 2, "a+b")
    assert (second.queue_s, second.wait_s, second.execution_s, second.response_s) == (100, 100, 50, 150)
    assert (second.submitted, second.placed, second.started, second.finished) == (30, 130, 130, 180)
    assert (second.clusters, second.outcome, second.placement_tries) == (1, "done", 2)


def test_the_metrics_are_what_one_computes_by_hand() -> None:
    metrics = simulate(*by_hand()).metrics()
    assert metrics["outcomes"] == {"done": 2}
    assert metrics["response_s"] == {"mean": 140.0, "median": 140.0, "p95": 149.0, "max": 150.0}
    assert metrics["clusters_combined"] == {"mean": 1.5, "histogram": {"1": 1, "2": 1}}
    assert metrics["coallocated_share"] == 0.5
    assert metrics["makespan_s"] == 180.0
    # 20 * 130 + 4 * 50 processor-seconds of 20 * 180.
    assert metrics["utilisation"]["ours"] == pytest.approx(2800 / 3600)
    assert metrics["utilisation"]["sites"]["b"]["ours"] == pytest.approx(130 / 180)
    assert metrics["utilisation"]["others"] == 0.0
    assert not metrics["void"]


def test_percentiles_are_linear_between_neighbours() -> None:
    assert percentile([1.0, 2.0, 4.0], 0.5) == 2.0
    assert percentile([1.0, 2.0, 4.0], 0.75) == 3.0
    assert percentile([5.0], 0.95) == 5.0
    assert summary([]) is None
    assert summary([None, 3.0]) == {"mean": 3.0, "median": 3.0, "p95": 3.0, "max": 3.0}


def test_a_job_that_no_site_can_take_is_unfinished_with_the_reason() -> None:
    small = grid(site("a", 10), site("b", 10))
    for scan_interval_s in (0.0, 4.0):
        tried = msgspec.structs.replace(small, scheduler=SchedulerParameters(scan_interval_s=scan_interval_s))
        result = simulate(tried, Workload.from_arrivals([job(0.0, 25), job(5.0, 4)]))
        left, done = result.rows()
        assert (left.outcome, done.outcome) == ("unfinished", "done")
        assert "25" in left.reason
        assert result.metrics()["unfinished"] == [{"job": 1, "name": "job", "reason": left.reason}]
        assert result.metrics()["makespan_s"] == 105.0


def test_a_run_with_users_for_ever_still_ends_when_the_last_jobs_cannot() -> None:
    users = Background(user_load=0.2)
    result = simulate(grid(site("a", 50, background=users)), Workload.from_arrivals([job(0.0, 4), job(1.0, 50)]))
    assert result.metrics()["outcomes"] == {"done": 1, "unfinished": 1}


def test_a_run_waits_for_an_outage_to_end_before_it_gives_up() -> None:
    broken = grid(site("a", 50, outages=((0.0, 500_000.0),)))
    result = simulate(broken, Workload.from_arrivals([job(1.0, 4)]))
    assert result.metrics()["outcomes"] == {"done": 1}
    assert result.metrics()["makespan_s"] > 499_000


def test_a_run_without_any_job_is_empty() -> None:
    metrics = simulate(grid(site("a", 5)), Workload.from_arrivals([])).metrics()
    assert (metrics["jobs"], metrics["makespan_s"], metrics["response_s"]) == (0, 0.0, None)
    assert metrics["clusters_combined"] == {"mean": None, "histogram": {}}


def test_the_log_has_every_event_and_command_in_order_and_its_hash() -> None:
    import hashlib

    pieces: list[bytes] = []
    result = simulate(*by_hand(), log=pieces.append)
    log = b"".join(pieces)
    lines = [json.loads(line) for line in log.splitlines()]
    assert hashlib.sha256(log).hexdigest() == result.log_sha256
    assert lines[0]["event"] == "JobSubmitted"
    assert sum("event" in line for line in lines) == result.events
    assert all("event" in line or "command" in line["do"] for line in lines)
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    assert lines[-1]["do"]["command"] == "JobEnded"


EVERYTHING = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from tests.simulator.test_run import everything
from koala.simulator import simulate
sys.stdout.write(simulate(*everything(), seed=int(sys.argv[1])).log_sha256)
"""


def everything() -> tuple[Grid, Workload]:
    """A grid and jobs with all that a simulation knows: users, files, faults, start-up, priorities."""
    from koala.descriptions import read_grid
    from koala.descriptions.workload.form import read_workload
    from koala.simulator.workloads.generators import workload_from_file

    here = Path(__file__).parent
    grid = read_grid((here / "everything-grid.yaml").read_text(), "everything-grid.yaml")
    workload = read_workload((here / "everything-workload.yaml").read_text(), "everything-workload.yaml")
    return grid, workload_from_file(workload)


def test_the_same_seed_gives_the_same_log_whatever_pythons_hash_seed() -> None:
    hashes = []
    for hash_seed in ("1", "4711"):
        ran = subprocess.run(
            [sys.executable, "-c", EVERYTHING.format(tests=str(ROOT)), "7"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        hashes.append(ran.stdout)
    assert hashes[0] == hashes[1] == simulate(*everything(), seed=7).log_sha256
    assert simulate(*everything(), seed=8).log_sha256 != hashes[0]


def test_under_every_fault_at_once_all_jobs_end() -> None:
    for seed in range(1, 6):
        metrics = simulate(*everything(), seed=seed).metrics()
        assert "unfinished" not in metrics["outcomes"]
        assert metrics["outcomes"]["done"] >= 70
        assert metrics["failures"] > 0


def test_two_policies_meet_the_same_arrivals_and_the_same_execution_times() -> None:
    from koala.simulator import Arrival

    grid, held = everything()
    arrivals: list[Arrival] = list(held.arrivals(grid, 3))
    calm = msgspec.structs.replace(
        at_once(grid),
        sites=tuple(site(each.name, each.processors) for each in grid.sites),
        simulation=GridSimulation(),
    )

    def ran(policy: str) -> list[JobRow]:
        own = Workload.from_arrivals(
            [each._replace(request=msgspec.structs.replace(each.request, policy=policy)) for each in arrivals]
        )
        files = msgspec.structs.replace(calm, files=(*calm.files, *held.files(grid, 3)))
        return list(simulate(files, own, seed=3).rows())

    worst_fit, minimal = ran("WF"), ran("CM")
    assert [row.submitted for row in worst_fit] == [row.submitted for row in minimal]
    pairs = [(one, other) for one, other in zip(worst_fit, minimal, strict=True) if one.clusters == other.clusters]
    assert 10 <= len(pairs) < len(worst_fit), "the policies differ, but not in everything"
    for one, other in pairs:
        assert one.execution_s == pytest.approx(other.execution_s)


def test_an_unknown_policy_is_an_error_before_the_run() -> None:
    with pytest.raises(UnknownPolicyError):
        simulate(*by_hand(), policy="nope")


def test_a_flexible_job_is_divided_and_a_file_is_brought_before_it_starts() -> None:
    three = Grid(
        sites=(site("a", 18), site("b", 15), site("c", 12)),
        files=(StoredFile(name="mesh", size_bytes=125_000_000, replicas=("c",)),),
        scheduler=SchedulerParameters(policy="FCM", scan_interval_s=0.0),
    )
    from koala.model.request import Component, InputFile, Request
    from koala.simulator import Arrival

    flexible = Request(
        components=(Component(processors=24, input_files=(InputFile(name="mesh"),)),), flexible=Flexibility()
    )
    (row,) = simulate(three, Workload.from_arrivals([Arrival(0.0, flexible, 60.0, 0.5)])).rows()
    assert (row.components, row.sites) == (2, "a+b")
    assert row.execution_s == pytest.approx(90.0)
    # 125 MB over 100 Mbit/s are 10 s, after 5 ms of latency.
    assert row.overhead_s == pytest.approx(10.005)


def test_the_csv_has_one_line_for_each_job_and_empty_cells_for_what_never_came() -> None:
    result = simulate(
        grid(site("a", 10)), Workload.from_arrivals([job(0.0, 4, priority=Priority.HIGH), job(0.0, 11, name="x,y")])
    )
    lines = list(csv.DictReader(io.StringIO(result.csv())))
    assert tuple(lines[0]) == JobRow._fields
    assert (lines[0]["priority"], lines[0]["outcome"], lines[0]["execution_s"]) == ("high", "done", "100.0")
    assert (lines[1]["name"], lines[1]["outcome"], lines[1]["placed"]) == ("x,y", "unfinished", "")
    assert [(line["policy"], line["seed"]) for line in lines] == [("WF", "1")] * 2


def test_progress_ends_with_all_jobs() -> None:
    told: list[tuple[int, int]] = []
    simulate(*by_hand(), progress=lambda ended, jobs: told.append((ended, jobs)))
    assert told[-1] == (2, 2)


def test_the_timeline_of_a_log_has_what_was_held_and_moved() -> None:
    pieces: list[bytes] = []
    simulate(*by_hand(), log=pieces.append)
    timeline = Timeline.from_log(b"".join(pieces).splitlines())
    assert [(hold.job, hold.site, hold.from_s, hold.runs_s, hold.to_s) for hold in timeline.holds] == [
        (1, "a", 0, 0, 130),
        (1, "b", 0, 0, 130),
        (2, "a", 130, 130, 180),
    ]
    assert timeline.end_s == 180
    assert [remark.at_s for remark in timeline.remarks if remark.text.startswith("submitted")] == [0, 30]


def test_many_plain_jobs_leave_nothing_behind_in_the_world() -> None:
    workload = Workload.from_arrays([float(at) for at in range(500)], [1] * 500, [3.0] * 500)
    plain = at_once(grid(site("a", 10)))
    result = simulate(plain, workload)
    assert result.metrics()["outcomes"] == {"done": 500}
    world = World(plain, workload, 1)
    scheduler = Scheduler(plain)
    submitted = 0
    while (event := world.next(scheduler.due_at)) is not None:
        submitted += isinstance(event, JobSubmitted)
        for command in scheduler.handle(event).entries:
            world.perform(command, event.at)
    assert submitted == 500
    assert not world.jobs
    assert not world.components.components


def test_a_policy_that_breaks_stops_the_run() -> None:
    def breaks(idle: Any, sizes: Any, left: Any, chosen: Any) -> int:
        raise KeyError("oops")

    catalogue = Catalogue.builtin()
    catalogue.add(
        Policy(name="BAD", form=Form.COMPONENTS, function=breaks, summary="", origin="bad.py", checked=True)
    )
    with pytest.raises(BrokenPolicyError) as caught:
        simulate(*by_hand(), policy="bad", catalogue=catalogue)
    assert "job 1 (job): the policy 'BAD' (from bad.py) raised KeyError" in caught.value.for_user()


def test_notes_say_where_the_policy_did_not_fit_the_requests() -> None:
    flexible = job(0.0, 8, flexible=Flexibility())
    fixed, own = job(1.0, 4), job(2.0, 4, policy="CM")
    wide = at_once(grid(site("a", 30), site("b", 30)))
    jobs = Workload.from_arrivals([flexible, fixed, own])
    assert simulate(wide, jobs, policy="WF").notes == (
        "1 job with a flexible total, divided by FCM: WF does not divide",
        "1 job placed by CM, a policy given in the request",
    )
    assert simulate(wide, jobs, policy="fcm").notes == (
        "1 job with given sizes: FCM placed them by CM",
        "1 job placed by CM, a policy given in the request",
    )
    assert simulate(*by_hand()).notes == ()


def test_restarts_count_the_runs_after_the_first() -> None:
    broken = at_once(grid(site("a", 5, outages=((50.0, 60.0),))))
    metrics = simulate(broken, Workload.from_arrivals([job(0.0, 5)])).metrics()
    assert metrics["outcomes"] == {"done": 1}
    assert metrics["restarts"] == 1


def test_times_in_the_csv_are_rounded_to_microseconds() -> None:
    result = simulate(grid(site("a", 10)), Workload.from_arrivals([job(0.1, 4, execution_s=0.2)]))
    (row,) = csv.DictReader(io.StringIO(result.csv()))
    assert (row["submitted"], row["execution_s"], row["finished"]) == ("0.1", "0.2", "0.3")


def test_a_repeated_release_keeps_the_time_of_the_first() -> None:
    timeline = Timeline.from_log(
        b'{"at":%d,"do":{"command":%s}}' % (at, command)
        for at, command in (
            (1, b'"StartComponent","job":1,"token":"t","site":"a","processors":2,"component":0,"part":0,"parts":1'),
            (5, b'"ReleaseBarrier","job":1,"tokens":["t"]'),
            (9, b'"ReleaseBarrier","job":1,"tokens":["t"]'),
        )
    )
    assert timeline.holds[0].runs_s == 5
    assert len(timeline.remarks) == 1


def test_with_outages_and_reliable_messages_the_world_forgets_ended_jobs() -> None:
    workload = Workload.from_arrays([float(at) for at in range(300)], [1] * 300, [3.0] * 300)
    broken = at_once(grid(site("a", 10, outages=((100.0, 150.0),)), site("b", 10)))
    world = World(broken, workload, 1)
    scheduler = Scheduler(broken)
    ended = 0
    while (event := world.next(scheduler.due_at)) is not None:
        for command in scheduler.handle(event).entries:
            ended += isinstance(command, JobEnded)
            world.perform(command, event.at)
    assert ended == 300
    assert not world.jobs
    left = world.components.components.values()
    assert len(left) <= 2, "only what the site that was down is asked about when it is back"
    assert all(component.job is None for component in left)


def test_an_abort_of_what_the_world_has_forgotten_is_answered() -> None:
    hands = HandDriven(grid(site("a", 10, outages=((500.0, 600.0),))), job(0.0, 4))
    hands.until(0)
    hands.start("t", "a", 4)
    hands.release("t")
    assert hands.heard(200)[-1] == "100 done t"
    hands.world.components.forget(hands.world.jobs[1])
    hands.abort("t", "a")
    assert hands.heard(300) == ["200 aborted t"]


def test_a_workload_as_it_was_read_runs_as_one_that_was_made_of_it() -> None:
    das2, hello = example_grid("das2"), example_workload("hello")
    assert simulate(das2, hello).log_sha256 == simulate(das2, workload_from_file(hello)).log_sha256


def test_the_public_names_are_listed_before_they_are_loaded() -> None:
    assert {"Client", "AsyncClient", "ClientError", "__version__"} <= set(dir(koala))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("das2", example_workload("koala2006-w1")), r"grid: 'das2' is no Grid; read it with example_grid\(NAME\)"),
        ((example_grid("das2"), "w1.swf"), r"workload: 'w1.swf' is no Workload; .* read_workload_file\(PATH\)"),
    ],
)
def test_a_name_in_place_of_a_grid_or_a_workload_is_named_with_what_reads_it(arguments: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        simulate(*arguments)
