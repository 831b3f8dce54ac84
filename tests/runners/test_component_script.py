"""The script that components run: any shell, any text, any order of starts."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.model.launch import BARRIER_TIMEOUT_S_MAX, GO_BYTES_MAX, LINKS_MAX, Go, InputLink, Launch, LaunchError
from koala.model.messages import STDERR_LINE_BYTES_MAX, Outcome
from koala.model.nodes import TaskNeeds
from koala.model.request import Application, JobType
from koala.runners import component_script
from koala.runners.script import EXIT_NOT_FIRST, ScriptTimings
from tests.support.live_sites import launch, opened
from tests.support.real_programs import real_program

HOSTILE = [
    "plain",
    "",
    "two words",
    "'; touch hacked; '",
    '"$(touch hacked)"',
    "`touch hacked`",
    "$HOME ${PATH} $((1+1))",
    "new\nline\n",
    "\ttab \\ backslash \\n",
    "*?[a-z] ~ # ! & | < > ( ) { }",
    "-n --help -",
    "naïve ☃ 漢字 \u202e",
    "\x01\x1b[31m\x7f",
    "a=b",
]
shells = pytest.mark.parametrize("shell", ["dash", "bash", "busybox"], indirect=True)


@pytest.fixture
def shell(request: pytest.FixtureRequest) -> list[str]:
    """The command of one POSIX shell."""
    return [real_program(request.param), *(["sh"] if request.param == "busybox" else [])]


def folder_with(tmp_path: Path, one: Launch, go: Go | None = None) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    (home / "script").write_text(component_script(one), encoding="utf-8")
    if go is not None:
        (home / "go").write_text(go.text, encoding="utf-8")
    return home


def run_script(shell: list[str], home: Path, **variables: str) -> int:
    environment = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run([*shell, "script"], cwd=home, env=environment, timeout=120, check=False).returncode


PRINT = """
import os, sys
words = sys.argv[1:] + [os.environ[name] for name in {}]
sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, words)))
"""


@shells
def test_hostile_text_arrives_byte_for_byte_in_arguments_and_variables(tmp_path: Path, shell: list[str]) -> None:
    names = [f"V{number}" for number in range(len(HOSTILE))]
    for_go = [text.replace("\n", " ") for text in HOSTILE]
    application = Application(
        executable=sys.executable,
        arguments=("-c", PRINT.format([*names, *(f"G{name}" for name in names)]), *HOSTILE),
        environment=tuple(zip(names, HOSTILE, strict=True)),
        directory='it\'s a $(touch hacked) "dir"\n☃',
        stdout="out `x` $y",
    )
    go = Go(environment=tuple((f"G{name}", text) for name, text in zip(names, for_go, strict=True)))
    home = folder_with(tmp_path, launch(application=application), go)
    assert run_script(shell, home) == 0
    assert (home / "exit").read_text() == "exited 0\n", (home / "stderr").read_text()
    assert application.directory is not None
    assert application.stdout is not None
    written = (home / "workspace" / application.directory / application.stdout).read_bytes()
    assert written.split(b"\0") == [text.encode() for text in [*HOSTILE, *HOSTILE, *for_go]]
    assert not list(tmp_path.rglob("hacked"))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20), max_size=8))
def test_any_text_survives_the_quoting(arguments: list[str]) -> None:
    script = component_script(launch(application=Application(executable="printf", arguments=("%s\\0", *arguments))))
    call = "koala_home=/ koala_program\n"
    head = script.split("\nset -u\n")[0]
    done = subprocess.run(["sh"], input=(head + "\n" + call).encode(), capture_output=True, check=True, timeout=120)
    assert done.stdout == b"".join(text.encode() + b"\0" for text in arguments or [""])


@pytest.mark.parametrize(
    ("per_task", "environment", "threads"),
    [(4, (), b"4"), (4, (("OMP_NUM_THREADS", "2"),), b"2"), (1, (), b"none")],
)
def test_a_task_has_as_many_threads_as_processors_unless_the_user_says_otherwise(
    tmp_path: Path, per_task: int, environment: tuple[tuple[str, str], ...], threads: bytes
) -> None:
    program = 'printf %s "${OMP_NUM_THREADS-none}"'
    application = Application(script=program, environment=environment, processors_per_task=per_task)
    home = folder_with(tmp_path, launch(application=application, processors=4), Go())
    assert run_script(["sh"], home) == 0
    assert (home / "stdout").read_bytes() == threads


@shells
def test_a_script_of_the_user_runs_as_it_is_with_its_own_interpreter(tmp_path: Path, shell: list[str]) -> None:
    text = f"#!{sys.executable}\nimport sys\nprint('it\\'s', \"$HOME\", '`x`')\nsys.exit(7)"
    home = folder_with(tmp_path, launch(application=text), Go())
    run_script(shell, home)
    assert (home / "exit").read_text() == "exited 7\n"
    assert (home / "stdout").read_text() == "it's $HOME `x`\n"


NUMBER_IN_SCRIPT = [
    ("#SBATCH -n 1", "SLURM_JOB_ID", "17"),
    ("#$ -pe mpi 1", "JOB_ID", "17"),
    ("#PBS -l nodes=1", "PBS_JOBID", "5"),
]


@shells
@pytest.mark.parametrize(("options", "variable", "under_its_system"), NUMBER_IN_SCRIPT)
@pytest.mark.parametrize("under", [True, False], ids=["under its batch system", "elsewhere"])
def test_the_number_in_the_name_of_a_stream_is_the_one_that_a_batch_script_finds(
    tmp_path: Path, shell: list[str], options: str, variable: str, under_its_system: str, under: bool
) -> None:
    text = f"#!/bin/sh\n{options}\necho ${variable}"
    home = folder_with(tmp_path, launch(application=Application(script=text, stdout="out-%4j"), job=5), Go())
    assert run_script(shell, home, **({"SLURM_JOB_ID": "17", "JOB_ID": "17"} if under else {})) == 0
    number = under_its_system if under else "5"
    assert (home / "workspace" / f"out-{int(number):04}").read_text() == f"{number}\n"
    assert (home / "stdout").read_text() == f"{number}\n"


def test_scripts_for_other_batch_systems_find_their_variables(tmp_path: Path) -> None:
    said = {
        "#PBS -l nodes=1:ppn=3": "$PBS_JOBID $PBS_JOBNAME $PBS_NP ${PBS_O_WORKDIR##*/} ${SLURM_JOB_ID-none}",
        "#$ -pe mpi 3": "$JOB_ID $JOB_NAME $NSLOTS ${SGE_O_WORKDIR##*/} $SGE_TASK_ID",
    }
    for number, (options, words) in enumerate(said.items()):
        one = launch(application=f'#!/bin/sh\n{options}\necho "{words}"', job=5, processors=3, name="flow")
        directory = tmp_path / str(number)
        directory.mkdir()
        home = folder_with(directory, one, Go())
        assert run_script(["sh"], home) == 0
        told = (home / "stdout").read_text()
        assert told == f"5 flow 3 workspace {('none', 'undefined')[number]}\n"


# After the words of the application.
ECHOES = """
srun: error: n2: tasks 0-1: Exited with exit code 6
srun: launch/slurm: launch_p_step_launch: StepId=22.0 aborted before step completely launched.
srun: Job step aborted: Waiting up to 4 seconds for job step to finish.
slurmstepd-n2: error: *** STEP 22.0 ON n2 CANCELLED AT 2030-11-19T12:04:48 ***
[proxy:3@n2] main (hydra/proxy/pmip.c:100): unable to connect to server n9 at port 38205 (check for firewalls!)
srun: error: n2: task 0: Killed
"""


@shells
@pytest.mark.parametrize(
    ("program", "stream", "told"),
    [
        ("echo first >&2; echo 'cannot open mesh' >&2; echo >&2; echo ' ' >&2; exit 3", None, "cannot open mesh\n"),
        ("echo 'cannot open mesh' >&2; exit 3", "logs/errors", "cannot open mesh\n"),
        ("echo 'cannot open mesh' >&2; exit 3", "-", "cannot open mesh\n"),
        ("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 3", None, "x" * STDERR_LINE_BYTES_MAX + "\n"),
        ("rm -f errors; mkfifo errors; exit 3", "errors", None),
        ("echo harmless >&2", None, None),
        ("exit 3", None, None),
        (f"printf %s {shlex.quote('no mesh' + ECHOES)} >&2; exit 3", None, "no mesh\n"),
        ("echo srun: error: n1: task 0: Killed >&2; exit 3", None, "srun: error: n1: task 0: Killed\n"),
        ("echo srun: error: Unable to create step >&2; exit 3", None, "srun: error: Unable to create step\n"),
    ],
)
def test_the_last_line_of_the_errors_of_an_application_that_fails_is_kept(
    tmp_path: Path, shell: list[str], program: str, stream: str | None, told: str | None
) -> None:
    application = Application(executable="/bin/sh", arguments=("-c", program), stderr=stream)
    home = folder_with(tmp_path, launch(application=application), Go())
    run_script(shell, home)
    kept = home / "last-line"
    assert (kept.read_text() if kept.exists() else None) == told


@shells
def test_what_a_shell_says_of_the_script_of_a_job_is_quoted_without_its_long_path(
    tmp_path: Path, shell: list[str]
) -> None:
    home = folder_with(tmp_path, launch(application="./no-solver"), Go())
    run_script(shell, home)
    kept = (home / "last-line").read_text()
    assert kept.startswith("job-script: ")
    assert "./no-solver: " in kept


@shells
def test_processor_time_is_counted_from_the_barrier_on_and_with_all_that_was_waited_for(
    tmp_path: Path, shell: list[str]
) -> None:
    """In milliseconds. An end so soon has no memory that anybody saw."""
    busy = "import time\nwhile time.process_time() < 0.2: pass"
    program = f"{shlex.quote(sys.executable)} -c {shlex.quote(busy)} & wait $!; {shlex.quote(sys.executable)} -c ''"
    home = folder_with(tmp_path, launch(application=program), Go())
    run_script(shell, home)
    milliseconds, _ = (home / "usage").read_text().split()
    assert 200 <= int(milliseconds) < 100_000


@shells
@pytest.mark.parametrize(
    ("script", "starts_steps"),
    [
        ("true", True),
        ("rm -f $KOALA_HOME/.times-*; mkdir $KOALA_HOME/.times-$(uname -n)-$(cut -d' ' -f1 $KOALA_HOME/pid)", False),
    ],
    ids=["steps", "unwritable"],
)
def test_processor_time_that_this_shell_cannot_know_is_not_measured(
    tmp_path: Path, shell: list[str], script: str, starts_steps: bool
) -> None:
    """Steps of a batch system are no children of who asks for them."""
    home = folder_with(tmp_path, launch(application=script, starts_steps=starts_steps), Go())
    run_script(shell, home)
    assert (home / "usage").read_text().split()[0] == "-"


@shells
def test_of_processes_that_left_the_application_the_memory_is_seen_and_the_time_unknown(
    tmp_path: Path, shell: list[str]
) -> None:
    program = """
(setsid sh -c 'until [ -e "$KOALA_HOME/over" ]; do sleep 0.1; done' &)
until grep -q ' 1' "$KOALA_HOME"/.memory-* 2>/dev/null; do sleep 0.05; done
: >"$KOALA_HOME/over"
"""
    home = folder_with(tmp_path, launch(application=program), Go())
    run_script(shell, home)
    milliseconds, kib = (home / "usage").read_text().split()
    assert milliseconds == "-"
    assert int(kib) > 0


@shells
def test_a_program_with_the_line_ends_of_dos_is_said_to_have_them(tmp_path: Path, shell: list[str]) -> None:
    home = folder_with(tmp_path, launch(application=Application(executable="./solver")), Go())
    (home / "workspace").mkdir()
    (home / "workspace" / "solver").write_bytes(b"#!/bin/sh\r\necho fine\r\n")
    (home / "workspace" / "solver").chmod(0o755)
    run_script(shell, home)
    assert (home / "exit").read_text() == "exited 127\n"
    assert (home / "last-line").read_text() == (
        "./solver: its lines end as in DOS (CRLF), so that its interpreter is not found: save it with Unix line"
        " ends\n"
    )


@shells
def test_of_a_program_that_a_script_calls_the_line_ends_of_dos_are_named(tmp_path: Path, shell: list[str]) -> None:
    home = folder_with(tmp_path, launch(application="./solver mesh"), Go())
    (home / "workspace").mkdir()
    (home / "workspace" / "solver").write_bytes(b"#!/bin/sh\r\necho fine\r\n")
    (home / "workspace" / "solver").chmod(0o755)
    run_script(shell, home)
    assert (home / "last-line").read_text().startswith("./solver: its lines end as in DOS (CRLF)")


def test_hostile_names_of_the_site_itself_do_no_harm(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a 'b' $(touch hacked) `c`\n☃") as one:
            assert (await one.run(launch(application="echo fine"))).outcome is Outcome.DONE
            assert await one.stdout() == "fine\n"

    asyncio.run(scenario())
    assert not list(tmp_path.rglob("hacked"))


@shells
def test_of_two_starts_of_one_token_one_goes_on(tmp_path: Path, shell: list[str]) -> None:
    home = folder_with(tmp_path, launch(application=f"echo ran >> {tmp_path}/log"), Go())
    assert run_script(shell, home) == 0
    assert run_script(shell, home) == EXIT_NOT_FIRST
    assert (tmp_path / "log").read_text() == "ran\n"


@shells
def test_an_abort_beats_a_release(tmp_path: Path, shell: list[str]) -> None:
    home = folder_with(tmp_path, launch(application=f"echo ran >> {tmp_path}/log"), Go())
    (home / "abort").touch()
    run_script(shell, home)
    assert (home / "exit").read_text() == "aborted\n"
    assert not (tmp_path / "log").exists()


@shells
def test_a_component_gives_up_at_the_barrier_also_where_sleep_takes_whole_seconds(
    tmp_path: Path, shell: list[str]
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sleep").write_text('#!/bin/sh\ncase $1 in *.*) exit 1 ;; esac\necho nap >> "$NAPS"\n')
    (tools / "sleep").chmod(0o755)
    home = folder_with(tmp_path, launch(barrier_timeout_s=3.0))
    run_script(shell, home, PATH=f"{tools}:{os.environ['PATH']}", NAPS=str(tmp_path / "naps"))
    assert (home / "exit").read_text() == "gave-up\n"
    if len(shell) == 1:  # busybox has a sleep of its own
        assert (tmp_path / "naps").read_text() == "nap\n" * 3


@shells
def test_a_signal_at_the_barrier_is_recorded(tmp_path: Path, shell: list[str]) -> None:
    home = folder_with(tmp_path, launch())
    with subprocess.Popen([*shell, "script"], cwd=home) as process:
        deadline = time.monotonic() + 120.0
        while not (home / "ready").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.terminate()
        process.wait(120)
    assert (home / "exit").read_text() == "killed\n"


def test_shellcheck_finds_nothing_whatever_the_type_of_the_job() -> None:
    """The scripts differ in the type's name alone, and reading one takes a second."""
    application = Application(executable="run", arguments=("it's",), directory="d", stdin="i", stdout="o", stderr="o")
    checked = set()
    for job_type in JobType:
        script = component_script(launch(application=application, job_type=job_type, search_path=("/opt/x",)))
        named = f"\nkoala_job_type={job_type.value}\n"
        assert script.count(named) == 1
        checked.add(script.replace(named, "\nkoala_job_type=plain\n"))
    (script,) = checked
    command = [real_program("shellcheck"), "-s", "sh", "-"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"application": Application()}, "nothing to run"),
        ({"application": Application(executable="-x")}, "looks like an option"),
        ({"application": Application(executable="x", arguments=("a\0b",))}, "NUL"),
        ({"application": Application(executable="x", arguments=("\ud800",))}, "UTF-8"),
        ({"application": Application(executable="x", environment=(("A B", ""),))}, "not the name of a variable"),
        ({"application": Application(executable="x", directory="a/../../b")}, "climbs out"),
        ({"application": Application(executable="x", stdout="../out")}, "climbs out"),
        ({"application": Application(executable="x", stdin="")}, "is empty"),
        ({"processors": 0}, "too few"),
        ({"part": 1}, "not one of 1 parts"),
        ({"barrier_timeout_s": BARRIER_TIMEOUT_S_MAX + 1}, "BARRIER_TIMEOUT_S_MAX"),
        ({"walltime_s": 0.0}, "above zero"),
        ({"begin_at": float("inf")}, "since the epoch"),
        ({"search_path": ("bin",)}, "absolute directory"),
    ],
)
def test_what_cannot_be_carried_is_refused_by_name(fields: dict[str, object], named: str) -> None:
    with pytest.raises(LaunchError, match=named) as caught:
        launch(**{"application": "exit", **fields})  # type: ignore[arg-type]
    assert caught.value.for_user().startswith(caught.value.field)


def test_what_a_barrier_tells_has_limits() -> None:
    Go(environment=(("A", "x" * (GO_BYTES_MAX - 3)),))
    with pytest.raises(LaunchError, match="GO_BYTES_MAX"):
        Go(environment=(("A", "x" * (GO_BYTES_MAX - 2)),))
    with pytest.raises(LaunchError, match="newline"):
        Go(environment=(("A", "x\ny"),))
    with pytest.raises(LaunchError, match="LINKS_MAX"):
        Go(links=(InputLink(source="a", destination="b"),) * (LINKS_MAX + 1))


# ------------------------------------------------------------------------------------------------ ranks and proxies

# A proxy that starts one rank, as a leader of a session, and sees nothing of its end.
BLIND_PROXY = """#!/bin/sh
setsid {shell} "$KOALA_HOME/script" rank </dev/null >/dev/null 2>&1 &
exec sleep 600
"""


@shells
@pytest.mark.parametrize(("program", "code"), [("exit 9", 9), ("exit 0", None)], ids=["fails", "ends well"])
def test_a_proxy_that_does_not_see_a_rank_fail_is_ended(
    tmp_path: Path, shell: list[str], program: str, code: int | None
) -> None:
    """One whose rank has ended well is left alone, also for longer than that."""
    one = launch(application=Application(executable="sh", arguments=("-c", program)), job_type=JobType.MPI)
    home = folder_with(tmp_path, one, Go())
    (home / "workspace").mkdir()
    (home / "script").write_text(component_script(one, ScriptTimings(ranks_grace_tenths=3)))
    proxy = tmp_path / "proxy"
    proxy.write_text(BLIND_PROXY.format(shell=shlex.join(shell)))
    proxy.chmod(0o755)
    words = [*shell, str(home / "script"), "proxy", "0", str(proxy)]
    environment = {"PATH": os.environ["PATH"], "KOALA_HOME": str(home)}
    with subprocess.Popen(words, cwd=home, env=environment) as process:
        try:
            if code is None:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(timeout=3.0)
                process.terminate()
            found = process.wait(timeout=120.0)
        finally:
            process.kill()
    assert code is None or found == code


@shells
@pytest.mark.parametrize(
    ("devices", "local", "seen"),
    [
        ("4,5,6,7", "0", "4,5"),
        ("4,5,6,7", "1", "6,7"),
        ("GPU-a,GPU-b", "0", "GPU-a,GPU-b"),
        ("4,5", "1", "4,5"),  # fewer than its tasks have: as the batch system says
        ("", "0", ""),
    ],
)
def test_a_rank_sees_its_own_gpus(tmp_path: Path, shell: list[str], devices: str, local: str, seen: str) -> None:
    one = launch(
        application=Application(executable="sh", arguments=("-c", "echo $CUDA_VISIBLE_DEVICES")),
        processors=2,
        job_type=JobType.MPI,
        needs=TaskNeeds(gpus=2),
    )
    for name in ("workspace", "ranks"):
        (tmp_path / name).mkdir()
    (tmp_path / "script").write_text(component_script(one), encoding="utf-8")
    (tmp_path / "go").write_text("KOALA_JOB=1\n", encoding="utf-8")
    environment = {
        "PATH": os.environ["PATH"], "KOALA_HOME": str(tmp_path), "KOALA_RANKS": str(tmp_path / "ranks"),
        "CUDA_VISIBLE_DEVICES": devices, "MPI_LOCALRANKID": local,
    }  # fmt: skip
    done = subprocess.run(
        [*shell, str(tmp_path / "script"), "rank"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{seen}\n"
