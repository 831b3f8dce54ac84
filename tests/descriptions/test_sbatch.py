"""Jobs as Slurm scripts become exactly the requests that they describe."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from koala.descriptions import DescriptionError, job_notes, read_job, write_job_yaml, write_rsl
from koala.descriptions.sbatch.reader import slurm_time_s
from koala.model.checkpoint import Checkpoint, CheckpointSignal
from koala.model.dependency import Condition, Dependency
from koala.model.job_array import read_array
from koala.model.nodes import TaskNeeds
from koala.model.request import Application, Flexibility, InputFile, InputMode, Request
from tests.support.description_samples import JOB_SBATCH, laplace


def script(*lines: str) -> Request:
    """The request of a script with these option lines."""
    return read_job("\n".join(["#!/bin/sh", *lines, "true", ""]), "job.sbatch")


def test_a_full_heterogeneous_script_is_read_field_by_field() -> None:
    application = Application(
        script=JOB_SBATCH, directory="run", environment=(("OMP_NUM_THREADS", "1"),), stdout="out.txt"
    )
    wanted = laplace(application)
    *others, last = wanted.components
    last = replace(last, application=replace(application, processors_per_task=2))
    assert read_job(JOB_SBATCH, "job.sbatch") == replace(wanted, components=(*others, last))


def test_the_same_job_in_all_three_formats_is_the_same_request() -> None:
    request = read_job(JOB_SBATCH, "job.slurm")
    assert read_job(write_job_yaml(request), "job.yaml") == request
    assert read_job(write_rsl(request), "job.rsl") == request


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("1:02:03", 3723),
        ("2-3", 2 * 86400 + 3 * 3600),
        ("2-3:04", 2 * 86400 + 3 * 3600 + 240),
        ("2-03:04:05", 2 * 86400 + 3 * 3600 + 245),
        ("", None),
        ("1-", None),
        ("1:2:3:4", None),
        ("UNLIMITED", None),
    ],
)
def test_times_have_the_forms_of_slurm(text: str, seconds: int | None) -> None:
    assert slurm_time_s(text) == seconds


@pytest.mark.parametrize(
    ("line", "processors"),
    [
        ("#SBATCH --ntasks=6", 6),
        ("#SBATCH --ntasks 6", 6),
        ("#SBATCH -n6", 6),
        ("#SBATCH\t-n 6", 6),
        ("#SBATCH -n '6'", 6),
        ("#SBATCH -n 6 -c 2", 12),
        ("#SBATCH -N 3", 3),
        ("#SBATCH -N 3 --ntasks-per-node=4", 12),
        ("#SBATCH -N 3 --ntasks-per-node=4 -n 12 -c 2", 24),
        ("#SBATCH -c 5", 5),
        ("#SBATCH -n 6 # -c 2", 6),
        ("##SBATCH -n 6\n#SBATCH -n 2", 2),
        ("# SBATCH lines follow\n#SBATCH -n 2", 2),
        ("#SBATCHES\n#SBATCH -n 2", 2),
        ("#SBATCH -n 2\ntrue\n# SBATCH -n 6", 2),
        ("#SBATCH -n 2\n#SBATCH hetjob\n#SBATCH -o out", 3),
    ],
)
def test_processors_are_tasks_times_cpus(line: str, processors: int) -> None:
    assert script(line).processors == processors


def test_cpus_per_task_are_the_processors_of_each_task_and_of_that_component_only() -> None:
    request = script("#SBATCH -n 3 -c 2", "#KOALA --type mpi", "#SBATCH hetjob", "#SBATCH -n 5")
    assert [part.application.processors_per_task for part in request.components] == [2, 1]
    assert [part.processors for part in request.components] == [6, 5]


def test_a_division_that_cuts_a_task_in_two_is_refused() -> None:
    with pytest.raises(DescriptionError, match=re.escape("5+3 cuts a task in two")):
        script("#SBATCH -n 4 -c 2", "#KOALA --flexible --splits 5+3")
    assert script("#SBATCH -n 4 -c 2", "#KOALA --flexible").processors == 8
    assert script("#SBATCH -n 4 -c 2", "#KOALA --flexible --splits 4+4,6+2").processors == 8


@pytest.mark.parametrize(
    ("export", "environment"),
    [
        ("A=1,B=2", (("A", "1"), ("B", "2"))),
        ("A='x,y',B=2", (("A", "x,y"), ("B", "2"))),
        ('"A=1,B=2"', (("A", "1"), ("B", "2"))),
        ('A="b c"', (("A", "b c"),)),
        ("A=", (("A", ""),)),
        ("A=b=c", (("A", "b=c"),)),
        ("NONE", ()),
    ],
)
def test_exported_variables_are_the_environment(export: str, environment: tuple[tuple[str, str], ...]) -> None:
    assert script(f"#SBATCH -n 1 --export={export}").components[0].application.environment == environment


@pytest.mark.parametrize(
    ("value", "file"),
    [
        ("mesh.dat", InputFile(name="mesh.dat")),
        ("mesh.dat:chunk", InputFile(name="mesh.dat", mode=InputMode.CHUNK)),
        ("mesh.dat:in/m", InputFile(name="mesh.dat", path="in/m")),
        ("mesh.dat:whole:chunk", InputFile(name="mesh.dat", path="chunk")),
        ("mesh.dat:chunk:in/m:1", InputFile(name="mesh.dat", mode=InputMode.CHUNK, path="in/m:1")),
    ],
)
def test_an_input_file_may_have_a_mode_and_a_path(value: str, file: InputFile) -> None:
    assert script("#SBATCH -n 1", f"#KOALA --input-file {value}").components[0].input_files == (file,)


def test_a_flexible_job_has_its_bounds_and_splits() -> None:
    request = script("#SBATCH -n 24", "#KOALA --flexible --component-min 2 --components-max=3 --splits 18+6,12+12")
    assert request.flexible == Flexibility(component_min=2, components_max=3, splits=((18, 6), (12, 12)))


def test_later_components_inherit_from_the_first_what_they_do_not_say() -> None:
    request = script(
        "#SBATCH -n 1 -D here -o a.out",
        "#KOALA --input-file f",
        "#SBATCH packjob",
        "#SBATCH -n 2 -o b.out",
        "#KOALA --input-file g",
    )
    first, second = request.components
    assert (first.application.directory, first.application.stdout) == ("here", "a.out")
    assert (second.application.directory, second.application.stdout) == ("here", "b.out")
    assert second.input_files == (InputFile(name="g"),)


def test_the_names_of_streams_keep_their_patterns() -> None:
    name = "logs/%x-%A_%3a-%j.%N.100%%.txt"
    assert script(f"#SBATCH -n 1 -o {name}").components[0].application.stdout == name
    with pytest.raises(DescriptionError, match="%q stands for nothing"):
        script("#SBATCH -n 1 -o out.%q")


def test_a_real_script_is_taken_with_notes_on_what_has_no_effect() -> None:
    text = "\n".join(
        [
            "#!/bin/bash -l",
            "#SBATCH --job-name=train",
            "#SBATCH --account=physics --qos normal -p gpu",
            "#SBATCH --nodes=2 --ntasks=8 --exclusive",
            "#SBATCH --gres=gpu:4 --cpus-per-task=4",
            "#SBATCH --mail-type=END,FAIL --mail-user=me@example.org",
            "#SBATCH --export=ALL,MODE=fast",
            "#SBATCH --no-requeue --signal=B:USR1@60",
            "srun ./train",
        ]
    )
    request = read_job(text, "job.sh")
    component = request.components[0]
    assert (component.processors, component.needs, request.restarts_max) == (32, TaskNeeds(gpus=1), 0)
    assert (component.application.partition, component.application.environment) == ("gpu", (("MODE", "fast"),))
    assert read_job(write_job_yaml(request), "again.yaml") == request
    assert read_job(write_rsl(request), "again.rsl") == request
    noted = [re.split(" ha(?:s|ve) no effect", note)[0] for note in job_notes(text, "job.sh")]
    assert noted == [
        "--account and --qos",
        "--exclusive",
        "--mail-type and --mail-user",
        "--export=ALL",
        "--nodes",
        "--signal",
    ]


@pytest.mark.parametrize(
    ("written", "signal", "grace_s"),
    [("B:USR1@90", "USR1", 90.0), ("SIGUSR2", "USR2", 60.0), ("15@1", "TERM", 1.0), ("R:hup@0599", "HUP", 599.0)],
)
def test_a_signal_before_the_end_of_the_walltime_is_that_of_a_checkpoint(
    written: str, signal: str, grace_s: float
) -> None:
    text = f"#!/bin/sh\n#SBATCH -n 1 --time=10 --signal={written}\n./run\n"
    request = read_job(text, "job.sh")
    assert request.checkpoint == Checkpoint(signal=CheckpointSignal(signal), grace_s=grace_s)
    (note,) = job_notes(text, "job.sh")
    assert f"catch {signal} get it {grace_s:.0f} s before the end" in note
    assert read_job(write_job_yaml(request), "again.yaml") == request


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--signal=USR1@60", "without --time"),
        ("--time=1 --signal=USR1", "which is 60 s"),
        ("--time=10 --signal=USR1@0", "1 s to 3600 s"),
        ("--time=90 --signal=USR1@3601", "CHECKPOINT_GRACE_S_MAX"),
        ("--time=10 --signal=KILL@60", "with one of USR1"),
        ("--time=10 --signal=9", "with one of USR1"),
    ],
)
def test_a_signal_that_means_something_else_is_noted(options: str, why: str) -> None:
    text = f"#!/bin/sh\n#SBATCH -n 1 {options}\n./run\n"
    assert read_job(text, "job.sh").checkpoint is None
    (note,) = job_notes(text, "job.sh")
    assert note.startswith("--signal has no effect: ")
    assert why in note
    with pytest.raises(DescriptionError, match="'B:@60' is not a signal"):
        script("#SBATCH -n 1 --signal=B:@60")


def test_a_script_with_options_and_no_size_is_one_task() -> None:
    assert script("#SBATCH --time=10").processors == 1
    assert script("#SBATCH --array=0-3 --requeue --open-mode append").processors == 1
    assert job_notes("processors: 4\napplication: {executable: a}\n", "job.yaml") == ()


@pytest.mark.parametrize("lost", ["--nodelist=n1", "-x n2", "--wrap=hostname", "--deadline=now"])
def test_what_would_make_it_another_job_is_refused(lost: str) -> None:
    with pytest.raises(DescriptionError, match="cannot be honoured across clusters"):
        script(f"#SBATCH -n 1 {lost}")


def test_a_script_says_what_its_job_waits_for_in_slurms_words() -> None:
    waits = "#SBATCH --dependency=afterok:17:18_3,afterany:19,after:20,afternotok:21"
    request = script("#SBATCH -n 1", waits, "#SBATCH --hold -b now+2h")
    assert request.after == (
        Dependency(job=17),
        Dependency(job=18, index=3),
        Dependency(job=19, condition=Condition.ENDED),
        Dependency(job=20, condition=Condition.STARTED),
        Dependency(job=21, condition=Condition.FAILED),
    )
    assert request.hold
    assert request.begin_in_s == 7200
    assert script("#SBATCH -n 1 --begin=1970-01-02T00:00:00Z").begin_at == 86_400


@pytest.mark.parametrize(
    ("text", "at", "in_s"),
    [
        ("now", None, 0),
        ("now+90", None, 90),
        ("now+1hour", None, 3_600),
        ("now+30minutes", None, 1_800),
        ("now+2days", None, 172_800),
        ("1970-01-03", 172_800, None),
        ("1970-01-02T01:00", 90_000, None),
        ("1970-01-02T00:00:01", 86_401, None),
        ("1970-01-02T01:00:00+01:00", 86_400, None),
    ],
)
def test_a_job_begins_when_slurm_would_let_it(text: str, at: float | None, in_s: float | None) -> None:
    request = script(f"#SBATCH -n 1 --begin={text}")
    assert (request.begin_at, request.begin_in_s) == (at, in_s)


def test_a_script_may_be_an_array() -> None:
    assert script("#SBATCH -n 1 --array=0-9%2").array == read_array("0-9%2")


@pytest.mark.parametrize(
    "option",
    [
        "-d singleton",
        "-d afterok",
        "-d afterok:0",
        "-d afterok:1?afterany:2",
        "-d after:3+5",
        "-a 9-0",
        "-b tomorrow",
    ],
)
def test_what_no_job_can_wait_for_is_refused_with_what_to_write(option: str) -> None:
    with pytest.raises(DescriptionError) as error:
        script(f"#SBATCH -n 1 {option}")
    assert error.value.advice.startswith("write ")
