"""Components as jobs of a real Slurm cluster: from acceptance to the end, and every way to end early."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from koala.model.grid import BatchSettings, Claims
from koala.model.launch import Go, NodeShare
from koala.model.messages import ComponentAccepted, ComponentEnded, ComponentReady, ComponentRunning, Outcome
from koala.model.nodes import NodePool, NodeSize, TaskNeeds, TaskShape
from koala.model.request import Application
from koala.sites import SiteError, Stream
from koala.sites.batch.slurm.system import SlurmSystem
from koala.sites.batch.timings import BatchTimings
from tests.support.batch_sites import BatchWatcher, opened_batch, unanswered, until_true
from tests.support.live_sites import file_appears, launch, processes_of
from tests.support.slurm_cluster import SlurmCluster, slurm_cluster

OTHER = "nobody"
MIB = 2**20


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster(node="RealMemory=4000") as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def overdue(cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a component is apart that runs longer than Slurm allows. Slurm looks for such jobs every half minute, so
    the tests run meanwhile, and the last one sees its end."""
    root = tmp_path_factory.mktemp("overdue")

    async def scenario() -> None:
        async with opened(cluster, root, queue="apart") as one:
            await one.start(launch("1.1", f"touch {root}/on; sleep 90", walltime_s=900))
            await one.ready("1.1")
            assert cluster.run("squeue", "-h", "-p", "apart", "-o", "%l").split() == ["1:16:00"], (
                "barrier, walltime and some slack"
            )
            await one.site.release("1.1", Go())
            await file_appears(root / "on")
            number = cluster.run("squeue", "-h", "-p", "apart", "-o", "%A").strip()
            cluster.run("scontrol", "update", f"JobId={number}", "TimeLimit=0")

    asyncio.run(scenario())
    return root


@pytest.fixture
def idle(cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """The cluster, from which every job goes with the test."""
    yield cluster
    cluster.clear()


def settings_of(cluster: SlurmCluster, root: Path, **fields: Any) -> BatchSettings:
    return BatchSettings(
        work_directory=str(root), environment=tuple(cluster.environment.items()), host="127.0.0.1", **fields
    )


def opened(
    cluster: SlurmCluster, root: Path, *, options: dict[str, Any] | None = None, **fields: Any
) -> AbstractAsyncContextManager[BatchWatcher]:
    """An open site on the cluster, with its work directory below ``root``."""
    settings = settings_of(cluster, root / "work", **fields)
    return opened_batch(settings, SlurmSystem(settings), **(options or {}))


def test_a_component_is_accepted_then_ready_then_done(idle: SlurmCluster, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(idle, tmp_path / "it's 100 %j $HOME;") as one:
            ended = await one.run(launch("1.1", "echo hello; echo trouble >&2"))
            assert (ended.outcome, ended.exit_code) == (Outcome.DONE, 0)
            assert one.stages("1.1") == [ComponentAccepted, ComponentReady, ComponentEnded]
            assert await one.stdout("1.1") == "hello\n"
            assert await one.site.output("1.1", Stream.STDERR, 0) == b"trouble\n"
            assert await one.site.output("1.1", Stream.STDOUT, 2, 3) == b"llo"
            assert one.as_site().name == "alpha"
            with pytest.raises(SiteError, match=r"no component 9\.9 here"):
                await one.site.output("9.9", Stream.STDOUT, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize(("text", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_an_application_that_fails_is_reported_with_its_exit_code(
    idle: SlurmCluster, tmp_path: Path, text: str, code: int
) -> None:
    async def scenario() -> None:
        async with opened(idle, tmp_path) as one:
            ended = await one.run(launch("1.1", text))
            assert (ended.outcome, ended.exit_code) == (Outcome.FAILED, code)

    asyncio.run(scenario())


def test_a_component_over_two_nodes_knows_its_share_of_each_and_runs_commands_there(
    idle: SlurmCluster, tmp_path: Path
) -> None:
    there = "sh -c 'echo \"$SLURMD_NODENAME $GREETING\"' </dev/null"
    text = f'. "$KOALA_HOME/site"; koala_nodes; (koala_on_node n2 {there})'

    async def scenario() -> None:
        async with opened(idle, tmp_path, job_environment=(("GREETING", "it's a site"),)) as one:
            application = Application(script=text, processors_per_task=2)
            await one.start(launch("1.1", application, processors=6))
            await one.ready("1.1")
            assert await one.site.nodes("1.1") == (NodeShare("127.0.0.1", 4), NodeShare("n2", 2))
            await one.site.release("1.1", Go())
            await one.ended("1.1")
            assert await one.stdout("1.1") == "n1 4\nn2 2\nn2 it's a site\n"

    asyncio.run(scenario())


# ---------------------------------------------------------------------------------------------- aborts


async def at_stage(one: BatchWatcher, cluster: SlurmCluster, tmp_path: Path, stage: str) -> None:
    """Start 1.1 and bring it there."""
    if stage == "pending":
        cluster.submit("-n", "8")
    await one.start(launch("1.1", f"touch {tmp_path}/on; sleep 90", processors=8))
    if stage != "pending":
        await one.ready("1.1")
    if stage == "running":
        await one.site.release("1.1", Go())
        await file_appears(tmp_path / "on")


STAGES = pytest.mark.parametrize("stage", ["pending", "at the barrier", "running"])


@STAGES
def test_an_abort_ends_the_job_wherever_it_is(idle: SlurmCluster, tmp_path: Path, stage: str) -> None:
    async def scenario() -> None:
        async with opened(idle, tmp_path) as one:
            await at_stage(one, idle, tmp_path, stage)
            await one.site.abort("1.1", outcome=Outcome.FAILED, reason="enough")
            await one.site.abort("1.1")
            await one.site.release("1.1", Go())
            ended = await one.ended("1.1")
            assert (ended.outcome, ended.reason) == (Outcome.FAILED, "enough")
            assert not [name for name in idle.job_names() if name.startswith("koala-")]
            assert not processes_of(tmp_path)
            await one.site.abort("1.1")
            assert one.events[-1] == ended

    asyncio.run(scenario())


@STAGES
def test_a_job_that_a_local_user_cancels_is_a_failure_of_the_site(
    idle: SlurmCluster, tmp_path: Path, stage: str
) -> None:
    async def scenario() -> None:
        async with opened(idle, tmp_path) as one:
            await at_stage(one, idle, tmp_path, stage)
            idle.run("scancel", *idle.ids_of("koala-1.1"))
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.SITE_FAILED
            assert "cancelled" in ended.reason
            assert not processes_of(tmp_path)

    asyncio.run(scenario())


def test_the_walltime_counts_from_the_release_and_ends_the_component(idle: SlurmCluster, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(idle, tmp_path) as one:
            ended = await one.run(launch("1.1", "sleep 60", walltime_s=0.3))
            assert ended.outcome is Outcome.TIMED_OUT
            assert "0.3 s" in ended.reason

    asyncio.run(scenario())


# ---------------------------------------------------------------------------------------- tokens and mail


def test_the_same_token_twice_starts_once_and_its_newest_event_is_repeated(
    idle: SlurmCluster, tmp_path: Path
) -> None:
    async def scenario() -> None:
        log = tmp_path / "log"
        async with opened(idle, tmp_path) as one:
            again = launch("1.1", f"echo ran >> {log}")
            await one.start(again, again)
            assert one.stages("1.1") == [ComponentAccepted] * 2
            await one.ready("1.1")
            await one.start(again)
            assert isinstance(one.events[-1], ComponentReady)
            await one.site.release("1.1", Go())
            await one.site.ask(["1.1"])
            assert isinstance(one.events[-1], ComponentRunning | ComponentEnded)
            ended = await one.ended("1.1")
            await one.start(again)
            await one.site.ask(["1.1"])
            assert one.events[-2:] == [ended, ended]
            assert log.read_text() == "ran\n"

    asyncio.run(scenario())


def test_mail_comes_out_once_for_each_opening_and_goes_in_whole(idle: SlurmCluster, tmp_path: Path) -> None:
    reply = bytes(range(256)) + b"%s \\n ' end\n"

    async def scenario() -> None:
        wait = 'until [ -e "$KOALA_HOME/inbox/reply" ]; do sleep 0.3; done; cat "$KOALA_HOME/inbox/reply"'
        async with opened(idle, tmp_path) as one:
            text = f'cd "$KOALA_HOME/outbox"; printf "ask\\000\\377" > .new; mv .new question; {wait}'
            await one.start(launch("1.1", text))
            await one.ready("1.1")
            assert await one.site.fetch("1.1", "question") is None
            await one.site.release("1.1", Go())
            await one.until(lambda: bool(one.mail))
        async with opened(idle, tmp_path) as one:
            await one.until(lambda: bool(one.mail))
            assert [(mail.name, mail.data) for mail in one.mail] == [("question", b"ask\0\xff")]
            assert await one.site.fetch("1.1", "question") == b"ask\0\xff"
            await one.site.deliver("1.1", "reply", reply)
            await one.site.deliver("1.1", "reply", b"not the second\n")
            await one.ended("1.1")
            assert await one.site.output("1.1", Stream.STDOUT, 0) == reply

    asyncio.run(scenario())


# ----------------------------------------------------------------------- what the cluster has, and reservations


def test_processors_of_others_of_drained_nodes_and_of_the_queue_ahead_are_not_idle(
    idle: SlurmCluster, tmp_path: Path
) -> None:
    async def report(one: BatchWatcher) -> tuple[int, int]:
        told = await one.site.probe()
        return told.processors, told.others

    async def scenario() -> None:
        async with opened(idle, tmp_path, options={"timings": BatchTimings(fresh_s=0.0)}) as one:
            assert await report(one) == (8, 0)
            idle.submit("-n", "3")
            await one.start(launch("1.1"))
            await one.ready("1.1")
            huge = idle.submit("-n", "8", "-J", "a\nkoala jobs\njob 1", user=OTHER)
            await until_true(lambda: "Resources" in idle.run("squeue", "-h", "-j", huge, "-o", "%r"))
            assert await report(one) == (8, 3), "what waits for more than there is does not make it full"
            idle.run("scancel", huge)
            idle.run("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
            try:
                assert await report(one) == (4, 3)
                waiting = idle.submit("-n", "4", "-p", "main")
                await until_true(lambda: "Resources" in idle.run("squeue", "-h", "-j", waiting, "-o", "%r"))
                assert await report(one) == (4, 3)
                small = idle.submit("-n", "1", "-p", "main")
                await until_true(lambda: "Priority" in idle.run("squeue", "-h", "-j", small, "-o", "%r"))
                assert await report(one) == (4, 4), "when ours comes free it is taken"
                idle.run("scancel", small)
            finally:
                idle.run("scontrol", "update", "nodename=n2", "state=resume")
            await until_true(lambda: "n2" in idle.run("squeue", "-h", "-j", waiting, "-o", "%N"))
            await one.site.abort("1.1")
            await one.ended("1.1")
        async with opened(idle, tmp_path, options={"processors": 2}) as one:
            assert await report(one) == (2, 1), "of 8 are 7 in use, and no more than 2 are ours to use"

    asyncio.run(scenario())


def test_a_component_that_is_too_large_or_too_long_is_refused(idle: SlurmCluster, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(idle, tmp_path, queue="nowhere") as one:
            await one.start(launch("1.1", processors=9))
            assert "9 processors" in (await one.ended("1.1")).reason
            await one.start(launch("1.2"))
            ended = await one.ended("1.2")
            assert ended.outcome is Outcome.REFUSED
            assert "nvalid partition" in ended.reason
            assert not idle.job_names()

    asyncio.run(scenario())


def test_where_memory_is_not_shared_out_a_task_goes_to_a_node_that_has_as_much(
    idle: SlurmCluster, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(idle, tmp_path) as one:
            (nodes,) = (await one.site.probe()).nodes
            assert (nodes.count, nodes.whole) == (2, NodeSize(4, 4000 * MIB, counts_memory=False))
            pool = NodePool.whole([nodes])
            assert [pool.places(TaskShape(1, size * MIB)) for size in (4000, 4001)] == [8, 0]
            assert pool.places(TaskShape(1, 0, 1)) == 0
            ended = await one.run(launch("1.1", "exit 0", processors=4, needs=TaskNeeds(memory_bytes=4000 * MIB)))
            assert ended.outcome is Outcome.DONE
            for number, needs in ((2, TaskNeeds(memory_bytes=4001 * MIB)), (3, TaskNeeds(gpus=1))):
                await one.start(launch(f"{number}.1", "exit 0", needs=needs))
                assert (await one.ended(f"{number}.1")).outcome is Outcome.UNSUITABLE

    asyncio.run(scenario())


@pytest.mark.parametrize("allowed", [True, False])
def test_a_claim_by_reservation_starts_at_its_time_and_the_reservation_goes_with_it(
    idle: SlurmCluster, tmp_path: Path, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not allowed:
        monkeypatch.setattr(SlurmSystem, "reserve", lambda *_: "echo 'not for you' >&2; exit 1\n")

    async def scenario() -> None:
        async with opened(idle, tmp_path, claims=Claims.RESERVATION) as one:
            begin_at = one.now() + 10
            await one.start(launch("1.1", "sleep 0", processors=3, begin_at=begin_at, walltime_s=60.0))
            reservations = idle.run("scontrol", "show", "reservation", "-o")
            assert ("koala_1_1_" in reservations) == allowed
            await one.ready("1.1")
            assert not allowed or one.told(ComponentReady, "1.1")[0].at >= begin_at - 1
            await one.site.release("1.1", Go())
            assert (await one.ended("1.1")).outcome is Outcome.DONE
            assert "koala_" not in idle.run("scontrol", "show", "reservation", "-o")

    asyncio.run(scenario())


def test_a_reservation_that_was_never_answered_is_the_one_that_the_component_runs_in(
    idle: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(idle, tmp_path, claims=Claims.RESERVATION) as one:
            wanted = launch("1.1", processors=3, begin_at=one.now() + 600, walltime_s=60.0)
            with monkeypatch.context() as patched:
                patched.setattr(SlurmSystem, "reserve", unanswered(SlurmSystem.reserve))
                with pytest.raises(OSError, match="before its end"):
                    await one.start(wanted)
            made = idle.run("scontrol", "show", "reservation", "-o").split()[0]
            assert made.startswith("ReservationName=koala_1_1_")
            await one.start(wanted)
            assert idle.run("scontrol", "show", "reservation", "-o").count("ReservationName=") == 1
            assert made == f"ReservationName={idle.run('squeue', '-h', '-p', 'main', '-o', '%v').strip()}"
            await one.site.abort("1.1")
            await one.ended("1.1")
            assert "koala_" not in idle.run("scontrol", "show", "reservation", "-o")

    asyncio.run(scenario())


def test_slurms_own_time_limit_is_a_time_out_too(cluster: SlurmCluster, overdue: Path) -> None:
    async def scenario() -> None:
        async with opened(cluster, overdue, queue="apart") as one:
            assert (await one.ended("1.1")).outcome is Outcome.TIMED_OUT

    asyncio.run(scenario())
