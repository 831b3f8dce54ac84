"""The replica catalogue through the service: files come whole or not at all, and stay while somebody reads them."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import os
from pathlib import Path
from typing import Any

import pytest

from koala.files import AreaDirectory
from koala.files.area.layout import encode, replica_path
from koala.model.api import FileInfo
from koala.model.api.questions import Forgetting, Registration, Replication
from koala.model.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError, UnavailableError
from tests.support.daemon_world import ANNA, OPERATOR, OWNER, DaemonWorld, job_text, open_daemon
from tests.support.local_areas import local_areas

WORDS = b"the quick brown fox\n" * 1_000


def place(info: FileInfo) -> list[tuple[str, str | None]]:
    return [(replica.site, replica.url) for replica in info.replicas]


def leftovers(area: AreaDirectory) -> list[str]:
    """Whatever is in an area and is not a replica under its name."""
    found = [path.name for name in ("doubts", "copies", "trash") for path in (area.root / name).glob("*")]
    return found + [path.name for path in (area.root / "replicas").glob("*") if "incoming" in path.name]


async def register(world: DaemonWorld, path: Path, name: str = "words", site: str = "A") -> FileInfo:
    return await world.service.register(OWNER, Registration(name=name, site=site, path=str(path)))


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    path.write_bytes(WORDS)
    return path


def test_a_file_is_copied_measured_and_there_for_jobs_at_all_sites(tmp_path: Path, words: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            info = await register(world, words)
            assert (info.size_bytes, info.checksum) == (len(WORDS), hashlib.sha256(WORDS).hexdigest())
            assert place(info) == [("A", None)]
            words.unlink()
            for site in "AB":
                component = f"{{processors: 1, site: {site}, input_files: [words]}}"
                job = await world.start(job_text("wc -c < words", (component,)))
                assert (await world.ended(job)).state == "done"
                assert (await world.service.output(OWNER, job)).text.strip() == str(len(WORDS))
            moved = (await world.service.job(OWNER, job)).transfers
            assert [(each.file, each.source, each.target, each.ok, each.brought_bytes) for each in moved] == [
                ("words", "A", "B", True, len(WORDS))
            ]
            assert moved[0].jobs == [job]

            async def nothing_left() -> bool:
                return not any(leftovers(area) for area in local_areas(world.engine).values())

            await world.until(nothing_left)
        async with open_daemon(tmp_path / "d") as world:
            assert await world.service.file(ANNA, "words") == info

    asyncio.run(scenario())


def test_a_replica_is_brought_to_one_more_site_and_forgotten_there(tmp_path: Path, words: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            await register(world, words)
            there = await world.service.replicate(OPERATOR, Replication(name="words", site="C"))
            assert place(there) == [("A", None), ("C", None)]
            area = local_areas(world.engine)["C"]
            assert area.replica("words").read_bytes() == WORDS
            again = await world.service.replicate(OPERATOR, Replication(name="words", site="C"))
            assert again == there
            assert leftovers(area) == []
            await world.service.forget(OPERATOR, Forgetting(name="words", site="A"))
            assert place(await world.service.file(ANNA, "words")) == [("C", None)]
            assert local_areas(world.engine)["A"].size_bytes(replica_path("words")) is None
            await world.service.forget(OPERATOR, Forgetting(name="words"))
            assert area.size_bytes(replica_path("words")) is None
            assert (await world.service.files(ANNA)).items == []
            for wish in (Forgetting(name="words"), Forgetting(name="words", site="A")):
                with pytest.raises(NotFoundError, match="no file 'words'"):
                    await world.service.forget(OPERATOR, wish)
            assert not any(leftovers(each) for each in local_areas(world.engine).values())

    asyncio.run(scenario())


def test_calls_about_the_same_name_come_one_after_the_other(tmp_path: Path, words: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            await asyncio.gather(
                *(register(world, words, site=site) for site in "ABC"),
                *(register(world, words, name=f"other {number}") for number in range(4)),
            )
            info = await world.service.file(OWNER, "words")
            assert sorted(place(info)) == [("A", None), ("B", None), ("C", None)]
            await asyncio.gather(
                *(world.service.forget(OWNER, Forgetting(name="words", site=site)) for site in "AB"),
                *(world.service.replicate(OWNER, Replication(name="words", site=site)) for site in "AB"),
            )
            info = await world.service.file(OWNER, "words")
            for site, area in local_areas(world.engine).items():
                assert (area.size_bytes(replica_path("words")) is not None) == (
                    site in {each.site for each in info.replicas}
                )
                assert leftovers(area) == []

    asyncio.run(scenario())


def test_another_file_under_a_known_name_is_refused_and_the_known_one_stays(tmp_path: Path, words: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            before = await register(world, words)
            other = tmp_path / "other"
            other.write_bytes(WORDS.upper())
            for site in "AB":
                with pytest.raises(ConflictError, match="register this one under another name"):
                    await register(world, other, site=site)
            assert await world.service.file(OWNER, "words") == before
            assert local_areas(world.engine)["A"].replica("words").read_bytes() == WORDS
            assert local_areas(world.engine)["B"].size_bytes(replica_path("words")) is None
            assert not any(leftovers(area) for area in local_areas(world.engine).values())
            assert await register(world, words) == before

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("wish", "words_of_error"),
    [
        ({"path": "relative/path"}, "not absolute"),
        ({"path": "/no/such/file"}, "No such file"),
        ({"path": "/tmp"}, "not a regular file"),  # noqa: S108
        ({"path": "/dev/zero"}, "not a regular file"),
        ({"path": "/tmp/\0x"}, "not absolute"),  # noqa: S108
        ({"path": "/etc/hostname", "url": "memory://x"}, "one of the two"),
        ({}, "one of the two"),
        ({"url": "file:///etc/hostname"}, "not read as a URL"),
        ({"url": "nonsense://x/y"}, "schemes http, https,"),
        ({"url": "zip://etc/hostname"}, "not read as a URL"),
        ({"url": "memory://koala/none"}, "cannot be read|No such|not found"),
        ({"path": "/etc/hostname", "name": "a\nb"}, "control character"),
        ({"path": "/etc/hostname", "name": "a\ud800b"}, "UTF-8"),
    ],
)
def test_what_cannot_be_registered_is_refused_with_advice(
    tmp_path: Path, wish: dict[str, str], words_of_error: str
) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            given: dict[str, Any] = {"name": "f", "site": "A", "path": None, "url": None, **wish}
            asked = Registration.model_construct(None, **given)
            with pytest.raises(InvalidError, match=words_of_error):
                await world.service.register(OWNER, asked)
            assert (await world.service.files(OWNER)).items == []
            assert leftovers(local_areas(world.engine)["A"]) == []

    asyncio.run(scenario())


def test_a_file_at_a_url_stays_there_and_is_read_when_it_is_needed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            # Looked up by name, since it comes without types.
            importlib.import_module("fsspec").filesystem("memory").pipe_file("/koala/words", WORDS)
            url = "memory://koala/words"
            info = await world.service.register(OPERATOR, Registration(name="words", site="A", url=url))
            assert place(info) == [("A", url)]
            assert info.checksum == hashlib.sha256(WORDS).hexdigest()
            assert local_areas(world.engine)["A"].size_bytes(replica_path("words")) is None
            brought = await world.service.replicate(OPERATOR, Replication(name="words", site="A"))
            assert place(brought) == [("A", None)]
            assert local_areas(world.engine)["A"].replica("words").read_bytes() == WORDS
            back = await world.service.register(OPERATOR, Registration(name="words", site="A", url=url))
            assert place(back) == [("A", url)]
            assert local_areas(world.engine)["A"].size_bytes(replica_path("words")) is None

    asyncio.run(scenario())


def test_only_the_daemons_own_user_registers_files_of_its_machine(tmp_path: Path, words: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            wish = Registration(name="words", site="A", path=str(words))
            with pytest.raises(ForbiddenError, match="only the user who runs the daemon"):
                await world.service.register(OPERATOR, wish)
            for forbidden in (
                world.service.register(ANNA, wish),
                world.service.replicate(ANNA, Replication(name="words", site="A")),
                world.service.forget(ANNA, Forgetting(name="words")),
            ):
                with pytest.raises(ForbiddenError, match="operate"):
                    await forbidden
            for site_call in (
                world.service.register(OWNER, Registration(name="words", site="Q", path=str(words))),
                world.service.replicate(OWNER, Replication(name="words", site="Q")),
            ):
                with pytest.raises(NotFoundError, match="no site 'Q'"):
                    await site_call
            for preview in (True, False):
                with pytest.raises(NotFoundError, match="no file 'words'"):
                    await world.service.forget(OWNER, Forgetting(name="words", preview=preview))
            with pytest.raises(NotFoundError, match="no file 'words'"):
                await world.service.replicate(OWNER, Replication(name="words", site="A"))
            with pytest.raises(NotFoundError, match="no file 'words'"):
                await world.service.file(OWNER, "words")
            await world.service.register(OWNER, wish)
            with pytest.raises(NotFoundError, match="no site 'Q'"):
                await world.service.forget(OWNER, Forgetting(name="words", site="Q"))

    asyncio.run(scenario())


def test_a_damaged_replica_is_passed_over_for_a_good_one(tmp_path: Path, words: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            for site in "AB":
                await register(world, words, site=site)
            local_areas(world.engine)["A"].replica("words").unlink()
            info = await world.service.replicate(OWNER, Replication(name="words", site="C"))
            assert "C" in [replica.site for replica in info.replicas]
            local_areas(world.engine)["B"].replica("words").unlink()
            await world.service.forget(OWNER, Forgetting(name="words", site="C"))
            with pytest.raises(ConflictError, match="it is not there; forget this replica"):
                await world.service.replicate(OWNER, Replication(name="words", site="C"))
            assert leftovers(local_areas(world.engine)["C"]) == []

    asyncio.run(scenario())


def test_files_are_listed_by_name_page_by_page(tmp_path: Path, words: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            names = sorted(["a", "b/1", "b/2", "b/Ünder", "c%d", "../up", "x" * 1_024], key=str.encode)
            for name in names:
                await register(world, words, name)
            found: list[str] = []
            cursor: str | None = None
            for _ in range(4):
                page = await world.service.files(ANNA, limit=2, cursor=cursor)
                found += [info.name for info in page.items]
                cursor = page.next
            assert (found, cursor) == (names, None)
            below = await world.service.files(ANNA, prefix="b/")
            assert [info.name for info in below.items] == ["b/1", "b/2", "b/Ünder"]
            with pytest.raises(InvalidError, match="cursor"):
                await world.service.files(ANNA, cursor="!")
            with pytest.raises(InvalidError, match="PAGE_ITEMS_MAX"):
                await world.service.files(ANNA, limit=0)

    asyncio.run(scenario())


# ------------------------------------------------------------------------------- what jobs read, and failures


async def reading_job(world: DaemonWorld, gate: Path) -> int:
    """A job at A that opens its input file only when the gate opens."""
    script = f"while [ ! -e {gate} ]; do sleep 0.3; done\nhead -c 9 words"
    job = await world.start(job_text(script, ("{processors: 1, site: A, input_files: [words]}",)))
    await world.in_state(job, "running")

    async def released() -> bool:
        return not world.engine.outbox.commands

    await world.until(released)  # before that the file may still be forgotten under it
    return job


def test_what_a_running_job_reads_of_a_forgotten_file_stays_until_it_has_ended(tmp_path: Path, words: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            await register(world, words)
            job = await reading_job(world, tmp_path / "gate")
            await world.service.forget(OWNER, Forgetting(name="words"))
            assert (await world.service.files(OWNER)).items == []
            other = tmp_path / "other"
            other.write_bytes(WORDS.upper())
            with pytest.raises(ConflictError, match=f"job {job} still read the former file"):
                await register(world, other)
            assert place(await register(world, other, site="B")) == [("B", None)]
            with pytest.raises(ConflictError, match=f"job {job} still read the former file"):
                await world.service.replicate(OWNER, Replication(name="words", site="A"))
            (tmp_path / "gate").touch()
            assert (await world.ended(job)).state == "done"
            assert (await world.service.output(OWNER, job)).text == "the quick"

            async def removed() -> bool:
                area = local_areas(world.engine)["A"]
                return area.size_bytes(replica_path("words")) is None and not leftovers(area)

            await world.until(removed)
            assert place(await register(world, other)) == [("B", None), ("A", None)]

    asyncio.run(scenario())


def test_a_forgotten_file_that_comes_back_while_it_is_read_is_not_removed(tmp_path: Path, words: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            await register(world, words)
            job = await reading_job(world, tmp_path / "gate")
            await world.service.forget(OWNER, Forgetting(name="words"))
            await register(world, words)
            (tmp_path / "gate").touch()
            await world.ended(job)
            assert (await world.service.output(OWNER, job)).text == "the quick"
            await asyncio.sleep(1.0)  # longer than the pause after which it would be removed
            assert local_areas(world.engine)["A"].replica("words").read_bytes() == WORDS
            assert leftovers(local_areas(world.engine)["A"]) == []

    asyncio.run(scenario())


def test_a_restart_neither_takes_a_file_from_its_reader_nor_forgets_to_remove_it(tmp_path: Path, words: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", leave_running=True) as world:
            await register(world, words)
            job = await reading_job(world, tmp_path / "gate")
            await world.service.forget(OWNER, Forgetting(name="words"))
        async with open_daemon(tmp_path / "d") as world:
            assert local_areas(world.engine)["A"].replica("words").read_bytes() == WORDS
            (tmp_path / "gate").touch()
            assert (await world.ended(job)).state == "done"
            assert (await world.service.output(OWNER, job)).text == "the quick"

            async def removed() -> bool:
                return local_areas(world.engine)["A"].size_bytes(replica_path("words")) is None

            await world.until(removed)

    asyncio.run(scenario())


def test_a_change_that_the_store_did_not_take_leaves_the_catalogue_as_it_was(
    tmp_path: Path, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", leave_running=True) as world:
            before = await register(world, words, name="kept")

            async def refuse(*_: Any, **__: Any) -> None:
                raise UnavailableError("the store is away; try again later")

            monkeypatch.setattr(world.engine, "tell", refuse)
            for call in (
                register(world, words),
                register(world, words, name="kept"),
                world.service.replicate(OWNER, Replication(name="kept", site="B")),
                world.service.forget(OWNER, Forgetting(name="kept")),
            ):
                with pytest.raises(UnavailableError, match="the store is away"):
                    await call
            assert (await world.service.files(OWNER)).items == [before]
            assert local_areas(world.engine)["A"].replica("kept").read_bytes() == WORDS
        async with open_daemon(tmp_path / "d") as world:
            assert (await world.service.files(OWNER)).items == [before]
            assert local_areas(world.engine)["A"].replica("kept").read_bytes() == WORDS
            assert local_areas(world.engine)["A"].size_bytes(replica_path("words")) is None
            assert local_areas(world.engine)["B"].size_bytes(replica_path("kept")) is None
            assert not any(leftovers(area) for area in local_areas(world.engine).values())

    asyncio.run(scenario())


def test_what_a_killed_daemon_left_half_done_is_cleared_up_at_the_next_start(tmp_path: Path, words: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            await register(world, words)
            area = local_areas(world.engine)["A"]
        (area.root / "replicas" / f"{encode(chr(0) + 'incoming.')}12").write_bytes(b"half")
        long = "y" * 1_000
        area.replica(long).write_bytes(b"placed, and killed before it was on record")
        for name in (long, "words"):
            (area.root / "doubts" / encode(name)).write_text(name)
        area.replica("not ours to judge").write_bytes(b"without a doubt")
        async with open_daemon(tmp_path / "d") as world:
            assert leftovers(area) == []
            assert area.size_bytes(replica_path(long)) is None
            assert area.replica("words").read_bytes() == WORDS
            assert area.size_bytes(replica_path("not ours to judge")) is not None
            assert [info.name for info in (await world.service.files(OWNER)).items] == ["words"]

    asyncio.run(scenario())


def test_a_change_is_finished_when_its_caller_goes_away(tmp_path: Path, words: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            calling = asyncio.create_task(register(world, words))
            await asyncio.sleep(0)
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling

            async def known() -> bool:
                return bool((await world.service.files(OWNER)).items)

            await world.until(known)
            assert local_areas(world.engine)["A"].replica("words").read_bytes() == WORDS

    asyncio.run(scenario())


def test_a_site_without_room_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:

            def full(*_: Any) -> None:
                raise OSError(28, os.strerror(28), "/area")

            monkeypatch.setattr(local_areas(world.engine)["A"], "adopt", full)
            with pytest.raises(ConflictError, match="No space left on device; check the path, and the site's disk"):
                await register(world, Path("/etc/hostname"))

    asyncio.run(scenario())
