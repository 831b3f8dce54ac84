"""What is said of a job that was taken: programs that nothing brings, and commands that sites do not have."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from koala.daemon.service.submission_notes import PROGRAMS_NAMED_MAX, submission_notes
from koala.descriptions import read_grid, read_job
from koala.descriptions.job.required import LOOKED_AT_CHARACTERS_MAX
from koala.model.grid import Grid
from koala.model.travelling import TravellingFile
from tests.support.work import growth, steps

LOCAL = read_grid("sites:\n  A: {kind: local, processors: 4}\n", "grid.yaml")


def notes(body: str, options: str = "-n 1", grid: Grid = LOCAL, files: tuple[str, ...] = ()) -> list[str]:
    request = read_job(f"#!/bin/bash\n#SBATCH {options}\n{body}\n", "job.sh")
    sent = tuple(TravellingFile(path=path, directory=True) for path in files)
    return submission_notes(msgspec.structs.replace(request, files=sent), grid)


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("./solver --fine", "solver"),
        ("time ./bin/solver", "bin/solver"),
        ('cd "$SLURM_SUBMIT_DIR"\n./solver', "solver"),
        ("cd $PBS_O_WORKDIR; ./solver", "solver"),
        ("python train.py --epochs 3", "train.py"),
        ("torchrun --nnodes 1 --nproc_per_node=4 src/train.py", "src/train.py"),
        ("bash run.sh", "run.sh"),
        ("x=$(./count)", "count"),
    ],
)
def test_a_program_that_nothing_brings_is_named_with_what_sends_it(line: str, program: str) -> None:
    (note,) = notes(line)
    assert note.startswith(f"{program} is looked for where the job starts, and nothing brings it there")
    assert f"koala submit --with {program} " in note
    assert notes(line, files=(program.split("/")[0],)) == []


@pytest.mark.parametrize(
    "line",
    [
        "/opt/apps/solver",
        "# ./solver",
        "gcc -o solver solver.c && ./solver",
        "cat >run.sh <<EOF\nEOF\nbash run.sh",
        "tar xf program.tar\n./solver",
        "cd $HOME/project\n./solver",
        "python -m pip list",
        "ls ../x ./",
        "echo x./y",
    ],
)
def test_where_a_script_may_find_or_make_its_program_nothing_is_said(line: str) -> None:
    assert notes(line) == []


WORST: dict[str, Callable[[int], str]] = {
    "programs": lambda n: "".join(f"./w{number}\n" for number in range(15 * n)),
    "one program": lambda n: "./w\n" * (30 * n),
    "interpreters": lambda n: ("sh " * n + "\n") * 50,
    "interpreters and scripts": lambda n: ("sh a.py " * (n // 3) + "\n") * 50,
    "names with dots": lambda n: ("sh " + "a." * n + "\n") * 50,
    "deep paths": lambda n: ("./" + "a/" * n + "a\n") * 50,
    "files that are made": lambda n: ("-o a " * (n // 2) + "\n") * 50,
    "redirections": lambda n: ("> " * n + "\n") * 50,
}


def looking_at(script: str) -> Callable[[], object]:
    request = read_job("processors: 1\napplication: {script: 'true'}\n", "job.yaml")
    (part,) = request.components
    part = msgspec.structs.replace(part, application=msgspec.structs.replace(part.application, script=script))
    whole = msgspec.structs.replace(request, components=(part,))
    return lambda: submission_notes(whole, LOCAL)


@pytest.mark.parametrize("name", WORST)
def test_the_work_of_looking_for_programs_grows_with_the_script_and_not_faster(name: str) -> None:
    assert growth(lambda size: looking_at(WORST[name](size)), 80, 4, least_s=0.06) < 2.2


def test_a_program_of_many_is_little_work() -> None:
    few, many = (steps(looking_at("".join(f"./p{number}\n" for number in range(count)))) for count in (200, 400))
    assert (many - few) / 200 < 60


def test_a_few_programs_are_named_and_each_once() -> None:
    told = notes("".join(f"./w{number}\n./w{number}\n" for number in range(1_000)))
    assert [note.split()[0] for note in told] == [f"w{number}" for number in range(PROGRAMS_NAMED_MAX)]
    assert notes("bash a.sh python b.py; (sh c.sh) | perl -w d.pl x.pl")[3].startswith("d.pl")


def test_an_executable_counts_and_input_files_bring_programs_too() -> None:
    text = "processors: 1\napplication: {executable: ./solver}\n"
    assert len(submission_notes(read_job(text, "job.yaml"), LOCAL)) == 1
    assert submission_notes(read_job(f"{text}input_files: [solver]\n", "job.yaml"), LOCAL) == []
    assert notes("./solver", "-n 1 --chdir=/project") == []
    assert len(notes("./solver", "-n 1 --chdir=run", files=("solver",))) == 1
    assert notes(f"{'x' * 80}\n" * (LOOKED_AT_CHARACTERS_MAX // 80) + "./solver") == []


MIXED = read_grid(
    "sites:\n  A: {kind: slurm, processors: 4}\n  B: {kind: local, processors: 4}\n"
    "  C: {kind: local, processors: 4, provides: [srun]}\n",
    "grid.yaml",
)


def test_commands_of_slurm_are_told_where_there_is_no_slurm() -> None:
    (note,) = notes("nodes=$(scontrol show hostnames)")
    assert note.startswith("the script calls scontrol, and there is no Slurm at A;")
    (note,) = notes("srun hostname", "-n 1\n#KOALA --requires none")
    assert note.startswith("the script calls srun, and there is no Slurm at A;")
    assert "#KOALA --type mpi" in note


def test_commands_of_each_batch_system_are_told_where_it_is_not() -> None:
    (note,) = notes("ls | qstat -f; echo sbatch x", "-n 1 -M A", grid=MIXED)
    assert note == "the script calls qstat, and there is no Grid Engine at A; name another cluster with --clusters"


def test_a_script_that_requires_srun_is_told_where_it_goes() -> None:
    (note,) = notes("srun hostname", grid=MIXED)
    assert note.startswith("it requires srun, and goes only where that is provided: A, C;")
    assert "#KOALA --requires none" in note
    assert notes("srun hostname", "-n 1 -M A", grid=MIXED) == []
    (note,) = notes("srun hostname", "-n 1 -M B", grid=MIXED)
    assert note == "it requires srun, which B does not provide, and goes there as requested"
    (note,) = notes("srun hostname")
    assert "goes only where that is provided: nowhere" in note


def test_a_partition_is_told_of_by_where_it_is_known() -> None:
    site = "{kind: slurm, processors: 4, partitions: {gpu: a100}}"
    grid = read_grid(f"sites:\n  A: {site}\n", "grid.yaml")
    assert "it is used at A" in notes("true", "-n 1 -p gpu", grid)[0]
    assert "no site has it" in notes("true", "-n 1 -p gpu")[0]
