"""Jobs through the service, on a real engine with real processes: from the submission to the output."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

from koala.daemon.service.principal import Principal
from koala.descriptions import read_job
from koala.model.api import PAGE_ITEMS_MAX, WAIT_S_MAX, Scope
from koala.model.api.questions import JobChange, Submission
from koala.model.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError, TooManyError
from koala.model.request import Priority
from tests.support.daemon_world import ANNA, BERT, OPERATOR, OWNER, DaemonWorld, job_text, open_daemon, small_grid

TWO_PARTS = ("{processors: 2, site: A}", "{processors: 1, site: B}")
FOREVER = "while :; do sleep 1; done"
NEVER_FITS_NOW = ("{processors: 4, site: A}",)


def test_a_job_runs_on_its_sites_and_tells_all_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            told = await world.submit(job_text("echo part $KOALA_COMPONENT", TWO_PARTS, name="pair"), ANNA)
            assert told.new
            assert (told.job.owner, told.job.name, told.job.kind, told.job.processors) == ("anna", "pair", "fixed", 3)
            ended = await world.ended(told.job.id, ANNA)
            assert (ended.state, ended.exit_code, ended.runs) == ("done", 0, 1)
            assert [(place.site, place.processors) for place in ended.places] == [("A", 2), ("B", 1)]
            detail = await world.service.job(ANNA, told.job.id)
            assert [(each.run, each.part, each.site, each.outcome) for each in detail.components] == [
                (1, 0, "A", "done"),
                (1, 1, "B", "done"),
            ]
            for each in detail.components:
                assert each.ready_at is not None
                assert each.released_at is not None
                assert each.ended_at is not None
                assert each.claimed_at <= each.ready_at <= each.released_at <= each.ended_at
            again = read_job(detail.description, "job.yaml")
            assert (again.name, again.processors) == ("pair", 3)
            for part in (0, 1):
                output = await world.service.output(ANNA, told.job.id, part=part)
                assert (output.text, output.complete, output.site) == (f"part {part}\n", True, "AB"[part])

    asyncio.run(scenario())


def test_a_waiting_job_is_explained_with_its_place_in_line(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            first = await world.start(job_text(FOREVER, NEVER_FITS_NOW))
            second = await world.start(job_text(components=NEVER_FITS_NOW))
            third = await world.start(job_text(components=("{processors: 3, site: A}",)))
            why = await world.service.explain(OWNER, third)
            assert (why.state, why.place_in_line, why.queue_length) == ("waiting", 2, 2)
            assert why.refusal is not None
            assert [(short.site, short.missing) for short in why.refusal.shortages if short.missing] == [("A", 3)]
            assert why.story[0].text.startswith("submitted")
            assert (await world.service.job(OWNER, second)).place_in_line == 1
            assert (await world.service.job(OWNER, first)).place_in_line is None
            overview = await world.service.grid.overview(OWNER)
            assert [job.id for job in overview.waiting_low] == [second, third]
            await world.service.changes.cancel(OWNER, first)
            for job in (second, third):
                assert (await world.ended(job)).state == "done"
            whole = await world.service.explain(OWNER, third)
            assert (whole.state, whole.place_in_line, whole.queue_length) == ("done", None, None)
            first_words = [line.text.partition(" ")[0] for line in whole.story]
            assert first_words == ["submitted:", "no", "placed:", "all", "the", "done"]
            assert [line.at for line in whole.story] == sorted(line.at for line in whole.story)

    asyncio.run(scenario())


def test_a_description_with_problems_is_refused_at_their_places(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            text = "components:\n  - {processors: 0}\n  - {processors: 1, sight: A}\npriority: urgent\n"
            for call in (world.service.submit, world.service.dry_run):
                with pytest.raises(InvalidError) as caught:
                    await call(OWNER, Submission(description=text, source="mine.yaml"))
                problems = caught.value.problems
                assert [problem.line for problem in problems] == [2, 3, 4]
                assert all(problem.message and problem.cure and problem.column for problem in problems)
                assert caught.value.message.startswith("mine.yaml:2:")
                assert caught.value.message.endswith("(and 2 more problems)")
                with pytest.raises(InvalidError, match="there is no site 'Q'"):
                    await call(OWNER, Submission(description="components: [{processors: 1, site: Q}]"))
                with pytest.raises(InvalidError, match="there is no policy 'XX'"):
                    await call(OWNER, Submission(description="processors: 1\npolicy: XX\n"))
            assert (await world.service.jobs(OWNER)).items == []

    asyncio.run(scenario())


def test_a_job_that_no_site_could_start_is_refused_when_it_is_submitted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            with pytest.raises(InvalidError, match="nothing to run"):
                await world.submit("processors: 1\n")
            assert (await world.service.jobs(OWNER)).items == []

    asyncio.run(scenario())


def test_a_job_whose_input_file_is_nowhere_waits_and_says_for_what(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            job = await world.start(job_text(input_files="[data]"))
            why = await world.service.explain(OWNER, job)
            assert why.state == "waiting"
            assert why.refusal is not None
            assert "data" in why.refusal.reason
            dry = await world.service.dry_run(OWNER, Submission(description=job_text(input_files="[data]")))
            assert dry.refusal is not None
            assert "data" in dry.refusal.reason

    asyncio.run(scenario())


def test_the_same_client_token_gives_the_same_job_and_no_second_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            told = await asyncio.gather(*(world.submit(job_text(), ANNA, "t1") for _ in range(8)))
            assert len({each.job.id for each in told}) == 1
            assert sorted(each.new for each in told) == [False] * 7 + [True]
            other = await world.submit(job_text(), BERT, "t1")
            assert other.new
            with pytest.raises(ConflictError, match=f"used for job {told[0].job.id}, which is a different one"):
                await world.submit(job_text("exit 1"), ANNA, "t1")
            await world.ended(told[0].job.id)
            again = await world.submit(job_text(), ANNA, "t1")
            assert (again.new, again.job.id, again.job.state) == (False, told[0].job.id, "done")
        async with open_daemon(tmp_path / "d") as world:
            restarted = await world.submit(job_text(), ANNA, "t1")
            assert (restarted.new, restarted.job.id) == (False, told[0].job.id)
            with pytest.raises(InvalidError, match="client_token"):
                await world.submit(job_text(), ANNA, "a\0b")

    asyncio.run(scenario())


def test_no_more_jobs_are_taken_than_the_limit_but_a_known_one_is_found(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", jobs_live_max=1) as world:
            first = await world.submit(job_text(FOREVER), OWNER, "one")
            with pytest.raises(TooManyError, match="JOBS_LIVE_MAX"):
                await world.submit(job_text(), OWNER, "two")
            assert (await world.submit(job_text(FOREVER), OWNER, "one")).job.id == first.job.id
            await world.service.changes.cancel(OWNER, first.job.id)
            await world.ended(first.job.id)
            assert (await world.submit(job_text(), OWNER, "two")).new

    asyncio.run(scenario())


def test_a_dry_run_knows_that_a_site_is_drained(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", small_grid((4, 2))) as world:
            await world.service.grid.drain(OWNER, "A")
            told = await world.service.dry_run(
                ANNA, Submission(description=job_text(components=("{processors: 3}",)))
            )
            assert told.refusal is not None
            assert told.refusal.cure == "resuming A, which is drained"

    asyncio.run(scenario())


@pytest.mark.parametrize("fields", [{}, {"hold": "true"}, {"array": "1-3"}, {"hold": "true", "array": "1-3%1"}])
def test_the_answer_to_a_submission_says_why_a_job_can_never_fit(tmp_path: Path, fields: dict[str, str]) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", small_grid((4, 2))) as world:
            parts = ("{processors: 1}", "{processors: 8, application: {processors_per_task: 8, script: exit 0}}")
            never = await world.submit(job_text(components=parts, **fields))
            assert never.never_fits is not None
            assert never.never_fits.reason.endswith("a task holds 8 processors")
            assert (
                never.never_fits.cure == "ask for fewer processors a task, since no node has more than 4 processors"
            )
            fits = await world.submit(job_text(FOREVER, components=("{processors: 4}",), **fields))
            waits = await world.submit(job_text(components=("{processors: 4}",), **fields))
            assert (fits.never_fits, waits.never_fits) == (None, None)

    asyncio.run(scenario())


def test_a_flexible_job_without_a_policy_shows_the_one_that_divided_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", small_grid((4, 2))) as world:
            text = "flexible: {processors: 6}\napplication: {executable: /bin/true}\n"
            told = await world.submit(text, ANNA)
            assert told.job.policy == "FCM"

    asyncio.run(scenario())


def test_a_dry_run_says_where_a_job_would_go_and_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", small_grid((4, 2))) as world:
            before = world.service.last_seq
            told = await world.service.dry_run(ANNA, Submission(description=job_text(components=TWO_PARTS)))
            assert [(place.component, place.site, place.processors) for place in told.places] == [
                (0, "A", 2),
                (1, "B", 1),
            ]
            refused = await world.service.dry_run(
                ANNA, Submission(description=job_text(components=("{processors: 9}",)))
            )
            assert refused.places == []
            assert refused.refusal is not None
            assert refused.refusal.permanent
            assert {short.site for short in refused.refusal.shortages} == {"A", "B"}
            assert (refused.place_in_line, refused.expected_at) == (None, None)
            assert (told.expected_sites, told.place_in_line) == (["A", "B"], None)
            assert told.expected_at is not None  # at once: there are no files to bring
            assert abs(told.expected_at - world.engine.now()) < 600.0
            assert (await world.service.jobs(OWNER)).items == []
            assert world.service.last_seq - before < 5  # reports of sites may come meanwhile, jobs do not

    asyncio.run(scenario())


def test_a_dry_run_says_when_a_job_would_start_and_a_scan_comes_when_that_changes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", small_grid((4,), plan_depth=1)) as world:
            first = await world.start(job_text(FOREVER, NEVER_FITS_NOW, walltime="1h"), ANNA)
            running = await world.in_state(first, "running")
            assert running.started_at is not None
            wide = Submission(description=job_text(components=NEVER_FITS_NOW))
            for who, named in ((OWNER, [first]), (BERT, [])):
                told = await world.service.dry_run(who, wide)
                assert told.refusal is not None
                assert (told.place_in_line, told.expected_sites, told.ends_before) == (1, ["A"], named)
                assert told.expected_at == told.latest_at
                assert told.latest_at is not None
                assert 0.0 <= told.latest_at - running.started_at - 3_600.0 < 60.0
            second = await world.start(job_text(components=NEVER_FITS_NOW))
            why = await world.service.explain(OWNER, second)
            assert (why.expected_at, why.ends_before) == (told.expected_at, [first])
            behind = await world.service.dry_run(OWNER, wide)
            assert (behind.place_in_line, behind.expected_at) == (2, None)  # one of its queue has a plan
            with pytest.raises(InvalidError, match=f"job {first} is not an array .* koala job show {first}$"):
                await world.service.jobs(OWNER, array=first)
            with pytest.raises(NotFoundError):
                await world.service.jobs(OWNER, array=99)
            await world.service.changes.cancel(ANNA, first)
            assert (await world.ended(second)).state == "done"

    asyncio.run(scenario())


def test_cancelling_ends_a_running_job_and_leaves_an_ended_one_as_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            job = await world.start(job_text(FOREVER, TWO_PARTS))
            await world.in_state(job, "running")
            asked = await world.service.changes.cancel(OWNER, job)
            assert asked.state == "cancelled"
            before = await world.service.job(OWNER, job)
            assert (await world.service.changes.cancel(OWNER, job)).ended_at == before.ended_at

            async def let_go() -> bool:
                return all(site.ours == 0 for site in await world.service.grid.sites(OWNER))

            await world.until(let_go)

    asyncio.run(scenario())


ITS_TIME = "it waits for its time (begin_at)"
HELD = "it is held by its owner; koala job release ends the hold"


def test_a_job_waits_for_another_is_held_and_let_go_changed_and_put_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            service = world.service
            first = await world.start(job_text(FOREVER, TWO_PARTS))
            second = await world.start(job_text(after=f"{{ended: [{first}]}}", hold="true"))
            await world.in_state(first, "running")
            for text, why_not in (
                (job_text(after=f"{{done: [{first}]}}"), f"it waits for job {first} to be done"),
                (job_text(after=f"{{started: [{first}]}}"), ""),
                (job_text(begin_at="now+1h"), ITS_TIME),
                (job_text(begin_at="now+1h", hold="true"), f"{ITS_TIME}; {HELD}"),
                (job_text(hold="true"), HELD),
            ):
                told = await service.dry_run(OWNER, Submission(description=text))
                assert told.kept_back == why_not
                assert (told.begins_at is not None) == ("begin_at" in text)
                if why_not == ITS_TIME:
                    assert told.expected_at == told.begins_at
                else:
                    assert (told.expected_at is None, told.expected_sites == []) == (bool(why_not), bool(why_not))
            held = await service.job(OWNER, second)
            assert held.state == "held"
            assert held.reason.startswith(f"it waits for job {first} to end; it is held by its owner")
            why = await service.explain(OWNER, second)
            assert (why.held, [(each.job, each.condition) for each in why.waits_for]) == (True, [(first, "ended")])
            assert (await service.changes.unhold(OWNER, second)).state == "held"
            changed = await service.changes.change(OWNER, second, JobChange(walltime_s=60.0, priority=Priority.HIGH))
            assert changed.priority == "high"
            with pytest.raises(ConflictError, match="running"):
                await service.changes.hold(OWNER, first)
            with pytest.raises(ConflictError, match="running"):
                await service.changes.change(OWNER, first, JobChange(walltime_s=60.0))
            with pytest.raises(InvalidError, match="nothing to change"):
                await service.changes.change(OWNER, second, JobChange())
            await service.changes.requeue(OWNER, first, hold=True)
            await world.in_state(first, "held")
            await service.changes.cancel(OWNER, first)
            assert (await world.ended(second)).state == "done"
            third = await world.submit(job_text(after=f"{{done: [{first}]}}"))
            assert third.warning.endswith(f"which can never come: job {first} was cancelled")
            ended = await world.ended(third.job.id)
            assert ended.state == "cancelled"
            assert f"job {first} was cancelled" in ended.reason
            with pytest.raises(ConflictError, match="submit it again"):
                await service.changes.requeue(OWNER, first)
            with pytest.raises(InvalidError, match="there is no job 99"):
                await world.start(job_text(after="{done: [99]}"))
            with pytest.raises(NotFoundError):
                await service.changes.hold(BERT, second)

    asyncio.run(scenario())


def test_an_array_is_one_row_and_its_elements_are_jobs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            service = world.service
            script = 'echo "$KOALA_ARRAY_JOB $KOALA_ARRAY_INDEX $SLURM_ARRAY_TASK_ID"'
            array = await world.start(job_text(script, array='"3-11:2%2"', name="sweep"))
            whole = await world.ended(array)
            assert (whole.state, whole.elements and whole.elements.done) == ("done", 5)
            assert whole.started_at is not None
            again = await world.start(job_text(FOREVER, NEVER_FITS_NOW, array="0-9999"))
            await world.in_state(again + 1, "running")
            running = (await service.jobs(OWNER, states=frozenset({"running"}))).items
            assert [(each.id, each.state, each.standing) for each in running] == [(again, "unfolding", "running")]
            assert not (await service.jobs(OWNER, states=frozenset({"waiting"}))).items
            overview = await service.grid.overview(OWNER)
            assert [each.id for each in overview.active] == [again + 1]
            counts = {state: count for state, count in overview.counts.items() if count}
            assert counts == {"waiting": 9_999, "running": 1, "done": 5}, "each element once, and no array"
            after = await world.start(job_text(after=f"{{done: [{array}_5], ended: [{again}_9999]}}"))
            assert (again, after) == (array + 6, array + 6 + 10_001)
            elements = (await service.jobs(OWNER, array=array)).items
            assert whole.started_at == min(each.started_at or math.inf for each in elements)
            assert [(each.id, each.name, each.array, each.array_index) for each in elements][-2:] == [
                (array + 2, "sweep[5]", array, 5),
                (array + 1, "sweep[3]", array, 3),
            ]
            assert [each.id for each in (await service.jobs(OWNER)).items] == [after, again, array]
            lately = await service.grid.ended_lately(OWNER, 0.0)
            assert {(each.id, each.array) for each in lately} == {(each.id, array) for each in elements}
            assert await service.grid.ended_lately(BERT, 0.0) == []
            assert (await service.output(OWNER, array + 2)).text == f"{array} 5 5\n"
            with pytest.raises(NotFoundError, match="whose turn has not come yet; wait for it, or name the array"):
                await service.job(OWNER, again + 9_000)
            with pytest.raises(NotFoundError, match="there is no job"):
                await service.job(BERT, again + 9_000)
            assert (await service.changes.cancel(OWNER, again + 10_000)).id == again
            assert (await world.ended(after)).state == "done"
            with pytest.raises(InvalidError, match=f"no element {array}_4"):
                await world.start(job_text(after=f"{{done: [{array}_4]}}"))
            last = await world.start(job_text(FOREVER, NEVER_FITS_NOW, array="0-1"))
            for state, number in (("running", again), ("waiting", last)):
                page = await service.jobs(OWNER, states=frozenset({state}), limit=1)
                assert ([each.id for each in page.items], page.next) == ([number], None)
            assert (await service.changes.hold(OWNER, again)).state == "held"
            counted = (await service.numbers()).jobs
            assert counted == (await service.grid.overview(OWNER)).counts
            assert {state: count for state, count in counted.items() if count} == {
                "held": 9_996,  # and one is cancelled
                "waiting": 2 + 2,
                "running": 1,
                "done": 6,
            }
            await service.changes.cancel(OWNER, last)
            ended = await service.changes.cancel(OWNER, again)
            assert (ended.state, ended.elements and ended.elements.cancelled) == ("cancelled", 10_000)
        async with open_daemon(tmp_path / "d") as world:
            assert await world.start(job_text()) == last + 3

    asyncio.run(scenario())


def test_waiting_for_a_job_ends_with_it_or_at_the_timeout(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            job = await world.start(job_text(FOREVER))
            assert (await world.service.wait(OWNER, job, 0.0)).ended_at is None
            waiting = asyncio.create_task(world.service.wait(OWNER, job, WAIT_S_MAX))
            await world.in_state(job, "running")
            assert not waiting.done()
            await world.service.changes.cancel(OWNER, job)
            assert (await waiting).state == "cancelled"
            for timeout_s in (-1.0, WAIT_S_MAX + 1, float("nan")):
                with pytest.raises(InvalidError, match="WAIT_S_MAX"):
                    await world.service.wait(OWNER, job, timeout_s)

    asyncio.run(scenario())


def test_jobs_are_listed_newest_first_page_by_page(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            jobs = [await world.start(job_text(), ANNA if number % 2 else BERT) for number in range(7)]
            for job in jobs:
                await world.ended(job)
            found: list[int] = []
            cursor: str | None = None
            for _ in range(4):
                page = await world.service.jobs(OPERATOR, limit=2, cursor=cursor)
                found += [job.id for job in page.items]
                cursor = page.next
            assert cursor is None
            assert found == jobs[::-1]
            assert [job.id for job in (await world.service.jobs(OWNER, owner="anna")).items] == jobs[1::2][::-1]
            assert len((await world.service.jobs(OWNER, states=frozenset({"done"}))).items) == 7
            assert (await world.service.jobs(OWNER, states=frozenset({"failed", "waiting"}))).items == []
            await check_bad_questions(world)

    asyncio.run(scenario())


async def check_bad_questions(world: DaemonWorld) -> None:
    for limit in (0, -1, PAGE_ITEMS_MAX + 1):
        with pytest.raises(InvalidError, match="PAGE_ITEMS_MAX"):
            await world.service.jobs(OWNER, limit=limit)
    with pytest.raises(InvalidError, match="cursor"):
        await world.service.jobs(OWNER, cursor="nonsense")
    with pytest.raises(InvalidError, match=r"no state 'runing'; did you mean running"):
        await world.service.jobs(OWNER, states=frozenset({"runing"}))
    for job in (0, -1, 999, 2**70):
        with pytest.raises(NotFoundError, match=f"no job {job}"):
            await world.service.job(OWNER, job)


def test_the_output_of_a_running_job_can_be_followed_to_its_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            gate = tmp_path / "gate"
            script = f"echo grün\necho trouble >&2\nwhile [ ! -e {gate} ]; do sleep 0.3; done\nprintf last"
            job = await world.start(job_text(script))

            async def first_line() -> bool:
                told = await world.service.output(OWNER, job)
                assert not told.complete
                return told.text == "grün\n"

            await world.in_state(job, "running")
            await world.until(first_line)
            gate.touch()
            await world.ended(job)
            text, offset = "", 0
            for _ in range(50):
                piece = await world.service.output(OWNER, job, offset=offset, limit=1)
                text, offset = text + piece.text, piece.next_offset
                if piece.complete:
                    break
            assert (text, piece.complete) == ("grün\nlast", True)
            assert (await world.service.output(OWNER, job, stream="stderr")).text == "trouble\n"

    asyncio.run(scenario())


def test_each_run_of_a_job_that_was_started_again_keeps_its_output(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            mark = tmp_path / "mark"
            script = f"if [ -e {mark} ]; then echo second; else touch {mark}; echo first; exit 3; fi"
            job = await world.start(job_text(script))
            ended = await world.ended(job)
            assert (ended.state, ended.runs, ended.failures) == ("done", 2, 1)
            assert (await world.service.output(OWNER, job)).text == "second\n"
            assert (await world.service.output(OWNER, job, run=1)).text == "first\n"
            with pytest.raises(NotFoundError, match="no run 3 with components; it has: 1, 2"):
                await world.service.output(OWNER, job, run=3)

    asyncio.run(scenario())


def test_the_output_at_a_site_that_has_left_the_grid_is_not_found_and_says_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", small_grid((4, 4))) as world:
            job = await world.start(job_text("echo hi", ("{processors: 1, site: B}",)))
            await world.ended(job)
        async with open_daemon(tmp_path / "d", small_grid((4,))) as world:
            with pytest.raises(NotFoundError, match=r"is at B: this site is no longer in the grid; start the daemon"):
                await world.service.output(OWNER, job)
            assert (await world.service.job(OWNER, job)).components[0].site == "B"
        async with open_daemon(tmp_path / "d", small_grid((4, 4))) as world:
            assert (await world.service.output(OWNER, job)).text == "hi\n"

    asyncio.run(scenario())


def test_a_job_that_never_started_has_no_output_and_says_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            await world.start(job_text(FOREVER, NEVER_FITS_NOW))
            job = await world.start(job_text(components=NEVER_FITS_NOW))
            with pytest.raises(NotFoundError, match="none of its components has been started yet"):
                await world.service.output(OWNER, job)
            for each in (job, job - 1):
                await world.service.changes.cancel(OWNER, each)
            with pytest.raises(NotFoundError, match="started"):
                await world.service.output(OWNER, job)

    asyncio.run(scenario())


def test_output_that_its_site_has_forgotten_is_said_to_be_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            job = await world.start(job_text("echo old"))
            await world.ended(job)
            (component,) = (await world.service.job(OWNER, job)).components
            await world.engine.site(component.site).forget(component.token)
            with pytest.raises(NotFoundError, match="is gone"):
                await world.service.output(OWNER, job)

    asyncio.run(scenario())


def test_a_caller_without_the_scope_is_turned_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            reader = Principal(name="anna", scopes=frozenset({Scope.READ}))
            submitter = Principal(name="anna", scopes=frozenset({Scope.SUBMIT}))
            with pytest.raises(ForbiddenError, match="scope submit"):
                await world.submit(job_text(), reader)
            job = await world.start(job_text(FOREVER), submitter)
            with pytest.raises(ForbiddenError, match="scope submit"):
                await world.service.changes.cancel(reader, job)
            for call in (world.service.job, world.service.explain, world.service.output):
                with pytest.raises(ForbiddenError, match="scope read"):
                    await call(submitter, job)
            assert (await world.service.dry_run(submitter, Submission(description=job_text()))).places
            for other in (reader, Principal(name="x", scopes=frozenset())):
                with pytest.raises(ForbiddenError, match="scope submit"):
                    await world.service.dry_run(other, Submission(description=job_text()))
            assert (await world.service.changes.cancel(submitter, job)).state == "cancelled"

    asyncio.run(scenario())


def test_a_job_of_somebody_else_does_not_exist_and_an_operator_may_end_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            job = await world.start(job_text(FOREVER), ANNA)
            service = world.service
            for call in (service.job, service.explain, service.changes.cancel, service.output):
                with pytest.raises(NotFoundError, match=f"there is no job {job}"):
                    await call(BERT, job)
            with pytest.raises(NotFoundError, match=f"there is no job {job}"):
                await service.wait(BERT, job, 0.0)
            with pytest.raises(NotFoundError, match=f"there is no job {job}"):
                await service.journal(BERT, job=job)
            assert (await service.jobs(BERT)).items == []
            assert (await service.jobs(BERT, owner="anna")).items == []
            operator = Principal(name="olga", scopes=frozenset({Scope.READ, Scope.OPERATE}))
            assert (await service.changes.cancel(operator, job)).state == "cancelled"

    asyncio.run(scenario())


def test_of_plans_of_other_users_only_the_time_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", grid=small_grid(plan_depth=1)) as world:
            await world.start(job_text(FOREVER, ("{processors: 3, site: A}",)))
            wide = await world.start(job_text(components=NEVER_FITS_NOW), ANNA)
            small = await world.start(job_text(components=("{processors: 1, site: A}",)), BERT)
            for who, job, sites in ((BERT, None, []), (OPERATOR, wide, ["A"])):
                why = await world.service.explain(who, small)
                assert why.refusal is not None
                assert str(wide) not in why.refusal.reason
                (plan,) = why.planned_before
                assert (plan.job, plan.expected_sites) == (job, sites)

    asyncio.run(scenario())
