"""What the live verbs draw, without a daemon: the picture of ``koala top`` at any size, bars, times."""

from __future__ import annotations

import io
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from koala.cli.daemon.dashboard import reachable
from koala.cli.site.command import sites_table
from koala.cli.terminal.words import (
    IDLE,
    SHUT,
    ago,
    clean,
    job_note,
    shares,
    site_bar,
    site_legend,
    site_state,
    size,
    span,
)
from koala.cli.top import frame
from koala.model.api import JobSummary, JournalEntry, Overview, Place, SiteInfo, TransferInfo

NOW = 1_000_000.0


def site(number: int, **fields: Any) -> SiteInfo:
    known: dict[str, Any] = {
        "name": f"site-{number}", "kind": "local", "processors": 8, "usable": 8, "ours": 3, "others": 2, "idle": 3,
        "earmarked": 0, "trust": "usable", "drained": False, "errors": 0,
    }  # fmt: skip
    return SiteInfo(**{**known, **fields})


def job(number: int, state: str, **fields: Any) -> JobSummary:
    known: dict[str, Any] = {
        "id": number, "name": f"job-{number}", "owner": "ada", "state": state, "priority": "low", "job_type": "plain",
        "kind": "non-fixed", "policy": "WF", "processors": 4, "submitted_at": NOW - 90, "since": NOW - 65,
    }  # fmt: skip
    return JobSummary(**{**known, **fields})


def grid(jobs: int, sites: int, transfers: int) -> Overview:
    return Overview(
        grid="test",
        version="1",
        now=NOW,
        started_at=NOW - 3_700,
        policy="WF",
        sites=[site(number) for number in range(sites)],
        links=[],
        transfers=[
            TransferInfo(
                id=str(number), file="data/mesh.dat", source="site-0", target="site-1", size_bytes=3_000_000_000,
                brought_bytes=1_000_000_000, started_at=NOW - 10,
            )
            for number in range(transfers)
        ],
        waiting_high=[job(number, "waiting", place_in_line=number + 1) for number in range(jobs)],
        waiting_low=[job(number, "waiting") for number in range(jobs)],
        claiming=[job(number, "claiming") for number in range(jobs)],
        active=[job(number, "running", places=[Place(site="site-0", processors=4)]) for number in range(jobs)],
        counts={"running": jobs, "waiting": 2 * jobs},
    )  # fmt: skip


def entries(count: int) -> list[JournalEntry]:
    return [
        JournalEntry(
            seq=number, at=NOW - 60, kind="event", what="JobSubmitted", text=f"job {number} was submitted " * 9
        )
        for number in range(count)
    ]


def drawn(overview: Overview, told: list[JournalEntry], width: int, height: int | None) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(frame(overview, told, width, height))
    return out.getvalue().splitlines()


@settings(deadline=None)
@given(st.integers(60, 200), st.integers(15, 60), st.integers(0, 30), st.integers(1, 30), st.integers(0, 9))
def test_the_picture_fits_every_terminal(width: int, height: int, jobs: int, sites: int, transfers: int) -> None:
    lines = drawn(grid(jobs, sites, transfers), entries(40), width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    text = "\n".join(lines)
    assert lines[0].startswith("koala test")
    assert "site-0" in text
    assert "last events" in text or height < 18


def test_a_full_terminal_is_used_and_what_finds_no_room_is_counted() -> None:
    lines = drawn(grid(9, 9, 2), entries(40), 80, 24)
    assert len(lines) == 24
    assert any("more" in line for line in lines)
    assert "job 39 was" in lines[-1], "the newest event is always there"


def test_without_a_height_everything_is_drawn() -> None:
    lines = drawn(grid(9, 9, 2), entries(10), 80, None)
    assert sum("job-8" in line for line in lines) == 4
    assert any("33% of 3.0 GB" in line and "20s left" in line for line in lines)


def test_a_daemon_that_is_away_is_told_over_the_last_picture() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(frame(grid(1, 1, 0), [], 80, 20, away="no daemon answers"))
    assert "no daemon answers" in out.getvalue().splitlines()[0]


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=4), st.integers(4, 60))
def test_a_bar_is_as_long_as_it_should_be_and_shows_every_part(amounts: list[float], width: int) -> None:
    lengths = shares(amounts, width)
    assert sum(lengths) == (width if sum(amounts) > 0 else 0)
    for amount, length in zip(amounts, lengths, strict=True):
        assert (length > 0) == (amount > 0) or sum(amounts) == 0 or amount * width / sum(amounts) == 0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-3, "0s"), (0.04, "0s"), (0.44, "0.4s"), (9.94, "9.9s"), (9.96, "10s"), (59.4, "59s"), (59.6, "1m00s"),
     (185, "3m05s"), (7_800, "2h10m"), (86_399.9, "1d00h"), (356_400, "4d03h")],
)  # fmt: skip
def test_times_are_short(seconds: float, words: str) -> None:
    assert span(seconds) == words
    assert ago(NOW - seconds, NOW) == f"{words} ago"


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_000, "1.0 kB"), (123_456, "123 kB"), (999_600, "1.0 MB"), (3e9, "3.0 GB"),
     (5e18, "5000 PB")],
)  # fmt: skip
def test_sizes_are_short(size_bytes: float, words: str) -> None:
    assert size(size_bytes) == words


def test_text_of_others_cannot_move_the_cursor() -> None:
    assert clean("a\x1b[31mb\nc\u202ed") == "a\ufffd[31mb\ufffdc\ufffdd"


def test_the_state_of_a_site_names_the_worst() -> None:
    assert site_state(site(0), NOW)[0] == "ok"
    assert site_state(site(0, drained=True), NOW)[0] == "drained"
    assert site_state(site(0, trust="unusable"), NOW)[0] == "unusable"
    assert site_state(site(0, drained=True, silent_since=NOW - 12), NOW)[0] == "silent for 12s"


def test_the_note_of_a_job_tells_what_went_wrong() -> None:
    failed = job(1, "failed", exit_code=3, runs=3, preemptions=1, reason="component 0 failed")
    assert job_note(failed) == "exit code 3; preempted; restarted 2 times; component 0 failed"
    assert job_note(job(1, "done", exit_code=0, reason="fine")) == ""


def test_the_note_of_a_job_says_nothing_twice() -> None:
    assert job_note(job(1, "cancelled", reason="cancelled")) == ""
    assert job_note(job(1, "failed", exit_code=7, reason="component 1.1 failed: exit code 7")).count("7") == 1
    assert job_note(job(1, "waiting", place_in_line=2), "can never fit") == "can never fit; number 2 in its queue"


def test_what_nobody_holds_of_a_site_that_is_not_used_is_not_drawn_as_idle() -> None:
    assert site_bar(site(0), 8).plain.count(IDLE) == 3
    for shut in ({"drained": True}, {"trust": "unusable"}, {"silent_since": NOW}):
        assert site_bar(site(0, **shut), 8).plain.count(SHUT) == 3
        assert IDLE not in site_bar(site(0, **shut), 8).plain


@pytest.mark.parametrize("width", [80, 120])
def test_the_list_of_sites_cuts_no_number_at_any_state(width: int) -> None:
    found = [
        site(1, name="a-site-with-a-long-name", silent_since=NOW - 100_000, jobs=list(range(1_000, 1_009))),
        site(2, drained=True),
    ]
    out = io.StringIO()
    Console(file=out, width=width).print(sites_table(found, NOW, width))
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert all(len(line) <= width for line in lines)
    assert lines[0].split() == ["site", "kind", "use", "procs", "ours", "others", "idle", "state", "jobs"]
    assert "  8     3       2     3  silent for 1d03h" in lines[1]


def test_a_link_of_a_daemon_at_all_addresses_has_the_name_of_the_machine() -> None:
    assert reachable("http://127.0.0.1:80/login#code=x") == "http://127.0.0.1:80/login#code=x"
    assert reachable("https://0.0.0.0:8443/login#code=x") == f"https://{socket.getfqdn()}:8443/login#code=x"
    assert reachable("http://[::]:80/x", "koala.example") == "http://koala.example:80/x"
    assert reachable("http://127.0.0.1:80/x", "::1") == "http://[::1]:80/x"


@pytest.mark.parametrize("width", range(40))
def test_the_legend_of_sites_is_cut_between_its_signs_alone(width: int) -> None:
    legend = site_legend(width)
    assert len(legend) <= width
    assert not legend or legend.split("  ") == site_legend().split("  ")[: legend.count("  ") + 1]
