"""Shapes of tasks in YAML, RSL and batch scripts, and nodes in grid files."""

from __future__ import annotations

import pytest

from koala.descriptions import DescriptionError, read_grid, read_job, write_job_yaml, write_rsl
from koala.model.nodes import UNTOLD, NodeClass, NodeSize, TaskNeeds
from koala.model.request import Request

GIB = 2**30
RUN = "application: {executable: /bin/true}\n"


def yaml_job(text: str) -> Request:
    return read_job(RUN + text, "job.yaml")


def script(options: str) -> Request:
    return read_job(f"#!/bin/sh\n#SBATCH {options}\ntrue\n", "job.sh")


@pytest.mark.parametrize(
    ("text", "processors", "per_task", "needs"),
    [
        ("task: {count: 8, processors: 4, memory: 16G}", 32, 4, TaskNeeds(memory_bytes=16 * GIB)),
        ("processors: 32\ntask: {processors: 4, gpus: 1, gpu: a100}", 32, 4, TaskNeeds(gpus=1, gpu="a100")),
        ("flexible: {}\ntask: {count: 6, memory: 1 GB}", 6, 1, TaskNeeds(memory_bytes=10**9)),
        ("processors: 8\ntask: {count: 2, processors: 4}", 8, 4, None),
        ("components: [{task: {count: 3, constraint: a|b}}]", 3, 1, TaskNeeds(constraint="a|b")),
        ("processors: 3", 3, 1, None),
    ],
)
def test_a_task_says_what_it_holds_and_how_many_there_are(
    text: str, processors: int, per_task: int, needs: TaskNeeds | None
) -> None:
    request = yaml_job(text)
    component = request.components[0]
    assert (component.processors, component.application.processors_per_task, component.needs) == (
        processors,
        per_task,
        needs,
    )
    assert read_job(write_job_yaml(request), "again.yaml") == request
    assert read_job(write_rsl(request), "again.rsl") == request


def test_components_may_have_tasks_of_their_own() -> None:
    request = yaml_job("task: {memory: 1G}\ncomponents: [{task: {count: 2, gpus: 1}}, {processors: 4}]")
    assert [component.needs for component in request.components] == [
        TaskNeeds(memory_bytes=GIB, gpus=1),
        TaskNeeds(memory_bytes=GIB),
    ]
    assert read_job(write_job_yaml(request), "again.yaml") == request


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("processors: 7\ntask: {count: 8, processors: 4}", "8 tasks of 4 processors are 32 processors"),
        ("processors: 7\ntask: {gpu: a100}", "it names the kind a100 and no GPUs"),
        ("processors: 7\ntask: {memory: 16}", "a size of memory needs its unit"),
        ("processors: 7\ntask: {memory: 1 B}", "1 B a task, less than 16 MiB (TASK_MEMORY_BYTES_MIN)"),
        ("processors: 7\ntask: {memory: 15M}", "write at least 16 MiB, such as 1G, or leave it out"),
        ("processors: 7\ntask: {memory: much}", "'much' is not a size of memory"),
        ("processors: 6\ntask: {processors: 4}", "6 processors do not make whole tasks of 4"),
        ("flexible: {}", "'processors' is missing"),
        ("task: {gpus: 1}", "the job does not say its size"),
        ("processors: 7\ntask: {constraint: 'a&b|c'}", "constraint"),
        ("processors: 7\ntask: {gpus: 100000}", "gpus"),
    ],
)
def test_what_contradicts_itself_is_named(text: str, words: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        yaml_job(text)
    assert words in refused.value.for_user()


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        ("-n 8 --mem-per-cpu=2G -c 4", TaskNeeds(memory_bytes=8 * GIB)),
        ("-n 8 --gpus-per-task=a100:2", TaskNeeds(gpus=2, gpu="a100")),
        ("-n 8 --gpus=8", TaskNeeds(gpus=1)),
        (
            "-N 2 --ntasks-per-node=4 --gres=gpu:v100:4 --mem=64G",
            TaskNeeds(memory_bytes=16 * GIB, gpus=1, gpu="v100"),
        ),
        ("-n 1 --gres=gpu", TaskNeeds(gpus=1)),
        ("-n 2 --gpus-per-task=2 --mem-per-gpu=1G", TaskNeeds(gpus=2, memory_bytes=2 * GIB)),
        ("-n 2 -C big", TaskNeeds(constraint="big")),
        ("-n 2 --mem=1000", TaskNeeds(memory_bytes=500 * 2**20)),
    ],
)
def test_options_of_a_script_become_what_one_task_holds(options: str, needs: TaskNeeds) -> None:
    assert script(options).components[0].needs == needs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-n 8 --gres=gpu:3", "3 GPUs are not the same number for each of 8 tasks"),
        ("-n 8 --gres=fpga:1", "is not one kind of GPU"),
        ("-n 8 --mem=0", "0 asks for all the memory of a node"),
        ("-n 8 --mem=1G --mem-per-cpu=1G", "--mem-per-cpu and --mem are given together"),
        ("-n 8 --mem-per-gpu=1G", "--mem-per-gpu without GPUs"),
        ("-n 8 --constraint=[a|b]", "is no constraint"),
        ("-n 8 --mem=lots", "is not a size of memory"),
        ("-n 8 --gpus=x:y", "is not a number of GPUs"),
    ],
)
def test_options_that_would_lose_their_meaning_are_refused(options: str, words: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        script(options)
    assert words in refused.value.for_user()


def test_a_site_of_one_node_and_one_of_several() -> None:
    grid = read_grid(
        "sites:\n"
        "  one: {processors: 8, memory: 64G, gpus: 2, gpu: a100, features: [b, a]}\n"
        "  many:\n    processors: 10\n    node_classes:\n"
        "      - {count: 2, processors: 4, gpus: 1}\n      - {processors: 2, memory: 1G}\n"
        "  none: {processors: 3}\n",
        "grid.yaml",
    )
    one = NodeSize(8, 64 * GIB, (("a100", 2),))
    first, last = NodeSize(4, UNTOLD, (("", 1),)), NodeSize(2, GIB)
    assert [site.node_classes for site in grid.sites] == [
        (NodeClass(1, one, one, ("a", "b")),),
        (NodeClass(2, first, first), NodeClass(1, last, last)),
        (),
    ]


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ("{processors: 8, gpu: a100}", "it names the kind a100 and no GPUs"),
        ("{processors: 8, gpus: 1, node_classes: [{processors: 8}]}", "node_classes and gpus are given together"),
        ("{processors: 8, node_classes: [{processors: 4}]}", "the nodes have 4 processors together"),
        ("{kind: local, processors: 8, node_classes: [{processors: 8}]}", "an embedded site is one machine"),
        ("{kind: slurm, processors: 8, work_directory: /w, gpus: 1}", "'gpus' is not for sites under a batch system"),
        (
            "{processors: 8, node_classes: [{processors: 8}], simulation: {faults: {bad_nodes: 1}}}",
            "a site with bad_nodes has nodes of node_processors each",
        ),
    ],
)
def test_nodes_that_contradict_the_site_are_refused(site: str, words: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        read_grid(f"sites:\n  s: {site}\n", "grid.yaml")
    assert words in refused.value.for_user()


def test_the_gpus_of_this_machine_are_those_of_one_embedded_site() -> None:
    site = "{kind: local, processors: 8, gpus: 1}"
    with pytest.raises(DescriptionError) as refused:
        read_grid(f"sites:\n  a: {site}\n  b: {site}\n", "grid.yaml")
    assert "embedded sites share the GPUs of one machine, and a has them already" in refused.value.for_user()
    assert "take gpus out of b or of a" in refused.value.for_user()
    others = "b: {kind: local, processors: 8, gpus: 0}\n  c: {processors: 8, gpus: 1}\n  d: {processors: 8, gpus: 1}"
    assert len(read_grid(f"sites:\n  a: {site}\n  {others}\n", "grid.yaml").sites) == 4
