"""Records that break what must be true of them: they are set aside with their job, by name, and the others go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from koala.core import JobState, Kind, Scheduler
from koala.core.records.invariants import INVARIANTS
from koala.model.dependency import Condition, Dependency
from koala.model.facts import JobPlaced
from koala.model.job_array import read_array
from koala.model.messages import CancelAsked, ComponentEnded, JobSubmitted, Outcome, RequeueAsked, Tick
from koala.model.outputs import JobOutput
from tests.support.core_driver import CoreDriver, ask, assert_ledger_balances, kind, part
from tests.support.core_records import records_of, scheduler_of

Change = Callable[[dict[str, Any]], object]


def a_world() -> CoreDriver:
    """1 runs on two sites, 2 has places and waits for its file, 3 is an array with the element 4, 8 waits."""
    driver = CoreDriver({"a": 8, "b": 4}, files={"f": (30.0, ("b",))}, scan_interval_s=0.0)
    driver.run(ask(part(2, "a"), part(2, "b")))
    driver.submit(ask(part(2, "a", "f")))
    driver.submit(ask(part(4, "a"), array=read_array("0-3%1")))
    driver.send(JobSubmitted(at=0.0, job=8, request=ask(part(8, "a"))))
    return driver


def with_change(driver: CoreDriver, of: Kind, key: str, change: Change | None) -> Scheduler:
    """A restart with a record that is changed, or gone."""
    kept = records_of(driver.scheduler)
    fields = msgspec.json.decode(kept.bodies.pop((of, key)))
    if change is not None:
        change(fields)
        kept.bodies[of, key] = msgspec.json.encode(fields)
    scheduler = scheduler_of(driver.scheduler.grid, None, kept)
    assert_ledger_balances(scheduler.ledger)
    return scheduler


def aside(scheduler: Scheduler) -> list[tuple[int | None, str]]:
    return [(each.job, each.problem) for each in scheduler.damaged]


class Breach(NamedTuple):
    """A record that breaks an invariant: which it is, how it is changed, and the job and what is said of it."""

    invariant: str
    of: Kind
    key: str
    change: Change | None
    job: int
    how: str


PLACES, FILES, CLAIMS, ALARMS, ARRAY = INVARIANTS
BREACHES = [
    Breach(
        PLACES, Kind.PLACES, "1", lambda places: places.update(needs=[[]]), 1,
        "there are 2 components, and files of 1",
    ),
    Breach(
        PLACES, Kind.PLACES, "1", lambda places: places.update(tasks=[[]]), 1,
        "there are 2 components, and tasks of 1",
    ),
    Breach(
        PLACES, Kind.PLACES, "1", lambda places: places["places"][0].__setitem__(1, 0), 1,
        "a component has no processor",
    ),
    Breach(
        PLACES, Kind.JOB, "2", lambda job: job["phase"].update(earmarks={7: 0}), 2,
        "processors are being freed for component 7 of 1",
    ),
    Breach(FILES, Kind.TRANSFER, '["f",null,0]', None, 2, "nobody brings the file f"),
    Breach(CLAIMS, Kind.CLAIM, "1.2", lambda claim: claim.update(component=0), 1, "1.2 is another claim of the"),
    Breach(CLAIMS, Kind.CLAIM, "1.2", lambda claim: claim.update(component=9), 1, "1.2 is the component 9 of 2"),
    Breach(CLAIMS, Kind.CLAIM, "1.2", lambda claim: claim.update(site=9), 1, "1.2 is at the site 9 of 2"),
    Breach(FILES, Kind.TRANSFER, '["f",null,0]', lambda file: file.pop("timer"), 2, "nobody brings the file f"),
    Breach(CLAIMS, Kind.CLAIM, "1.2", None, 1, "2 components have not ended, and 1 are claimed"),
    Breach(CLAIMS, Kind.CLAIM, "4.1", None, 4, "it is starting, and 0 of 1 components are claimed"),
    Breach(CLAIMS, Kind.JOB, "1", lambda job: job.pop("starts"), 1, "1.1 is a later start than any"),
    Breach(
        ALARMS, Kind.JOB, "1", lambda job: job.update(timer={"at": 9.0, "what": "cooled_down", "number": 1}), 1,
        "cooled_down is no alarm of a job",
    ),
    Breach(
        ALARMS, Kind.CLAIM, "1.1", lambda claim: claim.update(timer={"at": 9.0, "what": "begins", "number": 1}), 1,
        "begins is no alarm of a component",
    ),
    Breach(
        ARRAY, Kind.JOB, "8", lambda job: job.update(state="unfolding", phase={}), 8,
        "its elements are made, and it is no",
    ),
    Breach(ARRAY, Kind.JOB, "3", lambda job: job["unfolds"].update(made=9), 3, "of 4 elements 9 were made"),
    Breach(ARRAY, Kind.JOB, "4", lambda job: job.pop("index"), 4, "it is an element of the array 3, and has no"),
]  # fmt: skip


# A job has the parts of its state: any other record of it cannot be read.
PARTS: list[tuple[int, Change, str]] = [
    (1, lambda job: job["phase"].pop("placement"), "missing required field `placement`"),
    (1, lambda job: job["phase"].pop("started_at"), "missing required field `started_at`"),
    (1, lambda job: job.update(state="waiting"), "it is waiting, and has outstanding, placement, started_at"),
    (1, lambda job: job.update(state="adrift"), "'adrift' is not a valid JobState"),
    (1, lambda job: job["phase"].update(position=3), "it is running, and has position"),
    (1, lambda job: job["phase"].update(plan={"at": 1.0, "spots": [[0], [1]]}), "it is running, and has plan"),
]


@pytest.mark.parametrize(("job", "change", "how"), PARTS, ids=[how for _, _, how in PARTS])
def test_a_job_has_exactly_the_parts_of_its_state(job: int, change: Change, how: str) -> None:
    scheduler = with_change(a_world(), Kind.JOB, str(job), change)
    found = [problem for number, problem in aside(scheduler) if number == job]
    assert how in found[0]
    assert scheduler.ledger.jobs[job].state is JobState.QUARANTINED


def test_each_invariant_has_a_record_that_breaks_it() -> None:
    assert {breach.invariant for breach in BREACHES} == set(INVARIANTS)


@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: breach.how)
def test_a_record_that_breaks_an_invariant_is_set_aside_with_its_job_and_the_others_go_on(breach: Breach) -> None:
    driver = a_world()
    scheduler = with_change(driver, breach.of, breach.key, breach.change)
    ((job, problem),) = [found for found in aside(scheduler) if found[0] is not None]
    assert job == breach.job
    assert problem.startswith(f"{breach.invariant}: {breach.how}")
    for number, before in driver.ledger.jobs.items():
        expected = JobState.QUARANTINED if number == breach.job else before.state
        assert scheduler.ledger.jobs[number].state is expected
    assert all(claim.job_id != breach.job for claim in scheduler.ledger.claims.values())
    for step in range(1, 5):
        scheduler.handle(Tick(at=driver.now + 100.0 * step))
        assert_ledger_balances(scheduler.ledger)


def test_a_job_that_is_set_aside_holds_nothing_and_tells_why_and_waiting_jobs_run() -> None:
    driver = CoreDriver({"a": 4}, scan_interval_s=0.0)
    driver.run(ask(4))
    driver.submit(ask(4))
    scheduler = with_change(driver, Kind.CLAIM, "1.1", lambda claim: claim.update(component=3))
    assert scheduler.ledger.claims == {}
    told = scheduler.explain(1)
    assert told is not None
    assert told.standing.reason.startswith("its record is damaged: ")
    placed = [
        each.job for at in (0.0, 1.0) for each in kind(scheduler.handle(Tick(at=driver.now + at)).entries, JobPlaced)
    ]
    assert placed == [2]


def test_a_job_that_is_set_aside_is_tried_again_or_cancelled_as_one_in_quarantine() -> None:
    for wish in (RequeueAsked(at=1.0, job=1), CancelAsked(at=1.0, job=1)):
        driver = CoreDriver({"a": 4}, scan_interval_s=0.0)
        driver.run(ask(4))
        scheduler = with_change(driver, Kind.JOB, "1", lambda job: job["phase"].pop("placement"))
        scheduler.handle(Tick(at=0.5))
        scheduler.handle(wish)
        scheduler.handle(Tick(at=1.0))
        if isinstance(wish, CancelAsked):
            assert scheduler.ledger.ended[1].state is JobState.CANCELLED
        else:
            assert [claim.token for claim in scheduler.ledger.claims.values()] == ["1.2"], "1.1 was given once"


@pytest.mark.parametrize(("damage", "guest"), [({"state": "running"}, False), ({"id": "?", "guest": True}, True)])
def test_a_job_that_is_set_aside_goes_where_it_might_go_before(damage: dict[str, Any], guest: bool) -> None:
    driver = CoreDriver({"a": 4})
    driver.submit(ask(5))
    scheduler = with_change(driver, Kind.JOB, "1", lambda job: job.update(damage))
    assert scheduler.ledger.jobs[1].guest is guest
    lost = with_change(driver, Kind.JOB, "1", None)
    assert lost.ledger.jobs[1].guest, "nobody can say where it may go"


def test_whoever_waits_for_a_job_that_is_set_aside_goes_on_waiting() -> None:
    driver = CoreDriver({"a": 4}, scan_interval_s=0.0)
    driver.run(ask(1))
    driver.submit(ask(1, after=(Dependency(job=1),)))
    scheduler = with_change(driver, Kind.JOB, "1", None)
    assert aside(scheduler) == [(1, "there is no record of its job 1")]
    scheduler.handle(Tick(at=driver.now + 1.0))
    assert scheduler.ledger.jobs[2].state is JobState.HELD
    scheduler.handle(CancelAsked(at=driver.now + 2.0, job=1))
    scheduler.handle(Tick(at=driver.now + 2.0))
    assert scheduler.ledger.ended[2].state is JobState.CANCELLED


@pytest.mark.parametrize("ended", [1, 2])
def test_a_job_does_not_go_on_without_what_it_knows_of_its_outputs(ended: int) -> None:
    driver = CoreDriver({"a": 4})
    component = msgspec.structs.replace(part(1, "a"), outputs=(JobOutput(path="result.h5"),))
    tokens = driver.run(ask(component, component))
    driver.end(*tokens[:ended])
    assert not scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler)).damaged
    scheduler = with_change(driver, Kind.RUN, "1", None)
    ((job, problem),) = aside(scheduler)
    assert job == 1
    assert problem.endswith("the component 0 is done, and nobody knows where its outputs are")


@pytest.mark.parametrize(
    ("of", "key", "old", "new"),
    [
        (Kind.CLAIM, "1.x", b'"1.1"', b'"1.x"'),
        (Kind.CLAIM, "\N{SUPERSCRIPT TWO}.1", b"", b""),
        (Kind.JOB, "\N{SUPERSCRIPT TWO}", b"", b""),
        (Kind.PLACES, "\N{SUPERSCRIPT TWO}", b"", b""),
        (Kind.JOB, "8", b'"id":8', b'"id":8,"barred":{"z":"no"}'),
        (Kind.JOB, "8", b'"id":8', b'"id":8,"avoiding":["z"]'),
        (Kind.JOB, "8", b'"phase":{', b'"phase":{"plan":{"at":1.0,"spots":[[9],[1]]},'),
    ],
)
def test_no_key_or_name_of_a_site_keeps_the_others_from_going_on(of: Kind, key: str, old: bytes, new: bytes) -> None:
    driver = a_world()
    kept = records_of(driver.scheduler)
    body = kept.bodies.get((of, key), kept.bodies[of, "1.1" if of is Kind.CLAIM else "1"])
    kept.bodies[of, key] = body.replace(old, new)
    scheduler = scheduler_of(driver.scheduler.grid, None, kept)
    assert scheduler.damaged or of is Kind.PLACES
    assert scheduler.ledger.jobs.keys() == driver.ledger.jobs.keys()


def test_a_job_that_is_set_aside_still_waits_for_what_has_not_come() -> None:
    driver = CoreDriver({"a": 4}, scan_interval_s=0.0)
    driver.run(ask(1))
    driver.submit(ask(1, after=(Dependency(job=1), Dependency(job=1, condition=Condition.STARTED))))
    scheduler = with_change(driver, Kind.JOB, "2", lambda job: job.update(state="?"))
    scheduler.handle(RequeueAsked(at=driver.now, job=2))
    held = scheduler.ledger.jobs[2]
    assert (held.state, held.waits_for) == (JobState.HELD, [(Condition.DONE, 1)])
    scheduler.handle(ComponentEnded(at=driver.now, token="1.1", outcome=Outcome.DONE))  # noqa: S106 - no secret
    scheduler.handle(Tick(at=driver.now))
    assert [claim.token for claim in scheduler.ledger.claims.values()] == ["2.1"]


def test_an_element_that_is_set_aside_is_still_its_arrays_and_an_array_keeps_its_elements() -> None:
    driver = a_world()
    scheduler = with_change(driver, Kind.JOB, "4", None)
    array, element = scheduler.ledger.jobs[3], scheduler.ledger.jobs[4]
    assert (element.array, element.index, array.elements.live) == (3, 0, 1)
    scheduler = with_change(driver, Kind.JOB, "3", None)
    assert scheduler.ledger.jobs[3].state is JobState.QUARANTINED
    assert scheduler.ledger.jobs[4].state is driver.state(4), "nobody has taken its array out"


def test_a_claim_of_a_job_that_nobody_knows_is_set_aside() -> None:
    driver = a_world()
    kept = records_of(driver.scheduler)
    del kept.bodies[Kind.JOB, "1"], kept.known[1]
    scheduler = scheduler_of(driver.scheduler.grid, None, kept)
    assert {each.kind for each in scheduler.damaged} == {Kind.CLAIM}
    assert 1 not in scheduler.ledger.jobs
    assert all(claim.job_id != 1 for claim in scheduler.ledger.claims.values())


def test_a_job_that_had_ended_is_not_brought_back_when_its_record_is_damaged() -> None:
    driver = CoreDriver({"a": 4})
    driver.run(ask(3))
    driver.cancel(1)
    assert driver.tokens(1) or driver.ledger.claims, "its component is to end yet"
    scheduler = with_change(driver, Kind.JOB, "1", lambda job: job.update(starts="?"))
    assert [each.job for each in scheduler.damaged] == [1, 1]
    assert scheduler.ledger.jobs == {}
    assert scheduler.ledger.claims == {}


def test_a_record_that_says_otherwise_than_callers_see_is_set_aside() -> None:
    driver = a_world()
    kept = records_of(driver.scheduler)
    kept.known[1] = msgspec.structs.replace(kept.known[1], state="waiting")
    scheduler = scheduler_of(driver.scheduler.grid, None, kept)
    assert aside(scheduler) == [(1, "it is running, and shown as waiting")]


@pytest.mark.parametrize("of", [Kind.SITE, Kind.QUEUE, Kind.LINK, Kind.FILE])
def test_without_what_is_of_no_job_everything_goes_on(of: Kind) -> None:
    driver = a_world()
    driver.pass_time(30.0)
    driver.end_transfer("t1")
    kept = records_of(driver.scheduler)
    for kind_, key in [name for name in kept.bodies if name[0] is of]:
        kept.bodies[kind_, key] = b"{"
    scheduler = scheduler_of(driver.scheduler.grid, None, kept)
    assert all((each.kind, each.job) == (of, None) for each in scheduler.damaged)
    assert {number: job.state for number, job in scheduler.ledger.jobs.items()} == {
        number: job.state for number, job in driver.ledger.jobs.items()
    }
    assert_ledger_balances(scheduler.ledger)
    scheduler.handle(JobSubmitted(at=driver.now, job=99, request=ask(1)))
    scheduler.handle(Tick(at=driver.now + 60.0))
    assert_ledger_balances(scheduler.ledger)
