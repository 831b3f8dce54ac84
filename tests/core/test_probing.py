"""Probes as the core asks for them: rarely, one at a time, over idle links, and without blame."""

from __future__ import annotations

import itertools

import msgspec

from koala.core import Scheduler
from koala.core.probing import PROBE_DEADLINE_S, PROBE_FIRST_S, PROBE_GAP_S_MIN, probe_every_s, why_not_probed
from koala.model.facts import TurnEntry
from koala.model.grid import PROBE_EVERY_S, BatchSettings, Grid, SchedulerParameters, Site, SiteKind, StoredFile
from koala.model.messages import AnyEvent, JobSubmitted, LinkProbed, ProbeLink, SiteReported, Tick
from koala.model.request import Component, InputFile, Request
from tests.support.core_records import records_of, scheduler_of

EVERY_S = 600.0


def grid_of(*names: str, every_s: float | None = EVERY_S, off: tuple[str, ...] = ()) -> Grid:
    return Grid(
        sites=tuple(Site(name=name, processors=8, probes=name not in off) for name in names),
        scheduler=SchedulerParameters(scan_interval_s=0.0, probe_every_s=every_s),
        files=(StoredFile(name="f", size_bytes=10**9, replicas=("a",)),),
    )


def begun(grid: Grid) -> Scheduler:
    """A scheduler that has waited for long enough after its start."""
    scheduler = Scheduler(grid)
    if scheduler.ledger.forecasts.probe_at == 0.0:
        scheduler.ledger.forecasts.probe_at = -1.0
    return scheduler


def probes(commands: list[TurnEntry]) -> list[tuple[str, str]]:
    return [(each.source, each.target) for each in commands if isinstance(each, ProbeLink)]


def asked(scheduler: Scheduler, event: AnyEvent) -> list[tuple[str, str]]:
    return probes(scheduler.handle(event).entries)


def answer(at: float, link: tuple[str, str], reason: str = "") -> LinkProbed:
    if reason:
        return LinkProbed(at=at, source=link[0], target=link[1], reason=reason)
    return LinkProbed(at=at, source=link[0], target=link[1], latency_s=0.02, bytes_per_s=1e6, size_bytes=8_000_000)


def test_links_are_probed_one_at_a_time_and_new_ones_soon_after_one_another() -> None:
    scheduler = begun(grid_of("a", "b", "c"))
    at, seen = 0.0, []
    for _ in range(6):
        (link,) = asked(scheduler, Tick(at=at))
        assert asked(scheduler, Tick(at=at + 1.0)) == [], "one is under way"
        assert asked(scheduler, answer(at + 2.0, link)) == []
        seen.append(link)
        at += 2.0 + PROBE_GAP_S_MIN
    assert seen == [(one, other) for one in "abc" for other in "abc" if one != other]
    assert asked(scheduler, Tick(at=at)) == [], "all were probed a short while ago"
    assert asked(scheduler, Tick(at=at + EVERY_S)) == [("a", "b")]


def test_the_first_probe_waits_for_a_while_after_the_start() -> None:
    scheduler = Scheduler(grid_of("a", "b"))
    assert asked(scheduler, Tick(at=1_000.0)) == []
    assert asked(scheduler, Tick(at=1_000.0 + PROBE_FIRST_S - 1.0)) == []
    assert asked(scheduler, Tick(at=1_000.0 + PROBE_FIRST_S)) == [("a", "b")]


def test_what_a_probe_measured_is_believed() -> None:
    scheduler = begun(grid_of("a", "b"))
    (link,) = asked(scheduler, Tick(at=0.0))
    scheduler.handle(answer(1.0, link))
    view = scheduler.ledger.sites.view
    assert (view.bytes_per_s.at(0, 1), view.latency_s.at(0, 1)) == (1e6, 0.02)
    assert (view.bytes_per_s.at(1, 0), view.latency_s.at(1, 0)) == (1e6, 0.02), "the way back was not measured yet"


def test_a_probe_that_fails_is_remembered_rests_longer_and_blames_nobody() -> None:
    scheduler = begun(grid_of("a", "b"))
    tried = []
    for at in range(0, int(20 * EVERY_S), 60):
        for link in asked(scheduler, Tick(at=float(at))):
            fails = link == ("a", "b")
            scheduler.handle(answer(at + 1.0, link, "no route to host" if fails else ""))
            if fails:
                tried.append(float(at))
    series = scheduler.ledger.forecasts.series[0, 1]
    assert (series.failure, series.failures) == ("no route to host", len(tried))
    rests_s = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert 2 <= len(rests_s) <= 4
    assert rests_s == sorted(rests_s)
    assert rests_s[0] > EVERY_S
    assert all(site.errors == 0 for site in scheduler.ledger.sites)
    scheduler.handle(answer(40 * EVERY_S, ("a", "b")))
    assert scheduler.ledger.forecasts.series[0, 1].failure == ""


def test_a_probe_that_nobody_answers_gives_way_to_the_next() -> None:
    scheduler = begun(grid_of("a", "b"))
    assert asked(scheduler, Tick(at=0.0)) == [("a", "b")]
    assert asked(scheduler, Tick(at=PROBE_DEADLINE_S - 1.0)) == []
    assert asked(scheduler, Tick(at=PROBE_DEADLINE_S)) == [("b", "a")]
    assert "no answer" in scheduler.ledger.forecasts.series[0, 1].failure


def test_a_link_is_not_probed_while_files_or_a_job_of_ours_use_it() -> None:
    read = Request(components=(Component(processors=2, site="b", input_files=(InputFile(name="f"),)),))
    scheduler = begun(grid_of("a", "b", "c"))
    scheduler.ledger.forecasts.probe_at = 5.0
    scheduler.handle(JobSubmitted(at=0.0, job=1, request=read))
    scheduler.handle(Tick(at=1.0))
    assert asked(scheduler, Tick(at=5.0)) == [], "a file is on its way from a to b, and c is tried with them alone"
    scheduler = begun(grid_of("a", "b", "c"))
    scheduler.ledger.forecasts.probe_at = 5.0
    both = Request(components=(Component(processors=2, site="a"), Component(processors=2, site="b")))
    scheduler.handle(JobSubmitted(at=0.0, job=1, request=both))
    scheduler.handle(Tick(at=1.0))
    assert asked(scheduler, Tick(at=5.0)) == [("a", "c")]


def test_where_probes_are_off_there_are_none() -> None:
    assert asked(begun(grid_of("a", "b", every_s=None)), Tick(at=0.0)) == [], "simulated, and nobody asked for it"
    assert asked(begun(grid_of("a", "b", every_s=0.0)), Tick(at=0.0)) == []
    assert asked(begun(grid_of("a", "b", off=("b",))), Tick(at=0.0)) == []
    assert asked(begun(grid_of("a")), Tick(at=0.0)) == []


def live(name: str, **settings: object) -> Site:
    batch = BatchSettings(work_directory="/w", **settings)  # type: ignore[arg-type]
    return Site(name=name, processors=4, kind="slurm", batch=batch)


def test_live_sites_are_probed_by_default_unless_there_is_no_network_between_them() -> None:
    far, near, here = live("far", ssh="far"), live("near", through=("ip", "netns")), live("here")
    local = Site(name="local", processors=4, kind=SiteKind.LOCAL)
    grid = Grid(sites=(far, near, here, local))
    assert probe_every_s(grid, far, near) == probe_every_s(grid, local, far) == PROBE_EVERY_S
    assert "no network between sites on the daemon's own machine" in why_not_probed(grid, here, local)
    off = msgspec.structs.replace(far, probes=False)
    assert "probes are off at far" in why_not_probed(grid, off, near)
    never = msgspec.structs.replace(grid, scheduler=SchedulerParameters(probe_every_s=0.0))
    assert "probe_every_s: 0" in why_not_probed(never, far, near)
    assert asked(begun(grid), SiteReported(at=9.0, site="far", processors=4, others=0)) == [("far", "near")]


def test_a_probe_under_way_goes_on_after_a_restart() -> None:
    grid = grid_of("a", "b")
    before = begun(grid)
    assert asked(before, Tick(at=0.0)) == [("a", "b")]
    after = scheduler_of(grid, None, records_of(before))
    for event in (Tick(at=1.0), answer(2.0, ("a", "b")), Tick(at=3.0), Tick(at=2.0 + PROBE_GAP_S_MIN)):
        assert asked(before, event) == asked(after, event)
    assert records_of(after) == records_of(before)
