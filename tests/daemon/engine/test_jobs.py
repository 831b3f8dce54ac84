"""Jobs through the whole engine: submitted, placed, run on embedded sites, ended, and all of it on record."""

from __future__ import annotations

import asyncio
from pathlib import Path

from koala.model.messages import CancelAsked, SiteDrained, SiteResumed
from koala.model.request import Flexibility, InputFile, InputMode, Priority
from tests.support.engine_world import OWNER, a_request, local_grid, open_engine, root
from tests.support.local_areas import local_areas

__all__ = ["root"]

TOKEN = "the same"  # noqa: S105 - a client token is no secret


def test_a_job_over_two_sites_runs_at_the_same_time_on_both_and_its_end_is_on_record(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            script = "echo $KOALA_COMPONENT of $KOALA_COMPONENTS, job $KOALA_JOB"
            row = await world.run(a_request(script, sizes=(3, 3)))
            assert (row.state, row.exit_code, row.runs, row.owner, row.reason) == ("done", 0, 1, OWNER, "")
            assert sorted(row.places) == [("a", 3), ("b", 3)]
            assert row.explanation is not None
            assert row.explanation["state"] == "done"
            assert [await world.output(row.id, part) for part in (0, 1)] == [
                f"{part} of 2, job {row.id}\n" for part in (0, 1)
            ]
            for component in world.store.components(row.id):
                assert component.outcome == "done"
                assert component.run == 1
                assert component.ready_at is not None
                assert component.released_at == row.started_at
            await world.all_given_back()
            assert world.engine.live_row(row.id) is None

    asyncio.run(scenario())


def test_a_failed_component_sends_the_whole_job_back_and_it_runs_again_as_a_whole(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            once = f'if [ $KOALA_COMPONENT = 1 ] && mkdir "{root}/once"; then exit 7; fi; sleep 0.3'
            row = await world.run(a_request(once, sizes=(3, 3)))
            assert (row.state, row.runs, row.failures, row.exit_code) == ("done", 2, 1, 0)
            rows = world.store.components(row.id)
            assert [(each.run, each.part) for each in rows] == [(1, 0), (1, 1), (2, 0), (2, 1)]
            assert [each.outcome for each in rows if each.part == 1] == ["failed", "done"]
            assert [each.exit_code for each in rows if each.part == 1] == [7, 0]
            first_run_over = max(each.ended_at or 0.0 for each in rows if each.run == 1)
            assert all(each.claimed_at >= first_run_over for each in rows if each.run == 2)
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_job_whose_program_is_missing_at_one_site_is_done_at_another_within_its_restarts(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((4, 3, 3), restart_rest_s=0.5)) as world:
            # Each site has a work directory of its own, and the program is in that of two of them.
            has_it = f"{root}/*/b/*|{root}/*/c/*"
            found = f'case $PWD in {has_it}) echo "run $KOALA_RUN" >"{root}/said" ;; *) nosuchprogram ;; esac'
            row = await world.run(a_request(found))
            assert (row.state, row.runs, row.failures) == ("done", 2, 1)
            assert [(each.site, each.exit_code) for each in world.store.components(row.id)] == [("a", 127), ("b", 0)]
            assert (root / "said").read_text() == "run 2\n"
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_job_whose_restarts_are_used_up_fails_with_the_exit_code_of_the_component_that_failed(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            row = await world.run(
                a_request("[ $KOALA_COMPONENT = 0 ] || exit 9; sleep 60", sizes=(1, 1), restarts_max=0)
            )
            assert (row.state, row.exit_code, row.runs) == ("failed", 9, 1)
            assert "exit code 9" in row.reason
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_cancelled_job_ends_at_once_and_gives_everything_back(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            job = await world.submit(a_request("sleep 60", sizes=(3, 3)))
            await world.in_state(job, "running")
            await world.engine.tell(CancelAsked(at=0.0, job=job))
            assert world.engine.live_row(job) is None
            row = world.store.job(job)
            assert row is not None
            assert (row.state, row.exit_code) == ("cancelled", None)
            await world.all_given_back()
            assert {each.outcome for each in world.store.components(job)} == {"aborted"}

    asyncio.run(scenario())


def test_a_job_that_runs_longer_than_its_walltime_is_ended(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            row = await world.run(a_request("sleep 60", sizes=(1, 1), walltime_s=0.2))
            assert row.state == "failed"
            assert "walltime" in row.reason
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_high_priority_job_preempts_a_low_one_which_then_runs_again(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid(mbit_s=2.0)) as world:
            # The high one has a place and waits for its file while the low one takes the processors.
            await world.register("data", b"x" * 1_500_000, "b")
            high = await world.submit(
                a_request("[ $(wc -c <data) = 1500000 ]", (4,), "a", ["data"], priority=Priority.HIGH)
            )
            low = await world.submit(a_request(f"until [ -e {root}/gate ]; do sleep 0.3; done", (4,), "a"))
            assert (await world.in_state(high, "placed")).places == (("a", 4),)
            await world.until(lambda: (row := world.engine.live_row(low)) is not None and row.preemptions)
            (done,) = await world.ended(high)
            assert (done.state, done.preemptions) == ("done", 0)
            (root / "gate").touch()
            (done,) = await world.ended(low)
            assert (done.state, done.preemptions) == ("done", 1)
            assert {each.outcome for each in world.store.components(low)} == {"aborted", "done"}
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_flexible_job_is_divided_over_what_is_idle(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((2, 3))) as world:
            row = await world.run(a_request("exit 0", sizes=(5,), flexible=Flexibility(), policy="FCM"))
            assert row.state == "done"
            assert sorted(row.places) == [("a", 2), ("b", 3)]

    asyncio.run(scenario())


def test_the_same_client_token_gives_the_same_job_also_when_both_calls_come_at_once(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            engine = world.engine
            calls = [engine.submit(a_request(), owner=OWNER, client_token=TOKEN) for _ in range(5)]
            rows = await asyncio.gather(*calls)
            assert len({row.id for row, _ in rows}) == 1
            assert sum(new for _, new in rows) == 1
            await world.ended(rows[0][0].id)
            again, new = await engine.submit(a_request(), owner=OWNER, client_token=TOKEN)
            assert (again.id, new, again.state) == (rows[0][0].id, False, "done")
            other, new = await engine.submit(a_request(), owner="bert", client_token=TOKEN)
            assert new
            await world.ended(other.id)

    asyncio.run(scenario())


def test_nothing_new_goes_to_a_drained_site_until_it_is_put_back(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            await world.engine.tell(SiteDrained(at=0.0, site="a"))
            assert (await world.run(a_request(sizes=(1,)))).places == (("b", 1),)
            waiting = await world.submit(a_request(sizes=(1,), sites="a"))
            await world.in_state(waiting, "waiting")
            await world.engine.tell(SiteResumed(at=0.0, site="a"))
            (row,) = await world.ended(waiting)
            assert row.places == (("a", 1),)

    asyncio.run(scenario())


def test_input_files_are_brought_linked_or_cut_out_and_go_when_the_job_has_ended(root: Path) -> None:
    async def scenario() -> None:
        data = bytes(range(256)) * 40
        async with open_engine(root) as world:
            await world.register("big", data, "a")
            await world.register("both", b"small", "a", "b")
            reads = (
                InputFile(name="big"),
                InputFile(name="both", path="in/side", mode=InputMode.CHUNK),
            )
            script = 'cat big | wc -c; printf "%s" "$(cat in/side)"'
            row = await world.run(a_request(script, sizes=(3, 3), reads=reads))
            assert row.state == "done"
            outputs = [(await world.output(row.id, part)).split() for part in (0, 1)]
            assert [each[0] for each in outputs] == ["10240", "10240"]
            assert "".join(each[1] for each in outputs) == "small"
            assert len({each[1] for each in outputs}) == 2
            (transfer,) = world.store.transfers(row.id)
            assert (transfer.file, transfer.source, transfer.target, transfer.ok) == ("big", "a", "b", True)
            await world.all_given_back()
            assert local_areas(world.engine)["a"].replica("both").read_bytes() == b"small"

    asyncio.run(scenario())


def test_a_release_without_its_input_file_ends_the_job_s_run_with_the_reason_and_holds_nothing(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid(error_threshold=100)) as world:
            await world.register("data", b"here", "a", "b")
            replica = local_areas(world.engine)["a"].replica("data")
            replica.rename(root / "aside")
            job = await world.submit(a_request("cat data", sizes=(1, 1), sites="ab", reads=["data"]))
            await world.until(lambda: (row := world.engine.live_row(job)) is not None and row.failures)
            broken = [row for row in world.store.components(job) if row.site == "a" and row.outcome is not None]
            assert (broken[0].outcome, broken[0].fault) == ("failed", "user")
            assert "data" in broken[0].reason
            (root / "aside").rename(replica)
            (row,) = await world.ended(job)
            assert row.state == "done"
            await world.all_given_back()

    asyncio.run(scenario())
