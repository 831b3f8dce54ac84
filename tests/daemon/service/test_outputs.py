"""What jobs make, at the service: collected, registered, and read by their owner and no other user."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hashlib
import importlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from koala.daemon.perform.outputs import LARGE_PER_USER_MAX, CollectTurns
from koala.daemon.service.cursors import write_cursor
from koala.daemon.service.data.downloads import DownloadService
from koala.daemon.service.job_records import JobRecords
from koala.files import CatalogueEntry, Replica
from koala.files.area.layout import replica_path
from koala.model.api import DOWNLOAD_BYTES_MAX, Scope
from koala.model.api.questions import Forgetting, Registration, Submission
from koala.model.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError, UnavailableError
from koala.model.facts import JobRequeued
from koala.model.grid import Grid
from koala.model.messages import CancelAsked
from koala.model.outputs import COLLECTED_BYTES_MAX, CollectLimits, output_name
from koala.store import Batch
from tests.support.daemon_world import ANNA, BERT, OWNER, DaemonWorld, job_text, open_daemon, small_grid

MAKES = "printf made >result\nmkdir logs\nprintf line >logs/a"
OUTPUTS = "[result, logs/]"


def in_daemon(root: Path, scene: Callable[[DaemonWorld], Awaitable[None]], grid: Grid | None = None) -> None:
    async def play() -> None:
        async with open_daemon(root, grid) as world:
            await scene(world)

    asyncio.run(asyncio.wait_for(play(), 240))


async def settled(world: DaemonWorld) -> None:
    """No replica is in doubt any more."""

    async def look() -> bool | None:
        doubts = [each for area in world.engine.areas.values() for each in await area.doubts()]
        return None if doubts else True

    await world.until(look)


def test_outputs_are_registered_where_they_were_made_and_are_their_owners(tmp_path: Path) -> None:
    async def scene(world: DaemonWorld) -> None:
        service = world.service
        job = await world.start(job_text(MAKES, ("{processors: 1, site: B}",), outputs=OUTPUTS), ANNA)
        reads = job_text(
            "cat in && tar xf in.tar && cat a",
            policy="CF",
            after=f"{{done: [{job}]}}",
            input_files=f"[{{name: jobs/{job}/result, path: in}}, {{name: jobs/{job}/logs.tar, path: in.tar}}]",
        )
        reader = await world.start(reads, ANNA)
        assert (await world.ended(job, ANNA)).state == "done"
        made = await service.outputs_of(ANNA, job)
        assert [(each.name, each.path, each.directory, each.replicas[0].site) for each in made] == [
            (f"jobs/{job}/logs.tar", "logs", True, "B"),
            (f"jobs/{job}/result", "result", False, "B"),
        ]
        assert (made[1].size_bytes, made[1].checksum) == (4, hashlib.sha256(b"made").hexdigest())
        name = made[1].name
        assert await service.read_file(ANNA, name, offset=0, limit=3) == b"mad"
        assert await service.read_file(ANNA, name, offset=3, limit=DOWNLOAD_BYTES_MAX) == b"e"
        assert await service.read_file(ANNA, name, offset=4, limit=1) == b""
        detail = await service.job(ANNA, job)
        assert [each.name for each in detail.outputs] == [each.name for each in made]
        workspace = Path(detail.components[0].workspace)
        assert (workspace / "result").read_bytes() == b"made"
        assert (await world.ended(reader, ANNA)).state == "done"
        detail = await service.job(ANNA, reader)
        assert [place.site for place in detail.places] == ["B"]
        assert (await service.output(ANNA, reader)).text == "madeline"
        # For others they do not exist, but for operators.
        for refused in (
            service.outputs_of(BERT, job),
            service.read_file(BERT, name, limit=1),
            service.file(BERT, name),
        ):
            with pytest.raises(NotFoundError):
                await refused
        assert (await service.files(BERT)).items == []
        # Nor does the place where the list goes on tell of them.
        assert (await service.files(BERT, limit=1)).next is None
        first = await service.files(ANNA, limit=1)
        assert first.next == write_cursor("files", first.items[0].name)
        assert [each.name for each in (await service.files(ANNA, limit=1, cursor=first.next)).items] == [name]
        assert len((await service.files(OWNER)).items) == 2
        with pytest.raises(InvalidError, match="no job"):
            await world.start(job_text(input_files=f"[{name}]"), BERT)
        with pytest.raises(InvalidError, match="DOWNLOAD_BYTES_MAX"):
            await service.read_file(ANNA, name, limit=DOWNLOAD_BYTES_MAX + 1)
        with pytest.raises(InvalidError, match="reserved for outputs of jobs"):
            await service.register(OWNER, Registration(name="jobs/1/x", site="A", path="/etc/hosts"))
        await settled(world)
        assert await world.engine.areas["B"].size_bytes(replica_path(name)) == 4
        await _its_words_are_no_data(world, name)
        await (world.engine.areas["B"]).forget(name)
        with pytest.raises(ConflictError, match="the replica is not there"):
            await service.read_file(ANNA, name, limit=1)

    in_daemon(tmp_path, scene)


async def _its_words_are_no_data(world: DaemonWorld, name: str) -> None:
    """What the error of a site says in words is nothing that is known of the replica."""

    async def fails(*_: Any) -> bytes:
        raise OSError("the login is not there, and no shorter way")

    area: Any = world.engine.areas["B"]
    area.read, read = fails, area.read
    with pytest.raises(UnavailableError, match="try again"):
        await world.service.read_file(ANNA, name, limit=1)
    area.read = read


def test_a_job_whose_output_is_missing_or_leads_out_fails_and_says_so(tmp_path: Path) -> None:
    async def scene(world: DaemonWorld) -> None:
        missing = await world.start(job_text("touch here", outputs="[here, result]"))
        outside = await world.start(job_text("ln -s /etc/hosts result", outputs="[result]"))
        found = await world.ended(missing)
        assert (found.state, found.reason) == (
            "failed",
            "its components are done, but the output result was not made",
        )
        assert [each.path for each in await world.service.outputs_of(OWNER, missing)] == ["here"]
        found = await world.ended(outside)
        assert found.state == "failed"
        assert "'result' at " in found.reason
        assert "it leads out of the workspace" in found.reason
        await settled(world)

    in_daemon(tmp_path, scene)


def test_what_a_cancelled_job_made_does_not_stay(tmp_path: Path) -> None:
    async def scene(world: DaemonWorld) -> None:
        area = world.engine.areas["A"]
        collect = area.collect
        asked, goes_on = asyncio.Event(), asyncio.Event()

        async def slowly(*arguments: Any, **named: Any) -> Any:
            found = await collect(*arguments, **named)
            asked.set()
            await goes_on.wait()
            return found

        area.collect = slowly  # type: ignore[method-assign]
        job = await world.start(job_text(MAKES, ("{processors: 1, site: A}",), outputs=OUTPUTS))
        await asyncio.wait_for(asked.wait(), 120)
        assert (await world.service.job(OWNER, job)).state == "collecting"
        await world.engine.tell(CancelAsked(at=world.engine.now(), job=job))
        goes_on.set()
        await settled(world)
        assert await area.size_bytes(replica_path(f"jobs/{job}/result")) is None
        assert await world.service.outputs_of(OWNER, job) == []

    in_daemon(tmp_path, scene)


HOLES = "truncate -s 1000G result"


def read_now(root: Path) -> set[Path]:
    """The replicas that are just made which this process reads."""
    found = []
    for number in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(number.readlink())
    return {each for each in found if each.is_relative_to(root) and each.parent.name == "replicas"}


def test_an_output_of_holes_is_as_large_as_it_says_and_fails_its_job(tmp_path: Path) -> None:
    async def scene(world: DaemonWorld) -> None:
        found = await world.ended(await world.start(job_text(HOLES, outputs="[result]"), ANNA), ANNA)
        assert found.state == "failed"
        assert "output_bytes_max of the grid" in found.reason
        assert not read_now(tmp_path)

    in_daemon(tmp_path, scene)


def test_large_outputs_of_one_user_hold_up_no_other_and_are_read_no_further_once_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Holes take no room, and as long to be read as data.
    all_holes = functools.partial(CollectLimits, holes_bytes_max=COLLECTED_BYTES_MAX)
    monkeypatch.setattr("koala.model.grid.CollectLimits", all_holes)

    async def scene(world: DaemonWorld) -> None:
        jobs = [await world.start(job_text(HOLES, outputs="[result]"), ANNA) for _ in range(5)]
        for job in jobs:
            await world.in_state(job, "collecting")

        async def one_is_read() -> bool | None:
            return len(read_now(tmp_path)) == LARGE_PER_USER_MAX or None

        await world.until(one_is_read)
        small = await world.start(job_text(MAKES, outputs="[result]"), ANNA)
        others = await world.start(job_text(MAKES, outputs=OUTPUTS), BERT)
        for job, who in ((small, ANNA), (others, BERT)):
            assert (await world.ended(job, who)).state == "done"
        assert len(read_now(tmp_path)) == LARGE_PER_USER_MAX
        for job in jobs:
            await world.engine.tell(CancelAsked(at=world.engine.now(), job=job))

        async def none_is_read() -> bool | None:
            return not read_now(tmp_path) or None

        await world.until(none_is_read)
        await settled(world)

    in_daemon(tmp_path, scene, small_grid(output_bytes_max=COLLECTED_BYTES_MAX))


def test_turns_are_taken_by_user_and_by_place() -> None:
    async def scene() -> None:
        turns = CollectTurns(at_once_max=2, per_user_max=1)
        goes_on, had = asyncio.Event(), []

        async def take(place: str, user: str) -> None:
            async with turns.take(place, user):
                had.append((place, user))
                await goes_on.wait()

        wanted = [("", "anna"), ("", "anna"), ("", "bert"), ("", "carl"), ("A", "anna")]
        tasks = [asyncio.create_task(take(*each)) for each in wanted]
        for _ in range(10):
            await asyncio.sleep(0)
        assert had == [("", "anna"), ("", "bert"), ("A", "anna")]
        goes_on.set()
        await asyncio.gather(*tasks)
        assert sorted(had) == sorted(wanted)
        assert not turns._turns

    asyncio.run(scene())


def test_a_run_that_is_over_is_not_collected_any_more(tmp_path: Path) -> None:
    async def scene(world: DaemonWorld) -> None:
        performer = world.engine._performer
        area = world.engine.areas["A"]
        asked, given_up = asyncio.Event(), asyncio.Event()

        async def never(*_: Any, **__: Any) -> Any:
            asked.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                given_up.set()

        area.collect = never  # type: ignore[method-assign]
        await world.start(job_text(MAKES, ("{processors: 1, site: A}",), outputs=OUTPUTS))
        await asyncio.wait_for(asked.wait(), 120)
        (token,) = performer.outputs._tasks
        job = int(token.partition(".")[0])
        performer.take_note(JobRequeued(job=job, reason="its site is lost"), None)
        await asyncio.wait_for(given_up.wait(), 120)
        await world.engine.tell(CancelAsked(at=world.engine.now(), job=job))

    in_daemon(tmp_path, scene)


def test_a_full_disk_is_waited_for_and_then_told(tmp_path: Path) -> None:
    async def scene(world: DaemonWorld) -> None:
        world.engine._performer.outputs._patience_s = 0.0
        area = world.engine.areas["A"]
        collect = area.collect
        full = [OSError(errno.EHOSTUNREACH, "No route to host"), OSError(errno.ENOSPC, "No space left on device")]

        async def failing(*arguments: Any, **named: Any) -> Any:
            if full:
                raise full.pop(0)
            return await collect(*arguments, **named)

        area.collect = failing  # type: ignore[method-assign]
        text = job_text(MAKES, ("{processors: 1, site: A}",), outputs=OUTPUTS)
        found = await world.ended(await world.start(text))
        assert found.state == "failed"
        assert "No space left on device" in found.reason
        assert "still in its workspace" in found.reason
        full[:] = [PermissionError(errno.EACCES, "Permission denied")]
        found = await world.ended(await world.start(text))
        assert found.state == "failed"
        assert "cannot be read (Permission denied)" in found.reason
        full[:] = [OSError(errno.EHOSTUNREACH, "No route to host")] * 2  # silence is no answer
        assert (await world.ended(await world.start(text))).state == "done"

    in_daemon(tmp_path, scene)


def test_outputs_are_brought_to_another_site_and_to_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koala.files.sources.WRITABLE_SCHEMES", ("memory", "s3"))

    async def scene(world: DaemonWorld) -> None:
        fsspec: Any = importlib.import_module("fsspec")
        to = "[{path: result, to: C}, {path: logs, to: 'memory://shelf/'}]"
        job = await world.start(job_text(MAKES, ("{processors: 1, site: A}",), outputs=to))
        assert (await world.ended(job)).state == "done"
        made = {each.path: each for each in await world.service.outputs_of(OWNER, job)}
        assert [each.site for each in made["result"].replicas] == ["A", "C"]
        assert await world.engine.areas["C"].read(replica_path(made["result"].name), 0, 10) == b"made"
        shelf = fsspec.filesystem("memory").cat_file("/shelf/logs.tar")
        assert hashlib.sha256(shelf).hexdigest() == made["logs"].checksum
        for url in ("memory://shelf/", "s3://bucket/x", "file:///tmp/x"):
            with pytest.raises(ForbiddenError, match="operators"):
                await world.start(job_text(MAKES, outputs=f"[{{path: result, to: '{url}'}}]"), ANNA)
        with pytest.raises(InvalidError, match="nowhere"):
            await world.start(job_text(MAKES, outputs="[{path: result, to: nowhere}]"))
        with pytest.raises(InvalidError, match="cannot be written to"):
            await world.start(job_text(MAKES, outputs="[{path: result, to: 'file:///tmp/x'}]"))
        job = await world.start(job_text(MAKES, outputs="[{path: result, to: 's3://nowhere/x'}]"))

        async def why() -> bool | None:
            meaning = (await world.service.explain(OWNER, job)).meaning
            return True if "to s3://nowhere/x: " in meaning and "it is tried again" in meaning else None

        await world.until(why)
        world.engine._performer.outputs._patience_s = 0.0
        found = await world.ended(job)
        assert found.state == "failed"
        assert "to s3://nowhere/x: " in found.reason
        assert "COLLECT_PATIENCE_S" in found.reason
        await settled(world)

    in_daemon(tmp_path, scene)


def test_the_owner_of_a_job_forgets_what_it_made(tmp_path: Path) -> None:
    async def scene(world: DaemonWorld) -> None:
        service = world.service
        job = await world.start(job_text(MAKES, ("{processors: 1, site: A}",), outputs=OUTPUTS), ANNA)
        await world.ended(job, ANNA)
        wish = Forgetting(name=f"jobs/{job}/result")
        with pytest.raises(NotFoundError, match="no job"):
            await service.forget(BERT, wish)
        with pytest.raises(ForbiddenError, match="submit"):
            await service.forget(msgspec.structs.replace(ANNA, scopes=frozenset({Scope.READ})), wish)
        with pytest.raises(ForbiddenError, match="operate"):
            await service.forget(ANNA, Forgetting(name="jobs/none"))
        await service.forget(ANNA, wish)
        assert [each.path for each in await service.outputs_of(ANNA, job)] == ["logs"]
        await settled(world)
        assert await world.engine.areas["A"].size_bytes(replica_path(f"jobs/{job}/result")) is None

    in_daemon(tmp_path, scene)


def test_a_job_of_a_graph_reads_what_another_makes_by_its_name(tmp_path: Path) -> None:
    graph = """
jobs:
  reads: {processors: 1, application: {script: cat jobs/makes/result}, input_files: [jobs/makes/result]}
  makes: {processors: 1, application: {script: printf made >result}, outputs: [result]}
"""

    async def scene(world: DaemonWorld) -> None:
        wish = Submission(description=graph, source="graph.yaml", client_token="once")  # noqa: S106
        assert [each.name for each in (await world.service.dry_run_graph(ANNA, wish)).jobs] == ["makes", "reads"]
        submitted = await world.service.submit_graph(ANNA, wish)
        makes, reads = (each.job.id for each in submitted.jobs)
        assert (await world.ended(reads, ANNA)).state == "done"
        assert (await world.service.output(ANNA, reads)).text == "made"
        assert f"jobs/{makes}/result" in (await world.service.job(ANNA, reads)).description
        assert not (await world.service.submit_graph(ANNA, wish)).new

    in_daemon(tmp_path, scene)


def test_one_users_downloads_wait_for_each_other(tmp_path: Path) -> None:
    async def scene(world: DaemonWorld) -> None:
        job = await world.start(job_text(MAKES, ("{processors: 1, site: A}",), outputs=OUTPUTS), ANNA)
        await world.ended(job, ANNA)
        downloads = DownloadService(world.engine, JobRecords(world.engine), user_max=2, all_max=3)
        area = world.engine.areas["A"]
        reading, most = 0, 0

        async def read(*_: Any) -> bytes:
            nonlocal reading, most
            reading += 1
            most = max(most, reading)
            await asyncio.sleep(0)
            reading -= 1
            return b"made"

        area.read = read  # type: ignore[assignment, method-assign]
        await asyncio.gather(*(downloads.read(ANNA, f"jobs/{job}/result", 0, 4) for _ in range(20)))
        assert most == 2

    in_daemon(tmp_path, scene)


def test_small_files_are_read_many_at_a_time_and_one_that_is_gone_keeps_no_other(tmp_path: Path) -> None:
    async def scene(world: DaemonWorld) -> None:
        service = world.service
        job = await world.start(
            job_text(
                "for n in 0 1 2; do printf $KOALA_COMPONENT$n >part-$n; done",
                ("{processors: 1, site: A}", "{processors: 1, site: B}"),
                outputs="[part-0, part-1, part-2]",
            ),
            ANNA,
        )
        await world.ended(job, ANNA)
        names = [each.name for each in await service.outputs_of(ANNA, job)]
        await world.engine.areas["B"].forget(names[4])
        calls = []
        for site, area in world.engine.areas.items():

            async def read_whole(files: Any, site: str = site, read: Any = area.read_whole) -> Any:
                calls.append(site)
                return await read(files)

            area.read_whole = read_whole  # type: ignore[method-assign]
        found = await service.read_files(ANNA, [*names, "jobs/99/none"])
        assert sorted(calls) == ["A", "B"]
        assert [data.decode() for _, data in found] == ["00", "01", "02", "10", "", "12", ""]
        assert [told.name for told, _ in found if told.problem] == [names[4], "jobs/99/none"]
        assert "B: the replica is not there" in found[4][0].problem
        # For others they do not exist.
        assert {told.problem for told, _ in await service.read_files(BERT, names)} == {found[-1][0].problem}

    in_daemon(tmp_path, scene)


def test_an_answer_ends_where_it_has_no_room_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: DaemonWorld) -> None:
        script = "for n in 1 2 3 4; do printf %*s $n '' >part-$n; done"
        job = await world.start(job_text(script, outputs="[part-1, part-2, part-3, part-4]"), ANNA)
        await world.ended(job, ANNA)
        names = [each.name for each in await world.service.outputs_of(ANNA, job)]
        module = importlib.import_module(DownloadService.__module__)
        monkeypatch.setattr(module, "DOWNLOAD_BYTES_MAX", 3)
        first, rest = names[:2], names[2:]
        assert [told.name for told, _ in await world.service.read_files(ANNA, names)] == first
        (third, data), (fourth, _) = await world.service.read_files(ANNA, rest)
        assert (third.size_bytes, len(data)) == (3, 3)
        assert "DOWNLOAD_BYTES_MAX" in fourth.problem

    in_daemon(tmp_path, scene)


def test_the_outputs_of_an_array_are_found_without_a_look_for_each_element(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also among outputs of jobs whose numbers begin alike, with fewer digits and with more."""

    async def scene(world: DaemonWorld) -> None:
        world.engine._state.last_job = 7_995
        array = await world.start(job_text("printf made >a", outputs="[a]", array="1-5000", hold="true"), ANNA)
        store, makers = world.engine.store, (array + 4, array + 98, array + 1233, array + 5000)
        others = (8, 80, 81, 800, 811, 80_050, 99_990, 100_000, 129_970)
        names = {output_name(job, part, "a"): job for job in {*makers, *others} for part in (0, 2)}
        digest = hashlib.sha256(b"").hexdigest()
        replicas = (Replica(site="A", size_bytes=0, checksum=digest),)
        files = (CatalogueEntry(name=name, size_bytes=0, checksum=digest, replicas=replicas) for name in names)
        store.record(Batch(files=tuple(files)))
        looks: list[str] = []
        ask = type(store).files

        def look(*args: Any, **asked: Any) -> Any:
            looks.append(asked["prefix"])
            return ask(*args, **asked)

        monkeypatch.setattr(type(store), "files", look)
        found = await world.service.outputs_of(ANNA, array)
        assert [each.job for each in found] == [job for job in makers for _ in (0, 2)]
        assert len(looks) < 12

    in_daemon(tmp_path, scene)


def test_what_the_elements_of_an_array_made_is_listed_element_by_element(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(world: DaemonWorld) -> None:
        text = job_text("printf made >a; printf made >b", outputs="[a, b]", array="3-5")
        array = await world.start(text, ANNA)
        await world.ended(array, ANNA)
        monkeypatch.setattr(importlib.import_module(DownloadService.__module__), "OUTPUTS_ENOUGH", 3)
        first = await world.service.outputs_of(ANNA, array)
        assert [(each.job - array, each.path) for each in first] == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
        second = await world.service.outputs_of(ANNA, array, after=first[-1].job)
        assert [(each.job - array, each.path) for each in second] == [(3, "a"), (3, "b")]
        assert await world.service.outputs_of(ANNA, array, after=second[-1].job) == []
        with pytest.raises(NotFoundError):
            await world.service.outputs_of(BERT, array)

    in_daemon(tmp_path, scene)


def test_a_file_that_jobs_wait_for_is_forgotten_by_force_alone_and_they_end(tmp_path: Path) -> None:
    async def scene(world: DaemonWorld) -> None:
        service = world.service
        job = await world.start(job_text(MAKES, ("{processors: 1, site: A}",), outputs=OUTPUTS), ANNA)
        await world.ended(job, ANNA)
        name = f"jobs/{job}/result"
        reader = await world.start(job_text("cat in", input_files=f"[{{name: {name}, path: in}}]", hold=True), ANNA)
        for wish in (Forgetting(name=name), Forgetting(job=job), Forgetting(pattern=f"jobs/{job}/*")):
            told = await service.forget(ANNA, wish.model_copy(update={"preview": True}))
            assert [(each.job, each.file) for each in told.waiting] == [(reader, name)]
            with pytest.raises(ConflictError, match=f"job {reader} waits for file '{name}'"):
                await service.forget(ANNA, wish)
        assert len(await service.outputs_of(ANNA, job)) == 2
        told = await service.forget(ANNA, Forgetting(job=job, force=True))
        assert told.files == [f"jobs/{job}/logs.tar", name]
        ended = await world.ended(reader, ANNA)
        assert ended.state == "cancelled"
        assert f"its input file {name} was forgotten" in ended.reason
        story = [each.text for each in (await service.explain(ANNA, reader)).story]
        assert any(f"{name} was forgotten by anna" in each for each in story), story
        await settled(world)
        for each in told.files:
            assert await world.engine.areas["A"].size_bytes(replica_path(each)) is None
        with pytest.raises(InvalidError, match="is over and has no such output"):
            await world.start(job_text("cat in", input_files=f"[{{name: {name}, path: in}}]"), ANNA)

    in_daemon(tmp_path, scene)


def test_files_are_forgotten_by_job_array_and_pattern_some_at_a_time_and_only_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(world: DaemonWorld) -> None:
        service = world.service
        array = await world.start(job_text("touch a b", outputs="[a, b]", array="0-2"), ANNA)
        other = await world.start(job_text("touch a", outputs="[a]"), BERT)
        await world.ended(array, ANNA)
        await world.ended(other, BERT)
        with pytest.raises(NotFoundError, match="no job"):
            await service.forget(BERT, Forgetting(job=array))
        with pytest.raises(NotFoundError, match="no file of yours fits"):
            await service.forget(BERT, Forgetting(pattern="jobs/*/b"))
        with pytest.raises(InvalidError, match="one of the three"):
            await service.forget(ANNA, Forgetting(job=array, pattern="*"))
        names = {number: [f"jobs/{array + number}/{path}" for path in "ab"] for number in (1, 2, 3)}
        with monkeypatch.context() as watched:  # whose the files are is asked once for all of them
            watched.setattr(JobRecords, "row", None)
            told = await service.forget(ANNA, Forgetting(pattern="jobs/*/b", preview=True))
        assert (told.files, told.more) == ([each[1] for each in names.values()], 0)
        await service.forget(ANNA, Forgetting(pattern="*/b"))
        await service.forget(ANNA, Forgetting(job=array + 1))
        monkeypatch.setattr(importlib.import_module(type(service).__module__), "FORGOTTEN_AT_ONCE_MAX", 1)
        told = await service.forget(ANNA, Forgetting(job=array))
        assert (told.files, told.more) == ([names[2][0]], 1)
        told = await service.forget(ANNA, Forgetting(job=array))
        assert (told.files, told.more) == ([names[3][0]], 0)
        with pytest.raises(NotFoundError, match="has no outputs"):
            await service.forget(ANNA, Forgetting(job=array))
        assert [each.name for each in (await service.files(OWNER)).items] == [f"jobs/{other}/a"]
        await settled(world)
        for site in world.engine.areas:
            assert not list((tmp_path / "sites").glob(f"{site}/files/replicas/*{array + 1}%2F*"))

    in_daemon(tmp_path, scene)
