"""Which nodes a component ran on is told with its end, and nodes that it is kept off never keep it out of a site."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koala.model.launch import Go, LaunchError
from koala.model.messages import ENDED_NODES_MAX, Outcome
from koala.sites.batch.system import BatchSubmission
from tests.support.paper_batch import PaperBatch, PaperSite, component


class Choosy(PaperBatch):
    """Has no other nodes than those that a component is kept off."""

    def submit(self, submission: BatchSubmission) -> str:
        if submission.launch.exclude_nodes:
            return "echo 'that can never run' >&2; exit 1\n"
        return super().submit(submission)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("n1 4\nn2.site 2\n", ("n1", "n2.site")),
        ("n1 4", ("n1",)),
        ("$(reboot) 4\n--option 1\nn1,n2 2\n\n", ()),
        ("".join(f"n{number} 1\n" for number in range(40)), tuple(f"n{number}" for number in range(ENDED_NODES_MAX))),
        (None, ()),
    ],
)
def test_the_nodes_that_a_component_ran_on_are_told_with_its_end(
    tmp_path: Path, written: str | None, told: tuple[str, ...]
) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            if written is not None:
                one.write("1.1", "nodes", written)
            await one.site.release("1.1", Go())
            one.play_end("1.1", "exited 127")
            ended = await one.ended("1.1")
            assert (ended.outcome, ended.exit_code, ended.nodes) == (Outcome.FAILED, 127, told)

    asyncio.run(scenario())


def test_a_component_that_is_refused_without_some_nodes_may_run_on_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path, batch=Choosy(tmp_path / "batch")) as one:
            await one.begin("1.1", exclude_nodes=("n1",))
            await one.site.release("1.1", Go())
            one.play_end("1.1")
            assert (await one.ended("1.1")).outcome is Outcome.DONE

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["", "-x", "a,b", "n[1-2]", "a b", "n1|n2"])
def test_what_is_no_name_of_a_node_is_no_option_of_a_submission(name: str) -> None:
    with pytest.raises(LaunchError, match="is not the name of a node"):
        component("1.1", exclude_nodes=(name,))
