"""Records: a scheduler made from them goes on exactly like the one that wrote them, or says why it cannot."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.core import JobState, Kind, Record, RecordsError, Scheduler
from koala.core.changes import Changes
from koala.core.encoded import sparse
from koala.core.life.component import ComponentClaim
from koala.core.life.job import Job
from koala.core.life.places import JobPlaces
from koala.core.life.states import ENDED
from koala.core.life.unfolding import ArrayElements
from koala.core.records.record import ELEMENTS_IN_BLOCK, FORMAT, SchedulerRecord
from koala.core.state.queues.placement import PlacementQueue
from koala.core.state.site_belief import SiteBelief, Trust
from koala.core.timers import Timer
from koala.model.facts import JobEnded, JobPlaced, Turn, TurnEntry
from koala.model.grid import Grid, Link, Links, Network
from koala.model.job_array import read_array
from koala.model.messages import (
    AbortComponent,
    AnyEvent,
    CancelAsked,
    ComponentEnded,
    FileChanged,
    JobSubmitted,
    Outcome,
    SiteDrained,
    SiteSilent,
    StartComponent,
    StartTransfer,
    Tick,
)
from koala.model.request import Communication, Priority
from koala.policies import Catalogue
from koala.simulator.torture import restarts
from koala.simulator.torture import storms as torture_storms
from koala.simulator.torture.promises import PromiseBrokenError
from koala.simulator.torture.restarts import Bodies, KeptRecords, bodies_of, difference
from koala.simulator.torture.storms import draw_storm
from koala.simulator.torture.torture import weather
from tests.core.test_storm import STEPS_MAX, Storm
from tests.support.core_driver import (
    CoreDriver,
    ask,
    assert_ledger_balances,
    kind,
    make_grid,
    part,
    seconds,
)
from tests.support.core_records import CoreRecords, records_of, scheduler_of

# A forgotten field must show within this many storms.
SEEDS_TO_FIND_A_DEFECT = 60
# Where to begin, with a storm that shows it and is soon over: none is lived through in vain.
FIRST_STORMS = {
    "abort_tries": 4,
    "an alarm": 11,
    "checkpoint_runs": 22,
    "claim_fraction": 22,
    "earmarks": 12,
    "errors": 2,
    "guest": 3,
    "links": 10,
    "rests": 33,
    "starts": 16,
    "changes of applications": 14,
    "changes of claims": 4,
    "changes of files": 16,
    "changes of jobs": 2,
    "changes of links": 55,
    "changes of places": 4,
    "changes of runs": 11,
    "changes of sites": 2,
    "changes of transfers": 11,
    "changes of usual_runs": 31,
}

OWN_POLICY = """
from koala.policies import policy

@policy("first")
def first(idle, sizes, left, chosen):
    for component in range(len(sizes)):
        if left[0] < sizes[component]:
            return component
        chosen[component] = 0
        left[0] -= sizes[component]
    return -1
"""


def restart(driver: CoreDriver, grid: Grid | None = None, catalogue: Catalogue | None = None) -> list[TurnEntry]:
    """Replace the driver's scheduler by one made from its records; the answer to the first tick."""
    driver.scheduler = scheduler_of(grid or driver.scheduler.grid, catalogue, records_of(driver.scheduler))
    driver.ledger = driver.scheduler.ledger
    assert not driver.scheduler.damaged
    assert_ledger_balances(driver.ledger)
    return driver.send(Tick(at=driver.now))


def refusal_to_read(driver: CoreDriver, grid: Grid, catalogue: Catalogue | None = None) -> str:
    """What the user is told when the driver's records cannot be loaded on this grid."""
    with pytest.raises(RecordsError) as caught:
        scheduler_of(grid, catalogue, records_of(driver.scheduler))
    return caught.value.for_user()


# ------------------------------------------------------------------------------------------ exactly


class Twinned(Scheduler):
    """A scheduler with twins that were made from its records at some time and must answer like it ever since."""

    def __init__(self, grid: Grid) -> None:
        super().__init__(grid, recorded=True)
        self.twins: list[Scheduler] = []

    def handle(self, event: AnyEvent) -> Turn:
        turn = super().handle(event)
        for twin in self.twins:
            assert twin.handle(event) == turn
        return turn

    def make_twin(self) -> None:
        self.twins.append(scheduler_of(self.grid, None, records_of(self)))

    def compare(self) -> None:
        for twin in self.twins:
            assert not twin.damaged
            assert not difference(bodies_of(self), bodies_of(twin), "without a restart", "after it")
            assert_ledger_balances(twin.ledger)
            assert [twin.explain(job) for job in self.ledger.jobs] == [self.explain(job) for job in self.ledger.jobs]


class TwinnedStorm(Storm):
    """The careless world of the storm, with restarts among what may happen."""

    def __init__(self, data: st.DataObject) -> None:
        super().__init__(data)
        self.scheduler = Twinned(self.driver.scheduler.grid)
        self.driver.scheduler = self.scheduler
        self.driver.ledger = self.scheduler.ledger

    def step(self) -> None:
        super().step()
        if len(self.scheduler.twins) < 4 and self.draw(st.integers(0, 9)) == 0:
            self.scheduler.make_twin()


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_after_a_restart_at_any_moment_every_answer_is_the_same(data: st.DataObject) -> None:
    storm = TwinnedStorm(data)
    for _ in range(data.draw(st.integers(1, STEPS_MAX))):
        storm.step()
    storm.scheduler.make_twin()
    storm.scheduler.compare()
    storm.heal()
    storm.scheduler.compare()


# What is not encoded, by the slot that has it, as something that can be compared.
WORKED_OUT: dict[type, dict[str, Callable[[Any], Any]]] = {
    Job: {
        "asks": lambda job: (job.demand.key, job.demand.barred),
        "described": lambda job: job.described,
        "element_states": lambda job: {s: count for s, count in job.element_states.items() if s not in ENDED},
        "high": lambda job: job.high,
        "phase": lambda job: sparse(job.phase, {"placement"}),
        "placement": lambda job: job.places,
        "state": lambda job: job.state,
        "request": lambda job: job.request,
        "states": lambda job: {state: job.states[state] for state in JobState if state not in ENDED},
        "changes": lambda job: job.changes is not None,
    },
    ArrayElements: {
        "ahead": lambda elements: elements.ahead,
        "live": lambda elements: elements.live,
        "not_done_as": lambda elements: elements.not_done_as,
        "not_made": lambda elements: elements.not_made,
        "spec": lambda elements: elements.spec,
        "states": lambda elements: {s: count for s, count in elements.states.items() if s not in ENDED},
    },
    JobPlaces: {
        "claims": lambda placed: [claim and claim.token for claim in placed.claims],
        "link_demands": lambda placed: placed.link_demands,
        "transfers": lambda placed: [(key, transfer.id) for key, transfer in placed.transfers.items()],
        "transfers_open": lambda placed: placed.transfers_open,
    },
    ComponentClaim: {"job": lambda claim: claim.job.id},
    Timer: {"cancelled": lambda timer: timer.cancelled, "whom": lambda timer: timer.whom},
    SiteBelief: {
        "claims": lambda site: list(site.claims),
        "described_limit": lambda site: site.described_limit,
        "earmarked": lambda site: site.earmarked,
        "limit": lambda site: site.limit,
        "ours": lambda site: site.ours,
        "pool": lambda _: True,  # made when somebody asks
        "promised": lambda site: site.promised,
        "quota": lambda site: site.quota,
    },
    PlacementQueue: {
        "by_least": lambda queue: [least for least, _, _ in queue.by_least],
        "_group_sequence": lambda queue: queue._group_sequence >= queue.kinds,
        "groups": lambda queue: set(queue.groups),
        "joined": lambda queue: queue.joined >= queue.size,
        "limited": lambda queue: queue.limited,
        "_limits": lambda queue: sorted((scan, job.id) for scan, at, job in queue._limits if job.position == at),
        "ask_again": lambda queue: queue.standing.asked,
        "by_arrival": lambda queue: queue.by_arrival,
        "every_event": lambda queue: queue.every_event,
        "fickle": lambda queue: queue.fickle,
        "patient": lambda queue: queue.patient,
        "resting": lambda queue: list(queue.resting),
        "shaped": lambda queue: queue.shaped,
        "size": lambda queue: queue.size,
        "standing": lambda queue: type(queue.standing),
    },
}


@pytest.mark.parametrize("cls", WORKED_OUT)
def test_what_is_not_encoded_is_worked_out_again(cls: Any) -> None:
    """Every field is encoded as it is; every slot beside the fields has its line above."""
    assert set(WORKED_OUT[cls]) == set(cls.__mro__[-2].__slots__)
    ledgers = []
    for scheduler in (
        busy_driver().scheduler,
        scheduler_of(busy_grid(), None, busy_records()),
    ):
        ledger = scheduler.ledger
        ledgers.append(
            {
                Job: list(ledger.jobs.values()),
                ArrayElements: [job.unfolds for job in ledger.jobs.values() if job.unfolds is not None],
                JobPlaces: [job.placement for job in ledger.jobs.values() if job.placement is not None],
                ComponentClaim: list(ledger.claims.values()),
                Timer: [timer for _, _, timer in sorted(ledger.timers.heap) if not timer.cancelled],
                SiteBelief: ledger.sites.sites,
                PlacementQueue: [ledger.high, ledger.low],
            }[cls]
        )
    for before, after in zip(*ledgers, strict=True):
        assert {name: value(before) for name, value in WORKED_OUT[cls].items()} == {
            name: value(after) for name, value in WORKED_OUT[cls].items()
        }


def changed(kind_: Kind, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Bodies], Bodies]:
    """The records with every one of a kind changed."""

    def of(bodies: Bodies) -> Bodies:
        return {
            (its_kind, key): msgspec.json.encode(change(msgspec.json.decode(body))) if its_kind is kind_ else body
            for (its_kind, key), body in bodies.items()
        }

    return of


def without(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A record that lacks these fields."""
    return lambda fields: {name: value for name, value in fields.items() if name not in names}


def without_earmarks(job: dict[str, Any]) -> dict[str, Any]:
    return job | {"phase": without("earmarks")(job["phase"])}


FORGOTTEN: dict[str, Callable[[Bodies], Bodies]] = {
    "claim_fraction": changed(Kind.JOB, lambda job: job | {"claim_fraction": 0.75}),
    "rests": changed(Kind.JOB, without("rests")),
    "starts": changed(Kind.JOB, without("starts")),
    "abort_tries": changed(Kind.CLAIM, without("abort_tries")),
    "errors": changed(Kind.SITE, without("errors")),
    "checkpoint_runs": changed(Kind.PLACES, without("checkpoint_runs")),
    "earmarks": changed(Kind.JOB, without_earmarks),
    "guest": changed(Kind.JOB, without("guest")),
    "links": lambda bodies: {name: body for name, body in bodies.items() if name[0] is not Kind.LINK},
    "an alarm": changed(Kind.CLAIM, without("timer")),
}


def crowded(storm: torture_storms.Storm) -> torture_storms.Storm:
    """The same storm with all jobs at nearly the same time, every other one of high priority: several wait for the
    same preempted processors, which few storms have."""
    arrivals = tuple(
        each._replace(
            at_s=0.2 * each.at_s,
            request=msgspec.structs.replace(each.request, priority=Priority.HIGH if place % 2 else Priority.LOW),
        )
        for place, each in enumerate(storm.arrivals)
    )
    scheduler = msgspec.structs.replace(storm.grid.scheduler, hold_placed=False)
    return msgspec.structs.replace(
        storm, grid=msgspec.structs.replace(storm.grid, scheduler=scheduler), arrivals=arrivals
    )


def broken_promises(what: str) -> list[str]:
    """What the first storm breaks that breaks anything."""
    first = FIRST_STORMS.get(what, 0)
    storms = map(draw_storm, range(first, first + SEEDS_TO_FIND_A_DEFECT))
    broken = (weather(crowded(storm) if what == "earmarks" else storm).broken for storm in storms)
    return list(itertools.islice(filter(None, broken), 1))


def forget_at_restarts(forget: Callable[[Bodies], Bodies], monkeypatch: pytest.MonkeyPatch) -> None:
    restarted = KeptRecords.restarted

    def forgetful(kept: KeptRecords, scheduler: Scheduler) -> Scheduler:
        lossy = copy.copy(kept)
        lossy.bodies = forget(kept.bodies)
        return restarted(lossy, scheduler)

    monkeypatch.setattr(KeptRecords, "restarted", forgetful)


@pytest.mark.parametrize("what", FORGOTTEN)
def test_torture_sees_it_when_something_is_forgotten(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the restarted scheduler does, or that there is none: that its records differ is not looked at."""
    forget_at_restarts(FORGOTTEN[what], monkeypatch)
    monkeypatch.setattr(restarts.Twin, "compare", lambda _: None)
    assert broken_promises(what) == ["a restart changes nothing"]


def test_torture_sees_it_when_the_records_of_the_restarted_scheduler_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(make_grid({"a": 4}), recorded=True)
    twin = restarts.Twin(scheduler, seed=1)
    scheduler.handle(JobSubmitted(at=0.0, job=1, request=ask(3)))
    forget_at_restarts(changed(Kind.JOB, lambda job: job | {"waiting_since": -1.0}), monkeypatch)

    def restart_some_day() -> None:
        for _ in range(10_000):
            tick = Tick(at=0.0)
            twin.after(tick, scheduler.handle(tick))

    with pytest.raises(PromiseBrokenError, match="a restart changes nothing: the records differ: the job 1 has "):
        restart_some_day()


class DeafDict(dict[Any, Any]):
    """Takes no note of anything."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


@pytest.mark.parametrize("kind_", Changes.__slots__)
def test_torture_sees_it_when_changes_of_a_kind_are_not_noted(kind_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Changes.__init__

    def deaf(changes: Changes) -> None:
        made(changes)
        setattr(changes, kind_, DeafDict())

    monkeypatch.setattr(Changes, "__init__", deaf)
    assert broken_promises(f"changes of {kind_}") == ["a restart changes nothing"]


@pytest.mark.parametrize("cls", [ComponentClaim, Job])
def test_torture_sees_it_when_one_place_does_not_note_what_it_changes(
    cls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cls, "changed", lambda _: None)
    assert broken_promises(cls.__name__) == ["a restart changes nothing"]


def test_what_has_changed_is_written_once_and_what_is_gone_has_no_body() -> None:
    driver = CoreDriver({"a": 4, "b": 4})
    scheduler = driver.scheduler
    scheduler.handle(JobSubmitted(at=0.0, job=1, request=ask(3)))
    first = {(record.kind, record.key) for record in scheduler.changed_records()}
    assert first >= {(Kind.JOB, "1"), (Kind.PLACES, "1"), (Kind.CLAIM, "1.1"), (Kind.SCHEDULER, "")}
    assert len([key for kind_, key in first if kind_ is Kind.SITE]) == 1, "nothing has changed at the other site"
    assert scheduler.changed_records() == []
    scheduler.handle(ComponentEnded(at=1.0, token="1.1", outcome=Outcome.DONE))  # noqa: S106 - no secret
    scheduler.handle(CancelAsked(at=2.0, job=1))
    gone = {(record.kind, record.key) for record in scheduler.changed_records() if record.body is None}
    assert gone >= {(Kind.JOB, "1"), (Kind.PLACES, "1"), (Kind.CLAIM, "1.1")}


def test_of_a_file_that_is_gone_nothing_stays_unless_the_grid_says_that_it_is_there() -> None:
    driver = CoreDriver({"a": 4, "b": 4}, files={"f": (30.0, ("b",))})
    for name in ("f", "made"):
        driver.send(FileChanged(at=0.0, file=name, size_bytes=1, replicas=("a",)))
        driver.send(FileChanged(at=1.0, file=name, size_bytes=1, replicas=()))
    kept = records_of(driver.scheduler).bodies
    assert [key for kind_, key in kept if kind_ is Kind.FILE] == ["f"]
    restart(driver)
    assert driver.ledger.sites.view.files == {}


def test_what_a_pardon_takes_from_a_site_is_written_even_where_it_weighs_nothing() -> None:
    driver = CoreDriver({"a": 4})
    driver.submit(ask(3))
    driver.ledger.sites.sites[0].broken_by = {1: 0}
    driver.ledger.changes.clear()
    driver.ledger.sites.pardon(driver.job(1))
    assert 0 in driver.ledger.changes.sites


def test_a_record_is_a_value_that_later_events_do_not_change() -> None:
    driver = CoreDriver({"a": 4, "b": 4}, files={"f": (30.0, ("b",))})
    driver.submit(ask(part(3, "a", "f")))
    driver.submit(ask(6))
    kept = records_of(driver.scheduler)
    before = dict(kept.bodies)
    driver.pass_time(100.0)
    driver.cancel(1)
    driver.cancel(2)
    assert kept.bodies == before
    assert records_of(driver.scheduler).bodies != before


def test_after_a_restart_the_scheduler_is_due_at_its_next_alarm() -> None:
    driver = CoreDriver({"a": 4}, answer_timeout_s=60.0)
    driver.submit(ask(3))
    assert restart(driver) == []
    assert driver.scheduler.due_at == 60.0


def test_what_became_due_while_nothing_ran_is_done_at_the_first_tick() -> None:
    driver = CoreDriver({"a": 4}, barrier_timeout_s=100.0)
    driver.submit(ask(3))
    driver.now = 1_000.0
    assert [abort.token for abort in kind(restart(driver), AbortComponent)] == ["1.1"]


@pytest.mark.parametrize(
    ("before_s", "after_s", "moves_at"), [(5.0, 5.0, 5.0), (5.0, 9.0, 5.0), (None, 9.0, None), (5.0, None, None)]
)
def test_patience_with_a_site_s_own_queue_goes_on_after_a_restart(
    before_s: float | None, after_s: float | None, moves_at: float | None
) -> None:
    """A clock that runs goes on, or ends with another grid file; none begins for what waits already."""
    driver = CoreDriver({"a": 10, "b": 8}, queue_patience_s=before_s)
    driver.submit(ask(6))
    driver.accept("1.1")
    driver.report("a", others=5)
    driver.wait_until(1.0)
    scheduler = msgspec.structs.replace(driver.scheduler.grid.scheduler, queue_patience_s=after_s)
    restart(driver, msgspec.structs.replace(driver.scheduler.grid, scheduler=scheduler))
    driver.wait_until(100.0)
    starts = dict(zip(driver.times(StartComponent), driver.all(StartComponent), strict=True))
    assert [(at, start.site) for at, start in starts.items()][1:] == ([] if moves_at is None else [(moves_at, "b")])


def test_components_of_an_ended_job_count_until_their_end_is_told_and_are_aborted_again() -> None:
    driver = CoreDriver({"a": 4}, answer_timeout_s=60.0)
    driver.run(ask(3))
    driver.cancel(1)
    driver.submit(ask(4))
    restart(driver)
    assert driver.ledger.jobs.keys() == {2}
    assert driver.story(1)[-1] == "cancelled"
    assert [abort.token for abort in kind(driver.pass_time(60.0), AbortComponent)] == ["1.1"]
    driver.end("1.1", outcome=Outcome.ABORTED)
    assert driver.idle("a") == 4
    assert kind(driver.pass_time(20.0), JobPlaced) == [JobPlaced(job=2, places=(("a", 4),))]


def test_a_job_that_was_submitted_before_is_not_taken_twice() -> None:
    driver = CoreDriver({"a": 4})
    driver.submit(ask(3))
    driver.cancel(1)
    restart(driver)
    assert driver.send(JobSubmitted(at=driver.now, job=1, request=ask(3))) == []


def test_a_broken_transfer_is_not_tried_again_from_the_source_that_failed() -> None:
    driver = CoreDriver({"a": 4, "b": 4, "c": 4}, files={"f": (30.0, ("b", "c"))})
    driver.submit(ask(part(3, "a", "f")))
    driver.end_transfer("t1", ok=False)
    restart(driver)
    (third,) = kind(driver.end_transfer("t2", ok=False), StartTransfer)
    assert (third.transfer, third.source) == ("t3", "b"), "both have failed by now: the lower index"
    restart(driver)
    assert driver.ledger.transfers.by_id["t3"].failed_sources == [1, 2]


def test_jobs_with_the_same_claiming_time_are_claimed_in_the_order_of_their_placement() -> None:
    driver = CoreDriver({"a": 9, "b": 4}, files={"f": (40.0, ("b",))}, claim_fraction=0.5)
    for _ in range(2):
        driver.submit(ask(part(3, "a", "f")))
    restart(driver)
    driver.submit(ask(part(3, "a", "f")))
    starts = kind(driver.pass_time(30.0), StartComponent)
    assert [start.job for start in starts] == [1, 2, 3]


def test_infinite_times_are_kept() -> None:
    """A link that moves nothing: the file is never expected, and no policy but CF looks at files."""
    nothing_moves = Links(default=Link(bandwidth_mbit_s=0.0, latency_s=0.0))
    grid = msgspec.structs.replace(make_grid({"a": 4, "b": 4}, files={"f": (1.0, ("b",))}), links=nothing_moves)
    scheduler = Scheduler(grid)
    scheduler.handle(JobSubmitted(at=0.0, job=1, request=ask(part(3, "a", "f"))))
    twin = scheduler_of(grid, None, records_of(scheduler))
    assert twin.ledger.jobs[1].start_estimate == float("inf")
    assert twin.ledger.claiming.next_at == twin.ledger.timers.next_at() == float("inf")
    assert twin.explain(1) == scheduler.explain(1)


# ----------------------------------------------------------------------------------- on another grid


def test_a_site_that_was_added_takes_waiting_jobs() -> None:
    driver = CoreDriver({"a": 4})
    driver.submit(ask(4))
    driver.submit(ask(3))
    restart(driver, make_grid({"new": 4, "a": 4}))
    assert kind(driver.pass_time(20.0), JobPlaced) == [JobPlaced(job=2, places=(("new", 3),))]
    assert driver.tokens(1) == ["1.1"]
    assert driver.ledger.claims["1.1"].site == 1
    assert (driver.idle("new"), driver.idle("a")) == (1, 0)


def test_a_waiting_job_is_explained_with_the_sites_that_there_are() -> None:
    driver = CoreDriver({"a": 4, "old": 1})
    driver.submit(ask(5))
    scheduler = scheduler_of(make_grid({"new": 1, "a": 4}), None, records_of(driver.scheduler))
    explanation = scheduler.explain(1)
    assert explanation is not None
    assert explanation.refusal is not None
    assert [(shortage.site, shortage.idle) for shortage in explanation.refusal.shortages] == [("new", 0), ("a", 4)]


def test_beliefs_follow_their_site_to_its_new_place() -> None:
    driver = CoreDriver({"a": 4, "b": 6, "c": 8}, error_threshold=1, cooldown_s=500.0)
    driver.report("a", others=1)
    driver.send(SiteDrained(at=0.0, site="b"))
    driver.send(SiteSilent(at=0.0, site="c", reason="no route"))
    restart(driver, make_grid({"c": 8, "b": 6, "a": 4}))
    c, b, a = driver.ledger.sites
    assert (a.others, b.drained, c.trust) == (1, True, Trust.UNUSABLE)
    assert (driver.idle("a"), driver.idle("b"), driver.idle("c")) == (3, 0, 0)
    driver.pass_time(500.0)
    assert c.trust is Trust.PROBING


def test_only_a_number_of_processors_that_the_site_has_told_outlives_the_grid() -> None:
    driver = CoreDriver({"a": 4, "b": 4})
    driver.report("a", others=0, processors=3)
    restart(driver, make_grid({"a": 10, "b": 10}))
    assert (driver.idle("a"), driver.idle("b")) == (3, 10)


def test_a_quota_is_the_new_grids() -> None:
    driver = CoreDriver({"a": 10})
    driver.report("a", others=0, processors=8)
    restart(driver, make_grid({"a": 10}, quotas={"a": 0.5}))
    assert driver.idle("a") == 4


def test_a_site_where_nothing_is_left_may_go() -> None:
    driver = CoreDriver({"a": 4, "b": 4}, files={"f": (30.0, ("b",))}, error_threshold=1)
    tokens = driver.run(ask(part(3, "a")))
    driver.send(SiteSilent(at=0.0, site="b", reason="no route"))
    restart(driver, make_grid({"a": 4}))
    assert driver.state(1) is JobState.RUNNING
    assert [ended.job for ended in kind(driver.end(*tokens), JobEnded)] == [1]


def test_a_copy_that_has_arrived_does_not_need_the_site_that_it_came_from() -> None:
    driver = CoreDriver({"a": 8, "b": 4}, files={"f": (30.0, ("b",))})
    driver.submit(ask(part(3, "a", "f")))
    driver.end_transfer("t1")
    grid = make_grid({"a": 8, "c": 4}, files={"f": (30.0, ("c",))})
    restart(driver, grid)
    driver.submit(ask(part(3, "a", "f")))
    assert driver.transfers() == ["t1"], "the second job reads the same copy"
    restart(driver, grid)
    assert driver.ledger.transfers.by_id["t1"].jobs == {1: None, 2: None}


@pytest.mark.parametrize(
    ("lacking", "left"),
    [
        ("a", "components (1.1, 1.2, 2.1), jobs placed there (1), jobs that name it (1, 3)"),
        ("b", "jobs placed there (4), transfers (t1)"),
        ("store", "transfers (t1)"),
    ],
)
def test_a_site_where_something_is_left_may_not_go(lacking: str, left: str) -> None:
    sites = {"a": 8, "b": 4, "store": 1}
    driver = CoreDriver(sites, files={"f": (30.0, ("store",))})
    driver.run(ask(part(3, "a"), part(2, "a")))
    driver.run(ask(part(1, "a")))
    driver.cancel(2)
    driver.submit(ask(part(8, "a")))
    driver.submit(ask(part(4, None, "f"), policy="CF"))
    told = refusal_to_read(driver, make_grid({name: size for name, size in sites.items() if name != lacking}))
    assert told == (
        f"the grid does not have the site '{lacking}' any more, but there are still {left}; put the site back into "
        "the grid file, drain it, and take it out when nothing is left there; or cancel these jobs first; or, if it "
        f"never comes back, put it back and declare it lost (koala site lost {lacking})"
    )


def test_an_error_names_only_some_of_many() -> None:
    driver = CoreDriver({"a": 8, "b": 1})
    for _ in range(8):
        driver.run(ask(part(1, "a")))
    told = refusal_to_read(driver, make_grid({"b": 1}))
    assert "components (1.1, 2.1, 3.1, 4.1, 5.1 and 3 more)" in told


def test_a_policy_that_is_gone_is_named_with_the_job_that_asks_for_it() -> None:
    catalogue = Catalogue.builtin()
    catalogue.add_from_source(OWN_POLICY, "own.py")
    driver = CoreDriver({"a": 4}, catalogue=catalogue)
    driver.submit(ask(5, policy="first", name="wave"))
    told = refusal_to_read(driver, driver.scheduler.grid)
    assert told.startswith("job 1 (wave) asks for the policy 'first', which is not known any more; ")
    restart(driver, catalogue=catalogue)
    assert driver.state(1) is JobState.WAITING


@pytest.mark.parametrize(("before_s", "after_s"), [(4.0, 0.0), (0.0, 4.0), (4.0, 30.0)])
def test_with_another_scan_interval_no_job_gains_or_loses_tries(before_s: float, after_s: float) -> None:
    driver = CoreDriver({"a": 4}, scan_interval_s=before_s)
    driver.submit(ask(2))
    driver.submit(ask(3, placement_tries_max=20))
    for others in (1, 0, 1, 0):  # what is idle changes, and never suffices
        driver.pass_time(12.0)
        driver.report("a", others=others)
    before = driver.scheduler.explain(2)
    grid = make_grid({"a": 4}, scan_interval_s=after_s)
    after = scheduler_of(grid, None, records_of(driver.scheduler)).explain(2)
    assert before is not None
    assert after is not None
    assert after.placement_tries == before.placement_tries > 1


def test_under_another_policy_waiting_jobs_are_tried_again() -> None:
    """Worst fit puts the two of 4 on different sites, and without a change it would not be asked again."""
    driver = CoreDriver({"a": 8, "b": 6}, policy="WF")
    driver.submit(ask(4, 4, 3, 3))
    assert driver.pass_time(100.0) == []
    restart(driver, make_grid({"a": 8, "b": 6}, policy="CM"))
    assert kind(driver.pass_time(20.0), JobPlaced) == [
        JobPlaced(job=1, places=(("a", 4), ("a", 4), ("b", 3), ("b", 3)))
    ]


@pytest.mark.parametrize(("before_s", "after_s", "asks"), [(None, 50.0, True), (50.0, None, False)])
def test_running_components_are_asked_about_as_the_new_grid_says(
    before_s: float | None, after_s: float | None, asks: bool
) -> None:
    driver = CoreDriver({"a": 4}, check_interval_s=before_s)
    driver.run(ask(3))
    restart(driver, make_grid({"a": 4}, check_interval_s=after_s))
    assert bool(driver.pass_time(60.0)) is asks


@pytest.mark.parametrize(("bandwidth_mbit_s", "kept"), [(8.0, True), (80.0, False)])
def test_what_was_learned_of_a_link_is_kept_until_the_grid_says_otherwise(
    bandwidth_mbit_s: float, kept: bool
) -> None:
    driver = CoreDriver({"a": 4, "b": 4}, files={"f": (30.0, ("b",))})
    driver.submit(ask(part(3, "a", "f")))
    driver.pass_time(15.0)
    driver.end_transfer("t1")
    learned = driver.ledger.sites.view.bytes_per_s[0][1]
    links = Links(default=Link(bandwidth_mbit_s=bandwidth_mbit_s, latency_s=0.0))
    restart(driver, msgspec.structs.replace(driver.scheduler.grid, name="renamed", links=links))
    view = driver.ledger.sites.view
    assert learned > 1_000_000.0
    assert view.bytes_per_s[0][1] == view.bytes_per_s[1][0] == (learned if kept else 10_000_000.0)


def test_replicas_are_as_told_last_and_else_as_the_new_grid_says() -> None:
    driver = CoreDriver({"a": 4, "b": 4}, files={"f": (1.0, ("a",)), "g": (1.0, ("a",)), "h": (1.0, ("a",))})
    driver.send(FileChanged(at=0.0, file="f", size_bytes=seconds(2.0), replicas=("a", "b")))
    driver.send(FileChanged(at=0.0, file="g", size_bytes=0, replicas=()))
    changed = dict.fromkeys(("f", "g", "h", "new"), (1.0, ("b",)))
    restart(driver, make_grid({"b": 4}, files=changed))
    files = driver.ledger.sites.view.files
    assert {name: (file.size_bytes, file.holders) for name, file in files.items()} == {
        "f": (seconds(2.0), (0,)),  # the site that is gone holds nothing any more
        "h": (seconds(1.0), (0,)),
        "new": (seconds(1.0), (0,)),
    }


# ---------------------------------------------------------------------------------------- damaged records


def test_records_of_another_format_are_refused() -> None:
    kept = records_of(CoreDriver({"a": 4}).scheduler)
    counters = msgspec.json.decode(kept.bodies[Kind.SCHEDULER, ""]) | {"version": FORMAT + 1}
    kept.bodies[Kind.SCHEDULER, ""] = msgspec.json.encode(counters)
    with pytest.raises(RecordsError) as caught:
        scheduler_of(make_grid({"a": 4}), None, kept)
    assert f"the format {FORMAT + 1}, and this Koala reads the format {FORMAT}" in caught.value.for_user()


@pytest.mark.parametrize("body", [None, b"", b"{}", b"[]", b'{"version": 1}', b"\xff", b'{"version": 1'])
def test_without_its_counters_there_is_no_scheduler(body: bytes | None) -> None:
    kept = records_of(busy_driver().scheduler)
    del kept.bodies[Kind.SCHEDULER, ""]
    if body is not None:
        kept.bodies[Kind.SCHEDULER, ""] = body
    with pytest.raises(RecordsError, match="the record of the scheduler is damaged: its counters cannot be read"):
        scheduler_of(busy_grid(), None, kept)


@functools.cache
def busy_records() -> CoreRecords:
    """Records with something of every kind."""
    return records_of(busy_driver().scheduler)


def busy_grid() -> Grid:
    return busy_driver().scheduler.grid


@functools.cache
def busy_driver() -> CoreDriver:
    files = {"f": (30.0, ("b",)), "g": (9.0, ("b",))}
    network = Network(uplink_mbit_s=100.0)
    driver = CoreDriver({"a": 8, "b": 4}, files=files, network=network, error_threshold=1, claim_fraction=0.5)
    driver.run(ask(part(3, "a")))
    driver.cancel(1)
    driver.run(ask(part(3, "a"), part(2, "b"), communication=Communication(bisection_mbit_s=30.0)))
    driver.submit(ask(part(2, "a", "f")))
    driver.submit(ask(part(2, "a", "f"), high=True))
    driver.submit(ask(12, high=True, placement_tries_max=9))
    driver.submit(ask(12))
    driver.pass_time(17.0)
    driver.end_transfer("t1")
    driver.submit(ask(part(1, "b"), part(1, "a", "g")))
    driver.send(FileChanged(at=driver.now, file="f", size_bytes=seconds(2.0), replicas=("b",)))
    driver.send(SiteSilent(at=driver.now, site="b", reason="no route"))
    return driver


def holders(value: Any) -> list[Any]:
    """Every list and every object somewhere in a JSON value that is not empty."""
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return ([value] if below else []) + [found for each in below for found in holders(each)]


JUNK: st.SearchStrategy[object] = st.one_of(
    st.none(), st.integers(-2, 99), st.text(max_size=3), st.just([]), st.just({}), st.booleans(), st.floats(-2.0, 1e9)
)


class Damage(NamedTuple):
    """One record that is lost (None), or has another body."""

    kind: Kind
    key: str
    body: bytes | None


@st.composite
def damages(draw: st.DrawFn, bodies: Bodies) -> Damage:
    """A record that is lost, cut off, or has a piece lost or changed."""
    name = draw(st.sampled_from(sorted(bodies.keys() - {(Kind.SCHEDULER, "")})))
    how = draw(st.sampled_from(["lost", "cut off", "a piece lost", "a piece changed", "changed"]))
    if how == "lost":
        return Damage(*name, None)
    if how == "cut off":
        return Damage(*name, bodies[name][: draw(st.integers(0, len(bodies[name]) - 1))])
    if how == "changed":
        return Damage(*name, msgspec.json.encode(draw(JUNK)))
    fields = msgspec.json.decode(bodies[name])
    places = holders(fields)
    holder = places[draw(st.integers(0, len(places) - 1))]
    key = draw(st.sampled_from(list(holder) if isinstance(holder, dict) else list(range(len(holder)))))
    if how == "a piece lost":
        del holder[key]
    else:
        holder[key] = draw(JUNK)
    return Damage(*name, msgspec.json.encode(fields))


def goes_on_without(driver: CoreDriver, kept: CoreRecords, damage: Damage) -> None:
    """Restart with the damage, and again, and go on."""
    bodies = dict(kept.bodies)
    del bodies[damage.kind, damage.key]
    if damage.body is not None:
        bodies[damage.kind, damage.key] = damage.body
    grid = driver.scheduler.grid
    scheduler = scheduler_of(grid, None, CoreRecords(bodies, kept.known))
    assert set(scheduler.ledger.jobs) == set(driver.ledger.jobs)
    assert_ledger_balances(scheduler.ledger)
    assert None not in [scheduler.explain(job) for job in scheduler.ledger.jobs]
    again = scheduler_of(grid, None, records_of(scheduler))
    assert not again.damaged
    assert not difference(bodies_of(scheduler), bodies_of(again), "once", "twice")
    for step in range(1, 5):
        scheduler.handle(Tick(at=driver.now + 100.0 * step))
        assert_ledger_balances(scheduler.ledger)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_record_that_is_lost_or_changed_is_loaded_or_set_aside_and_the_others_go_on(data: st.DataObject) -> None:
    goes_on_without(busy_driver(), busy_records(), data.draw(damages(busy_records().bodies)))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_so_is_any_record_of_any_moment(data: st.DataObject) -> None:
    storm = Storm(data)
    for _ in range(data.draw(st.integers(1, STEPS_MAX))):
        storm.step()
    kept = records_of(storm.driver.scheduler)
    goes_on_without(storm.driver, kept, data.draw(damages(kept.bodies)))


def test_the_busy_records_are_whole_and_have_something_of_every_kind() -> None:
    kept = busy_records()
    # Nothing is measured of jobs, no run has ended, and no element has.
    assert {kind_ for kind_, _ in kept.bodies} == set(Kind) - {
        Kind.APPLICATION,
        Kind.USUAL_RUN,
        Kind.RUN,
        Kind.ELEMENTS,
    }
    # Links are probed where that is on; it makes no plans, nobody preempts for places or claims early, nothing is
    # measured, and few jobs wait for others.
    left_out = {"probes", "preempted_at", "dependency_events", "last_notified", "kept_early"}
    left_out |= {"applications_measured", "runs_noted"}
    counters = msgspec.json.decode(kept.bodies[Kind.SCHEDULER, ""])
    assert all(counters.get(name) for name in set(SchedulerRecord.__struct_fields__) - left_out)
    again = scheduler_of(busy_grid(), None, kept)
    assert not again.damaged
    assert not difference(kept.bodies, bodies_of(again), "before", "after")


def test_an_element_that_fails_writes_its_block_and_no_other() -> None:
    """Else an array of which all elements fail would write as much for each as there are."""
    driver = CoreDriver({"a": 1}, scan_interval_s=0.0)
    driver.submit(ask(1, array=read_array("0-4999"), restarts_max=0))
    written: list[Record] = []
    for number in range(2, 2_500):
        if number == 2_400:
            written.clear()
        driver.scheduler.handle(CancelAsked(at=driver.now, job=number))
        written += driver.scheduler.changed_records()
    elements = {(each.kind, each.key) for each in written if each.kind is Kind.ELEMENTS}
    assert elements == {(Kind.ELEMENTS, "1.2")}
    assert max(len(each.body or b"") for each in written) < 20 * ELEMENTS_IN_BLOCK


def test_a_reason_that_is_no_text_is_written_as_escapes_and_stops_nobody() -> None:
    """As the name of a file in what a site says of a component: a job may call its files as it likes."""
    driver = CoreDriver({"a": 2}, scan_interval_s=0.0)
    first, _ = driver.run(ask(1, 1))
    driver.end(first, outcome=Outcome.SITE_FAILED, reason="cannot open \udcff")
    kept = records_of(driver.scheduler)
    again = scheduler_of(driver.scheduler.grid, None, kept)
    assert not again.damaged
    assert again.ledger.sites.sites[0].last_error == "cannot open \\udcff"
