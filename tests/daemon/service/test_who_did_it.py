"""Who did what to a job or a site and why: on record, in stories, and told to those who may know of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koala.model.api import WHY_CHARACTERS_MAX
from koala.model.api.questions import JobChange
from koala.model.errors import InvalidError, NotFoundError
from koala.model.request import Priority
from tests.support.daemon_world import ANNA, BERT, OPERATOR, OWNER, job_text, open_daemon

FOREVER = "while :; do sleep 1; done"
AT_A = ("{processors: 1, site: A}",)


def test_everybody_sees_who_drained_a_site_and_why_also_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", leave_running=True) as world:
            await world.service.grid.drain(OPERATOR, "A", reason="  disk change ")
        async with open_daemon(tmp_path / "d") as world:
            for who in (OPERATOR, ANNA):
                site = (await world.service.grid.sites(who))[0]
                assert site.drained_by == "olga: disk change"
            job = await world.start(job_text(components=AT_A), ANNA)
            refusal = (await world.service.explain(ANNA, job)).refusal
            assert refusal is not None
            cures = {each.site: each.cure for each in refusal.shortages}
            assert cures["A"] == "A is drained by olga: disk change; resume it"
            resumed = await world.service.grid.resume(OPERATOR, "A", reason="disk is new")
            assert resumed.drained_by == ""
            told = [each.text for each in await world.service.journal(ANNA)]
            assert "A is drained by olga: disk change; nothing new goes there" in told
            assert "A is used again and its errors are forgotten, as olga asked: disk is new" in told
            assert (await world.ended(job)).state == "done"

    asyncio.run(scenario())


def test_the_loss_of_a_site_is_told_with_who_declared_it_and_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            job = await world.start(job_text(FOREVER, AT_A), ANNA)
            await world.in_state(job, "running")
            await world.service.grid.declare_lost(OPERATOR, "A", force=True, reason="fire")
            story = [line.text for line in (await world.service.explain(ANNA, job)).story]
            assert "back to its placement queue: A is lost: olga declared it lost: fire" in story
            await world.service.changes.cancel(ANNA, job)

    asyncio.run(scenario())


def test_the_owner_of_a_job_sees_which_operator_did_what_to_it_and_strangers_see_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            changes = world.service.changes
            job = await world.start(job_text(FOREVER, AT_A), ANNA)
            await world.in_state(job, "running")
            await changes.requeue(OPERATOR, job, hold=True, reason="demo at ten")
            await world.in_state(job, "held")
            assert (await world.service.job(ANNA, job)).reason == (
                "it is held by olga: demo at ten; koala job release ends the hold"
            )
            await changes.change(OPERATOR, job, JobChange(walltime_s=60.0, priority=Priority.HIGH), reason="short")
            await changes.unhold(OPERATOR, job)
            await world.in_state(job, "running")
            await changes.cancel(OPERATOR, job, reason="it fills the disk")
            ended = await world.ended(job)
            assert (ended.state, ended.reason) == ("cancelled", "cancelled by olga: it fills the disk")
            story = [line.text for line in (await world.service.explain(ANNA, job)).story]
            assert [line for line in story if "olga" in line] == [
                "back to its placement queue: requeued by olga: demo at ten",
                "kept back: it is held by olga: demo at ten; koala job release ends the hold",
                "its walltime is changed to 60 s and its priority is changed to high by olga: short",
                "hold ended by olga",
                "cancelled by olga: it fills the disk",
            ]
            entries = [each.text for each in await world.service.journal(ANNA, job=job, limit=1_000)]
            assert f"the cancellation of job {job} was requested by olga: it fills the disk" in entries
            with pytest.raises(NotFoundError):
                await world.service.explain(BERT, job)
            told = [each.text for each in await world.service.journal(BERT, limit=1_000)]
            assert not [line for line in told if "olga" in line or "disk" in line]

    asyncio.run(scenario())


def test_what_users_do_to_their_own_jobs_is_told_as_their_owners_doing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            array = await world.start(job_text(FOREVER, AT_A, array="0-99"), ANNA)
            await world.in_state(array + 1, "running")
            await world.service.changes.cancel(ANNA, array + 100)
            await world.service.changes.cancel(ANNA, array, reason="wrong input")
            assert (await world.ended(array)).reason == "cancelled by its owner: wrong input"
            assert (await world.ended(array + 1)).reason == "cancelled with its array"
            story = [line.text for line in (await world.service.explain(OPERATOR, array)).story]
            assert f"its element, job {array + 100}, was cancelled before it was made by its owner" in story

    asyncio.run(scenario())


@pytest.mark.parametrize("reason", ["x" * (WHY_CHARACTERS_MAX + 1), "two\nlines", "a\x1b[31mcolour"])
def test_a_reason_that_cannot_be_shown_is_refused_and_nothing_is_done(tmp_path: Path, reason: str) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            with pytest.raises(InvalidError, match=r"reason: it h"):
                await world.service.grid.drain(OPERATOR, "A", reason=reason)
            assert not (await world.service.grid.sites(OWNER))[0].drained

    asyncio.run(scenario())
