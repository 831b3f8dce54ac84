"""A batch system that has too many jobs for now: what it does not take waits at the site, and nobody is to blame."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koala.model.grid import BatchSettings
from koala.model.messages import ComponentAccepted, ComponentEnded, Outcome, SiteSilent, Token
from koala.runners import component_script
from koala.sites import NotNowError
from koala.sites.batch.grid_engine.system import GridEngineSystem
from koala.sites.batch.slurm.system import SlurmSystem
from koala.sites.batch.system import BatchSystem
from tests.support.paper_batch import PaperSite, brisk, component, eventually

POLICY = "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time)"
ONLY = "Unable to run job: job rejected: Only 4 jobs are allowed per user (current job count: 4)\nExiting."
SETTINGS = BatchSettings(work_directory="/work")


# A crowded batch system is tried often.
EAGER = brisk(crowded_first_s=0.05, crowded_most_s=0.1)


def crowd(one: PaperSite) -> None:
    (one.batch.root / "refuse").write_text("there are too many jobs\n")


async def start_in_a_crowd(one: PaperSite, token: Token) -> None:
    launch = component(token)
    with pytest.raises(NotNowError, match="this machine: there are too many jobs"):
        await one.site.start(launch, component_script(launch))


def test_what_finds_no_room_waits_at_the_site_which_tries_again_and_is_not_silent(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path, timings=EAGER) as one:
            crowd(one)
            await start_in_a_crowd(one, "1.1")
            assert one.told(ComponentAccepted, "1.1")
            assert await one.site.held() == ("1.1",)
            await eventually(lambda: one.site.calls["submit"] >= 4)
            (one.batch.root / "refuse").unlink()
            await eventually(lambda: one.batch.tokens() == ["1.1"])
            one.play_ready("1.1")
            await one.ready("1.1")
            one.play_end("1.1")
            assert (await one.ended("1.1")).outcome is Outcome.DONE
            assert not [event for event in one.events if isinstance(event, SiteSilent)]

    asyncio.run(scenario())


def test_one_that_waits_for_room_is_found_by_the_next_driver_and_can_be_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path, timings=EAGER) as one:
            crowd(one)
            await start_in_a_crowd(one, "1.1")
            await start_in_a_crowd(one, "1.2")
        async with one.again() as other:
            assert await other.site.held() == ("1.1", "1.2")
            await other.site.abort("1.1")
            assert (await other.ended("1.1")).outcome is Outcome.ABORTED
            (one.batch.root / "refuse").unlink()
            await eventually(lambda: other.batch.tokens() == ["1.2"])

    asyncio.run(scenario())


def test_one_that_waits_for_room_and_is_refused_for_good_then_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path, timings=EAGER) as one:
            crowd(one)
            await start_in_a_crowd(one, "1.1")
            (one.batch.root / "refuse").write_text("never: too long")
            assert (await one.ended("1.1")).outcome is Outcome.UNSUITABLE

    asyncio.run(scenario())


def test_the_end_of_one_makes_room_for_another_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path, timings=brisk(crowded_first_s=600.0, crowded_most_s=600.0)) as one:
            await one.begin("1.1")
            crowd(one)
            await start_in_a_crowd(one, "1.2")
            (one.batch.root / "refuse").unlink()
            before = one.site.calls["listing"]
            await eventually(lambda: one.site.calls["listing"] >= before + 2)
            assert one.batch.tokens() == ["1.1"], "it is too soon to try again"
            one.play_end("1.1")
            await one.ended("1.1")
            await eventually(lambda: "1.2" in one.batch.tokens())
            assert not one.told(ComponentEnded, "1.2")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("system", "code", "said", "no_room"),
    [
        (SlurmSystem(SETTINGS), 1, f"sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: {POLICY}", True),
        (SlurmSystem(SETTINGS), 1, f"sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: {POLICY}", True),
        (SlurmSystem(SETTINGS), 1, "sbatch: error: Slurm temporarily unable to accept job, sleeping", True),
        (SlurmSystem(SETTINGS), 1, "sbatch: error: Unable to contact slurm controller (connect failure)", False),
        (SlurmSystem(SETTINGS), 1, "sh: 1: sbatch: not found", False),
        (GridEngineSystem(SETTINGS), 25, ONLY, True),
        (GridEngineSystem(SETTINGS), 1, ONLY, True),
        (GridEngineSystem(SETTINGS), 1, "error: commlib error: got select error (Connection refused)", False),
    ],
)
def test_too_many_jobs_are_told_from_a_batch_system_that_does_not_answer(
    system: BatchSystem, code: int, said: str, no_room: bool
) -> None:
    assert system.refusal(code, "", said) is None
    assert system.has_no_room(code, "", said) == no_room
