"""Batch scripts as people have them are taken as they are: what they ask for, and what is noted."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from koala.descriptions import job_notes, read_job, write_job_yaml
from koala.model.checkpoint import Checkpoint, CheckpointSignal
from koala.model.dependency import Condition, Dependency
from koala.model.job_array import read_array
from koala.model.nodes import TaskNeeds
from koala.model.outputs import JobOutput
from koala.model.travelling import TravellingFile

GIB = 2**30


class Case(NamedTuple):
    """The options of a script; the processors of its first component, those of a task and what it needs; fields of
    the request; and how each note begins."""

    options: str
    size: tuple[int, int, TaskNeeds | None]
    request: dict[str, Any]
    notes: tuple[str, ...] = ()
    body: str = "true\n"


CASES = {
    "an array with an output for each element": Case(
        "--job-name=sweep\n--array=1-100%10\n--output=logs/%A_%a.out\n--error=logs/%A_%a.err\n--time=02:00:00\n"
        "--mem=4G\n--ntasks=1",
        (1, 1, TaskNeeds(memory_bytes=4 * GIB)),
        {"array": read_array("1-100%10"), "walltime_s": 7200.0, "name": "sweep"},
    ),
    "training on the GPUs of one node": Case(
        "-J resnet\n--nodes=1 --ntasks-per-node=1\n--gpus-per-node=a100:4 --cpus-per-task=16 --mem=120G\n"
        "--time=1-12:00:00 -p gpu\n--account=vision --mail-user=ada@example.org --mail-type=ALL",
        (16, 16, TaskNeeds(memory_bytes=120 * GIB, gpus=4, gpu="a100")),
        {"walltime_s": 129_600.0},
        ("--account has", "--mail-user and --mail-type have"),
    ),
    "a GPU for each rank, said in two ways": Case(
        "--nodes=2 --ntasks-per-node=4 --gres=gpu:4 --gpus-per-task=1 --cpus-per-task=8",
        (64, 8, TaskNeeds(gpus=1)),
        {},
        ("--nodes and --ntasks-per-node have no effect on where tasks go",),
    ),
    "processors for each GPU": Case("--gpus=2 --ntasks=1 --cpus-per-gpu=6", (12, 12, TaskNeeds(gpus=2)), {}),
    "MPI started with srun": Case(
        "--nodes=4-4 --ntasks-per-node=32 --time=30 --exclusive --hint=nomultithread\n--constraint=haswell",
        (128, 1, TaskNeeds(constraint="haswell")),
        {"walltime_s": 1800.0},
        ("--exclusive has", "--hint has", "--nodes and --ntasks-per-node have"),
        "module load openmpi\nsrun ./solver\n",
    ),
    "tasks of a node without a number of nodes": Case(
        "--ntasks-per-node=8 --mem-per-cpu=2000",
        (8, 1, TaskNeeds(memory_bytes=2000 * 2**20)),
        {},
        ("--ntasks-per-node has no effect on where tasks go",),
    ),
    "two tasks on each of two nodes": Case(
        "-N 2 --ntasks-per-node=2", (4, 1, None), {}, ("--nodes and --ntasks-per-node have no effect",)
    ),
    "all tasks on one node": Case("-N 1 -n 4", (4, 1, None), {}, ("--nodes has no effect",)),
    "one task on one node": Case("-N 1 --ntasks-per-node=1", (1, 1, None), {}),
    "a range of nodes": Case("--nodes=2-4", (2, 1, None), {}, ("--nodes=2-4 is taken as 2", "--nodes has")),
    "threads": Case(
        "--ntasks=1\n--cpus-per-task=8\n--threads-per-core=1",
        (8, 8, None),
        {},
        ("--threads-per-core has",),
        "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\n",
    ),
    "a chain": Case(
        "-n 4 --dependency=afterok:12:13,afterany:14_2 --kill-on-invalid-dep=yes",
        (4, 1, None),
        {
            "after": (
                Dependency(job=12),
                Dependency(job=13),
                Dependency(job=14, index=2, condition=Condition.ENDED),
            )
        },
        ("--kill-on-invalid-dep has",),
    ),
    "requeued and asked to save": Case(
        "-n 1 --requeue --open-mode=append --signal=B:SIGUSR1@120 --time=1:00:00",
        (1, 1, None),
        {"checkpoint": Checkpoint(signal=CheckpointSignal.USR1, grace_s=120.0)},
        ("--open-mode has", "--signal is a checkpoint"),
        "trap 'touch stop' USR1\n./solve & wait\n",
    ),
    "a signal that asks nobody to save": Case("-n 1 --signal=CONT@30", (1, 1, None), {}, ("--signal has no effect",)),
    "options of one cluster": Case(
        "-n 2 --qos=short --switches=1 --gres-flags=enforce-binding --network=sn_all --power=level --comment=x",
        (2, 1, None),
        {},
        ("--qos, --network and --power have", "--switches and --gres-flags have", "--comment has"),
    ),
    "a time without its zone, and a priority of Slurm": Case(
        "-n 1 --begin=2030-01-31T08:00:00 --priority=1000",
        (1, 1, None),
        {"begin_at": 1_896_076_800.0, "priority": "low"},
        ("--priority has no effect", "--begin=2030-01-31T08:00:00 names no zone and is taken as UTC"),
    ),
    "a script that writes another one": Case(
        "--ntasks=1",
        (1, 1, None),
        {},
        ("lines 5, 6: after the first command",),
        "cat >next.sh <<EOF\n#!/bin/bash\n#SBATCH --ntasks=64\n#SBATCH --time=10\nEOF\nsbatch next.sh\n",
    ),
    "what Koala adds": Case(
        "-n 2 --signal=TERM",
        (2, 1, None),
        {
            "files": (TravellingFile(path="conf"), TravellingFile(path="solver")),
            "keep_for_s": 172_800.0,
            "keep_outputs_for_s": 2_592_000.0,
            "checkpoint": Checkpoint(
                directory="ckpt", every_s=600.0, signal=CheckpointSignal.TERM, grace_s=60.0, shared=True
            ),
        },
        (),
        "#KOALA --files solver,conf/ --outputs result.h5,logs/ --outputs 'a,b'\n"
        "#KOALA --checkpoint ckpt --checkpoint-every 10m --checkpoint-shared --keep-for 2d\n"
        "#KOALA --keep-outputs-for 30d\n./solver\n",
    ),
}


def script(case: Case) -> str:
    options = "".join(f"#SBATCH {line}\n" for line in case.options.splitlines())
    return f"#!/bin/bash\n{options}{case.body}"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_script_is_taken_as_it_is(case: Case) -> None:
    text = script(case)
    request = read_job(text, "job.sh")
    first = request.components[0]
    assert (first.processors, first.application.processors_per_task, first.needs) == case.size
    assert {name: getattr(request, name) for name in case.request} == case.request
    notes = job_notes(text, "job.sh")
    assert len(notes) == len(case.notes)
    for note, begin in zip(notes, case.notes, strict=True):
        assert note.startswith(begin)
    assert read_job(write_job_yaml(request), "again.yaml") == request


def test_outputs_are_what_each_component_makes_unless_it_names_its_own() -> None:
    text = "#!/bin/sh\n#SBATCH -n 1 -D run\n#KOALA --outputs a,logs/\n#SBATCH hetjob\n#SBATCH -n 1\n#SBATCH hetjob\n"
    text += "#SBATCH -n 1\n#KOALA --outputs b\ntrue\n"
    first, second, third = read_job(text, "job.sh").components
    assert first.outputs == second.outputs == (JobOutput(path="run/a"), JobOutput(path="run/logs"))
    assert third.outputs == (JobOutput(path="run/b"),)


def test_an_option_that_is_switched_off_by_a_space_is_a_comment_and_noted() -> None:
    text = "#!/bin/sh\n#SBATCH -n 6\n# SBATCH --mem=4G\n# \tKOALA --flexible\n##SBATCH -c 2\ntrue\n"
    request = read_job(text, "job.sh")
    assert (request.processors, request.flexible, request.components[0].needs) == (6, None, None)
    assert [note.partition(":")[0] for note in job_notes(text, "job.sh")] == ["lines 3, 4"]
