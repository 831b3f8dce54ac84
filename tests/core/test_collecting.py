"""What a job made is collected where it was made, and registered before the job is done."""

from __future__ import annotations

import msgspec
import pytest

from koala.core import JobState
from koala.model.dependency import Condition, Dependency
from koala.model.facts import JobEnded, OutputRegistered, TurnEntry
from koala.model.messages import (
    CollectOutputs,
    JobOutcome,
    JobQuarantined,
    OutputsCollected,
    RestartAsked,
    SiteLost,
    StartComponent,
)
from koala.model.outputs import OUTPUTS_MAX, JobOutput, MadeOutput
from koala.model.request import KEEP_FOR_S_MAX, Application, Component, InvalidRequestError, Request
from koala.words.standing import meaning
from tests.support.core_driver import CoreDriver, ask, ask_total, assert_clean, assert_ledger_balances, kind, part
from tests.support.core_records import records_of, scheduler_of

RESULT = JobOutput(path="result.h5")
LOGS = JobOutput(path="logs")


def making(component: Component, *outputs: JobOutput) -> Component:
    return msgspec.structs.replace(component, outputs=outputs)


def made(path: str = "result.h5", size_bytes: int = 7, *, also_at: tuple[str, ...] = ()) -> MadeOutput:
    return MadeOutput(path=path, size_bytes=size_bytes, checksum="0" * 64, also_at=also_at)


def collected(driver: CoreDriver, token: str, *outputs: MadeOutput, problem: str = "") -> list[TurnEntry]:
    job = int(token.partition(".")[0])
    return driver.send(OutputsCollected(at=driver.now, job=job, token=token, outputs=outputs, problem=problem))


def holders(driver: CoreDriver, file: str) -> set[str]:
    known = driver.ledger.sites.view.files.get(file)
    return set() if known is None else {driver.ledger.names[holder] for holder in known.holders}


@pytest.fixture
def driver() -> CoreDriver:
    return CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0)


def test_a_job_is_done_when_its_outputs_are_registered_where_they_were_made(driver: CoreDriver) -> None:
    """running -> collecting -> done"""
    (token,) = driver.run(ask(making(part(4), RESULT, LOGS)))
    (order,) = kind(driver.end(token), CollectOutputs)
    assert (order.job, order.token, order.site, order.part, order.outputs) == (1, token, "a", 0, (RESULT, LOGS))
    assert driver.state(1) is JobState.COLLECTING
    assert driver.idle("a") == 10  # its processors are free
    assert "not reported yet by: a" in meaning(driver.scheduler.explain(1))  # type: ignore[arg-type]
    commands = collected(driver, token, made(), made("logs", 9))
    names = [(each.file, each.sites) for each in kind(commands, OutputRegistered)]
    assert names == [("jobs/1/result.h5", ("a",)), ("jobs/1/logs", ("a",))]
    assert driver.ended(1).outcome is JobOutcome.DONE
    assert holders(driver, "jobs/1/result.h5") == {"a"}
    assert driver.story(1)[-3:] == [
        "every component is done; its outputs are collected on a",
        "component 0 on a made 2 outputs of 16 bytes",
        "done",
    ]
    assert_clean(driver.ledger)


def test_a_directory_is_one_file_of_the_catalogue(driver: CoreDriver) -> None:
    (token,) = driver.run(ask(making(part(4), LOGS)))
    driver.end(token)
    archive = MadeOutput(path="logs", size_bytes=10_240, checksum="0" * 64, directory=True)
    assert [each.file for each in kind(collected(driver, token, archive), OutputRegistered)] == ["jobs/1/logs.tar"]


def test_a_job_without_outputs_is_done_at_once(driver: CoreDriver) -> None:
    (token,) = driver.run(ask(4))
    assert kind(driver.end(token), JobEnded)


def test_an_answer_that_comes_twice_or_late_changes_nothing(driver: CoreDriver) -> None:
    (token,) = driver.run(ask(making(part(4), RESULT)))
    assert collected(driver, token, made()) == []  # before anybody asked
    driver.end(token)
    collected(driver, "1.7", made())
    assert driver.state(1) is JobState.COLLECTING
    collected(driver, token, made())
    assert collected(driver, token, made()) == []


def test_an_output_that_was_not_made_fails_the_job_and_says_so(driver: CoreDriver) -> None:
    """running -> collecting -> failed"""
    (token,) = driver.run(ask(making(part(4), RESULT, LOGS)))
    driver.end(token)
    commands = collected(driver, token, made("logs"))
    assert driver.ended(1).outcome is JobOutcome.FAILED
    assert driver.ended(1).reason == "its components are done, but the output result.h5 was not made"
    assert [each.file for each in kind(commands, OutputRegistered)] == ["jobs/1/logs"]  # what is there is kept
    assert_clean(driver.ledger)


def test_of_components_that_list_the_same_one_must_make_it(driver: CoreDriver) -> None:
    tokens = driver.run(ask(making(part(6), RESULT), making(part(6), RESULT)))
    assert kind(driver.end(tokens[1]), CollectOutputs) == []  # the other still runs
    assert [order.part for order in kind(driver.end(tokens[0]), CollectOutputs)] == [0, 1]
    collected(driver, tokens[0])
    assert driver.state(1) is JobState.COLLECTING
    commands = collected(driver, tokens[1], made())
    assert [(each.file, each.sites) for each in kind(commands, OutputRegistered)] == [("jobs/1.1/result.h5", ("b",))]
    assert driver.ended(1).outcome is JobOutcome.DONE


def test_every_part_of_a_divided_job_may_make_its_outputs(driver: CoreDriver) -> None:
    request = ask_total(15)
    tokens = driver.run(msgspec.structs.replace(request, components=(making(request.components[0], RESULT),)))
    driver.end(*tokens)
    for token in tokens:
        collected(driver, token, made())
    assert holders(driver, "jobs/1/result.h5") | holders(driver, "jobs/1.1/result.h5") == {"a", "b"}


def test_what_cannot_be_collected_fails_the_job_with_the_reason(driver: CoreDriver) -> None:
    (token,) = driver.run(ask(making(part(4), RESULT)))
    driver.end(token)
    collected(driver, token, problem="output 'result.h5' at a: it leads out of the workspace")
    assert driver.ended(1).outcome is JobOutcome.FAILED
    assert driver.ended(1).reason.endswith(
        "cannot be collected: output 'result.h5' at a: it leads out of the workspace"
    )


def test_an_order_that_nobody_answers_is_repeated_ever_more_rarely() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, answer_timeout_s=10.0)
    tokens = driver.run(ask(making(part(4), RESULT)))
    driver.end(*tokens)
    driver.pass_time(35.0)
    assert driver.times(CollectOutputs) == [0.0, 10.0, 30.0]
    collected(driver, tokens[0], made())
    driver.pass_time(1_000.0)
    assert len(driver.times(CollectOutputs)) == 3


def test_a_job_that_waits_for_another_is_placed_close_to_what_that_made(driver: CoreDriver) -> None:
    driver.submit(ask(making(part(4, "b"), RESULT)))
    reads = ask(part(4, None, "jobs/1/result.h5"), policy="CF", after=(Dependency(job=1, condition=Condition.DONE),))
    driver.submit(reads)
    driver.ready("1.1")
    driver.end("1.1")
    assert driver.state(2) is JobState.HELD
    commands = collected(driver, "1.1", made(size_bytes=50_000_000)) + driver.settle()
    assert [start.site for start in kind(commands, StartComponent)] == ["b"]  # though a has more processors idle


def test_an_output_that_was_brought_elsewhere_as_well_has_two_replicas(driver: CoreDriver) -> None:
    (token,) = driver.run(ask(making(part(4), JobOutput(path="result.h5", to="b"))))
    driver.end(token)
    (registered,) = kind(collected(driver, token, made(also_at=("b", "nowhere"))), OutputRegistered)
    assert registered.sites == ("a", "b")
    assert holders(driver, "jobs/1/result.h5") == {"a", "b"}


def test_a_lost_site_takes_what_was_made_there_and_the_job_starts_again(driver: CoreDriver) -> None:
    """running -> collecting -> waiting -> ... -> done"""
    tokens = driver.run(ask(making(part(6), RESULT), making(part(6), RESULT)))
    driver.end(*tokens)
    collected(driver, tokens[0], made())
    driver.send(SiteLost(at=driver.now, site="a"))
    assert driver.state(1) is JobState.WAITING
    assert_ledger_balances(driver.ledger)
    assert collected(driver, tokens[1], made()) == []
    driver.pass_time(2.0)
    again = driver.tokens(1)
    driver.ready(*again)
    driver.end(*again)
    for token in again:
        collected(driver, token, made())
    assert driver.ended(1).outcome is JobOutcome.DONE


@pytest.mark.parametrize("what", ["cancel", "requeue", "quarantine"])
def test_a_job_that_is_collecting_may_be_stopped(driver: CoreDriver, what: str) -> None:
    (token,) = driver.run(ask(making(part(4), RESULT)))
    driver.end(token)
    if what == "cancel":
        driver.cancel(1)
        assert driver.ended(1).outcome is JobOutcome.CANCELLED
    elif what == "requeue":
        driver.send(RestartAsked(at=driver.now, job=1, hold=True))
        assert driver.state(1) is JobState.HELD
    else:
        driver.send(JobQuarantined(at=driver.now, job=1, reason="an error"))
        assert driver.state(1) is JobState.QUARANTINED
    assert collected(driver, token, made()) == []
    assert holders(driver, "jobs/1/result.h5") == set()
    assert_ledger_balances(driver.ledger)


def test_a_restart_of_the_scheduler_goes_on_collecting(driver: CoreDriver) -> None:
    tokens = driver.run(ask(making(part(6), RESULT), making(part(6), LOGS)))
    driver.end(*tokens)
    collected(driver, tokens[0], made())
    text = records_of(driver.scheduler)
    twin = scheduler_of(driver.scheduler.grid, None, text)
    assert records_of(twin) == text
    told = OutputsCollected(at=driver.now, job=1, token=tokens[1], outputs=(made("logs"),))
    assert twin.handle(told).entries == driver.send(told)
    assert driver.ended(1).outcome is JobOutcome.DONE


BAD: dict[str, tuple[JobOutput, ...]] = {
    "the same output is named twice": (RESULT, RESULT),
    "is absolute": (JobOutput(path="/etc/passwd"),),
    "is not below the workspace": (JobOutput(path="../x"),),
    "would have the name of": (JobOutput(path="a"), JobOutput(path="a.tar")),
    "OUTPUTS_MAX": tuple(JobOutput(path=str(number)) for number in range(OUTPUTS_MAX + 1)),
}


@pytest.mark.parametrize("words", BAD)
def test_outputs_that_cannot_be_are_refused(words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        Component(processors=1, outputs=BAD[words])


def test_an_application_outside_its_workspace_has_no_outputs() -> None:
    with pytest.raises(InvalidRequestError, match="outside its workspace"):
        Component(processors=1, outputs=(RESULT,), application=Application(directory="/scratch"))


def test_workspaces_are_not_kept_for_ever() -> None:
    with pytest.raises(InvalidRequestError, match="KEEP_FOR_S_MAX"):
        Request(components=(Component(processors=1),), keep_for_s=KEEP_FOR_S_MAX + 1)
