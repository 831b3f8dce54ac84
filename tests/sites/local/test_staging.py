"""Input files are links into the site's file area; no path leads anywhere else."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from koala.model.errors import Fault
from koala.model.launch import Go, InputLink, LaunchError
from koala.model.messages import Outcome
from koala.sites import SiteError
from tests.support.live_sites import launch, opened


def test_input_files_are_there_when_the_application_starts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            (one.site.files / "big").mkdir()
            (one.site.files / "big/data").write_text("content\n")
            go = Go(links=(InputLink(source="big/data", destination="in put/./data"),))
            await one.run(launch(application="cat 'in put/data'"), go)
            assert await one.stdout() == "content\n"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("links", "named", "fault"),
    [
        ([("missing", "x")], "not in the site's file area", Fault.USER),
        ([("way-out", "x")], "leads out of the site's file area", Fault.USER),
        ([("data", "a/..")], "leads out of the component's directory", Fault.JOB),
        ([("data", "x"), ("other", "x")], "is taken", Fault.JOB),
        ([("directory", "d"), ("data", "d/x")], "leads out of the component's directory", Fault.JOB),
    ],
)
def test_a_path_that_leads_elsewhere_is_refused_as_no_fault_of_the_site_and_nothing_is_released(
    tmp_path: Path, links: list[tuple[str, str]], named: str, fault: Fault
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            for name in ("data", "other", "directory/inside"):
                (one.site.files / name).parent.mkdir(exist_ok=True)
                (one.site.files / name).touch()
            (tmp_path / "secret").touch()
            (one.site.files / "way-out").symlink_to(tmp_path / "secret")
            await one.start(launch())
            await one.ready("1.1")
            go = Go(links=tuple(InputLink(source=source, destination=destination) for source, destination in links))
            with pytest.raises(SiteError, match=named) as caught:
                await one.site.release("1.1", go)
            assert caught.value.for_user().startswith("site a: ")
            assert caught.value.fault is fault
            assert not (tmp_path / "a/components/1.1/go").exists()
            assert [path.name for path in (one.site.files / "directory").iterdir()] == ["inside"]
            await one.site.abort("1.1")
            await one.ended("1.1")

    asyncio.run(scenario())


def test_a_workspace_that_is_gone_is_the_end_of_its_component(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            (one.site.files / "data").touch()
            await one.start(launch())
            await one.ready("1.1")
            (tmp_path / "a/components/1.1/workspace").rmdir()
            await one.site.release("1.1", Go(links=(InputLink(source="data", destination="x"),)))
            assert "directory" in (await one.ended("1.1")).reason

    asyncio.run(scenario())


def test_links_that_the_disk_does_not_take_are_an_error_of_the_site_and_nothing_is_released(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            (one.site.files / "data").touch()
            await one.start(launch())
            await one.ready("1.1")
            go = Go(links=(InputLink(source="data", destination="x"),))
            one.site.files.rename(tmp_path / "moved")
            with pytest.raises(OSError, match="cannot be linked"):
                await one.site.release("1.1", go)
            assert not (tmp_path / "a/components/1.1/go").exists()
            (tmp_path / "moved").rename(one.site.files)
            await one.site.release("1.1", go)
            assert (await one.ended("1.1")).outcome is Outcome.DONE

    asyncio.run(scenario())


TOO_LONG = """case $3 in */.koala.try.*) exec {ln} "$@" ;; esac
echo 'ln: File name too long' >&2
exit 1"""
FULL = """echo 'ln: No space left on device' >&2
exit 1"""


@pytest.mark.parametrize(
    ("does", "named", "fault"),
    [
        (TOO_LONG, "no path that the site can make in the component's directory", Fault.JOB),
        (FULL, "cannot be linked, as its directory cannot be written", Fault.SITE),
    ],
    ids=["its name", "the disk"],
)
def test_a_link_that_cannot_be_made_is_the_jobs_fault_where_others_can_and_the_sites_where_none_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, named: str, fault: Fault
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            (one.site.files / "data").touch()
            await one.start(launch())
            await one.ready("1.1")
            programs = tmp_path / "programs"
            programs.mkdir()
            (programs / "ln").write_text(f"#!/bin/sh\n{does.format(ln=shutil.which('ln'))}\n")
            (programs / "ln").chmod(0o700)
            with monkeypatch.context() as patched:
                patched.setenv("PATH", f"{programs}:{os.environ['PATH']}")
                with pytest.raises(SiteError, match=named) as caught:
                    await one.site.release("1.1", Go(links=(InputLink(source="data", destination="x"),)))
            assert caught.value.fault is fault
            await one.site.abort("1.1")
            await one.ended("1.1")

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", "a\0b"])
def test_a_link_never_climbs(path: str) -> None:
    with pytest.raises(LaunchError):
        InputLink(source=path, destination="x")
    with pytest.raises(LaunchError):
        InputLink(source="x", destination=path)
