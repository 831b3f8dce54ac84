"""Sites that fail, are slow, are shared with others or are told things twice: what the engine makes of them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from koala.core import Scheduler
from koala.daemon import grid_sites
from koala.daemon.engine.batch import is_news
from koala.daemon.grid_sites import make_site
from koala.daemon.upkeep.retention import Retention
from koala.model.grid import BatchSettings, SchedulerParameters, Site
from koala.model.messages import CancelAsked, JobSubmitted, SiteReported
from koala.model.nodes import NodeClass, NodeSize, TaskNeeds
from koala.model.request import Application, Component, Request
from koala.sites import LiveSite, UnseenError
from koala.sites.local.site import LocalSite
from tests.support.engine_world import EngineWorld, a_request, local_grid, open_engine, open_store, root
from tests.support.troubled_site import TroubledSite, trouble, troubled

__all__ = ["root"]


def test_a_start_that_fails_is_repeated_until_it_succeeds_and_the_silence_is_on_record(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid(error_threshold=100), site_maker=troubled) as world:
            trouble(world, "a").starts_to_fail = 2
            job = await world.submit(a_request(sizes=(1, 1), sites="ab"))
            await world.until(lambda: world.engine.silence_of("a"))
            silence = world.engine.silence_of("a")
            assert silence is not None
            assert "No space left" in silence[1]
            (row,) = await world.ended(job)
            assert (row.state, row.runs) == ("done", 1)
            assert world.engine.silence_of("a") is None
            told = [entry.body for entry in world.store.journal(after=0, limit=1_000) if entry.what == "SiteSilent"]
            assert len(told) == 1, "one silence, however often it is met"
            await world.until(lambda: len(world.store.components(job)) == 2)
            await world.all_given_back()

    asyncio.run(scenario())


@pytest.mark.parametrize("says_why", [False, True])
def test_a_job_goes_where_sites_answer_from_the_start_of_the_daemon_on(root: Path, *, says_why: bool) -> None:
    """The site that cannot be used is the one with more processors; it answers again later."""

    def maker(*arguments: Any, **named: Any) -> LiveSite:
        site = troubled(*arguments, **named)
        assert isinstance(site, TroubledSite)
        site.cut_off = site.name == "a" and not says_why
        site.probes_to_fail = 1_000 if site.name == "a" and says_why else 0
        return site

    async def scenario() -> None:
        async with open_engine(root, local_grid((6, 4), error_threshold=100), site_maker=maker) as world:
            row = await world.run(a_request(sizes=(2,)))
            assert (row.state, row.places) == ("done", (("b", 2),))
            trouble(world, "a").cut_off, trouble(world, "a").probes_to_fail = False, 0
            await world.until(lambda: not world.engine.scheduler.ledger.sites.sites[0].does_not_report)
            row = await world.run(a_request(sizes=(2,)))
            assert (row.state, row.places) == ("done", (("a", 2),))

    asyncio.run(scenario())


def test_a_release_that_does_not_reach_a_site_is_repeated(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid(error_threshold=100), site_maker=troubled) as world:
            trouble(world, "b").releases_to_fail = 2
            row = await world.run(a_request(sizes=(1, 1), sites="ab"))
            assert (row.state, row.runs, row.failures) == ("done", 1, 0)
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_component_whose_directory_its_site_does_not_see_at_the_barrier_makes_the_site_not_silent(
    root: Path,
) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid(error_threshold=1), site_maker=troubled) as world:
            site = trouble(world, "b")
            site.releases_to_fail, site.release_error = 2, UnseenError("the directory of 1.1 is not to be seen")
            row = await world.run(a_request(sizes=(1,), sites="b"))
            assert (row.state, row.runs, row.failures) == ("done", 1, 0)
            assert not site.releases_to_fail
            assert not [entry for entry in world.store.journal(after=0, limit=1_000) if entry.what == "SiteSilent"]

    asyncio.run(scenario())


def test_a_slow_site_does_not_hold_up_another(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, site_maker=troubled) as world:
            slow = trouble(world, "a")
            slow.gate.clear()
            stuck = await world.submit(a_request(sizes=(1,), sites="a"))
            for _ in range(3):
                assert (await world.run(a_request(sizes=(1,), sites="b"))).state == "done"
            live = world.engine.live_row(stuck)
            assert live is not None
            assert live.state == "starting"
            slow.gate.set()
            (row,) = await world.ended(stuck)
            assert row.state == "done"

    asyncio.run(scenario())


def test_a_call_that_never_returns_counts_as_failed(root: Path) -> None:
    async def scenario() -> None:
        grid = local_grid(error_threshold=100)
        async with open_engine(root, grid, site_maker=troubled, site_call_s=0.2) as world:
            trouble(world, "a").gate.clear()
            job = await world.submit(a_request(sizes=(1,), sites="a"))
            await world.until(lambda: world.engine.silence_of("a"))
            trouble(world, "a").gate.set()
            (row,) = await world.ended(job)
            assert row.state == "done"

    asyncio.run(scenario())


def test_a_start_that_was_given_up_while_its_site_failed_never_happens(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid(error_threshold=100), site_maker=troubled) as world:
            trouble(world, "a").starts_to_fail = 2
            job = await world.submit(a_request(f"touch {root}/ran", sizes=(1,), sites="a"))
            await world.until(lambda: world.engine.silence_of("a"))
            await world.engine.tell(CancelAsked(at=0.0, job=job))
            await world.all_given_back()
            (component,) = world.store.components(job)
            assert component.outcome == "aborted"
            assert not (root / "ran").exists()

    asyncio.run(scenario())


def test_a_site_that_does_not_answer_probes_is_silent_until_it_does(root: Path) -> None:
    async def scenario() -> None:
        grid = local_grid(error_threshold=100)
        async with open_engine(root, grid, site_maker=troubled, poll_s=0.1) as world:
            await world.until(lambda: world.engine.reported_at("a"))
            assert world.engine.silence_of("a") is None
            trouble(world, "a").probes_to_fail = 2
            silence = await world.until(lambda: world.engine.silence_of("a"))
            assert "start it" in silence[1]
            await world.until(lambda: world.engine.silence_of("a") is None)

    asyncio.run(scenario())


def test_what_others_hold_is_learned_and_left_to_them(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((4,)), poll_s=0.1) as world:
            others = root / "sites/a/others"
            others.write_text("3\n")
            await world.until(lambda: world.engine.scheduler.ledger.sites.sites[0].others == 3)
            large = await world.submit(a_request(sizes=(2,)))
            assert (await world.run(a_request(sizes=(1,)))).state == "done"
            await world.in_state(large, "waiting")
            others.unlink()
            (row,) = await world.ended(large)
            assert row.state == "done"
            reports = [entry.body for entry in world.store.site_reports("a", 0.0, 1e12)]
            assert [report.others for report in reports if isinstance(report, SiteReported)] == [3, 0]

    asyncio.run(scenario())


def test_an_operator_s_probe_tells_the_core_also_when_nothing_changed(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            await world.engine.probe("a")
            assert len(world.store.site_reports("a", 0.0, 1e12)) == 1

    asyncio.run(scenario())


def test_what_a_site_holds_and_nobody_knows_is_aborted_at_the_start(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            job = await world.submit(a_request("sleep 60", sizes=(1,), sites="a"))
            await world.in_state(job, "running")
        (root / "koala.db").unlink()  # as if an older record had been put back
        async with open_engine(root, accepts_database=True) as world:
            await world.until(lambda: world.site("a").processors_held == 0)
            assert (await world.run(a_request(sizes=(4,), sites="a"))).state == "done"

    asyncio.run(scenario())


def retention_of(world: EngineWorld, site: str, **limits: Any) -> Retention:
    """Retention at one site of the world, with these limits."""
    engine = world.engine
    return Retention(engine, world.store, {site: engine.site(site)}, lambda: engine.rows, **limits)


def test_old_components_are_forgotten_at_their_sites_and_stay_on_record(
    root: Path,
) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            done = [await world.run(a_request(sizes=(1,), sites="a")) for _ in range(3)]
            live = await world.submit(a_request(f"[ -e {root}/gate ] || exit 1", sizes=(1,), sites="a"))
            await world.until(lambda: (row := world.engine.live_row(live)) is not None and row.failures)
            assert await retention_of(world, "a").step() == 0
            retention = retention_of(world, "a", components_max=1, step_components=1)
            home = root / "sites/a/components"
            first, second, third = (world.store.components(row.id)[0].token for row in done)
            assert await retention.step() == 1
            assert not (home / first).exists()
            assert (home / second).exists()
            retention = retention_of(world, "a", retention_s=0.0, step_components=1)
            assert [await retention.step() for _ in range(3)] == [1, 1, 0]
            assert not (home / third).exists()
            assert all((home / row.token).exists() for row in world.store.components(live))
            assert [len(world.store.components(row.id)) for row in done] == [1, 1, 1]
            (root / "gate").touch()
            await world.ended(live)

    asyncio.run(scenario())


def test_components_that_a_site_cannot_forget_hold_up_no_others_and_are_tried_again(
    root: Path,
) -> None:
    async def scenario() -> None:
        async with open_engine(root, site_maker=troubled) as world:
            site = trouble(world, "a")
            done = [await world.run(a_request(sizes=(1,), sites="a")) for _ in range(5)]
            tokens = [world.store.components(row.id)[0].token for row in done]
            site.unforgettable = set(tokens[:3])
            home = root / "sites/a/components"
            retention = retention_of(world, "a", retention_s=0.0, step_components=2)
            steps = [(await retention.step(), retention.more) for _ in range(3)]
            assert steps == [(0, True), (1, True), (1, False)]
            assert [(home / token).exists() for token in tokens] == [True, True, True, False, False]
            site.unforgettable.clear()
            assert [await retention.step() for _ in range(3)] == [2, 1, 0]
            assert not any((home / token).exists() for token in tokens)

    asyncio.run(scenario())


def test_components_of_live_jobs_do_not_keep_the_limit_from_being_held(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            live = await world.submit(a_request(f"[ -e {root}/gate ] || exit 1", sizes=(1,), sites="a"))
            await world.until(lambda: (row := world.engine.live_row(live)) is not None and row.failures >= 2)
            done = await world.run(a_request(sizes=(1,), sites="b"))
            ended = world.store.ended_components_count()
            assert await retention_of(world, "b", components_max=ended - 1).step() == 1
            assert not (root / "sites/b/components" / world.store.components(done.id)[0].token).exists()
            (root / "gate").touch()
            await world.ended(live)

    asyncio.run(scenario())


def test_when_too_many_cannot_be_forgotten_the_rest_waits_for_the_next_look(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, site_maker=troubled) as world:
            site = trouble(world, "a")
            done = [await world.run(a_request(sizes=(1,), sites="a")) for _ in range(3)]
            site.unforgettable = {world.store.components(row.id)[0].token for row in done}
            retention = retention_of(world, "a", retention_s=0.0, step_components=1, failures_max=2)
            assert [(await retention.step(), retention.more) for _ in range(3)] == [(0, True), (0, False), (0, True)]

    asyncio.run(scenario())


def test_an_idle_engine_writes_nothing(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, store=open_store(root), poll_s=0.02, site_maker=troubled) as world:
            await world.run(a_request())
            await world.all_given_back()
            await world.until(lambda: not world.engine.outbox.has_settled())
            await world.engine.probe("a")  # this is on record after all that came before it

            async def commits_of_looks() -> int:
                """How often it writes while it looks at a site sixty times."""
                commits, enough = world.engine.counters.commits, trouble(world, "a").probes + 60
                await world.until(lambda: trouble(world, "a").probes >= enough)
                return world.engine.counters.commits - commits

            # What it may still hear of the job it writes at first, and only then.
            written = [await commits_of_looks() for _ in range(2)]
            assert written[1] == 0, written

    asyncio.run(scenario())


def test_batch_sites_are_told_how_long_components_wait_for_each_other(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(grid_sites, "BatchSite", lambda *_, **options: told.update(options))
    make = grid_sites.maker_for(SchedulerParameters(barrier_timeout_s=20.0))
    batch = BatchSettings(work_directory=str(root / "work"))
    described = Site(name="b", processors=2, kind="slurm", batch=batch)
    make(described, root, emit=lambda _: None, on_mail=lambda _: None, clock=time.time)
    assert told["barrier_timeout_s"] == 20.0


def test_the_maker_of_sites_is_the_one_for_embedded_ones_by_default(root: Path) -> None:
    grid = local_grid((3,))
    site = make_site(grid.sites[0], root, emit=lambda _: None, on_mail=lambda _: None, clock=lambda: 0.0)
    assert isinstance(site, LocalSite)
    assert (site.name, site.processors) == ("a", 3)


def test_a_site_whose_work_directory_another_koala_has_is_silent_and_the_others_work(root: Path) -> None:
    work = root / "work"
    work.mkdir()
    (work / "owner").write_text("elsewhere:/state site b")
    taken = Site(name="b", processors=2, kind="slurm", batch=BatchSettings(work_directory=str(work)))
    here = local_grid((4,))

    async def scenario() -> None:
        async with open_engine(root, msgspec.structs.replace(here, sites=(*here.sites, taken))) as world:
            await world.engine.freshen()
            ((name, silence),) = world.engine.silent_sites()
            assert name == "b"
            assert (
                "is in use by another driver, 'elsewhere:/state site b'; give this site a work_directory"
                in silence.reason
            )
            assert (await world.run(a_request(sizes=(1,), sites="a"))).state == "done"

    asyncio.run(scenario())


def test_two_sites_with_one_work_directory_are_told_apart(root: Path) -> None:
    settings = BatchSettings(work_directory=str(root / "work"), environment=(("SLURM_CONF", "/dev/null/none"),))

    def site(name: str) -> LiveSite:
        described = Site(name=name, processors=2, kind="slurm", batch=settings)
        return make_site(described, root, emit=lambda _: None, on_mail=lambda _: None, clock=time.time)

    async def scenario() -> None:
        for _ in range(2):  # a daemon that starts again is the same one
            first, second = site("a"), site("b")
            await first.open()
            await second.open()
            assert await first.held() == ()
            with pytest.raises(OSError, match=r"site a'; give this site a work_directory of its own"):
                await second.held()
            await first.close()
            await second.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "deed", ['rm -rf "$KOALA_HOME"', "kill -KILL $PPID", 'chmod 0 "$KOALA_HOME"; kill -KILL $PPID']
)
def test_a_job_that_breaks_its_own_component_is_to_blame_and_its_sites_stay_trusted(root: Path, deed: str) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid(error_threshold=1)) as world:
            row = await world.run(a_request(f"{deed}; sleep 60", sizes=(3,), restarts_max=2))
            assert (row.state, row.runs, row.failures) == ("failed", 1 + 2 + 1, 4)
            assert "the job itself is to blame, as it broke a component on a and on b, after 3 restarts" in row.reason
            assert {site.trust for site in world.engine.scheduler.ledger.sites} == {"usable"}
            assert (await world.run(a_request(sizes=(3, 3)))).state == "done"
            await world.all_given_back()

    asyncio.run(scenario())


@pytest.mark.parametrize(("plan_depth", "recorded"), [(1, [((5e9, 2),), ((6e9, 2),)]), (0, [()])])
def test_when_others_let_go_is_on_record_where_plans_are_made(
    root: Path, plan_depth: int, recorded: list[tuple[tuple[float, int], ...]]
) -> None:
    """And only when it has changed."""

    async def scenario() -> None:
        grid = local_grid((4,), check_interval_s=None, plan_depth=plan_depth)
        async with open_engine(root, grid) as world:
            for end_at in (5e9, 5e9, 6e9):
                world.engine.report(SiteReported(at=0.0, site="a", processors=4, others=3, releases=((end_at, 2),)))
            await world.run(a_request())
            bodies = [entry.body for entry in world.store.journal(after=0, limit=1_000)]
            told = [body for body in bodies if isinstance(body, SiteReported) and body.others == 3]
            assert [body.releases for body in told] == recorded

    asyncio.run(scenario())


def test_a_site_tells_of_its_nodes_although_its_processors_are_what_the_grid_file_says() -> None:
    """Jobs that ask for memory or GPUs waited for nodes that every report told of, as nothing else in it was new.

    What is free of the nodes is news while a task looks for places on them.
    """
    scheduler = Scheduler(local_grid((4,)))

    def report(gib: int, idle: int = 4) -> SiteReported:
        nodes = (NodeClass(1, NodeSize(4, gib << 30), NodeSize(idle, gib << 30)),)
        return SiteReported(at=0.0, site="a", processors=4, others=0, nodes=nodes)

    assert is_news(report(1), scheduler.ledger)
    scheduler.handle(report(1))
    assert not is_news(report(1), scheduler.ledger)
    assert not is_news(report(1, idle=3), scheduler.ledger)
    assert is_news(report(2), scheduler.ledger)
    large = Component(
        processors=1, application=Application(executable="large"), needs=TaskNeeds(memory_bytes=8 << 30)
    )
    scheduler.handle(JobSubmitted(at=1.0, job=1, request=Request(components=(large,))))
    assert is_news(report(1, idle=3), scheduler.ledger)
