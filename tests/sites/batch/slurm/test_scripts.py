"""The scripts that use Slurm's commands: what they say, and that no user's text gets out of its place in them."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from koala.model.grid import BatchSettings
from koala.model.launch import Launch
from koala.model.request import Application
from koala.sites.batch.slurm.system import SlurmSystem
from koala.sites.batch.system import BatchJob, BatchOutputError, BatchState, BatchSubmission, WantedReservation
from tests.support.real_programs import real_program

# What sbatch says of every limit, in front of which it may say of which.
POLICY = (
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy "
    "(job submit limit, user's size and/or time limits)"
)


def system(**fields: Any) -> SlurmSystem:
    return SlurmSystem(BatchSettings(work_directory="/w", **fields))


def submission(*, processors: int = 6, per_task: int = 1, **fields: Any) -> BatchSubmission:
    application = Application(executable="x", processors_per_task=per_task)
    launch = Launch(token="1.1-ab", job=1, processors=processors, application=application)  # noqa: S106
    return BatchSubmission(**{"launch": launch, "home": "/w/it's/1.1", "script": "script", "log": "log", **fields})


def test_a_submission_says_everything_and_quotes_what_is_not_its_own() -> None:
    settings = {"queue": "main; reboot", "account": "a b", "submit_options": ("--qos=$HOME", "-x", "n1")}
    words = shlex.split(system(**settings).submit(submission(per_task=2, limit_s=61.0, reservation="r1")))
    assert words == [
        "sbatch",
        "--parsable",
        "--no-requeue",
        "--open-mode=append",
        "--job-name=koala-1.1-ab",
        "--comment=1.1-ab",
        "--chdir=/w/it's/1.1",
        "--output=/w/it's/1.1/log",
        "--ntasks=3",
        "--cpus-per-task=2",
        "--time=2",
        "--partition=main; reboot",
        "--account=a b",
        "--reservation=r1",
        "--qos=$HOME",
        "-x",
        "n1",
        "/w/it's/1.1/script",
        "</dev/null",
    ]


def test_a_component_is_kept_off_nodes() -> None:
    launch = msgspec.structs.replace(submission().launch, exclude_nodes=("n1", "n2.site"))
    assert "--exclude=n1,n2.site" in shlex.split(system().submit(submission(launch=launch)))


def test_licences_are_asked_for_where_a_component_holds_some() -> None:
    launch = msgspec.structs.replace(submission().launch, licenses=(("ansys", 2), ("matlab", 1)))
    assert "--licenses=ansys:2,matlab:1" in shlex.split(system().submit(submission(launch=launch)))
    refusal = "Slurm refused it: sbatch: error: Batch job submission failed: Invalid license specification"
    assert system().is_for_what_it_asks(refusal)


def test_processors_that_are_not_whole_tasks_are_asked_for_one_by_one() -> None:
    words = shlex.split(system().submit(submission(processors=5, per_task=2)))
    assert {"--ntasks=5", "--cpus-per-task=1"} <= set(words)


@pytest.mark.parametrize(("printed", "number"), [("17\n", "17"), ("17;alpha\n", "17"), ("Welcome!\n\n17\n", "17")])
def test_the_number_of_a_submission(printed: str, number: str) -> None:
    assert system().parse_submitted(printed) == number


@pytest.mark.parametrize("printed", ["", "\n", "Submitted batch job 17\n", "17x\n", "٣\n"])
def test_what_is_no_number_is_an_error(printed: str) -> None:
    with pytest.raises(BatchOutputError):
        system().parse_submitted(printed)


@pytest.mark.parametrize(
    ("complaint", "is_final"),
    [
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            True,
        ),
        ("sbatch: error: invalid partition specified: nope", True),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", True),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", False),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", False),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying.", False),
        ("sh: 1: sbatch: not found", False),
        (f"sbatch: error: QOSMaxCpuPerUserLimit\n{POLICY}", True),
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{POLICY}", True),
        (f"sbatch: error: MaxCpuPerAccount\n{POLICY}", True),
        (POLICY, True),
        (f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}", False),
        (f"sbatch: error: AssocGrpSubmitJobsLimit\n{POLICY}", False),
        (f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{POLICY}", False),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", True),
        ("", False),
    ],
)
def test_a_refusal_is_final_unless_trying_again_may_help(complaint: str, is_final: bool) -> None:
    refusal = system().refusal(1, "", complaint)
    assert (refusal is not None) == is_final
    assert refusal is None or complaint in refusal


def test_a_submission_that_a_signal_ended_is_not_refused() -> None:
    assert system().refusal(137, "", "Killed") is None


def test_a_job_is_cancelled_by_its_name_and_never_by_a_number() -> None:
    text = system().cancel("1.1-ab", ["17"])
    assert "17" not in text
    assert "--name=koala-1.1-ab" in text


# ------------------------------------------------------------------------- with programs that a test plays


def play(tmp_path: Path, text: str, **programs: str) -> subprocess.CompletedProcess[str]:
    """Run a script with these programs as Slurm's commands."""
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    for name, body in programs.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    environment = {"PATH": f"{tools}:/usr/bin:/bin"}
    return subprocess.run(["/bin/sh"], input=text, env=environment, capture_output=True, text=True, check=False)


def test_a_listing_fails_when_one_of_its_commands_does(tmp_path: Path) -> None:
    text = system().listing()
    assert play(tmp_path, text, sinfo=":", squeue=":").returncode == 0
    assert play(tmp_path, text, sinfo="exit 1", squeue=":").returncode != 0
    assert play(tmp_path, text, sinfo=":", squeue="exit 1").returncode != 0


def test_a_history_that_cannot_be_asked_for_is_not_one_that_tells_nothing(tmp_path: Path) -> None:
    job = BatchJob(id="17", token="1.1-ab", state=BatchState.OVER)  # noqa: S106
    text = system().history([job])
    unknown = play(
        tmp_path, text, scontrol="echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", sacct="exit 1"
    )
    assert unknown.returncode == 0
    assert system().parse_history(unknown.stdout, [job]) == {}
    away = play(tmp_path, text, scontrol="echo 'Unable to contact slurm controller' >&2; exit 1", sacct=":")
    assert away.returncode != 0
    assert "Unable to contact" in away.stderr


def test_accounts_that_do_not_answer_are_not_waited_for_long(tmp_path: Path) -> None:
    impatient = SlurmSystem(BatchSettings(work_directory="/w"), accounts_s=1)
    job = BatchJob(id="17", token="1.1-ab", state=BatchState.OVER)  # noqa: S106
    unknown = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
    done = play(tmp_path, impatient.history([job]), scontrol=unknown, sacct="exec sleep 600")
    assert done.returncode == 0
    assert system().parse_history(done.stdout, [job]) == {}


def test_a_users_own_settings_for_slurms_commands_do_not_alter_what_they_print(tmp_path: Path) -> None:
    own = "export SLURM_TIME_FORMAT=relative SQUEUE_PARTITION=x SQUEUE_SORT=u\n"
    # The one command that has a format of time has it of the script.
    squeue = 'case "${SLURM_TIME_FORMAT-}${SQUEUE_PARTITION-}${SQUEUE_SORT-}" in "" | %s) ;; *) exit 1 ;; esac'
    assert play(tmp_path, own + system().listing(), sinfo=":", squeue=squeue, scontrol=":").returncode == 0


@pytest.mark.parametrize(
    ("tasks", "per_task", "shares"),
    [("4(x2),3", "", ["4", "4", "3"]), ("1", "2", ["2"]), ("2,1(x3)", "1", ["2", "1", "1", "1"])],
)
@pytest.mark.parametrize("shell", ["sh", "busybox sh", "bash"])
def test_a_component_learns_its_nodes_in_every_shell(
    tmp_path: Path, tasks: str, per_task: str, shares: list[str], shell: str
) -> None:
    real_program(shell.split()[0])
    tools = tmp_path / "bin"
    tools.mkdir()
    names = "".join(f"n{number}\\n" for number in range(len(shares)))
    (tools / "scontrol").write_text(f"#!/bin/sh\nprintf '{names}'\n")
    (tools / "scontrol").chmod(0o755)
    done = subprocess.run(
        [*shell.split(), "-eu"],
        input=f"{system().on_node()}koala_nodes\n",
        env={
            "PATH": f"{tools}:/usr/bin:/bin",
            "SLURM_JOB_NODELIST": "n[0-9]",
            "SLURM_TASKS_PER_NODE": tasks,
            **({"SLURM_CPUS_PER_TASK": per_task} if per_task else {}),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [f"n{number} {share}" for number, share in enumerate(shares)]


def test_a_reservation_is_asked_for_once_and_a_time_that_has_passed_is_now(tmp_path: Path) -> None:
    said = tmp_path / "said"
    scontrol = f'echo "$@" >>{said}\ncase $1 in show) exit 1 ;; esac'
    done = play(
        tmp_path, system(queue="main").reserve(WantedReservation("koala_1_1", 3, 1.5, 61.0)), scontrol=scontrol
    )
    assert system().parse_reserved(done.stdout) == "koala_1_1"
    created = said.read_text().splitlines()[1]
    assert created.startswith("create reservation ReservationName=koala_1_1 Duration=2 TRES=cpu=3 PartitionName=main")
    assert created.endswith("StartTime=now+1")
    said.unlink()
    play(tmp_path, system().reserve(WantedReservation("koala_1_1", 3, 1.5, 61.0)), scontrol=f'echo "$@" >>{said}')
    assert "create" not in said.read_text()


@pytest.mark.parametrize(
    ("jobs", "given"),
    [
        ("", True),
        ("1050|root|local", True),  # it came since the time was chosen, and ends soon after it
        ("1061|root|local", False),
        ("1900|me|koala-1.1-ab", True),  # ours has a limit that it never reaches
        ("1900|you|koala-1.1-ab", False),
        ("1900|me|koala-2.1-ab", False),
        ("N/A|root|local", False),
        ("1000|root|one\n1000|root|two", True),
    ],
)
def test_what_is_busy_is_reserved_where_all_that_holds_it_ends_in_time(
    tmp_path: Path, jobs: str, given: bool
) -> None:
    done = reserved_though_busy(tmp_path, jobs, ending=("1.1-ab",))
    assert (done.returncode == 0) is given, done.stderr
    assert done.stdout.split() == (["r"] if given else [])
    assert ("too late" in done.stderr) is not given


def test_where_nothing_of_ours_ends_in_time_a_job_without_a_name_does_not_either(tmp_path: Path) -> None:
    assert "too late" in reserved_though_busy(tmp_path, "1900|me|", ending=()).stderr


def reserved_though_busy(tmp_path: Path, jobs: str, ending: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    scontrol = (
        f'echo "$@" >>{tmp_path}/said\n'
        "case $* in\n"
        f"*IGNORE_JOBS*) >{tmp_path}/made ;;\n"
        "create*) echo 'Error creating the reservation: Requested nodes are busy' >&2; exit 1 ;;\n"
        f"show*) [ -e {tmp_path}/made ] && echo 'ReservationName=r Nodes=n[1-2] NodeCnt=2 Flags=IGNORE_JOBS ' ;;\n"
        "esac"
    )
    squeue = f"case $* in *--nodelist=n*1-2*) ;; *) exit 1 ;; esac\nprintf '{jobs}\\n'".replace("|", "\\174")
    wanted = WantedReservation("r", 8, 1000.0, 60.0, late_s=60.0, ending=ending)
    return play(tmp_path, system().reserve(wanted), scontrol=scontrol, squeue=squeue, id="echo me")
