"""Input files at a batch site are links into its file area; no path leads anywhere else, in any shell."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koala.model.launch import Go, InputLink
from koala.sites import SiteError
from tests.support.paper_batch import PaperSite


def go(*links: tuple[str, str]) -> Go:
    return Go(links=tuple(InputLink(source=source, destination=destination) for source, destination in links))


def test_input_files_are_there_before_the_barrier_opens_and_making_them_again_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            data = one.root / "files" / "big" / "it's $data"
            data.parent.mkdir()
            data.write_text("content\n")
            (one.root / "files/alias").symlink_to("big")
            await one.begin("1.1")
            work = one.home("1.1") / "workspace"
            (work / "in put").mkdir()
            (work / "in put" / "x").symlink_to(data.resolve())
            links = (("big/it's $data", "in put/./x"), ("alias/it's $data", "deep/-r/er"), ("big", "folder"))
            await one.site.release("1.1", go(*links))
            assert (one.home("1.1") / "go").exists()
            for name in ("in put/x", "deep/-r/er", "folder/it's $data"):
                assert (work / name).read_text() == "content\n"
            assert (work / "deep/-r/er").readlink() == data.resolve()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("links", "named"),
    [
        ([("missing", "x")], "not in the site's file area"),
        ([("way-out", "x")], "leads out of the site's file area"),
        ([("round", "x")], "not in the site's file area"),
        ([("dangling", "x")], "leads out of the site's file area"),
        ([("data", "a/..")], "leads out of the component's directory"),
        ([("data", "x"), ("other", "x")], "is taken"),
        ([("folder", "d"), ("data", "d/x")], "leads out of the component's directory"),
        ([("data", "out/x")], "leads out of the component's directory"),
        ([("data", "nowhere/x")], "leads out of the component's directory"),
        ([("data", "there")], "is taken"),
    ],
)
def test_a_path_that_leads_elsewhere_is_refused_and_nothing_is_released(
    tmp_path: Path, links: list[tuple[str, str]], named: str
) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            files = one.root / "files"
            for name in ("data", "other", "folder/inside"):
                (files / name).parent.mkdir(exist_ok=True)
                (files / name).touch()
            secret = tmp_path / "secret"
            secret.mkdir()
            (files / "way-out").symlink_to(secret)
            (files / "round").symlink_to("round")
            (files / "dangling").symlink_to(tmp_path / "nothing")
            await one.begin("1.1")
            work = one.home("1.1") / "workspace"
            (work / "there").touch()
            (work / "out").symlink_to(secret)
            (work / "nowhere").symlink_to(tmp_path / "nothing")
            with pytest.raises(SiteError, match=named) as caught:
                await one.site.release("1.1", go(*links))
            assert caught.value.fault.is_own, "and not the site's"
            assert not (one.home("1.1") / "go").exists()
            assert [path.name for path in (files / "folder").iterdir()] == ["inside"]
            assert list(secret.iterdir()) == []
            assert not (tmp_path / "nothing").exists()
            await one.site.release("1.1", go(("data", "fine")))
            assert (one.home("1.1") / "go").exists()

    asyncio.run(scenario())


def test_a_workspace_that_is_gone_is_the_end_of_its_component(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            (one.root / "files/data").touch()
            await one.begin("1.1")
            (one.home("1.1") / "workspace").rmdir()
            await one.site.release("1.1", go(("data", "x")))
            assert "directory" in (await one.ended("1.1")).reason

    asyncio.run(scenario())
