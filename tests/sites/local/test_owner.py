"""An embedded site is autonomous: it says what it has, keeps processors for others, and forgets on request."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koala.model.launch import Go
from koala.model.messages import ComponentEnded, ComponentReady, Outcome
from koala.sites import SiteError
from tests.support.live_sites import launch, opened


def test_a_site_tells_its_processors_and_what_others_hold(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=4) as one:
            report = await one.site.probe()
            assert (report.site, report.processors, report.others) == ("a", 4, 0)
            one.site.others_file.write_text(" 3\n")
            assert (await one.site.probe()).others == 3
            one.site.others_file.write_text("9")
            assert (await one.site.probe()).others == 4

    asyncio.run(scenario())


def test_new_components_start_only_in_what_others_leave_and_those_that_run_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=4) as one:
            await one.start(launch("1.1", processors=2))
            await one.ready("1.1")
            one.site.others_file.write_text("2")
            await one.start(launch("1.2", processors=1))
            await one.site.probe()
            assert not one.told(ComponentReady, "1.2")
            assert one.site.processors_held == 2
            one.site.others_file.write_text("1")
            await one.site.probe()
            await one.ready("1.2")
            for token in ("1.1", "1.2"):
                await one.site.release(token, Go())
                assert (await one.ended(token)).outcome is Outcome.DONE

    asyncio.run(scenario())


@pytest.mark.parametrize("text", ["many", "-1", "", "1.5", "9" * 65])
def test_a_file_of_others_that_makes_no_sense_is_an_error_and_the_last_number_holds(
    tmp_path: Path, text: str
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=2) as one:
            one.site.others_file.write_text("1")
            await one.site.probe()
            one.site.others_file.write_text(text)
            with pytest.raises(SiteError, match="write a number of processors"):
                await one.site.probe()
            await one.start(launch("1.1"), launch("1.2"))
            await one.ready("1.1")
            assert one.site.processors_held == 1
            for token in ("1.2", "1.1"):
                await one.site.abort(token)
                await one.ended(token)

    asyncio.run(scenario())


def test_what_is_held_are_the_components_that_have_not_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=1) as one:
            await one.start(launch("1.2"), launch("1.1"))
            await one.ready("1.2")
            assert await one.site.held() == ("1.2", "1.1")
            await one.site.abort("1.2")
            await one.ended("1.2")
            assert await one.site.held() == ("1.1",)
        async with opened(tmp_path / "a", processors=1) as one:
            assert await one.site.held() == ("1.1",)
            await one.site.abort("1.1")
            await one.ended("1.1")
            assert await one.site.held() == ()

    asyncio.run(scenario())


def test_an_ended_component_is_forgotten_with_everything_and_a_living_one_is_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.run(launch("1.1", "echo hello"))
            await one.start(launch("1.2"))
            await one.ready("1.2")
            with pytest.raises(SiteError, match="has not ended"):
                await one.site.forget("1.2")
            await one.site.forget("1.1")
            await one.site.forget("1.1")
            await one.site.forget("9.9")
            assert sorted(home.name for home in (tmp_path / "a/components").iterdir()) == ["1.2"]
            await one.site.ask(["1.1"])
            assert one.told(ComponentEnded, "1.1")[-1].outcome is Outcome.ABSENT
            await one.site.abort("1.2")
            await one.ended("1.2")

    asyncio.run(scenario())


def test_a_driver_killed_while_it_removed_a_component_removes_the_rest_when_it_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.run(launch("1.1"))
        home = tmp_path / "a/components/1.1"
        home.rename(home.with_name(".1.1.gone"))
        async with opened(tmp_path / "a"):
            assert list((tmp_path / "a/components").iterdir()) == []

    asyncio.run(scenario())
