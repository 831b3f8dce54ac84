"""Why a component was ended is kept by its site and told at its end; and what a site says of those it never knew."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koala.model.launch import Go
from koala.model.messages import Outcome
from koala.sites import SiteError, Stream
from koala.sites.local.site import LocalSite
from tests.support.live_sites import file_appears, launch, opened

WHY = "mpiexec printed nonsense"


def test_the_outcome_and_the_reason_of_an_abort_are_told_at_the_end_wherever_it_found_the_component(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=1) as one:
            await one.start(launch("1.1"), launch("1.2"))
            await one.ready("1.1")
            for token in ("1.2", "1.1", "1.3"):
                await one.site.abort(token, outcome=Outcome.FAILED, reason=WHY)
                await one.site.abort(token)  # the first stands
                ended = await one.ended(token)
                assert (ended.outcome, ended.reason) == (Outcome.FAILED, WHY)

    asyncio.run(scenario())


@pytest.mark.parametrize("spoilt", [False, True])
def test_the_reason_of_an_abort_survives_the_driver_that_gave_it(tmp_path: Path, spoilt: bool) -> None:
    async def scenario() -> None:
        # It does not end by itself before the second driver comes.
        async with opened(tmp_path / "a", grace_s=600.0) as one:
            await one.start(launch("1.1", f"trap '' TERM; touch {tmp_path}/on; while :; do sleep 0.1; done"))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            await file_appears(tmp_path / "on")
            await one.site.abort("1.1", outcome=Outcome.FAILED, reason=WHY)
        if spoilt:
            (tmp_path / "a/components/1.1/abort").write_text("x")
        async with opened(tmp_path / "a", grace_s=0.0) as one:
            await one.site.abort("1.1")
            ended = await one.ended("1.1")
            assert (ended.outcome, ended.reason) == (
                (Outcome.ABORTED, "aborted") if spoilt else (Outcome.FAILED, WHY)
            )

    asyncio.run(scenario())


def test_an_abort_in_the_queue_is_carried_out_with_its_reason_by_the_next_driver(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=1) as one:
            await one.start(launch("1.1"), launch("1.2"))
            await one.ready("1.1")
        # As if the first had been killed when the abort was on disk.
        (tmp_path / "a/components/1.2/abort").write_text(f'{{"outcome": "failed", "reason": "{WHY}"}}')
        async with opened(tmp_path / "a", processors=1) as one:
            ended = await one.ended("1.2")
            assert (ended.outcome, ended.reason) == (Outcome.FAILED, WHY)
            await one.site.abort("1.1")
            await one.ended("1.1")

    asyncio.run(scenario())


def test_mail_for_a_component_that_the_site_does_not_know_is_an_error_and_for_an_ended_one_nothing(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            with pytest.raises(SiteError, match=r"no component 1\.1"):
                await one.site.deliver("1.1", "proxy", b"x")
            await one.run(launch("1.1"))
            await one.site.deliver("1.1", "proxy", b"x")
            assert not (tmp_path / "a/components/1.1/inbox/proxy").exists()

    asyncio.run(scenario())


def test_a_site_that_is_not_open_says_so_and_does_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.start(launch("1.1"))
            await one.ready("1.1")
        site: LocalSite = one.site
        for call in (
            site.deliver("1.1", "proxy", b"x"),
            site.release("1.1", Go()),
            site.ask(["1.1", "1.2"]),
            site.abort("1.1"),
            site.output("1.1", Stream.STDOUT, 0),
            site.held(),
            site.probe(),
        ):
            with pytest.raises(SiteError, match="not open"):
                await call
        await site.close()
        await site.open()
        await site.deliver("1.1", "proxy", b"x")
        assert (tmp_path / "a/components/1.1/inbox/proxy").read_bytes() == b"x"
        await site.abort("1.1")
        await one.ended("1.1")
        await site.close()

    asyncio.run(scenario())


def test_what_a_killed_driver_was_making_is_removed_at_the_next_opening(tmp_path: Path) -> None:
    async def scenario() -> None:
        for name in (".1.1.new", ".1.2.gone", ".1.3.abc.gone"):
            (tmp_path / "a/components" / name).mkdir(parents=True)
            (tmp_path / "a/components" / name / "script").touch()
        async with opened(tmp_path / "a"):
            assert list((tmp_path / "a/components").iterdir()) == []

    asyncio.run(scenario())
