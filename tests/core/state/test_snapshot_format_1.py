"""A snapshot that the version before wrote: a scheduler made from it goes on as that version did.

``snapshot_format_1.json`` holds what that version stored (grid and snapshot), the stories of the jobs, and what it
answered to the events that followed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from koala.core import JobState, Scheduler, SnapshotError, decode_snapshot, encode_snapshot
from koala.core.state.snapshots.snapshot import FORMAT
from koala.model import messages
from koala.model.grid import Grid
from tests.support.core_driver import assert_ledger_balances

KEPT: dict[str, Any] = msgspec.json.decode((Path(__file__).parent / "snapshot_format_1.json").read_bytes())


@pytest.fixture
def scheduler() -> Scheduler:
    stored = KEPT["stored"]
    snapshot = decode_snapshot(msgspec.json.encode(stored["books"]))
    return Scheduler.from_snapshot(msgspec.convert(stored["grid"], Grid), None, snapshot)


def test_every_job_is_where_it_was_with_its_story(scheduler: Scheduler) -> None:
    assert_ledger_balances(scheduler.ledger)
    assert {job.id: job.state for job in scheduler.ledger.jobs.values()} == {
        1: JobState.CLAIMING,
        3: JobState.UNWINDING,
        4: JobState.RUNNING,
        5: JobState.WAITING,
        6: JobState.WAITING,
        7: JobState.PLACED,
        8: JobState.STARTING,
        9: JobState.STARTING,
    }
    for job, story in KEPT["stories"].items():
        explanation = scheduler.explain(int(job))
        assert explanation is not None
        assert [[line.at, line.text] for line in explanation.story] == story


def test_every_answer_is_the_one_that_the_version_before_gave(scheduler: Scheduler) -> None:
    for name, fields, expected in KEPT["answers"]:
        event = msgspec.convert(fields, getattr(messages, name))
        # The version before did not record that a site lost its trust.
        answers = [each for each in scheduler.handle(event) if not isinstance(each, messages.SiteDistrusted)]
        assert [type(answer).__name__ for answer in answers] == [what for what, _ in expected], event
        for answer, (_, said) in zip(answers, expected, strict=True):
            told = msgspec.json.decode(msgspec.json.encode(answer))
            assert said == {name: told[name] for name in said}, event
    assert_ledger_balances(scheduler.ledger)


def test_it_is_written_in_the_present_format(scheduler: Scheduler) -> None:
    snapshot = scheduler.snapshot()
    assert snapshot.version == FORMAT
    again = Scheduler.from_snapshot(scheduler.grid, None, decode_snapshot(encode_snapshot(snapshot)))
    assert again.snapshot() == snapshot


@pytest.mark.parametrize("lost", ["sites", "now", "idles", "transfers"])
def test_a_damaged_one_is_refused(lost: str) -> None:
    books = {name: value for name, value in KEPT["stored"]["books"].items() if name != lost}
    with pytest.raises(SnapshotError, match="damaged"):
        decode_snapshot(msgspec.json.encode(books))
