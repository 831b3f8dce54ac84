"""What programs a job requires of its site: named by it, or guessed from what its script calls."""

from __future__ import annotations

import pytest

from koala.descriptions import DescriptionError, read_grid, read_job, write_job_yaml, write_rsl
from koala.model.request_size import REQUIRED_PROGRAMS_MAX

SBATCH = "#!/bin/bash\n#SBATCH -n 2\n{options}{body}\n"


def required(body: str, options: str = "") -> tuple[str, ...]:
    return read_job(SBATCH.format(options=options, body=body), "job.sh").required


@pytest.mark.parametrize(
    "body",
    [
        "srun ./solver",
        "  srun ./solver",
        "module load x && srun -n 4 ./solver",
        "exec srun --mpi=none ./solver",
        "for n in 1 2; do srun ./solver $n; done",
        "if true; then srun ./solver; fi",
        "OMP_NUM_THREADS=2 srun ./solver",
        "nodes=$(srun hostname)",
        "time -p srun ./solver",
        "timeout 60 srun ./solver",
        "/usr/bin/srun ./solver",
        "echo start | srun ./solver",
    ],
)
def test_a_script_that_calls_srun_requires_it(body: str) -> None:
    assert required(body) == ("srun",)


@pytest.mark.parametrize(
    "body",
    [
        "# srun ./solver",
        "echo srun ./solver",
        "./srun.sh",
        "srunner x",
        "if command -v srun >/dev/null; then srun ./solver; else mpirun ./solver; fi",
        "which srun && srun ./solver",
        "case $launcher in\nsrun) ;;\nesac",
    ],
)
def test_a_script_that_does_not_call_it_or_looks_whether_it_is_there_does_not(body: str) -> None:
    assert required(body) == ()


def test_other_launch_programs_are_required_likewise() -> None:
    assert required("qrsh -inherit $node ./solver") == ("qrsh",)


@pytest.mark.parametrize(
    ("command", "requires"),
    [
        (["srun", "./solver"], ("srun",)),
        (["/usr/bin/srun", "./solver"], ("srun",)),
        (["env", "A=1", "timeout", "60", "srun", "./solver"], ("srun",)),
        (["./srun"], ()),
        (["echo", "srun"], ()),
    ],
)
def test_a_command_is_looked_at_like_a_script(command: list[str], requires: tuple[str, ...]) -> None:
    application = {"executable": command[0], "arguments": command[1:]}
    request = read_job(f"processors: 1\napplication: {application}\n", "job.yaml")
    assert request.required == requires
    assert read_job(write_job_yaml(request), "again.yaml") == request
    assert read_job(write_rsl(request), "again.rsl") == request


def test_a_job_may_say_what_it_requires_itself() -> None:
    assert required("srun ./solver", "#KOALA --requires none\n") == ()
    assert required("./solver", "#KOALA --requires ibrun,matlab\n") == ("ibrun", "matlab")
    assert required("srun ./solver", "#KOALA --requires matlab,matlab\n") == ("matlab",)
    text = "processors: 1\napplication: {script: 'srun ./solver', requires: [matlab]}\n"
    assert read_job(text, "job.yaml").required == ("matlab",)
    assert read_job(text.replace("[matlab]", "[]"), "job.yaml").required == ()
    assert read_job("processors: 1\napplication: {script: 'srun ./solver'}\n", "job.yaml").required == ("srun",)
    assert read_job("&(count=1)(koalaScript='srun x')(koalaRequires=none)", "job.rsl").required == ()
    assert read_job("&(count=1)(koalaScript='srun x')", "job.rsl").required == ("srun",)


@pytest.mark.parametrize("options", ["", "#KOALA --requires none\n", "#KOALA --requires srun,matlab\n"])
def test_what_is_required_survives_every_format(options: str) -> None:
    request = read_job(SBATCH.format(options=options, body="srun ./solver"), "job.sh")
    assert read_job(write_job_yaml(request), "again.yaml") == request
    assert read_job(write_rsl(request), "again.rsl") == request


@pytest.mark.parametrize("named", ["a b", "-x", "srun,", ",".join(f"p{n}" for n in range(17))])
def test_what_is_no_program_is_refused(named: str) -> None:
    assert REQUIRED_PROGRAMS_MAX == 16
    with pytest.raises(DescriptionError) as caught:
        required("true", f'#KOALA --requires "{named}"\n')
    assert caught.value.for_user().startswith("job.sh:3")


def test_a_site_provides_the_programs_of_its_batch_system_and_those_that_the_grid_file_names() -> None:
    text = "sites:\n  A: {kind: slurm, processors: 4, provides: [ibrun]}\n  B: {kind: grid_engine, processors: 4}\n"
    slurm, grid_engine = read_grid(text, "grid.yaml").sites
    assert slurm.kind == "slurm"
    assert {"srun", "scontrol", "ibrun"} <= set(slurm.provides)
    assert "qrsh" in grid_engine.provides
    assert "srun" not in grid_engine.provides
