"""Arrays by the numbers of their elements in every verb that takes a job, and what is told of jobs that wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_cli import Shell, job_file
from tests.support.live_daemon import Daemon, running_daemon, until

GRID = """scheduler: {scan_interval_s: 1}
sites:
  amsterdam: {kind: local, processors: 4, memory: 1G}
  berlin: {kind: local, processors: 4, memory: 1G}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("live"), grid=GRID) as running:
        yield running


@pytest.fixture
def shell(daemon: Daemon) -> Shell:
    return Shell(daemon.server)


def test_an_element_is_named_by_its_array_and_index_everywhere(shell: Shell, daemon: Daemon, tmp_path: Path) -> None:
    script = f"while [ ! -e '{tmp_path}'/$KOALA_ARRAY_INDEX ]; do sleep 0.3; done; echo index $SLURM_ARRAY_TASK_ID"
    array = shell.submit(tmp_path, script, "components: [{processors: 1}]\narray: 3,5,7")

    def state(index: int) -> str:
        return str(shell.json("job", "show", f"{array}_{index}")["state"])

    until(lambda: [each["state"] for each in shell.json("jobs", "--array", str(array))] == ["running"] * 3, "all run")
    listed = shell.lines("jobs", "--array", str(array))
    assert [line.split()[1] for line in listed[1:]] == ["mine[7]", "mine[5]", "mine[3]"]
    assert "has no element 4; its indices are 3,5,7" in shell("job", "show", f"{array}_4", code=2).stderr
    no_array = shell("jobs", "--array", f"{array}_3", code=2).stderr
    assert f"{array}_3 is an element and has no elements; see koala job show {array}_3" in " ".join(no_array.split())
    # A running one goes back and is held there, with no places of before.
    shell("job", "requeue", "--hold", f"{array}_7")
    until(lambda: state(7) == "held", "it is held")
    assert shell.json("job", "show", f"{array}_7")["places"] == []
    assert "it is held by its owner" in next(
        line for line in shell.lines("jobs", "--array", str(array)) if "[7]" in line
    )
    shell("job", "change", f"{array}_7", "--walltime", "5m")
    # The path of its workspace may be wider than the terminal.
    shown = shell("job", "show", f"{array}_7").stdout.splitlines()
    assert any(line.split() == ["walltime", "5m00s"] for line in shown)
    shell("job", "release", f"{array}_7")
    until(lambda: state(7) == "running", "it runs again")
    assert f"element 5 of array {array}" in shell("job", "explain", f"{array}_5").stdout
    assert "the barrier of job" in shell("events", "--job", f"{array}_5").stdout
    (tmp_path / "5").touch()
    shell("job", "wait", f"{array}_5")
    assert shell("job", "logs", f"{array}_5").stdout == "index 5\n"
    shell("job", "cancel", f"{array}_3", f"{array}_7")
    assert shell.json("job", "wait", f"{array}_7", code=1)["state"] == "cancelled"


def test_a_job_tells_when_it_may_begin_and_what_its_tasks_hold(shell: Shell, tmp_path: Path) -> None:
    request = "task: {processors: 2, memory: 64M, count: 2}\nwalltime: 2h\nbegin_at: now+3h"
    job = shell.submit(tmp_path, "true", request)
    for told in (shell("jobs", "--wide"), shell("job", "show", str(job)), shell("job", "explain", str(job))):
        assert "; its time is " in " ".join(told.stdout.split())
    shown = shell.lines("job", "show", str(job))
    assert "asked for  2 tasks of 2 processors and 64 MiB: non-fixed, plain" in " ".join(shown)
    assert any(line.split() == ["walltime", "2h00m"] for line in shown)
    detail = shell.json("job", "show", str(job))
    assert "still held: it waits for its time (begin_at); its time is " in shell("job", "release", str(job)).stdout
    assert detail["begins_at"] == pytest.approx(detail["submitted_at"] + 3 * 3_600)
    assert [(each["tasks"], each["processors"], each["memory_bytes"]) for each in detail["tasks"]] == [(2, 2, 2**26)]
    shell("job", "cancel", str(job))


def test_a_dry_run_names_what_no_site_has(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "contained.yaml"
    path.write_text("processors: 1\napplication: {executable: 'true', image: ubuntu}\n", encoding="utf-8")
    told = shell("submit", "--dry-run", str(path), code=3).stdout
    assert "no site runs containers" in told
    assert "take the image out of the job" in " ".join(told.split())
    assert "its story" not in told
    path = job_file(tmp_path, "true", "task: {gpus: 1, gpu: h100, count: 1}")
    assert "since no site has a GPU" in " ".join(shell("submit", "--dry-run", str(path), code=3).stdout.split())


REAL_SCRIPT = """#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --account=physics --partition=gpu
#SBATCH --nodes=1 --ntasks=2 --cpus-per-task=1
#SBATCH --time=00:10:00 --mem-per-cpu=100M
#SBATCH --array=4-5%1
#SBATCH --output=logs/%x-%A_%a.%N.out --error=logs/%x-%A_%a.err
#SBATCH --mail-type=END --mail-user=me@example.org
#SBATCH --export=ALL
cd "$SLURM_SUBMIT_DIR" && echo "$SLURM_JOB_NAME $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_NTASKS $SLURM_PROCID"
echo "job $SLURM_JOB_ID on $SLURM_NNODES node with $SLURM_CPUS_PER_TASK" >&2; ls logs | wc -l
[ "$SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX $KOALA_ARRAY_SIZE" = "2 4 5 2" ] || exit 9
[ -e plot.sh ] && bash plot.sh || true
"""


def test_a_script_for_slurm_runs_as_it_is(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "sweep.sh"
    path.write_text(REAL_SCRIPT, encoding="utf-8")
    submitted = shell("submit", str(path))
    noted = " ".join(submitted.stderr.split())
    assert "note: --account has no effect: the grid file says this for each site" in noted
    assert "the partition gpu is left out where a site does not know it" in noted
    assert "plot.sh is looked for where the job starts, and nothing brings it there" in noted
    array = int(submitted.stdout.split()[2])
    assert "2 elements)." in submitted.stdout
    ended = shell("job", "wait", str(array)).stdout
    assert f"Job {array} is done after " in ended
    assert "; 2 elements: 2 done." in ended
    shown = shell("job", "show", str(array)).stdout
    assert "never started" not in shown
    assert f"koala job show {array}_4" in " ".join(shown.split())
    assert f"koala job logs {array}_4" in " ".join(shell("job", "logs", str(array), code=2).stderr.split())
    assert "0 outputs and 4 streams in" in shell("job", "fetch", str(array), "--to", str(tmp_path / "home")).stdout
    for index, number in ((4, array + 1), (5, array + 2)):
        assert shell("job", "logs", f"{array}_{index}").stdout == f"sweep {array} {index} 2 0\n2\n"
        assert shell("job", "logs", f"{array}_{index}", "--stderr").stdout == f"job {number} on 1 node with 1\n"


def test_an_array_and_a_graph_that_can_never_fit_are_warned_of(shell: Shell, tmp_path: Path) -> None:
    array = shell("submit", str(job_file(tmp_path, "true", "components: [{processors: 99}]\narray: 5-8")))
    assert "each element of the array can never fit" in " ".join(array.stderr.split())
    path = tmp_path / "graph.yaml"
    path.write_text("jobs:\n  large: {processors: 99, application: {executable: 'true'}}\n", encoding="utf-8")
    graph = shell("submit", str(path))
    number = int(graph.stdout.split("job ")[1].split()[0])
    assert f"large (job {number}) can never fit" in " ".join(graph.stderr.split())
    assert f"end it with koala job cancel {number}." in " ".join(graph.stderr.split())
    assert "large (99 processors): can never fit: " in shell("submit", "--dry-run", str(path), code=3).stdout
    assert "koala submit --dry-run" in shell("place", str(path), "--idle", "C1=4", code=2).stderr
    whole = array.stdout.split()[2]
    assert any(line.split()[:1] == [whole] and "can never fit; 4 elements" in line for line in shell.lines("jobs"))
    explained = shell.lines("job", "explain", whole)
    assert f"Its next element is job {int(whole) + 1}:" in explained
    assert any(line.startswith("It can never fit") for line in explained)
    assert shell("job", "cancel", f"{whole}_8").stdout.startswith(f"Element {whole}_8 (")
    shell("job", "cancel", whole, str(number))


def test_a_graph_is_taken_whole_and_runs_in_order(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "graph.yaml"
    say = f"echo $KOALA_ARRAY_INDEX {{}} >> '{tmp_path}/told'"
    path.write_text(
        f"""jobs:
  collect:
    processors: 1
    application: {{script: "{say.format("collect")}"}}
    after: {{done: [sweep]}}
  sweep:
    processors: 1
    array: 0-2%1
    outputs: [index]
    application: {{script: "{say.format("")}; echo $KOALA_ARRAY_INDEX > index"}}
    after: {{done: [make]}}
  make:
    processors: 1
    application: {{script: "{say.format("make")}"}}
""",
        encoding="utf-8",
    )
    dry = shell("submit", "--dry-run", str(path)).stdout
    assert "sweep (1 processor, 3 elements), after make: 1 on " in dry
    first = shell.json("submit", str(path), "--token-id", "graph-1")
    assert [each["name"] for each in first["jobs"]] == ["make", "sweep", "collect"]
    numbers = [each["job"]["id"] for each in first["jobs"]]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 5]
    shell("job", "wait", str(numbers[2]))
    assert (
        "3 outputs and 6 streams in " in shell("job", "fetch", str(numbers[1]), "--to", str(tmp_path / "made")).stdout
    )
    assert [(tmp_path / "made" / str(index) / "index").read_text() for index in range(3)] == ["0\n", "1\n", "2\n"]
    assert (tmp_path / "told").read_text(encoding="utf-8").split() == ["make", "0", "1", "2", "collect"]
    again = shell.json("submit", str(path), "--token-id", "graph-1")
    assert (again["new"], [each["job"]["id"] for each in again["jobs"]]) == (False, numbers)
    path.write_text(path.read_text().replace("[make]", "[made]"), encoding="utf-8")
    known = len(shell.json("jobs"))
    told = shell("submit", str(path), code=2).stderr
    assert "there is no job 'made' in this graph" in told
    assert "did you mean 'make'?" in told
    assert len(shell.json("jobs")) == known


def graph_file(directory: Path, **jobs: tuple[str, str]) -> Path:
    """Several jobs, each with what it runs and what it waits for."""
    path = directory / "graph.yaml"
    lines = [
        f"  {name}: {{processors: 1, application: {{script: '{script}'}}, after: {{{after}}}}}"
        for name, (script, after) in jobs.items()
    ]
    path.write_text("jobs:\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_graph_is_waited_for_until_its_last_job_has_ended(shell: Shell, tmp_path: Path) -> None:
    path = graph_file(
        tmp_path, last=("true", "done: [first]"), first=("true", ""), unneeded=("true", "failed: [first]")
    )
    done = shell("submit", "--wait", str(path)).stdout
    ends = [line for line in done.splitlines() if line.startswith("Job ")]
    assert [words.split(": ")[0].split(" ", 2)[2] for words in ends] == ["is done", "is done", "was cancelled"]
    told = shell.json("submit", "--wait", str(path))
    assert {each["name"]: each["job"]["state"] for each in told["jobs"]} == {
        "first": "done", "last": "done", "unneeded": "cancelled",
    }  # fmt: skip


def test_the_exit_code_of_a_graph_is_that_of_the_first_job_that_did_not_end_well(
    shell: Shell, tmp_path: Path
) -> None:
    never = "limits: {restarts: 0}"
    path = graph_file(
        tmp_path, first=("exit 7", ""), last=("true", "done: [first]"), rescue=("true", "failed: [first]")
    )
    path.write_text(path.read_text().replace("processors: 1,", f"processors: 1, {never},"), encoding="utf-8")
    done = shell("submit", "--wait", str(path), code=7)
    assert "failed" in done.stdout
    assert "is done" in done.stdout


def test_tasks_are_spawned_into_a_job_that_runs(shell: Shell, tmp_path: Path) -> None:
    script = f"echo holds $KOALA_TASKS; while [ ! -e '{tmp_path}'/flag ]; do sleep 0.3; done"
    job = str(shell.submit(tmp_path, script, "mcr: 1\ntasks: {mix: 1}"))
    until(lambda: shell.json("job", "show", job)["state"] == "running", "it runs")
    more = tmp_path / "more.yaml"
    more.write_text("tasks: {encode-2: 1}\nedges: [[encode-2, mix, 5]]\n", encoding="utf-8")
    told = shell("job", "spawn", job, str(more)).stdout.splitlines()
    assert told == [
        f"Job {job} has 1 task more; koala job explain {job} shows when it begins.",
        "  component 1 on amsterdam: encode-2",
    ]
    again = shell.json("job", "spawn", job, str(more))
    assert again["components"] == [{"part": 1, "site": "amsterdam", "tasks": ["encode-2"]}], "nothing comes twice"
    wrong = shell("job", "spawn", job, "-", stdin="tasks: {x: 1}\nedges: [[a, b, 1]]\n", code=2).stderr
    assert "standard input:2:" in wrong
    assert "joins none of the new tasks" in wrong
    twice = shell("job", "spawn", job, "-", stdin="tasks: {mix: 1}\n", code=2).stderr
    assert "standard input:1:9: the job has a task 'mix' already" in twice
    many = f"tasks: {{{', '.join(f't{number}: 1' for number in range(99))}}}\n"
    until(lambda: "the spawned task encode-2 began" in shell("job", "explain", job).stdout, "it begins")
    assert "are missing; spawn them when" in shell("job", "spawn", job, "-", stdin=many, code=3).stderr
    assert "there is no such file" in shell("job", "spawn", job, str(tmp_path / "none"), code=2).stderr
    (tmp_path / "flag").touch()
    shell("job", "wait", job)
    assert "holds encode-2" in shell("job", "logs", job).stdout
    assert f"job {job} gets the task encode-2" in shell("events", "--job", job).stdout
    assert "tasks are spawned into a job that runs" in shell("job", "spawn", job, str(more), code=1).stderr
