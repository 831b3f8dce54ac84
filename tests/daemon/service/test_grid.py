"""The grid through the service: sites, overview, history, numbers, and the journal as it grows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from koala.daemon.perform.link_probes import LinkProber
from koala.daemon.service import journal as journal_reading
from koala.daemon.service.journal import FOLLOWED_AT_ONCE
from koala.daemon.service.principal import Principal
from koala.daemon.service.sites import overview as seeing
from koala.daemon.service.sites.grid import PROBES_ASKED_MAX
from koala.daemon.service.sites.overview import CallerView
from koala.model.api import JournalEntry, LicensePool
from koala.model.api.questions import Registration
from koala.model.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError, TooManyError
from koala.model.messages import LinkProbed, ProbeLink
from tests.support.daemon_world import ANNA, BERT, OPERATOR, OWNER, WAIT_S, job_text, open_daemon, small_grid

FOREVER = "while :; do sleep 1; done"


def test_the_overview_shows_the_whole_grid_and_to_a_user_only_its_own_jobs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            annas = await world.start(job_text(FOREVER, ("{processors: 2, site: A}",)), ANNA)
            berts = await world.start(job_text(FOREVER, ("{processors: 2, site: A}",)), BERT)
            waits = await world.start(job_text(components=("{processors: 1, site: A}",), priority="high"), BERT)
            for job in (annas, berts):
                await world.in_state(job, "running")
            whole = await world.service.grid.overview(OPERATOR)
            assert (whole.grid, whole.policy) == ("small", "WF")
            assert [site.name for site in whole.sites] == ["A", "B", "C"]
            assert [link.between for link in whole.links] == [("A", "B"), ("A", "C"), ("B", "C")]
            assert [(link.bandwidth_mbit_s, link.believed_mbit_s) for link in whole.links] == [(800.0, 800.0)] * 3
            first = whole.sites[0]
            assert (first.kind, first.processors, first.usable, first.ours, first.idle) == ("local", 4, 4, 4, 0)
            assert sorted(first.jobs) == [annas, berts]
            assert sorted(job.id for job in whole.active) == [annas, berts]
            mine = await world.service.grid.overview(ANNA)
            assert [job.id for job in mine.active] == [annas]
            assert (mine.waiting_high, mine.waiting_low, mine.claiming) == ([], [], [])
            assert mine.sites[0].jobs == [annas]
            assert mine.sites[0].ours == 4
            assert {state: count for state, count in mine.counts.items() if count} == {"running": 1}
            assert sum(whole.counts.values()) == 3
            for job in (waits, annas, berts):
                await world.service.changes.cancel(OWNER, job)
            counts = (await world.service.grid.overview(BERT)).counts
            assert {state: count for state, count in counts.items() if count} == {"cancelled": 2}

    asyncio.run(scenario())


def test_a_site_shows_its_pools_of_licences_and_to_a_user_only_its_own_jobs_there(tmp_path: Path) -> None:
    grid = small_grid()
    first = msgspec.structs.replace(grid.sites[0], licenses=(("ansys", 3),))
    grid = msgspec.structs.replace(grid, sites=(first, *grid.sites[1:]), licenses=(("matlab", 2),))

    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", grid) as world:
            annas = await world.start(job_text(FOREVER, licenses="{ansys: 2, matlab: 1}"), ANNA)
            await world.in_state(annas, "running")
            own, other, _ = await world.service.grid.sites(OPERATOR)
            shared = LicensePool(name="matlab", total=2, left=1, shared=True, jobs=[annas])
            assert own.licenses == [LicensePool(name="ansys", total=3, left=1, jobs=[annas]), shared]
            assert other.licenses == [shared]
            assert [pool.jobs for pool in (await world.service.grid.sites(BERT))[0].licenses] == [[], []]
            waits = await world.start(job_text(FOREVER, licenses="{ansys: 2}"), ANNA)
            told = await world.service.explain(ANNA, waits)
            assert told.refusal is not None
            assert told.refusal.reason == f"ansys: 2 wanted, 1 of 3 left at A; job {annas} holds it"
            berts = await world.start(job_text(FOREVER, licenses="{ansys: 2}"), BERT)
            told = await world.service.explain(BERT, berts)
            assert told.refusal is not None
            assert told.refusal.reason == "ansys: 2 wanted, 1 of 3 left at A; 1 job of others holds it"
            for job in (waits, annas, berts):
                await world.service.changes.cancel(OWNER, job)
                await world.ended(job)

    asyncio.run(scenario())


def test_commands_that_were_set_aside_are_told_to_operators_as_they_name_the_components_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ["abort of component 7.1: an error inside Koala"]

    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            monkeypatch.setattr(type(world.engine), "defects_of", lambda _, site: said if site == "A" else [])
            for who, told in ((OPERATOR, said), (OWNER, said), (ANNA, [])):
                assert (await world.service.grid.sites(who))[0].set_aside == told
                assert (await world.service.grid.overview(who)).sites[0].set_aside == told

    asyncio.run(scenario())


def test_the_overview_shows_no_more_jobs_of_a_list_than_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", small_grid((1,))) as world:
            running = await world.start(job_text(FOREVER))
            waiting = [await world.start(job_text()) for _ in range(4)]
            monkeypatch.setattr(seeing, "OVERVIEW_JOBS_MAX", 3)
            whole = await world.service.grid.overview(OWNER)
            assert [job.id for job in whole.waiting_low] == waiting[:3]
            assert [job.place_in_line for job in whole.waiting_low] == [1, 2, 3]
            assert whole.counts["waiting"] == 4
            await world.service.changes.cancel(OWNER, running)
            for job in waiting:
                await world.ended(job)

    asyncio.run(scenario())


def test_a_drained_site_takes_nothing_new_until_it_is_resumed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", leave_running=True) as world:
            drained = await world.service.grid.drain(OPERATOR, "A")
            assert (drained.name, drained.drained, drained.idle) == ("A", True, 0)
            job = await world.start(job_text(components=("{processors: 1, site: A}",)))
            assert (await world.service.job(OWNER, job)).state == "waiting"
        async with open_daemon(tmp_path / "d") as world:
            assert [site.drained for site in await world.service.grid.sites(ANNA)] == [True, False, False]
            resumed = await world.service.grid.resume(OPERATOR, "A")
            assert not resumed.drained
            assert (await world.ended(job)).state == "done"
            for call in (
                world.service.grid.drain,
                world.service.grid.resume,
                world.service.grid.probe,
                world.service.grid.declare_lost,
            ):
                with pytest.raises(ForbiddenError, match="operate"):
                    await call(ANNA, "A")
                with pytest.raises(NotFoundError, match=r"no site 'Q'; there are: A, B, C"):
                    await call(OPERATOR, "Q")

    asyncio.run(scenario())


def test_a_site_that_answers_is_declared_lost_by_force_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            with pytest.raises(ConflictError, match=r"A answers.*koala site drain A.*--force"):
                await world.service.grid.declare_lost(OPERATOR, "A")
            job = await world.start(job_text("sleep 60", components=("{processors: 1, site: A}",)))
            site = (await world.service.grid.sites(OPERATOR))[0]
            assert site.jobs_to_restart == [job]
            await world.service.grid.declare_lost(OPERATOR, "A", force=True)
            story = [line.text for line in (await world.service.explain(OPERATOR, job)).story]
            assert f"back to its placement queue: A is lost: {OPERATOR.name} declared it lost" in story
            await world.service.changes.cancel(OPERATOR, job)

    asyncio.run(scenario())


def test_probes_of_links_that_operators_ask_for_take_turns_and_few_may_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        gate, under_way = asyncio.Event(), 0

        async def probe(_: LinkProber, command: ProbeLink) -> LinkProbed:
            nonlocal under_way
            under_way += 1
            assert under_way == 1, "two would measure each other"
            await gate.wait()
            under_way -= 1
            return LinkProbed(at=0.0, source=command.source, target=command.target, reason="only a test")

        monkeypatch.setattr(LinkProber, "probe", probe)
        monkeypatch.setattr(CallerView, "link", lambda *_: SimpleNamespace(link=SimpleNamespace(not_probed="")))
        async with open_daemon(tmp_path / "d") as world:
            ask = world.service.grid.probe_link
            asked = [asyncio.create_task(ask(OPERATOR, "A", "B")) for _ in range(PROBES_ASKED_MAX)]
            await asyncio.sleep(0)
            with pytest.raises(TooManyError, match="PROBES_ASKED_MAX"):
                await ask(OPERATOR, "A", "C")
            gate.set()
            async with asyncio.timeout(WAIT_S):
                await asyncio.gather(*asked)
                await ask(OPERATOR, "A", "C")

    asyncio.run(scenario())


def test_a_probe_brings_what_the_site_says_of_itself_now(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            (world.root / "sites" / "A" / "others").write_text("3")
            probed = await world.service.grid.probe(OPERATOR, "A")
            assert (probed.others, probed.idle) == (3, 1)
            assert probed.reported_at is not None
            assert (probed.silent_since, probed.silent_reason) == (None, "")

    asyncio.run(scenario())


def test_the_history_of_a_site_tells_who_held_it_when(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            began = world.engine.now()
            job = await world.start(job_text("sleep 0.2", ("{processors: 3, site: A}",)))
            await world.ended(job)
            (component,) = (await world.service.job(OWNER, job)).components
            told = await world.service.grid.history(ANNA, "A", began - 1, world.engine.now())
            assert told.points[0].at == began - 1
            assert [(point.ours, point.processors) for point in told.points] == [(0, 4), (3, 4), (0, 4)]
            assert [point.at for point in told.points[1:]] == [component.claimed_at, component.ended_at]
            with pytest.raises(NotFoundError, match="no site 'Q'"):
                await world.service.grid.history(ANNA, "Q", began, began + 1)
            with pytest.raises(InvalidError, match="two times"):
                await world.service.grid.history(ANNA, "A", began, began)

    asyncio.run(scenario())


def test_the_numbers_count_jobs_sites_and_work_without_naming_anybody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            await world.ended(await world.start(job_text()))
            running = await world.start(job_text(FOREVER, ("{processors: 4, site: A}",)))
            await world.start(job_text(components=("{processors: 4, site: A}",), priority="high"), ANNA)
            await world.in_state(running, "running", "unwinding", "waiting")
            numbers = await world.service.numbers()
            assert sum(numbers.jobs.values()) == 3
            assert numbers.jobs["done"] == 1
            assert numbers.jobs["failed"] == 0
            assert [site.name for site in numbers.sites] == ["A", "B", "C"]
            assert all(site.answers and site.trusted and not site.drained for site in numbers.sites)
            assert set(numbers.queues) == {"high", "low", "claiming"}
            assert numbers.events_handled > 0
            assert numbers.commits > 0
            assert numbers.journal_entries == world.service.last_seq > 0
            assert numbers.working
            assert world.service.failure == ""

    asyncio.run(scenario())


# ---------------------------------------------------------------------------------------------- journal


def test_the_journal_is_read_in_order_and_each_entry_has_its_sentence(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            job = await world.start(job_text("echo secret", name="mine"), ANNA)
            await world.ended(job)
            entries: list[JournalEntry] = []
            while page := await world.service.journal(OWNER, after=entries[-1].seq if entries else 0, limit=3):
                entries += page
            assert [entry.seq for entry in entries] == sorted({entry.seq for entry in entries})
            assert entries[-1].seq == world.service.last_seq
            assert all(entry.text and entry.data for entry in entries)
            own = await world.service.journal(ANNA, job=job)
            whats = [entry.what for entry in own]
            assert whats[0] == "JobSubmitted"
            for what in (
                "JobPlaced",
                "StartComponent",
                "ComponentReady",
                "ReleaseBarrier",
                "ComponentEnded",
                "JobEnded",
            ):
                assert what in whats
            assert own[0].text == f"job {job} (mine) was submitted: non-fixed request for 1 processor"
            assert "secret" not in str(own[0].data)
            for after, limit in ((-1, 1), (0, 0), (2**70, 1)):
                with pytest.raises(InvalidError):
                    await world.service.journal(OWNER, after=after, limit=limit)

    asyncio.run(scenario())


def test_a_user_reads_only_what_concerns_its_own_jobs_or_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", small_grid(check_interval_s=0.2)) as world:
            jobs = {who.name: await world.start(job_text("sleep 1"), who) for who in (ANNA, BERT)}
            for job in jobs.values():
                await world.ended(job)
            seen = await world.service.journal(ANNA, limit=1_000)
            assert {entry.job for entry in seen} == {None, jobs["anna"]}
            strangers = [each.token for each in (await world.service.job(OWNER, jobs["bert"])).components]
            assert strangers
            named = re.compile(rf"(?<![\d.])({'|'.join(map(re.escape, strangers))})(?![\d.])")
            assert "AskSite" in {entry.what for entry in seen}, "sites are asked about the components of both"
            assert not [entry for entry in seen if named.search(f"{entry.text} {entry.data}")]
            assert {entry.job for entry in await world.service.journal(OPERATOR, limit=1_000)} == {
                None,
                *jobs.values(),
            }

    asyncio.run(scenario())


async def collect(entries: AsyncIterator[JournalEntry], last: str) -> list[JournalEntry]:
    """What a follower hears up to the first entry of a kind."""
    found = []
    async with asyncio.timeout(WAIT_S):
        async for entry in entries:
            found.append(entry)
            if entry.what == last:
                break
    return found


def test_a_follower_hears_everything_once_from_where_it_begins(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            await world.ended(await world.start(job_text()))
            start = world.service.last_seq
            follower = asyncio.create_task(collect(world.service.follow(OWNER), "JobEnded"))
            await asyncio.sleep(0)
            job = await world.start(job_text())
            heard = await follower
            assert heard[-1].job == job
            stored = await world.service.journal(OWNER, after=start, limit=1_000)
            assert [entry.seq for entry in heard] == [entry.seq for entry in stored][: len(heard)]
            from_the_first = await collect(world.service.follow(OWNER, after=0, job=job), "JobEnded")
            assert {entry.job for entry in from_the_first} == {job}
            with pytest.raises(NotFoundError, match="no job 999"):
                await anext(aiter(world.service.follow(OWNER, job=999)))
            with pytest.raises(ForbiddenError):
                world.service.follow(Principal(name="x", scopes=frozenset()))

    asyncio.run(scenario())


def test_a_slow_follower_misses_nothing_and_is_not_asked_for_more_than_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            monkeypatch.setattr(journal_reading, "FOLLOWED_AT_ONCE", 5)
            follower = aiter(world.service.follow(OWNER, after=0))
            heard = [await anext(follower)]
            for _ in range(4):
                await world.ended(await world.start(job_text()))
            last = world.service.last_seq
            async with asyncio.timeout(WAIT_S):
                while heard[-1].seq < last:
                    heard.append(await anext(follower))
            stored = await world.service.journal(OWNER, limit=1_000)
            assert [entry.seq for entry in heard] == [entry.seq for entry in stored if entry.seq <= heard[-1].seq]

    assert FOLLOWED_AT_ONCE > 5
    asyncio.run(scenario())


def test_a_follower_of_quiet_things_does_not_keep_asking_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that are not for it let it look once each time, not again and again."""

    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            job = await world.start(job_text())
            await world.ended(job)
            questions = 0
            ask = world.engine.store.journal

            def counted(**wanted: object) -> object:
                nonlocal questions
                questions += 1
                return ask(**wanted)  # type: ignore[arg-type]

            monkeypatch.setattr(world.engine.store, "journal", counted)
            entries = len(await world.service.journal(OWNER, limit=1_000))
            follower = asyncio.create_task(collect(world.service.follow(ANNA, job=None), "FileChanged"))
            file = tmp_path / "file"
            file.write_text("x")
            for _ in range(3):
                await world.ended(await world.start(job_text(), BERT))
            await world.service.register(OWNER, Registration(name="f", site="A", path=str(file)))
            assert (await follower)[-1].what == "FileChanged"
            grown = len(await world.service.journal(OWNER, limit=1_000)) - entries
            assert questions <= grown + 5

    asyncio.run(scenario())
