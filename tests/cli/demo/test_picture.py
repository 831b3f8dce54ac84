"""What the live demo makes of a journal: a timeline, and pictures that fit the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from koala.cli.demo.journal import NO_JOB, JournalTimeline
from koala.cli.demo.picture import GridPicture, column_s_for, frame
from koala.model.api import JobSummary, JournalEntry, Overview, Place, SiteInfo, TransferInfo

START = 1_000.0


def timeline_of(*told: tuple[float, str, dict[str, Any]]) -> JournalTimeline:
    timeline = JournalTimeline()
    for seq, (at_s, what, data) in enumerate(told, start=1):
        timeline.take(JournalEntry(seq=seq, at=START + at_s, kind="event", what=what, text="", data=data))
    return timeline


def submitted(job: int, name: str) -> dict[str, Any]:
    return {"job": job, "request": {"name": name, "kind": "flexible", "processors": 4}}


def claim(job: int, token: str, site: str, processors: int) -> dict[str, Any]:
    return {"job": job, "token": token, "site": site, "processors": processors}


def split_run() -> JournalTimeline:
    """One job on two sites: claimed at 1 s, running from 2 s on; a file moves meanwhile."""
    return timeline_of(
        (0.0, "JobSubmitted", submitted(1, "wide")),
        (0.0, "StartTransfer", {"transfer": "t1", "file": "in.dat", "source": "berlin", "target": "amsterdam"}),
        (0.0, "JobPlaced", {"job": 1, "places": [["amsterdam", 2], ["berlin", 2]]}),
        (1.0, "StartComponent", claim(1, "1.1", "amsterdam", 2)),
        (1.0, "StartComponent", claim(1, "1.2", "berlin", 2)),
        (2.0, "TransferEnded", {"transfer": "t1", "ok": True}),
        (2.0, "ReleaseBarrier", {"job": 1, "tokens": ["1.1", "1.2"]}),
    )


def drawn(timeline: JournalTimeline, until_s: float, processors_per_row: int = 1) -> list[str]:
    sites = {"amsterdam": 2, "berlin": 4}
    picture = GridPicture(
        sites=sites, timeline=timeline, columns=4, column_s=1.0, processors_per_row=processors_per_row
    )
    return [line.plain.rstrip() for line in picture.rows(until_s)]


def test_a_job_is_shaded_at_the_barrier_and_a_letter_while_it_runs() -> None:
    rows = drawn(split_run(), until_s=4.0)
    assert rows[:3] == ["amsterdam  ·░AA", "           ·░AA", ""]
    assert rows[3:7] == ["berlin     ·░AA", "           ·░AA", "           ····", "           ····"]
    assert rows[8] == "in.dat     ▬▬"


def test_a_row_may_stand_for_two_processors() -> None:
    assert drawn(split_run(), until_s=4.0, processors_per_row=2)[:4] == [
        "amsterdam  ·░AA",
        "",
        "berlin     ·░AA",
        "           ····",
    ]


def test_a_start_is_seen_however_short_its_wait_at_the_barrier() -> None:
    timeline = timeline_of(
        (0.0, "JobSubmitted", submitted(1, "again")),
        (0.0, "StartComponent", claim(1, "1.1", "amsterdam", 2)),
        (0.1, "ReleaseBarrier", {"job": 1, "tokens": ["1.1"]}),
        (2.0, "ComponentEnded", {"token": "1.1", "outcome": "failed"}),
        (2.1, "StartComponent", claim(1, "1.2", "amsterdam", 2)),
        (2.2, "ReleaseBarrier", {"job": 1, "tokens": ["1.2"]}),
    )
    assert drawn(timeline, until_s=4.0)[0] == "amsterdam  ░A░A"


def test_nothing_is_drawn_of_the_time_to_come() -> None:
    assert drawn(split_run(), until_s=2.0)[0] == "amsterdam  ·░"


def test_a_repeated_opening_of_the_barrier_starts_nothing_again() -> None:
    timeline = split_run()
    again = {"job": 1, "tokens": ["1.1", "1.2"]}
    timeline.take(JournalEntry(seq=99, at=START + 3, kind="command", what="ReleaseBarrier", text="", data=again))
    assert [hold.runs_s for hold in timeline.holds] == [2.0, 2.0]
    assert sum("it runs" in remark.text for remark in timeline.remarks) == 1


def test_a_site_that_does_not_answer_is_crossed_out_until_it_reports() -> None:
    timeline = timeline_of(
        (0.0, "JobSubmitted", submitted(1, "wide")),
        (1.0, "SiteSilent", {"site": "berlin", "reason": "away"}),
        (2.0, "SiteReported", {"site": "berlin", "processors": 4, "others": 0}),
    )
    assert drawn(timeline, until_s=4.0)[3] == "berlin     ·\N{MULTIPLICATION SIGN}··"


def test_a_remark_names_jobs_by_their_letters_and_a_file_by_no_job() -> None:
    timeline = timeline_of(
        (0.0, "FileChanged", {"file": "in.dat", "size_bytes": 2_000_000, "replicas": ["berlin", "cracow"]}),
        (1.0, "JobSubmitted", submitted(1, "low")),
        (2.0, "JobRequeued", {"job": 1, "reason": "preempted by high-priority job 2 on cracow"}),
    )
    assert [(remark.at_s, remark.job, remark.text) for remark in timeline.remarks] == [
        (0.0, NO_JOB, "in.dat (2.0 MB) is at berlin and cracow"),
        (1.0, 1, "submitted: flexible, 4 processors"),
        (2.0, 1, "requeued: preempted by high-priority job B on cracow"),
    ]


@pytest.mark.parametrize(
    ("end_s", "columns", "column_s"), [(0.0, 68, 0.1), (6.8, 68, 0.1), (24, 68, 0.4), (60, 20, 3)]
)
def test_columns_are_as_long_as_the_run_needs(end_s: float, columns: int, column_s: float) -> None:
    assert column_s_for(end_s, columns) == column_s


def site(name: str) -> SiteInfo:
    return SiteInfo(
        name=name, kind="local", processors=4, usable=4, ours=2, others=0, idle=2, earmarked=0, trust="usable",
        drained=False, errors=0,
    )  # fmt: skip


def job(number: int, state: str, **more: Any) -> JobSummary:
    return JobSummary(
        id=number, name="x", owner="me", state=state, priority="low", job_type="plain", kind="flexible", policy="WF",
        processors=4, submitted_at=START, since=START + 1, **more,
    )  # fmt: skip


def overview(now_s: float) -> Overview:
    moving = TransferInfo(
        id="t1", file="in.dat", source="berlin", target="amsterdam", size_bytes=100, brought_bytes=50,
        started_at=START, jobs=[1],
    )  # fmt: skip
    return Overview(
        grid="demo", version="1", now=START + now_s, started_at=START, policy="WF",
        sites=[site("amsterdam"), site("berlin"), site("cracow")], links=[], transfers=[moving], waiting_high=[],
        waiting_low=[job(2, "waiting", place_in_line=1)], claiming=[],
        active=[job(1, "running", places=[Place(site=name, processors=2) for name in ("amsterdam", "berlin")])],
        counts={},
    )  # fmt: skip


def long_run() -> JournalTimeline:
    timeline = split_run()
    waits = JournalEntry(
        seq=50, at=START + 2, kind="event", what="JobSubmitted", text="", data=submitted(2, "n" * 30)
    )
    timeline.take(waits)
    for number in range(100):
        timeline.remark(3 + number / 100, 1, f"remark {number} " + "and so on " * 20)
    return timeline


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60), (80, 12), (30, 5), (20, 2)])
def test_a_picture_is_never_larger_than_the_terminal(width: int, height: int) -> None:
    lines = frame(overview(5.0), long_run(), width, height)
    assert len(lines) < height
    assert all(len(line.plain) <= width for line in lines)


def test_a_small_terminal_shows_sites_jobs_and_the_newest_remarks() -> None:
    text = "\n".join(line.plain for line in frame(overview(5.0), long_run(), 80, 24))
    for shown in (
        "amsterdam",
        "cracow",
        "live, 5.0 s",
        "amsterdam 2, berlin 2",
        "number 1 in its queue",
        "remark 99",
    ):
        assert shown in text
    assert "row 2 processors" in text


def test_a_tall_and_wide_terminal_shows_every_processor_and_how_far_a_file_has_come() -> None:
    lines = [line.plain for line in frame(overview(5.0), long_run(), 120, 40)]
    assert any("row 1 processor" in line for line in lines)
    assert any("in.dat ████████········ of 100 bytes" in line for line in lines)
    assert len(lines) == 39
