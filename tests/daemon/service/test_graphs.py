"""Graphs of jobs at the service: what holds for one job holds for each, and limits hold for all of them together."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from koala.daemon.service import submissions
from koala.daemon.service.submitted_texts import Unreadable, read_graph_submission
from koala.descriptions import read_graph
from koala.model.api import Submitted
from koala.model.api.questions import Submission
from koala.model.dependency import DEPENDENCIES_MAX, Dependency
from koala.model.errors import ConflictError, InvalidError, TooManyError, UnavailableError
from koala.model.request import GraphJob
from koala.model.travelling import TravellingFile, write_manifest
from tests.support.daemon_world import ANNA, BERT, OWNER, WAIT_S, DaemonWorld, job_text, open_daemon

T = TypeVar("T")

RUN = "processors: 1, application: {executable: 'true'}"


class InThreads:
    """Workers that need no processes."""

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.to_thread(work, *arguments)

    async def close(self) -> None:
        """There is nothing to close."""


def graph_text(second: str = "after: {done: [a]}", first: str = "array: 0-1") -> str:
    return f"jobs:\n  a: {{{RUN}, {first}}}\n  b: {{{RUN}, {second}}}\n"


def wish(text: str, token: str | None = None) -> Submission:
    return Submission(description=text, source="graph.yaml", client_token=token)


def test_what_a_graph_may_not_is_its_callers_error_and_nothing_of_it_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(world: DaemonWorld) -> None:
        service, engine = world.service, world.engine
        job = await world.start(job_text(), ANNA)
        await world.ended(job, ANNA)

        # Another user's output does not exist, in whatever way one asks for it.
        reads = f"input_files: [{{name: jobs/{job}/result, path: in}}]"
        with pytest.raises(InvalidError, match="of yours that makes it"):
            await service.submit_graph(BERT, wish(graph_text(reads)))
        with pytest.raises(InvalidError, match="of yours that makes it"):
            await service.dry_run_graph(BERT, wish(graph_text(reads)))
        text = job_text(input_files=f"[{{name: jobs/{job}/result, path: in}}]")
        with pytest.raises(InvalidError, match="of yours that makes it"):
            await service.dry_run(BERT, Submission(description=text, source="job.yaml"))

        # What all jobs wait for is limited, and a graph counts as a whole.
        monkeypatch.setattr(submissions, "DEPENDENCIES_LIVE_MAX", 2)
        for call in (service.submit_graph, service.dry_run_graph):
            with pytest.raises(TooManyError, match="DEPENDENCIES_LIVE_MAX"):
                await call(BERT, wish(graph_text(f"after: {{done: [a_0, a_1], ended: [{job}]}}")))
        monkeypatch.undo()

        # One that no reader would let through does not stop the engine for all.
        first, second = read_graph(graph_text(), "graph.yaml")
        after = tuple(Dependency(job=number) for number in range(1, DEPENDENCIES_MAX + 1))
        second = msgspec.structs.replace(second, request=msgspec.structs.replace(second.request, after=after))
        with pytest.raises(InvalidError, match=r"job b: .*DEPENDENCIES_MAX"):
            await engine.submit_together([first, second], owner="bert", ended=[(), ()])
        assert not engine.failure
        assert (await service.jobs(BERT)).items == []
        assert (await service.jobs(OWNER)).items != []

    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", workers=InThreads()) as world, asyncio.timeout(WAIT_S):
            await scene(world)

    asyncio.run(scenario())


def test_names_of_outputs_that_fall_together_harm_nobody_else(tmp_path: Path) -> None:
    def reads(number: int) -> str:
        return graph_text(f"input_files: [jobs/{number}/x, jobs/a/x]", "outputs: [x]")

    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", workers=InThreads()) as world, asyncio.timeout(WAIT_S):
            service, engine = world.service, world.engine
            job = (await world.submit(job_text(), OWNER)).job.id
            later = job + 1
            for call in (service.submit_graph, service.dry_run_graph):
                with pytest.raises(InvalidError, match=f"there is no job {later} that makes it"):
                    await call(OWNER, wish(reads(later)))

            # One that no service would let through is refused by itself; what is submitted with it is taken.
            graph = read_graph(reads(later), "graph.yaml")
            bad, good = await asyncio.gather(
                engine.submit_together(graph, owner="bert", ended=[(), ()]),
                world.submit(job_text(), ANNA),
                return_exceptions=True,
            )
            assert isinstance(bad, UnavailableError)
            assert "the same file is named twice" in str(bad)
            assert isinstance(good, Submitted), good
            assert not engine.failure
            assert (await service.jobs(BERT)).items == []

            # What another job made may have the same name below it.
            graph_of_two = await service.submit_graph(OWNER, wish(reads(job), "t"))
            assert len(graph_of_two.jobs) == 2
            first = graph_of_two.jobs[0].job.id
            with pytest.raises(ConflictError, match="client_token"):
                await service.submit_graph(OWNER, wish(reads(first), "t"))

    asyncio.run(scenario())


def test_a_client_token_is_for_one_graph_whatever_the_names_of_its_jobs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", workers=InThreads()) as world, asyncio.timeout(WAIT_S):
            service = world.service
            once = await service.submit_graph(ANNA, wish(graph_text(), "t"))
            again = await service.submit_graph(ANNA, wish(graph_text(), "t"))
            assert (once.new, again.new) == (True, False)
            numbers = [each.job.id for each in once.jobs]
            assert [each.job.id for each in again.jobs] == numbers
            others = [
                graph_text("after: {done: [a_1]}"),
                graph_text("after: {ended: [a]}"),
                graph_text("after: {done: [a]}, walltime: 5m"),
                graph_text(first="array: 0-2"),
                graph_text(first="array: 1-2"),
                graph_text() + f"  c: {{{RUN}}}\n",
            ]
            for other in others:
                with pytest.raises(ConflictError, match="client_token"):
                    await service.submit_graph(ANNA, wish(other, "t"))
            listed = (await service.jobs(ANNA)).items
            assert sorted(each.id for each in listed) == sorted(numbers)

    asyncio.run(scenario())


def test_what_jobs_of_a_graph_wait_for_in_vain_is_told_of_each(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", workers=InThreads()) as world, asyncio.timeout(WAIT_S):
            job = await world.start(job_text("exit 1"), ANNA)
            assert (await world.ended(job, ANNA)).state == "failed"
            text = graph_text(first=f"after: {{done: [{job}]}}")
            text += f"  c: {{{RUN}, after: {{ended: [a]}}}}\n"
            text += "  d: {processors: 1, application: {executable: ./solver}}\n"
            found = {each.name: each for each in (await world.service.submit_graph(ANNA, wish(text))).jobs}
            assert f"job {job} failed" in found["a"].warning
            assert found["b"].warning == "a, which it waits for, is cancelled at once"
            assert (found["c"].warning, found["d"].warning) == ("", "")
            assert "koala submit --with solver" in " ".join(found["d"].notes)
            more = f"{text}  e: {{{RUN}, after: {{ended: [a], failed: [d]}}}}\n"
            dry = (await world.service.dry_run_graph(ANNA, wish(more))).jobs
            tried = {each.name: each.dry_run for each in dry}
            assert {each.name: each.after for each in dry if each.after} == {
                "b": {"done": ["a"]},
                "c": {"ended": ["a"]},
                "e": {"ended": ["a"], "failed": ["d"]},
            }
            starts = {name: each.expected_at is not None for name, each in tried.items()}
            assert starts == {"a": False, "b": False, "c": False, "d": True, "e": False}
            alone = Submission(description=job_text(after=f"{{done: [{job}]}}"))
            assert (await world.service.dry_run(ANNA, alone)).kept_back.endswith("; it would be cancelled at once")
            assert tried["d"].notes == found["d"].notes
            for name in ("a", "b"):
                assert tried[name].kept_back == f"{found[name].warning}; it would be cancelled at once"
            with pytest.raises(InvalidError) as caught:
                await world.service.dry_run_graph(ANNA, wish(graph_text("after: {done: [999]}")))
            assert "job b: after: there is no job 999 to wait for; look at the list" in caught.value.message
            (problem,) = caught.value.problems
            line = graph_text("after: {done: [999]}").splitlines()[(problem.line or 0) - 1]
            assert line[(problem.column or 0) - 1 :].startswith("999")
            assert problem.cure == "look at the list of jobs"
            for name, state in (("a", "cancelled"), ("b", "cancelled"), ("c", "done")):
                assert (await world.ended(found[name].job.id, ANNA)).state == state

    asyncio.run(scenario())


def test_the_files_of_a_graph_are_one_list_and_count_for_each_job() -> None:
    files = [TravellingFile(path=f"d/{number:03}", size_bytes=1, checksum=f"{number:064x}") for number in range(600)]
    manifest = write_manifest(files)

    def read(jobs: int) -> tuple[GraphJob, ...] | Unreadable:
        text = "jobs:\n" + "".join(f"  j{number}: {{{RUN}}}\n" for number in range(jobs))
        return read_graph_submission(Submission(description=text, source="graph.yaml", files=manifest), (), ())

    graph = read(10)
    assert isinstance(graph, tuple)
    assert len({id(each.request.files) for each in graph}) == 1
    there = pickle.loads(pickle.dumps(graph))  # noqa: S301
    assert len({id(each.request.files) for each in there}) == 1
    assert there == graph
    refused = read(60)
    assert isinstance(refused, Unreadable)
    assert "REQUEST_CHARACTERS_MAX" in refused.message
    assert refused.message.startswith("graph.yaml:36:3: job j34: ")


def test_a_list_of_files_that_cannot_be_read_is_not_laid_to_a_job() -> None:
    broken = Submission(description=graph_text(), source="graph.yaml", files="no list")
    refused = read_graph_submission(broken, (), ())
    assert isinstance(refused, Unreadable)
    assert refused.message.startswith("files: the list cannot be read")
