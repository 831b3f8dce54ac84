"""What a replay makes of the journal: whose jobs are whose, what was held and wasted, and the table of jobs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koala.model.api import JournalEntry, LinkInfo, Overview, SiteHistory, SiteInfo, UsagePoint
from koala.model.facts import JobEnded, JobPlaced, JobRequeued
from koala.model.messages import ComponentEnded, ComponentReady, JobOutcome, Outcome, ReleaseBarrier, StartComponent
from koala.policies.interface import quota_processors
from koala.simulator.workloads.workload import single_component
from koala.study.replay.record import ReplayRecord
from koala.study.replay.result import (
    ReplaySubmission,
    holds,
    live_grid,
    measured_period,
    result,
    uses,
    waste,
)

BEGAN = 1_000_000.0


def entry(at: float, job: int | None, body: Any) -> JournalEntry:
    """As the daemon tells it."""
    what = body if isinstance(body, str) else type(body).__name__
    data = {} if isinstance(body, str) else msgspec.to_builtins(body)
    return JournalEntry(seq=1, at=BEGAN + at, kind="event", what=what, job=job, text="", data=data)


def start(job: int, token: str, site: str, processors: int) -> StartComponent:
    return StartComponent(job=job, token=token, site=site, processors=processors, component=0, part=0, parts=1)


def ready(at: float, token: str) -> ComponentReady:
    return ComponentReady(at=BEGAN + at, token=token)


def over(at: float, token: str, outcome: Outcome) -> ComponentEnded:
    return ComponentEnded(at=BEGAN + at, token=token, outcome=outcome)


def ended(job: int, at: float, **fields: Any) -> JobEnded:
    values: dict[str, Any] = {
        "outcome": JobOutcome.DONE,
        "reason": "",
        "submitted_at": BEGAN,
        "placed_at": BEGAN + 1,
        "started_at": BEGAN + 3,
        "ended_at": BEGAN + at,
        "first_start_estimate": None,
        "last_start_estimate": None,
        "places": (("a", 2),),
        "placement_tries": 4,
        "claiming_tries": 1,
        "runs": 1,
        "failures": 0,
        "preemptions": 0,
    }
    return JobEnded(job=job, **(values | fields))


def told(record: ReplayRecord, *entries: JournalEntry) -> None:
    for each in entries:
        record.take(each)


def one_job(job: int) -> list[JournalEntry]:
    """A job of one component with 2 processors: claimed at 1, ready at 2, released at 3, ended at 13."""
    token = f"t{job}"
    return [
        entry(0, job, "JobSubmitted"),
        entry(1, job, JobPlaced(job=job, places=(("a", 2),))),
        entry(1, job, start(job, token, "a", 2)),
        entry(2, job, ready(2, token)),
        entry(3, job, ReleaseBarrier(job=job, tokens=(token,))),
        entry(13, job, over(13, token, Outcome.DONE)),
        entry(13, job, ended(job, 13)),
    ]


def test_jobs_are_the_replays_whether_the_journal_or_the_answer_comes_first() -> None:
    record = ReplayRecord()
    told(record, *one_job(1))  # a stranger's
    told(record, *one_job(2)[:3])
    record.own(2, BEGAN)
    record.own(4, BEGAN + 5)
    told(record, *one_job(2)[3:])
    told(record, *one_job(3))  # another stranger's, between two of ours
    assert sorted(record.jobs) == [2, 4]
    assert record.unended == record.waiting == {4}
    assert {each.job for each in record.components()} == {2}
    assert not record.holds_something


def test_a_stranger_after_the_last_own_job_stays_out_of_every_number() -> None:
    record = ReplayRecord()
    record.own(1, BEGAN)
    told(record, *one_job(1), *one_job(2))
    assert len(record.components()) == 1
    assert record.entries() == len(one_job(1))


def test_states_follow_the_journal_also_back_to_the_queue() -> None:
    record = ReplayRecord()
    record.own(1, BEGAN)
    seen = []
    journal = one_job(1)
    back = entry(4, 1, JobRequeued(job=1, reason="a site broke"))
    for each in (*journal[:5], back, *journal[5:]):
        record.take(each)
        seen.append((bool(record.waiting), bool(record.running), bool(record.unended)))
    waits, placed, runs, over = (True, False, True), (False, False, True), (False, True, True), (False, False, False)
    assert seen == [waits, placed, placed, placed, runs, waits, waits, over]


def test_waste_is_what_was_held_at_the_barrier_and_what_ran_in_vain() -> None:
    record = ReplayRecord()
    record.own(1, BEGAN)
    told(record, *one_job(1))
    told(
        record,
        entry(1, 1, start(1, "never-ready", "b", 8)),
        entry(2, 1, start(1, "never-released", "b", 3)),
        entry(3, 1, ready(3, "never-released")),
        entry(7, 1, over(7, "never-released", Outcome.ABORTED)),
        entry(2, 1, start(1, "broken", "b", 1)),
        entry(3, 1, ready(3, "broken")),
        entry(3, 1, ReleaseBarrier(job=1, tokens=("broken",))),
        entry(8, 1, over(8, "broken", Outcome.SITE_FAILED)),
    )
    wasted = waste(record.components(), BEGAN + 20)
    assert wasted.barrier_processor_s == 2 * 1 + 3 * 4
    assert wasted.lost_processor_s == 5
    assert wasted.held_processor_s == 2 * 11 + 3 * 4 + 5
    assert wasted.share == pytest.approx(19 / 39)


def test_the_table_of_jobs_is_the_simulators_with_times_from_the_beginning_of_the_replay() -> None:
    record = ReplayRecord()
    record.own(7, BEGAN)
    record.own(8, BEGAN + 2)
    told(record, *one_job(7))
    requests = [
        ReplaySubmission(job=job, name=job, request=single_component(2), planned_s=0.0, lag_s=0.0) for job in (7, 8)
    ]
    sites = [site("a", 4), site("b", 2)]
    period = measured_period(record, BEGAN, BEGAN + 30, cut_off=False)
    assert period == (BEGAN, BEGAN + 13)
    points = [
        UsagePoint(at=BEGAN, processors=4, ours=0, others=1),
        UsagePoint(at=BEGAN + 1, processors=4, ours=3, others=1),
    ]
    history = SiteHistory(site="a", from_at=period[0], to_at=period[1], points=points)
    found = result(
        record,
        requests,
        {8: "it can never fit"},
        uses(sites, {"a": history}, record.components(), *period),
        policy="WF",
        seed=3,
        zero_at=BEGAN,
        now=BEGAN + 30,
        stopped="",
        not_submitted=0,
        notes=["a note"],
    )
    first, second = found.rows()
    assert (first.job, first.queue_s, first.overhead_s, first.wait_s, first.execution_s) == (7, 1.0, 2.0, 3.0, 10.0)
    assert (first.placement_tries, first.outcome, first.sites, first.seed) == (4, "done", "a", 3)
    assert (second.job, second.submitted, second.outcome, second.reason) == (8, 2.0, "unfinished", "it can never fit")
    metrics = found.metrics()
    assert metrics["makespan_s"] == 13.0
    # The replay held 2 of 4 for 12 of 13 s; a stranger's job of Koala held 1 for as long, and a user 1 all the time.
    assert metrics["utilisation"]["sites"]["a"] == {
        "ours": pytest.approx(24 / 52),
        "others": pytest.approx((12 + 13) / 52),
    }
    assert metrics["utilisation"]["sites"]["b"] == {"ours": 0.0, "others": 0.0}
    assert holds(record.components(), ["a", "b"], BEGAN) == [(7, 0, 2, 1.0, 13.0)]


def site(name: str, processors: int, usable: int | None = None) -> SiteInfo:
    return SiteInfo(
        name=name,
        kind="local",
        processors=processors,
        usable=processors if usable is None else usable,
        ours=0,
        others=0,
        idle=processors,
        earmarked=0,
        trust="usable",
        drained=False,
        errors=0,
    )


@pytest.mark.parametrize("processors", [1, 3, 7, 29, 100, 997])
def test_the_grid_to_simulate_has_the_quota_of_the_live_one(processors: int) -> None:
    for usable in range(processors + 1):
        grid = live_grid(overview([site("a", processors, usable)]))
        assert quota_processors(grid.sites[0].processors, grid.sites[0].quota) == usable


def test_the_grid_to_simulate_has_the_links_of_the_live_one() -> None:
    def link(*between: str, mbit_s: float) -> LinkInfo:
        return LinkInfo(
            between=(between[0], between[1]), bandwidth_mbit_s=mbit_s, believed_mbit_s=1.0, latency_s=0.01
        )

    sites = [site(name, 2) for name in ("a", "b", "c")]
    alike = live_grid(overview(sites, [link("a", "b", mbit_s=50), link("a", "c", mbit_s=50)]))
    assert alike.links.default.bandwidth_mbit_s == 50
    assert not alike.links.pairs
    different = live_grid(overview(sites, [link("a", "b", mbit_s=50), link("a", "c", mbit_s=9)]))
    assert {pair.between: pair.bandwidth_mbit_s for pair in different.links.pairs} == {("a", "b"): 50, ("a", "c"): 9}


def overview(sites: list[SiteInfo], links: list[LinkInfo] | None = None) -> Overview:
    return Overview(
        grid="live",
        version="1",
        now=BEGAN,
        started_at=BEGAN,
        policy="CM",
        sites=sites,
        links=links or [],
        transfers=[],
        waiting_high=[],
        waiting_low=[],
        claiming=[],
        active=[],
        counts={},
    )
