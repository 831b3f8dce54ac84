"""A site whose files the daemon does not see: its catalogue, transfers and jobs are as at any other site."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from koala.daemon.grid_sites import make_site
from koala.daemon.service.data.files import FileService
from koala.files import AreaDirectory, RemoteArea
from koala.model.api.questions import Registration, Replication
from koala.model.errors import InvalidError
from koala.model.grid import BatchSettings, Grid, Site
from koala.model.request import InputFile, InputMode
from koala.sites import LiveSite
from koala.sites.local.site import LocalSite
from tests.support.engine_world import EngineWorld, a_request, local_grid, open_engine, root

__all__ = ["root"]

WORDS = b"the quick brown fox\n" * 1_000
FAR = "c"


@pytest.fixture
def far(root: Path) -> Path:
    """The work directory of the site that is not seen."""
    return root / "far away"


def far_grid(far: Path) -> Grid:
    """The sites a and b of this machine, and c behind a command."""
    grid = local_grid((4, 4, 4))
    settings = BatchSettings(work_directory=str(far), through=("env", "KOALA_THROUGH=1"))
    sites = [
        msgspec.structs.replace(site, kind="slurm", batch=settings) if site.name == FAR else site
        for site in grid.sites
    ]
    return msgspec.structs.replace(grid, sites=tuple(sites))


def embedded(description: Site, root: Path, **more: Any) -> LiveSite:
    """The far site runs its components itself, in the directory that its batch system would use."""
    if description.batch is None:
        return make_site(description, root, **more)
    return LocalSite(description.name, Path(description.batch.work_directory), description.processors, **more)


def left(far: Path) -> list[str]:
    """What is in the far area beside replicas under their names."""
    found = [path for name in ("copies", "trash", "doubts") for path in (far / "files" / name).glob("*")]
    found += [path for path in (far / "files" / "replicas").glob("*") if "incoming" in path.name]
    return [str(path) for path in found]


async def given_back(world: EngineWorld, far: Path) -> None:
    await world.until(lambda: not world.engine.mover.transfers and not left(far))


def test_files_are_registered_at_it_from_here_and_from_there_and_replicated_both_ways(root: Path, far: Path) -> None:
    async def scenario() -> None:
        far.mkdir()
        (far / "their file").write_bytes(WORDS)
        (root / "our file").write_bytes(WORDS[::-1])
        async with open_engine(root, far_grid(far), site_maker=embedded) as world:
            assert isinstance(world.engine.areas[FAR], RemoteArea)
            files = FileService(world.engine)
            await files.open()
            theirs = await files.register(Registration(name="theirs", site=FAR, path=f"{FAR}:{far}/their file"))
            assert (theirs.size_bytes, theirs.checksum) == (len(WORDS), hashlib.sha256(WORDS).hexdigest())
            ours = await files.register(Registration(name="ours", site=FAR, path=str(root / "our file")))
            assert (ours.sites, ours.checksum) == ((FAR,), hashlib.sha256(WORDS[::-1]).hexdigest())
            await files.replicate(Replication(name="theirs", site="a"))
            await files.register(Registration(name="near", site="b", path=f"b:{root}/our file"))
            near = await files.replicate(Replication(name="near", site=FAR))
            assert near.sites == ("b", FAR)
            area = AreaDirectory(FAR, far / "files")
            assert area.replica("ours").read_bytes() == area.replica("near").read_bytes() == WORDS[::-1]
            await files.forget(["ours"], FAR, force=False, by="")
            await files.forget(["near"], None, force=False, by="")
            assert [path.name for path in (far / "files" / "replicas").iterdir()] == ["=theirs"]
            await given_back(world, far)
            await files.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            f"{FAR}:/no/such/file",
            f"'/no/such/file' at {FAR}: No such file or directory; name a file that your account",
        ),
        (f"{FAR}:/dev", f"'/dev' at {FAR} is not a regular file"),
        ("/no/such/file", "'/no/such/file': No such file or directory; name a file that the daemon can read"),
        ("relative", "not absolute; write the whole path, from / on, or c:/... for a file that is at the site"),
    ],
)
def test_a_path_that_names_no_file_is_refused_with_advice(root: Path, far: Path, path: str, words: str) -> None:
    async def scenario() -> None:
        async with open_engine(root, far_grid(far), site_maker=embedded) as world:
            files = FileService(world.engine)
            with pytest.raises(InvalidError) as caught:
                await files.register(Registration(name="data", site=FAR, path=path))
            assert words in caught.value.for_user()
            await given_back(world, far)
            await files.close()

    asyncio.run(scenario())


def test_jobs_read_what_was_brought_to_it_and_pieces_of_its_own(root: Path, far: Path) -> None:
    async def scenario() -> None:
        (root / "words").write_bytes(WORDS)
        async with open_engine(root, far_grid(far), site_maker=embedded) as world:
            files = FileService(world.engine)
            for name, site in (("near", "a"), ("far", FAR)):
                await files.register(Registration(name=name, site=site, path=str(root / "words")))
            whole = await world.submit(a_request("cat near far | wc -c", (1,), FAR, ["near", "far"]))
            chunks = [InputFile(name=name, mode=InputMode.CHUNK) for name in ("near", "far")]
            halves = await world.submit(a_request("cat near far", (1, 1), FAR * 2, chunks))
            rows = await world.ended(whole, halves)
            assert [row.state for row in rows] == ["done", "done"]
            assert int(await world.output(whole)) == 2 * len(WORDS)
            parts = [await world.output(halves, part) for part in (0, 1)]
            assert sum(len(part) for part in parts) == 2 * len(WORDS)
            await given_back(world, far)
            await files.close()

    asyncio.run(scenario())


def test_a_change_that_a_killed_daemon_began_at_it_is_cleared_up_at_the_next_start(root: Path, far: Path) -> None:
    async def scenario() -> None:
        name = "naïve 'file' \\ \udc80"
        async with open_engine(root, far_grid(far), site_maker=embedded) as world:
            area = world.engine.areas[FAR]
            (root / "words").write_bytes(WORDS)
            await area.take_in(name, str(root / "words"))
            await area.take_in("\0incoming.1", str(root / "words"))
            await area.doubt(name)
            assert await area.doubts() == [name]
            assert not left(far)[1:], "what never got its name is gone"
            files = FileService(world.engine)
            await files.open()
            assert list((far / "files" / "replicas").iterdir()) == []
            assert left(far) == []
            await files.close()

    asyncio.run(scenario())
