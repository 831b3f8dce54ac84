"""What an end means: the script says how its application ended, the batch system who ended it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from koala.model.errors import Fault
from koala.model.launch import Go
from koala.model.messages import STDERR_LINE_BYTES_MAX, Outcome
from koala.sites.batch.component import EndEvidence, best_end
from koala.sites.batch.system import BatchEnd, BatchJob, BatchState, EndKind
from koala.sites.component import NOT_MEASURED, stderr_line
from koala.sites.component_directory import AbortRecord
from tests.support.paper_batch import PaperSite, component

LAUNCH = component("1.1", barrier_timeout_s=60.0)


def end(kind: EndKind, code: int | None = None, reason: str = "") -> BatchEnd:
    return BatchEnd(kind=kind, exit_code=code, reason=reason)


@pytest.mark.parametrize(
    ("words", "told", "outcome", "code"),
    [
        ("exited 0", None, Outcome.DONE, 0),
        ("exited 3", None, Outcome.FAILED, 3),
        # It was done just before somebody cancelled it.
        ("exited 0", end(EndKind.CANCELLED), Outcome.DONE, 0),
        ("exited 3", end(EndKind.TIME_LIMIT), Outcome.FAILED, 3),
        # A signal is its own doing unless the batch system says whose it was.
        ("exited 137", end(EndKind.ITSELF), Outcome.FAILED, 137),
        ("exited 143", end(EndKind.CANCELLED), Outcome.SITE_FAILED, 143),
        ("exited 143", end(EndKind.TIME_LIMIT), Outcome.TIMED_OUT, 143),
        ("killed", end(EndKind.PREEMPTED), Outcome.SITE_FAILED, None),
        ("killed", None, Outcome.SITE_FAILED, None),
        ("gave-up", end(EndKind.ITSELF), Outcome.ABORTED, None),
        ("nonsense", None, Outcome.SITE_FAILED, None),
        (None, end(EndKind.SITE), Outcome.SITE_FAILED, None),
        (None, end(EndKind.ITSELF, 0), Outcome.SITE_FAILED, None),
        (None, None, Outcome.SITE_FAILED, None),
    ],
)
def test_the_outcome_of_an_end(words: str | None, told: BatchEnd | None, outcome: Outcome, code: int | None) -> None:
    evidence = EndEvidence(launch=LAUNCH, exit_words=None if words is None else words.split(), end=told)
    assert evidence.ending()[::2] == (outcome, code)


@pytest.mark.parametrize(
    ("words", "outcome", "fault"),
    [
        # Its directory may be full as its barrier opens, or a signal come then: nobody can tell.
        ("killed", Outcome.SITE_FAILED, None),
        ("unwritten", Outcome.SITE_FAILED, None),
        ("", Outcome.SITE_FAILED, None),
        ("no-nodes", Outcome.FAILED, Fault.JOB),
        ("nonsense", Outcome.FAILED, Fault.JOB),
        ("exited 9999", Outcome.FAILED, Fault.JOB),
        ("gave-up", Outcome.ABORTED, Fault.OURS),
        ("exited 3", Outcome.FAILED, None),
    ],
)
def test_what_an_application_may_have_written_proves_nothing_against_its_site(
    words: str, outcome: Outcome, fault: Fault | None
) -> None:
    evidence = EndEvidence(launch=LAUNCH, exit_words=words.split(), end=end(EndKind.ITSELF), released=True)
    assert evidence.ending()[::3] == (outcome, fault)


def test_an_abort_that_an_application_wrote_proves_nothing_against_its_site(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            await one.site.release("1.1", Go())
            one.write("1.1", "abort", '{"outcome": "site_failed", "reason": "the node broke", "fault": "site"}')
            assert (await one.ended("1.1")).fault is None

    asyncio.run(scenario())


def test_an_abort_of_ours_says_whose_fault_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            await one.site.abort("1.1", outcome=Outcome.SITE_FAILED, reason="no links there", fault=Fault.SITE)
            assert (await one.ended("1.1")).fault is Fault.SITE

    asyncio.run(scenario())


def test_an_abort_says_what_it_was_told_to_say_whatever_else_happened() -> None:
    verdict = AbortRecord(outcome=Outcome.FAILED, reason="enough")
    evidence = EndEvidence(launch=LAUNCH, abort=verdict, exit_words=["exited", "0"], end=end(EndKind.CANCELLED))
    assert evidence.ending() == (Outcome.FAILED, "enough", 0, None)


@pytest.mark.parametrize(
    ("words", "told", "complete"),
    [
        ("exited 0", None, True),
        ("exited 3", None, True),
        ("exited 137", None, False),
        ("killed", None, False),
        (None, None, False),
        ("exited 137", end(EndKind.ITSELF), True),
        ("killed", end(EndKind.CANCELLED), True),
        (None, end(EndKind.ITSELF), False),
        (None, end(EndKind.ITSELF, 0), False),
        (None, end(EndKind.ITSELF, 74), True),
        (None, end(EndKind.SITE, 0), True),
        (None, end(EndKind.UNKNOWN), False),
    ],
)
def test_the_batch_system_is_asked_only_where_its_word_matters(
    words: str | None, told: BatchEnd | None, complete: bool
) -> None:
    evidence = EndEvidence(launch=LAUNCH, exit_words=None if words is None else words.split(), end=told)
    assert evidence.is_complete == complete


@pytest.mark.parametrize(
    ("words", "outcome", "told"),
    [
        ("exited 127", Outcome.FAILED, "no such mesh: \N{REPLACEMENT CHARACTER}[31m"),
        ("exited 0", Outcome.DONE, ""),
    ],
)
def test_what_a_component_that_failed_wrote_last_to_its_standard_error_is_told_with_its_end(
    tmp_path: Path, words: str, outcome: Outcome, told: str
) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            one.write("1.1", "last-line", "no such mesh: \x1b[31m\nand more\n")
            await one.site.release("1.1", Go())
            one.play_end("1.1", words)
            ended = await one.ended("1.1")
            assert (ended.outcome, ended.stderr_line) == (outcome, told)

    asyncio.run(scenario())


CRLF = "; the lines of its program end as in DOS (CRLF): save it with Unix line ends"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("  plain\twords  ", "plain words"),
        ("10 %\r20 %\r30 %\r", "30 %"),
        ("run.sh: 2: \r: not found", "run.sh: 2: \\r: not found" + CRLF),
        ("run.sh: line 2: $'\\r': command not found", "run.sh: line 2: $'\\r': command not found" + CRLF),
        ("./run: /bin/bash^M: bad interpreter", "./run: /bin/bash^M: bad interpreter" + CRLF),
        ("env: 'sh\\r': No such file or directory", "env: 'sh\\r': No such file or directory" + CRLF),
        ("\u202egnp.exe \ud800", "\N{REPLACEMENT CHARACTER}gnp.exe ?"),
        ("ä" * 1000, "ä" * (STDERR_LINE_BYTES_MAX // 2)),
        ("", ""),
    ],
)
def test_a_line_of_errors_is_printable_short_and_names_the_line_ends_of_dos(written: str, told: str) -> None:
    assert stderr_line(written) == told


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("1250 2048\n", (1.25, 2048 * 1024)),
        ("0 -\n", (0.0, None)),
        ("- -\n", NOT_MEASURED),
        ("-5 1e9\n", NOT_MEASURED),
        ("1 2 3\n", NOT_MEASURED),
        ("28000000 -\n", (28_000.0, None)),  # its site has eight processors
        ("28900000 -\n", NOT_MEASURED),
        ("9" * 16 + " " + "9" * 15, (None, 1024 * (10**15 - 1))),
        ("\u0661 \u0662\n", NOT_MEASURED),
        ("9" * 5_000_000, NOT_MEASURED),
        ("", NOT_MEASURED),
    ],
)
def test_what_a_component_says_that_it_used_is_told_with_its_end_and_nonsense_is_not_measured(
    tmp_path: Path, written: str, told: tuple[float | None, int | None]
) -> None:
    later_s = 0.0

    async def scenario() -> None:
        nonlocal later_s
        async with PaperSite(tmp_path, clock=lambda: time.time() + later_s) as one:
            await one.begin("1.1")
            one.write("1.1", "usage", written)
            await one.site.release("1.1", Go())
            later_s = 3_600.0
            one.play_end("1.1", "exited 0")
            ended = await one.ended("1.1")
            assert (ended.outcome, ended.processor_s, ended.peak_memory_bytes) == (Outcome.DONE, *told)

    asyncio.run(scenario())


def job(number: str, told: BatchEnd | None, state: BatchState = BatchState.OVER) -> BatchJob:
    return BatchJob(id=number, token="1.1", state=state, end=told)  # noqa: S106


def test_of_several_jobs_of_one_component_the_one_that_ran_tells_the_end() -> None:
    ran, second = end(EndKind.ITSELF, 0), end(EndKind.ITSELF, 75)
    assert best_end([job("1", ran), job("2", second)], "2") == ran
    assert best_end([job("1", second)], "1") == second
    assert best_end([job("1", end(EndKind.SITE)), job("2", end(EndKind.CANCELLED))], "1") == end(EndKind.SITE)
    assert best_end([job("1", ran, BatchState.PENDING)]) is None
    assert best_end([]) is None
