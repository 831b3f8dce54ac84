"""Scripts for PBS and Grid Engine: their options are honoured, noted or refused, as those for Slurm."""

from __future__ import annotations

import pytest

from koala.descriptions import DescriptionError, job_notes, read_job
from koala.model.dependency import Condition, Dependency
from koala.model.request import Request


def read(*lines: str, source: str = "job.sh") -> Request:
    return read_job("\n".join(["#!/bin/sh", *lines, "./flow"]), source)


def notes(*lines: str) -> str:
    return "\n".join(job_notes("\n".join(["#!/bin/sh", *lines, "./flow"]), "job.sh"))


def test_a_script_for_pbs_is_the_job_that_it_says() -> None:
    job = read(
        "#PBS -N flow -q long -j oe -h",
        "#PBS -o logs/$PBS_JOBNAME.${PBS_JOBID}.100%",
        "#PBS -l select=2:ncpus=4:mpiprocs=2:ngpus=2:mem=2gb,walltime=1:30:00",
        "#PBS -W depend=afterok:17.server:18,afterany:19,umask=022 -J 1-9:2",
        "#PBS -v A=1,B='x,y'",
    )
    (component,) = job.components
    application = component.application
    assert (component.processors, application.processors_per_task, job.walltime_s) == (8, 2, 5400.0)
    assert component.needs is not None
    assert (component.needs.gpus, component.needs.memory_bytes) == (1, 2**30)
    assert application.stdout == application.stderr == "logs/%x.%j.100%%"
    assert (application.partition, dict(application.environment)) == ("long", {"A": "1", "B": "x,y"})
    assert (job.name, job.hold, str(job.array)) == ("flow", True, "1-9:2")
    assert {(each.job, each.condition) for each in job.after} == {
        (17, Condition.DONE),
        (18, Condition.DONE),
        (19, Condition.ENDED),
    }


def test_a_script_for_grid_engine_is_the_job_that_it_says() -> None:
    job = read(
        "#$ -N wave -cwd -pe mpi 4 -q all.q",
        "#$ -l h_rt=600 -l h_vmem=1G,mem_free=1G",
        "#$ -o out.$JOB_ID.$TASK_ID -e err",
        "#$ -t 1-10:2 -tc 3 -hold_jid 17,18 -r n",
    )
    (component,) = job.components
    application = component.application
    assert (component.processors, application.processors_per_task, job.walltime_s) == (4, 1, 600.0)
    assert component.needs is not None
    assert component.needs.memory_bytes == 2**30
    assert (application.stdout, application.stderr, application.partition) == ("out.%j.%a", "err", "all.q")
    assert (job.name, str(job.array), job.restarts_max) == ("wave", "1-10:2%3", 0)
    assert set(job.after) == {
        Dependency(job=17, condition=Condition.ENDED),
        Dependency(job=18, condition=Condition.ENDED),
    }


@pytest.mark.parametrize(
    ("line", "tasks", "per_task"),
    [
        ("#PBS -l nodes=2:ppn=3", 6, 1),
        ("#PBS -lncpus=4", 1, 4),
        ("#PBS -l procs=5", 5, 1),
        ("#PBS -l select=ncpus=8", 1, 8),
        ("#PBS -N alone", 1, 1),
        ("#$ -pe smp 8", 1, 8),
        ("#$ -pe orte 2-8", 2, 1),
        ("#$ -cwd", 1, 1),
    ],
)
def test_a_size_is_read_as_the_batch_system_means_it(line: str, tasks: int, per_task: int) -> None:
    (component,) = read(line).components
    assert (component.processors // per_task, component.application.processors_per_task) == (tasks, per_task)


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("#PBS -l walltime=90", 90),
        ("#PBS -l walltime=10:00", 600),
        ("#$ -l h_rt=1:0:0", 3600),
        ("#$ -l h_rt=86400", 86400),
    ],
)
def test_a_time_without_a_colon_is_in_seconds(line: str, seconds: int) -> None:
    assert read(line).walltime_s == seconds


def test_memory_of_a_whole_job_for_pbs_is_shared_out_over_its_processors() -> None:
    (component,) = read("#PBS -l nodes=2:ppn=2,mem=4gb").components
    assert component.needs is not None
    assert component.needs.memory_bytes == 2**30


def test_it_is_noted_how_the_options_are_read_and_which_have_no_effect() -> None:
    told = notes("#PBS -A physics -m abe -V -l nodes=1:ppn=2,place=scatter -p 5 -k oe -j oe")
    assert "the options for PBS are read as those of Slurm: --nodes=1 --ntasks-per-node=2" in told
    for flag in ("-A", "-m", "-V", "-l place", "-p", "-k", "-j"):
        assert any(line.startswith(flag) and "no effect" in line for line in told.splitlines()), (flag, told)
    told = notes("#$ -cwd -V -M me -P physics -notify -R y -binding linear -l s_rt=5")
    for flag in ("-cwd", "-V", "-M", "-P", "-notify", "-R", "-binding", "-l s_rt"):
        assert any(flag in line and "no effect" in line for line in told.splitlines()), (flag, told)


@pytest.mark.parametrize(
    ("line", "wrong", "advice"),
    [
        ("#PBS -l select=1:ncpus=2+1:ncpus=4", "more than one component", "hetjob"),
        ("#PBS -l nodes=node17:ppn=2", "a node of one cluster", "how many nodes"),
        ("#PBS -l matlab=1", "-l matlab cannot be honoured", "one cluster"),
        ("#PBS -I", "-I cannot be honoured", "koala run"),
        ("#PBS -W stagein=a@b:c", "-W stagein cannot be honoured", "--input-file"),
        ("#PBS -o host:out", "names a host", "write out alone"),
        ("#PBS -o logs/", "is a directory", "name a file"),
        ("#PBS -o $HOSTED/out", "$HOSTED' is not filled in", "$PBS_JOBID"),
        ("#PBS -a 0800", "not a whole date", "203001310800"),
        ("#PBS -S /bin/bash", "the first line of the script does not", "#!/bin/bash"),
        ("#PBS -l walltime=soon", "'soon' is not a time", "HH:MM:SS"),
        ("#PBS -y 3", "'-y' is not a known option of PBS", "documentation"),
        ("#PBS -N", "-N needs a value", "-N VALUE"),
        ("#PBS -v HOME", "does not travel", "NAME=VALUE"),
        ("#$ -pe mpi -8", "is not a number", "digits"),
        ("#$ -l gpu=1", "-l gpu cannot be honoured", "#SBATCH"),
        ("#$ -hold_jid flow", "nothing that a job can wait for", "afterany"),
        ("#$ -b y", "no binary program", "remove -b"),
        ("#$ -soft -l arch=x", "-soft cannot be honoured", "remove it"),
        ("#$ -ar 7", "-ar cannot be honoured", "submit_options"),
        ("#$ -r maybe", "neither y nor n", "y or n"),
    ],
)
def test_what_would_make_it_another_job_is_refused_at_its_place(line: str, wrong: str, advice: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        read(line)
    (problem,) = caught.value.problems
    assert wrong in problem.message
    assert advice in problem.advice
    assert problem.line == 2


def test_beside_options_for_slurm_those_for_others_are_noted_and_have_no_effect() -> None:
    lines = ("#PBS -l nodes=9:ppn=9", "#$ -pe mpi 9", "#SBATCH --ntasks=2")
    (component,) = read(*lines).components
    assert component.processors == 2
    told = notes(*lines)
    assert "line 2: options for PBS, which have no effect beside those for Slurm" in told
    assert "line 3: options for Grid Engine, which have no effect beside those for Slurm" in told


def test_options_of_koala_stand_beside_those_for_any_batch_system() -> None:
    job = read("#PBS -l nodes=2:ppn=2", "#KOALA --type mpi --policy WF")
    assert (job.job_type.value, job.policy) == ("mpi", "WF")


def test_lines_after_the_first_command_and_prose_behind_the_sign_of_grid_engine_are_comments() -> None:
    lines = ("#$ qsub job.sh", "#$ -pe mpi 2", "true", "#$ -pe mpi 9", "#PBS -l nodes=9")
    (component,) = read(*lines).components
    assert component.processors == 2
    assert "lines 5 and 6" in notes(*lines) or "lines 5, 6" in notes(*lines)


@pytest.mark.parametrize("name", ["job.pbs", "job.qsub", "job.sge", "job"])
def test_such_a_script_is_known_by_its_name_or_its_first_line(name: str) -> None:
    with pytest.raises(DescriptionError, match="a batch script starts with #!"):
        read_job("#PBS -l nodes=1\n./flow\n", name)
