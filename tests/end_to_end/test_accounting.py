"""A real Slurm cluster with accounting: what is left of quotas, what can never start, and ends that only the accounts
remember."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest

from koala.model.launch import Launch
from koala.model.messages import ComponentEnded, Outcome
from koala.model.request import Application
from koala.runners import component_script
from koala.sites import SiteError
from koala.sites.batch.slurm.system import SlurmSystem
from koala.sites.batch.timings import BatchTimings
from tests.support.accounted_cluster import COLLEAGUE, PROCESSORS, SITE, USER, AccountedCluster, accounted_cluster
from tests.support.batch_sites import BatchWatcher, opened_batch, until_true

# What the account above the users' own may have, what a user of a QOS may have, and what one job may have.
OF_ACCOUNT, OF_USER, OF_JOB = 6, 3, 5
# A component that the batch system would not have never held anything.
NOT_TAKEN = (Outcome.REFUSED, Outcome.UNSUITABLE)
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[AccountedCluster]:
    """Users of the account ``group`` below ``physics``, who may also use ``free``, which is not limited."""
    with accounted_cluster() as running:
        running.account("add", "qos", "narrow", f"MaxTRESPerUser=cpu={OF_USER}")
        running.account("add", "qos", "strict", f"MaxTRESPerJob=cpu={OF_JOB}", "Flags=DenyOnLimit")
        running.account("add", "account", "physics,free")
        running.account("add", "account", "group", "parent=physics")
        for user in (USER, COLLEAGUE):
            running.account("add", "user", user, "account=group,free", "defaultaccount=group")
            running.account("modify", "user", user, "set", "qos+=narrow,strict")
        running.account("modify", "account", "physics", "set", f"GrpTRES=cpu={OF_ACCOUNT}")
        yield running


@pytest.fixture
def idle(cluster: AccountedCluster) -> Iterator[AccountedCluster]:
    """The cluster, from which every job goes with the test."""
    yield cluster
    cluster.clear()


def opened(cluster: AccountedCluster, **fields: object) -> AbstractAsyncContextManager[BatchWatcher]:
    settings = cluster.settings(**fields)
    return opened_batch(settings, SlurmSystem(settings), PROCESSORS, timings=BatchTimings(fresh_s=0.0))


def launch(token: str, processors: int = 1) -> Launch:
    return Launch(token=token, job=1, processors=processors, application=Application(script="exec sleep 600"))


async def report(one: BatchWatcher) -> tuple[int, int]:
    """The processors that there are for us, and how many of them others have."""
    told = await one.site.probe()
    return told.processors, told.others


async def runs(cluster: AccountedCluster, number: str) -> None:
    """Wait until a job holds its processors."""
    await until_true(
        lambda: cluster.run("squeue", "--noheader", f"--jobs={number}", "--format=%T").strip() == "RUNNING"
    )


def test_a_partition_that_is_not_there_is_told_and_is_not_a_site_without_processors(idle: AccountedCluster) -> None:
    async def scenario() -> None:
        async with opened(idle, queue="nowhere") as one:
            with pytest.raises(SiteError, match=r"there is no partition nowhere with nodes; correct 'queue: ...'"):
                await one.site.probe()

    asyncio.run(scenario())


# --------------------------------------------------------------------------------------------------------- quotas


def test_no_more_is_idle_than_the_account_the_qos_and_the_users_other_jobs_leave(
    idle: AccountedCluster,
) -> None:
    async def scenario() -> None:
        async with opened(idle, account="free") as one:
            assert await report(one) == (PROCESSORS, 0)
        async with opened(idle) as one:
            assert await report(one) == (OF_ACCOUNT, 0), "the account above the user's own is limited"
            await runs(idle, idle.submit("--ntasks=2", "--qos=narrow"))
            assert await report(one) == (OF_ACCOUNT, 2), "a colleague has some of it"
            await one.start(launch("1.1", 2))
            await one.ready("1.1")
            assert await report(one) == (OF_ACCOUNT, 2), "ours are not others'"
            await one.site.abort("1.1")
            await one.ended("1.1")
            idle.account("modify", "user", USER, "set", "MaxJobs=1")
            await runs(idle, idle.submit("--ntasks=1", user=USER))
            assert await report(one) == (OF_ACCOUNT, OF_ACCOUNT), "no more than one job at a time, and that is there"
            idle.account("modify", "user", USER, "set", "MaxJobs=-1")
        # What the colleague has of the QOS is not ours to count; what its users may have is the same for all.
        async with opened(idle, submit_options=("--qos=narrow",)) as one:
            assert await report(one) == (OF_USER, 0)
            await runs(idle, idle.submit("--ntasks=1", "--qos=narrow", user=USER))
            assert await report(one) == (OF_USER, 1), "but what the user has of it is"

    asyncio.run(scenario())


def test_where_users_see_nothing_of_others_what_they_see_counts(
    idle: AccountedCluster,
) -> None:
    async def scenario() -> None:
        async with opened(idle) as one:
            with idle.configured("PrivateData=accounts,events,jobs,reservations,usage,users"):
                assert await report(one) == (PROCESSORS, 0), "the account above is not shown"
                idle.account("modify", "user", USER, "set", "GrpTRES=cpu=4")
                assert await report(one) == (4, 0)
            with idle.configured("AccountingStorageEnforce=associations"):
                assert await report(one) == (PROCESSORS, 0), "limits that nobody keeps to are none"
            assert await report(one) == (4, 0)
            idle.account("modify", "user", USER, "set", "GrpTRES=cpu=-1")

    asyncio.run(scenario())


# -------------------------------------------------------------------------------------------------------- refusals


async def refused(cluster: AccountedCluster, processors: int, **fields: object) -> ComponentEnded:
    """The end of a component that asks for too much, or for what it may not have."""
    async with opened(cluster, **fields) as one:
        token = f"2.{next(NUMBERS)}"
        await one.start(launch(token, processors))
        ended = await one.ended(token)
    assert ended.outcome in NOT_TAKEN
    assert not cluster.run("squeue", "--noheader"), "nothing waits for ever"
    return ended


def test_what_can_never_start_is_not_waited_for(idle: AccountedCluster) -> None:
    async def scenario() -> None:
        ended = await refused(idle, OF_ACCOUNT + 1)
        assert "AssocGrpCpuLimit: it asks for 7 processors" in ended.reason
        assert "6 processors (GrpTRES of account physics)" in ended.reason
        ended = await refused(idle, OF_USER + 1, submit_options=("--qos=narrow",))
        assert "3 processors (MaxTRESPU of QOS narrow)" in ended.reason
        idle.account("modify", "user", USER, "set", "MaxTRESPerJob=cpu=2")
        ended = await refused(idle, 3)
        assert "AssocMaxCpuPerJobLimit" in ended.reason
        assert ended.outcome is Outcome.UNSUITABLE
        idle.account("modify", "user", USER, "set", "MaxTRESPerJob=cpu=-1")

    asyncio.run(scenario())


def test_a_job_asks_for_no_more_time_than_its_user_may_have(idle: AccountedCluster) -> None:
    """The time at the barrier comes on top of the walltime, and would be too much."""

    async def scenario() -> None:
        idle.account("modify", "user", USER, "set", "MaxWall=00:20:00")
        async with opened(idle) as one:
            mine = msgspec.structs.replace(launch("6.1"), walltime_s=1_200.0, barrier_timeout_s=660.0)
            await report(one)  # which tells the limit
            await one.start(mine)
            await one.ready("6.1")
            assert idle.run("squeue", "--noheader", "--format=%l").strip() == "20:00"
            await one.site.abort("6.1")
            await one.ended("6.1")
            longer = msgspec.structs.replace(mine, token="6.2", walltime_s=1_201.0)  # noqa: S106 - a name
            await one.start(longer)
            ended = await one.ended("6.2")
        assert ended.outcome is Outcome.UNSUITABLE
        assert "runs no job longer than 1200 s" in ended.reason
        idle.account("modify", "user", USER, "set", "MaxWall=-1")

    asyncio.run(scenario())


def test_what_slurm_refuses_is_refused_with_its_words_and_what_passes_is_tried_again(idle: AccountedCluster) -> None:
    async def scenario() -> None:
        for processors, fields, words, outcome in (
            (OF_JOB + 1, {"submit_options": ("--qos=strict",)}, "QOSMaxCpuPerJobLimit", Outcome.UNSUITABLE),
            (1, {"account": "chemistry"}, "Invalid account", Outcome.REFUSED),
            (1, {"submit_options": ("--qos=golden",)}, "Invalid qos", Outcome.REFUSED),
        ):
            ended = await refused(idle, processors, **fields)
            assert ended.outcome is outcome
            assert words in ended.reason
        idle.account("modify", "user", USER, "set", "MaxSubmitJobs=1")
        waiting = idle.submit("--ntasks=1", "--account=group", user=USER)
        async with opened(idle) as one:
            mine = launch("3.1")
            with pytest.raises(OSError, match="AssocMaxSubmitJobLimit"):
                await one.site.start(mine, component_script(mine))
            idle.run("scancel", waiting)
            await one.ready("3.1")  # nobody needs to ask again: it is submitted as soon as there is room
            await one.site.abort("3.1")
            await one.ended("3.1")
        idle.account("modify", "user", USER, "set", "MaxSubmitJobs=-1")

    asyncio.run(scenario())


# --------------------------------------------------------------------------------------------------------- history


def test_the_accounts_tell_how_jobs_ended_that_the_controller_forgot_and_whose_numbers_others_have(
    idle: AccountedCluster,
) -> None:
    def numbers() -> dict[str, str]:
        lines = idle.run("squeue", "--noheader", "--format=%j %A").splitlines()
        return {line.split()[0].split("-")[1]: line.split()[1] for line in lines}

    async def scenario() -> None:
        settings = {"account": "free"}
        async with opened(idle, **settings) as one:
            await one.start(launch("4.1"), launch("4.2"), launch("4.3", 5))
            await one.ready("4.1", "4.2", "4.3")
        before = numbers()
        idle.run("scancel", before["4.1"])
        idle.run("scancel", "--batch", "--signal=KILL", before["4.2"])
        last = idle.lab.plan.site(SITE).name + "2"
        idle.run("scontrol", "update", f"nodename={last}", "state=down", "reason=test")
        await until_true(lambda: not numbers())
        # A job's start comes into the accounts some seconds late.
        await until_true(lambda: idle.accounted(*before.values()).count("koala-") == len(before))
        # The controller of an operator who begins anew: it knows no job, and counts from the same number again.
        idle.forget_jobs(min(map(int, before.values())))
        again = {idle.submit("--hold", "--job-name=another", user=USER) for _ in before}
        assert again == set(before.values())
        async with opened(idle, **settings) as one:
            reasons = {token: await one.ended(token) for token in before}
        assert {ended.outcome for ended in reasons.values()} == {Outcome.SITE_FAILED}
        assert "CANCELLED by 0" in reasons["4.1"].reason
        assert "137" in reasons["4.2"].reason
        assert "NODE_FAIL" in reasons["4.3"].reason

    asyncio.run(scenario())
