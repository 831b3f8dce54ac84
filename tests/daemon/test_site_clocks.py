"""Sites tell the time: several against this machine make a start ask, and one alone has a wrong clock itself."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from koala.daemon.live_rows import LiveRows
from koala.daemon.options import DaemonOptions, StartError
from koala.daemon.run import serve
from koala.daemon.service.sites.overview import operator_warnings
from koala.daemon.site_clocks import (
    SITE_CLOCK_S_MAX,
    ClockVerdict,
    ask_clocks,
    judged,
    own_clock_in_words,
    site_clock_in_words,
)
from koala.model.grid import BatchSettings, Grid, Site
from koala.sites.site_time import ahead_s, read_time
from tests.support.api_world import GRID

DAY_S = 86_400.0
MONTH_S = 30 * DAY_S


def judged_of(ahead: dict[str, float], hosts: dict[str, str] | None = None) -> ClockVerdict:
    """The verdict on sites that are each behind a host of their own, or behind these hosts."""
    hosts = hosts or {name: name for name in ahead}
    settings = {name: BatchSettings(work_directory="/w", ssh=host) for name, host in hosts.items()}
    sites = [Site(name=name, processors=1, kind="slurm", batch=settings[name]) for name in ahead]
    return judged(sites, ahead)


def test_several_sites_that_agree_speak_against_this_machine() -> None:
    verdict = judged_of({"a": MONTH_S, "b": MONTH_S + 20.0, "c": 0.0})
    assert verdict.behind_s == MONTH_S + 20.0
    assert own_clock_in_words(verdict) == "is 30 days behind the clocks of most sites that tell theirs (a, b)"
    assert site_clock_in_words("c", verdict) == (
        "the clock of c is 30 days behind those of most sites; have it set there (NTP)"
    )
    assert site_clock_in_words("a", verdict) == ""
    assert "30 days ahead of the clocks" in own_clock_in_words(judged_of({"a": -MONTH_S, "b": -MONTH_S}))


@pytest.mark.parametrize(
    "ahead",
    [
        {},
        {"a": MONTH_S},
        {"a": MONTH_S, "b": -MONTH_S},  # they do not agree with each other either
        {"a": MONTH_S, "b": MONTH_S, "c": 0.0, "d": 1.0},  # no more than half of them
        {"a": SITE_CLOCK_S_MAX, "b": -SITE_CLOCK_S_MAX},
        {"a": MONTH_S, "b": MONTH_S + 250.0, "c": MONTH_S + 500.0, "d": 0.0},  # no three of which any two agree
    ],
)
def test_a_site_alone_or_sites_that_do_not_agree_have_wrong_clocks_themselves(ahead: dict[str, float]) -> None:
    verdict = judged_of(ahead)
    assert verdict.behind_s is None
    assert own_clock_in_words(verdict) == ""
    wrong = {site for site in ahead if site_clock_in_words(site, verdict)}
    assert wrong == {site for site, by_s in ahead.items() if abs(by_s) > SITE_CLOCK_S_MAX}


def test_sites_behind_one_host_have_one_clock() -> None:
    ahead = {"short": MONTH_S, "long": MONTH_S, "far": 0.0}
    hosts = {"short": "login", "long": "me@login", "far": "other"}
    verdict = judged_of(ahead, hosts)
    assert (verdict.behind_s, set(verdict.wrong)) == (None, {"short", "long"})
    assert judged_of(
        {"a": MONTH_S, "b": MONTH_S, "c": 0.0, "d": 0.0}, {"a": "a", "b": "b", "c": "h", "d": "h"}
    ).against


def test_a_time_between_question_and_answer_is_right_whatever_it_took() -> None:
    assert [ahead_s(told, 100.0, 160.0) for told in (99.5, 100.0, 130.0, 160.0)] == [0.0] * 4
    assert (ahead_s(1_000.0, 100.0, 160.0), ahead_s(10.0, 100.0, 160.0)) == (840.0, -89.0)


@pytest.mark.parametrize(
    ("text", "time_s"), [("12\n", 12.0), ("%s\n", None), ("", None), ("-3", None), ("9" * 40, None)]
)
def test_what_is_no_time_tells_nothing(text: str, time_s: float | None) -> None:
    assert read_time(text) == time_s


def remote_site(directory: Path, name: str, date: str) -> Site:
    """A site behind a command of its own, with a ``date`` that does as the shell text says."""
    programs = directory / name
    programs.mkdir(parents=True)
    for program, text in (("date", date), ("sinfo", "exit 1"), ("squeue", "exit 1")):
        path = programs / program
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    settings = BatchSettings(
        work_directory=str(directory / name / "work"), through=("env", f"PATH={programs}:/bin:/usr/bin")
    )
    return Site(name=name, processors=1, kind="slurm", batch=settings)


def later(by_s: float) -> str:
    return f'exec /bin/date -d "@$(($(/bin/date +%s) + {by_s:.0f}))" "$@"'


def test_remote_sites_are_asked_and_others_left_out(tmp_path: Path) -> None:
    dates = {"late": later(MONTH_S), "right": later(0.0), "mute": "exit 1"}
    sites = tuple(remote_site(tmp_path, name, text) for name, text in dates.items())
    told = asyncio.run(ask_clocks(msgspec.structs.replace(GRID, sites=(*GRID.sites, *sites)), patience_s=120.0))
    assert told["right"] == 0.0
    assert told["late"] == pytest.approx(MONTH_S, abs=30.0)
    assert set(told) == {"late", "right"}


def test_a_site_that_does_not_answer_soon_holds_up_no_start(tmp_path: Path) -> None:
    grid = msgspec.structs.replace(GRID, sites=(remote_site(tmp_path, "silent", "exec sleep 600"),))
    assert asyncio.run(ask_clocks(grid, patience_s=0.2)) == {}


def test_a_start_goes_on_where_there_is_no_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    sites = tuple(
        Site(name=name, processors=1, kind="slurm", batch=settings)
        for name, settings in (
            ("ssh", BatchSettings(work_directory="/w", ssh="nowhere")),
            ("both", BatchSettings(work_directory="/w", ssh="nowhere", through=("no-such-command",))),
            ("through", BatchSettings(work_directory="/w", through=("no-such-command",))),
        )
    )
    assert asyncio.run(ask_clocks(msgspec.structs.replace(GRID, sites=sites))) == {}


def test_a_running_daemon_tells_operators_of_its_clock_and_of_a_site_with_a_wrong_one() -> None:
    def batch_at(host: str) -> BatchSettings:
        return BatchSettings(work_directory="/w", ssh=host)

    def engine(**ahead: float | None) -> Any:
        sites = {name: SimpleNamespace(clock_ahead_s=by_s) for name, by_s in ahead.items()}
        return SimpleNamespace(
            grid=SimpleNamespace(sites=[Site(name=name, processors=1, batch=batch_at(name)) for name in ahead]),
            site=sites.__getitem__,
            defects_of=lambda _: [],
            rows=LiveRows(),
        )

    assert operator_warnings(engine(here=None, a=MONTH_S, b=0.0)) == []
    (warning,) = operator_warnings(engine(here=None, a=MONTH_S, b=MONTH_S))
    assert warning.startswith(
        "this machine's clock is 30 days behind the clocks of most sites that tell theirs (a, b)"
    )


def test_a_start_asks_where_most_sites_say_that_its_clock_is_wrong(tmp_path: Path) -> None:
    sites = tuple(remote_site(tmp_path / "sites", name, later(MONTH_S)) for name in ("one", "two"))
    grid: Grid = msgspec.structs.replace(GRID, sites=(*GRID.sites, *sites))
    options = DaemonOptions(grid=grid, state=tmp_path / "state")
    with pytest.raises(
        StartError, match=r"is the clock right\? .* is 30 days behind the clocks of most sites .*one, two"
    ):
        asyncio.run(serve(options, lambda _: None))
