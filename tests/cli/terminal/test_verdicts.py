"""What is told of jobs that wait: verdicts on those that wait in vain, and reasons, within their limits."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from koala.cli.job.views import print_explanation
from koala.cli.job.waiting import REASONS_TOLD_MAX, WaitingReasons
from koala.cli.terminal.refusals import ASKED_MAX, NEVER_FITS, Verdicts, verdict
from koala.cli.terminal.words import clock, size
from koala.client import Client, NotFoundError
from koala.model.api import Explanation, PlanInfo, Refusal, Shortage
from koala.words.phrases import listed
from tests.cli.terminal.test_live_pictures import job

SHORT = Shortage(site="a", wanted=4, idle=1, missing=3, cure="3 more idle processors on a")
PLAN = PlanInfo(job=4, expected_at=4_000_000_000.0, expected_sites=["a", "b"])


def refusal(reason: str = "none is idle", **fields: Any) -> Refusal:
    return Refusal(**{"policy": "WF", "reason": reason, "cure": "wait", **fields})


class Asked:
    """A client that explains jobs, with a refusal for each."""

    def __init__(self, *refusals: Refusal | None) -> None:
        self.refusals = list(refusals)
        self.jobs: list[int] = []
        self.plan: dict[str, Any] = {}

    def explain(self, number: int) -> Explanation:
        self.jobs.append(number)
        if number == 404:
            raise NotFoundError("there is no such job")
        told = self.refusals.pop(0) if len(self.refusals) > 1 else self.refusals[0]
        counts = ("placement_tries", "claiming_tries", "runs", "failures", "preemptions")
        fields: dict[str, Any] = {**dict.fromkeys(counts, 0), **self.plan}
        return Explanation(job=number, state="waiting", meaning="waits", since=0.0, refusal=told, **fields)

    @property
    def client(self) -> Client:
        return cast(Client, self)


def test_waiting_is_in_vain_where_no_idle_processor_would_help() -> None:
    def told(found: Refusal | None, **fields: Any) -> str:
        return verdict(msgspec.structs.replace(Asked(found).explain(1), **fields))

    assert told(None) == ""
    assert told(refusal(shortages=(SHORT,))) == ""
    assert told(refusal(shortages=(SHORT,), permanent=True)) == NEVER_FITS
    assert told(refusal("no site holds the file")) == "no site holds the file"
    assert told(refusal("kept for the plan of job 4"), planned_before=[PLAN]) == ""


def test_a_list_tells_when_and_where_planned_jobs_are_expected(capsys: pytest.CaptureFixture[str]) -> None:
    asked = Asked(refusal(shortages=(SHORT,)))
    asked.plan = {"expected_at": PLAN.expected_at, "expected_sites": PLAN.expected_sites}
    at = clock(PLAN.expected_at)
    assert Verdicts(asked.client).of([job(1, "waiting")]) == {1: f"expected at {at} on a and b"}
    WaitingReasons(asked.client, "").tell(job(1, "waiting"))
    assert capsys.readouterr().err == f"Job 1 waits: none is idle; expected at {at} on a and b.\n"
    found = msgspec.structs.replace(asked.explain(1), place_in_line=1, planned_before=[PLAN])
    now = PLAN.expected_at - 1
    print_explanation(found, now)
    shown = capsys.readouterr().out
    assert f"Expected at {clock(PLAN.expected_at, now)} on a and b, if nobody comes before" in shown
    assert f"Job 4, which comes before it, has its places planned for {clock(PLAN.expected_at, now)}" in shown
    behind = msgspec.structs.replace(found, latest_at=PLAN.expected_at, elements_before=3)
    print_explanation(behind, now)
    shown = " ".join(capsys.readouterr().out.split())
    assert "its whole walltime and no element of an array that comes before puts its plan off." in shown
    print_explanation(found, PLAN.expected_at)
    assert "Expected any moment on a and b, if nobody comes before" in capsys.readouterr().out


@pytest.mark.parametrize(("names", "words"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_names_are_listed_as_in_a_sentence(names: list[str], words: str) -> None:
    assert listed(names) == words


def test_a_verdict_is_remembered_and_a_job_without_one_is_asked_about_again() -> None:
    asked = Asked(refusal(permanent=True), None)
    verdicts = Verdicts(asked.client)
    found = [job(1, "waiting"), job(2, "waiting"), job(3, "running"), job(404, "waiting")]
    assert verdicts.of(found) == {1: NEVER_FITS}
    assert verdicts.of(found) == {1: NEVER_FITS}
    assert asked.jobs == [1, 2, 404, 2, 404]
    assert verdicts.of([job(1, "running")]) == {}


def test_a_long_list_is_asked_about_up_to_a_limit() -> None:
    asked = Asked(refusal(permanent=True))
    assert len(Verdicts(asked.client).of([job(number, "waiting") for number in range(1, ASKED_MAX + 5)])) == ASKED_MAX
    assert len(asked.jobs) == ASKED_MAX


def test_each_reason_is_told_once_and_no_more_than_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = [refusal(f"reason {number // 2}", shortages=(SHORT,)) for number in range(4 * REASONS_TOLD_MAX)]
    log = WaitingReasons(Asked(*reasons).client, "reason 0")
    for _ in reasons:
        log.tell(job(1, "waiting"))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"Job 1 waits: reason {number}." for number in range(1, REASONS_TOLD_MAX)]


def test_a_job_in_quarantine_is_told_once_with_who_can_put_it_back(capsys: pytest.CaptureFixture[str]) -> None:
    log = WaitingReasons(Asked(None).client, "")
    for state in ("waiting", "quarantined", "quarantined"):
        log.tell(job(7, state))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Job 7 is set aside after an error inside Koala until an operator puts it back")
    assert "koala job requeue" in line


def test_one_byte_is_no_bytes() -> None:
    assert [size(count) for count in (0, 1, 2, 1_000)] == ["0 bytes", "1 byte", "2 bytes", "1.0 kB"]
