"""``koala examples``: every shipped file is listed, can be read by what it is for, shown and copied."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from koala.cli import koala
from koala.cli.examples import Example, read_named, shipped
from koala.descriptions import is_graph, read_application, read_graph, read_grid, read_job, read_machines
from koala.descriptions.study.form import read_study_text
from koala.descriptions.workload.form import read_workload
from koala.model.api.questions import Submission
from tests.support.daemon_world import OWNER, job_text, open_daemon

T = TypeVar("T")

# Has what the examples ask for: sites by name, GPUs, memory and something to run images with.
SUITABLE = """sites:
  vu: {kind: local, processors: 64, memory: 64G, gpus: 4, containers: apptainer}
  delft: {kind: local, processors: 64, memory: 64G, containers: apptainer}
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(koala, ["examples", *arguments])


def test_the_list_has_one_line_of_words_for_each_example() -> None:
    listed = json.loads(run("--json").stdout)
    assert {"das2", "das2-2005", "minigrid", "demo", "two-continents"} <= {
        each["name"] for each in listed if each["kind"] == "grid"
    }
    assert {"koala2006-w1", "koala2006-w2", "koala2006-w1-flexible", "koala2005", "hello"} <= {
        each["name"] for each in listed if each["kind"] == "workload"
    }
    jobs = {each["name"] for each in listed if each["kind"] == "job"}
    assert jobs >= {"laplace", "coallocated", "hetjob", "flexible", "hello", "countdown", "film"}
    assert jobs >= {"shapes", "sweep", "after", "stages", "results", "resume", "laplace-checkpointed", "container"}
    assert jobs >= {"as-it-is", "local-sgd", "all-to-all"}
    assert all(20 <= len(each["summary"]) <= 110 and each["summary"][0] not in "#(*" for each in listed)
    assert all(each["summary"].count("(") == each["summary"].count(")") for each in listed)
    assert all(each["summary"][-1] != "*" for each in listed)


def test_the_table_names_every_example() -> None:
    text = run().stdout
    assert all(example.name in text for example in shipped())
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("example", shipped(), ids=lambda example: f"{example.kind}-{example.name}")
def test_every_example_can_be_read(example: Example) -> None:
    if is_graph(example.text(), example.file.name) and example.kind == "job":
        assert len(read_graph(example.text(), example.file.name)) > 1
        return
    readers = {
        "grid": read_grid,
        "workload": read_workload,
        "job": read_job,
        "study": read_study_text,
        "graph": read_application,
        "dendrogram": read_machines,
    }
    readers[example.kind](example.text(), example.file.name)


def test_the_grid_of_2006_has_the_functioning_processors() -> None:
    das2 = next(example for example in shipped("grid") if example.name == "das2")
    grid = read_grid(das2.text(), das2.name)
    assert [site.processors for site in grid.sites] == [134, 40, 52, 56, 38]
    assert grid.links.default.bandwidth_mbit_s == 100
    assert grid.scheduler.scan_interval_s == 4


def test_show_prints_the_file() -> None:
    assert run("show", "laplace").stdout.startswith("# The Laplace equation on 8 processors")


def test_a_name_of_two_kinds_wants_its_kind() -> None:
    result = run("show", "demo")
    assert result.exit_code == 2
    assert "grid/demo or workload/demo" in result.stderr
    assert "amsterdam" in run("show", "grid/demo").stdout


def test_an_unknown_name_gets_the_nearest() -> None:
    result = run("show", "laplas")
    assert result.exit_code == 2
    assert "did you mean laplace" in result.stderr


def test_copy_writes_the_file_and_replaces_none_unasked(tmp_path: Path) -> None:
    assert run("copy", "das2", str(tmp_path)).exit_code == 0
    copied = tmp_path / "das2.yaml"
    assert copied.read_text() == run("show", "das2").stdout
    copied.write_text("mine")
    refused = run("copy", "das2", str(copied))
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert copied.read_text() == "mine"
    assert run("copy", "das2", str(copied), "--force").exit_code == 0
    assert copied.read_text() != "mine"


def test_a_copy_to_a_folder_that_is_not_there_is_reported_with_advice(tmp_path: Path) -> None:
    result = CliRunner().invoke(koala, ["examples", "copy", "das2", str(tmp_path / "none" / "x.yaml")])
    assert result.exit_code == 2
    assert "x.yaml: No such file or directory; check the name" in result.stderr


def test_a_verb_takes_the_name_with_its_kind_as_the_list_writes_it() -> None:
    assert read_named("job", "job/hello") == read_named("job", "hello")
    assert read_named("workload", "workload/hello") != read_named("job", "hello")


class _InThread:
    """Workers for the clusters of a few tasks, without the start of a process."""

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.to_thread(work, *arguments)

    async def close(self) -> None:
        pass


def test_every_job_would_go_somewhere_on_a_grid_that_suits_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", read_grid(SUITABLE, "grid.yaml"), workers=_InThread()) as world:
            await world.start(job_text(hold="true"))  # the one that an example waits for
            for example in shipped("job"):
                wish = Submission(description=example.text(), source=example.file.name)
                if is_graph(example.text(), example.file.name):
                    answers = [each.dry_run for each in (await world.service.dry_run_graph(OWNER, wish)).jobs]
                else:
                    answers = [await world.service.dry_run(OWNER, wish)]
                assert all(answer.refusal is None and answer.places for answer in answers), example.name

    asyncio.run(scenario())
