"""The verbs about jobs against a real daemon: submit, jobs, job show, explain, logs, cancel, wait."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_cli import Shell, Terminal, job_file
from tests.support.live_daemon import Daemon, running_daemon, until

# More than any site has besides the job that holds its processors.
ALL = "components: [{processors: 4, count: 3}]"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("live")) as running:
        yield running


@pytest.fixture
def shell(daemon: Daemon) -> Iterator[Shell]:
    """A shell; the jobs that a test leaves behind are cancelled."""
    yield Shell(daemon.server)
    for job in daemon.client.each_job(states=["waiting", "placed", "claiming", "starting", "running", "unwinding"]):
        daemon.client.cancel(job.id)
    until(lambda: not any(site.ours for site in daemon.client.sites()), "the sites are idle again")


def holding(shell: Shell, daemon: Daemon, directory: Path) -> int:
    """A job that holds all processors until the file ``end`` is there."""
    job = shell.submit(directory, f"while [ ! -e '{directory}/end' ]; do sleep 0.3; done", ALL)
    until(lambda: daemon.client.job(job).state == "running", "the job runs")
    return job


# It saves when it is asked, but not before the file ``go`` is there; its second run lasts until the file ``end`` is.
SAVES = """\
trap 'until [ -e "%s/go" ]; do sleep 0.3; done; echo 1 >"$KOALA_CHECKPOINT/state"; exit 0' USR1
if [ "$KOALA_RUN" = 1 ]; then : >"%s/begun"; fi
until [ -e "%s/end" ]; do sleep 0.3; done
"""


def test_a_requeued_job_says_that_it_still_saves_and_then_from_what_it_goes_on(
    shell: Shell, daemon: Daemon, tmp_path: Path
) -> None:
    request = "processors: 1\ncheckpoint: {signal: USR1, grace: 1h}"
    job = shell.submit(tmp_path, SAVES % (tmp_path, tmp_path, tmp_path), request)
    until((tmp_path / "begun").exists, "it runs")
    assert "no run has continued from one yet; no work would be lost if it ended now" in _in_one_line(shell, job)
    told = " ".join(shell("job", "requeue", str(job)).stdout.split())
    assert "has 3600 s for it (grace); still saving: 1 of 1 components" in told
    (tmp_path / "go").touch()
    until(lambda: any(shell.json("job", "show", str(job))["checkpoint"]["saved"]), "it goes on")
    (saved,) = shell.json("job", "show", str(job))["checkpoint"]["saved"]
    assert (saved["component"], saved["run"]) == (0, 1)
    assert saved["size_bytes"] > 0
    assert f"that run 1 saved on {saved['site']}" in _in_one_line(shell, job)
    (tmp_path / "end").touch()
    assert shell.json("job", "wait", str(job))["state"] == "done"
    assert shell.json("job", "show", str(job))["checkpoint"] == {"saved": [saved], "work_lost_s": None}


def _in_one_line(shell: Shell, job: int) -> str:
    return " ".join(shell("job", "show", str(job)).stdout.split())


# ------------------------------------------------------------------------------------------------ submit


def test_a_job_that_is_waited_for_says_where_it_ran(shell: Shell) -> None:
    told = shell("submit", "hello", "--wait").stdout
    assert "Submitted job" in told
    assert "is done: ran" in told
    assert "amsterdam 2, berlin 2" in told


def test_waiting_gives_the_exit_code_of_the_application(shell: Shell, tmp_path: Path) -> None:
    result = shell("submit", str(job_file(tmp_path, "exit 7")), "--wait", code=7)
    assert "failed: ran" in result.stdout
    assert "koala job explain" in result.stderr


def test_a_failure_quotes_what_the_application_wrote_last_to_its_standard_error(shell: Shell, tmp_path: Path) -> None:
    script = "echo starts >&2; echo 'cannot open mesh' >&2; exit 7"
    job = shell.submit(tmp_path, script)
    quoted = "stderr: cannot open mesh"
    assert quoted in shell("job", "wait", str(job), code=7).stderr
    assert quoted in shell("job", "explain", str(job)).stdout
    assert quoted in _in_one_line(shell, job)
    assert quoted in shell("jobs", "--wide").stdout
    assert "stderr: cannot open mesh; exit code 7" in shell("jobs").stdout
    assert shell.json("jobs")[0]["stderr_line"] == "cannot open mesh"
    assert shell.json("job", "show", str(job))["components"][0]["stderr_line"] == "cannot open mesh"


def test_what_a_job_used_is_shown_of_each_component_and_in_all(shell: Shell, tmp_path: Path) -> None:
    """Memory is looked at from time to time, and seen here."""
    job = shell.submit(tmp_path, 'until [ -s "$(echo "$KOALA_HOME"/.memory-*)" ]; do sleep 0.1; done')
    shell("job", "wait", str(job))
    shown = shell.json("job", "show", str(job))
    used, each = shown["usage"], shown["components"][0]
    assert (used["components"], used["measured"]) == (1, 1)
    assert used["processor_s"] == each["processor_s"] >= 0
    assert used["held_processor_s"] > 0
    assert used["peak_memory_bytes"] == each["peak_memory_bytes"] > 0
    told = _in_one_line(shell, job)
    assert " processor seconds (" in told
    assert " of memory at the peak" in told


def test_waiting_for_a_job_that_is_cancelled_fails(shell: Shell, daemon: Daemon, tmp_path: Path) -> None:
    job = holding(shell, daemon, tmp_path)
    shell("job", "cancel", str(job))
    assert shell.json("job", "wait", str(job), code=1)["state"] == "cancelled"


def test_a_job_can_come_from_standard_input(shell: Shell) -> None:
    text = "processors: 1\napplication: {executable: 'true'}\n"
    assert "done" in shell("submit", "-", "--wait", stdin=text).stdout
    assert "standard input is empty" in shell("submit", "-", stdin="", code=2).stderr


def test_the_same_token_id_gives_the_same_job(shell: Shell) -> None:
    first = shell.json("submit", "hello", "--token-id", "once")
    second = shell.json("submit", "hello", "--token-id", "once")
    assert (first["new"], second["new"]) == (True, False)
    assert first["job"]["id"] == second["job"]["id"]


def test_a_wrong_description_is_told_with_its_place(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("processors: 1\napplication: {executable: 'true'}\nwaltime: 3\n")
    told = shell("submit", str(path), code=2).stderr
    assert "waltime" in told
    assert "3" in told
    assert "Traceback" not in told


def test_a_dry_run_says_where_the_job_would_go_and_submits_nothing(shell: Shell, daemon: Daemon) -> None:
    before = shell.json("jobs", "--limit", "1")
    lines = shell.lines("submit", "hello", "--dry-run")
    assert lines[1].split() == ["0", "2", "amsterdam"]
    assert lines[-1] == "WF: 4 processors on 2 sites; nothing is submitted"
    assert [job["id"] for job in shell.json("jobs", "--limit", "1")] == [job["id"] for job in before]


def test_a_dry_run_of_what_does_not_fit_is_refused_with_a_cure(shell: Shell, tmp_path: Path) -> None:
    path = job_file(tmp_path, "true", "components: [{processors: 5}]")
    lines = shell.lines("submit", str(path), "--dry-run", code=3)
    assert lines[0].startswith("Refused by WF")
    assert any(line.startswith("It can never fit") for line in lines)
    assert shell.json("submit", str(path), "--dry-run", code=3)["refusal"]["permanent"] is True


def test_a_dry_run_of_a_job_that_is_kept_back_says_so(shell: Shell, tmp_path: Path) -> None:
    path = job_file(tmp_path, "true", "processors: 1\nbegin_at: now+1h")
    assert shell.lines("submit", str(path), "--dry-run", code=3)[-1].startswith(
        "It would not go now: it waits for its time (begin_at); its time is "
    )
    assert shell.json("submit", str(path), "--dry-run", code=3)["kept_back"]


def test_a_job_that_waits_in_vain_is_told_of_at_once(shell: Shell, tmp_path: Path) -> None:
    failed = shell.json("submit", str(job_file(tmp_path, "exit 3")), "--wait", code=3)["id"]
    told = shell("submit", str(job_file(tmp_path, "true", f"processors: 1\nafter: {{done: [{failed}]}}"))).stderr
    assert f"Warning: it waits for job {failed} to be done, which can never come" in " ".join(told.split())


def test_an_array_that_failed_is_explained_by_an_element(shell: Shell, tmp_path: Path) -> None:
    request = "components: [{processors: 1}]\narray: 3,5,7%1\noutputs: [made]"
    path = job_file(tmp_path, "touch made; [ $KOALA_ARRAY_INDEX = 5 ] || exit 4", request)
    array = shell.json("submit", str(path), "--wait", code=4)["id"]
    told = " ".join(shell("job", "explain", str(array)).stdout.split())
    assert "Of 3 elements 2 failed (indices 3, 7)." in told
    assert f"Element {array}_7 failed: " in told
    fetched = shell("job", "fetch", str(array), "--to", str(tmp_path / "to"), code=1)
    assert f"The outputs are incomplete: job {array} failed: " in " ".join(fetched.stderr.split())
    assert (tmp_path / "to" / "5" / "made").exists()


def test_a_dry_run_does_not_go_with_waiting(shell: Shell) -> None:
    assert "leave out --wait" in shell("submit", "hello", "--dry-run", "--wait", code=2).stderr


def test_ctrl_c_stops_waiting_and_leaves_the_job_running(shell: Shell, daemon: Daemon, tmp_path: Path) -> None:
    script = f"while [ ! -e '{tmp_path}/end' ]; do sleep 0.3; done"
    with Terminal(daemon, "submit", str(job_file(tmp_path, script)), "--wait", columns=120) as terminal:
        terminal.until("running")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 130
        assert "goes on. See it with `koala job show" in " ".join(terminal.shown.split())
    job = daemon.client.jobs(limit=1).items[0]
    assert job.state == "running"
    (tmp_path / "end").touch()
    assert shell.json("job", "wait", str(job.id))["state"] == "done"


# -------------------------------------------------------------------------------------------------- jobs


def test_the_list_shows_the_newest_first_in_a_line_each(shell: Shell, daemon: Daemon, tmp_path: Path) -> None:
    first = holding(shell, daemon, tmp_path)
    second = shell.submit(tmp_path, "true", ALL)
    lines = shell.lines("jobs", "--limit", "2")
    assert lines[0].split()[:4] == ["job", "name", "state", "procs"]
    assert lines[1].split()[:4] == [str(second), "mine", "waiting", "12"]
    assert "expected " in lines[1]  # the first in line has a plan: at a time, or any moment
    assert lines[2].split()[:4] == [str(first), "mine", "running", "12"]
    assert "amsterdam 4, berlin 4, cracow 4" in lines[2]
    assert [job["id"] for job in shell.json("jobs", "--state", "waiting", "--mine")] == [second]


def test_the_list_is_of_jobs_of_a_name_and_of_a_time(shell: Shell) -> None:
    first = shell.json("submit", "--wrap", "true", "--name", "sweep-1")["job"]["id"]
    second = shell.json("submit", "--wrap", "true", "--name", "sweep-2")["job"]["id"]

    def listed(*arguments: str) -> list[int]:
        return [job["id"] for job in shell.json("jobs", *arguments)]

    assert listed("--name", "sweep-*") == [second, first]
    assert listed("--name", "sweep-1", "--since", "1h") == [first]
    assert listed("--name", "sweep-1", "--until", "1h") == []
    assert listed("--name", "sweep-1", "--since", "2020-01-31T08:00", "--until", "2999-01-01") == [first]
    assert shell("jobs", "--name", "none").stdout == "No jobs that match.\n"
    assert "write how long ago, such as 2h, or a day" in shell("jobs", "--since", "soon", code=2).stderr


def test_the_list_says_when_there_is_more(shell: Shell) -> None:
    shell.json("submit", "hello")
    shell.json("submit", "hello")
    assert shell.lines("jobs", "--limit", "1")[-1] == "and older ones; --limit 2 shows more"


# --------------------------------------------------------------------------------------------------- job


def test_show_draws_every_component(shell: Shell) -> None:
    job = shell.json("submit", "hello", "--wait")["id"]
    lines = shell.lines("job", "show", str(job))
    assert lines[0] == f"job {job}  hello  done"
    components = [line for line in lines if "\N{FULL BLOCK}" in line and "barrier" not in line]
    assert [line.split()[:3] for line in components] == [["0", "amsterdam", "2"], ["1", "berlin", "2"]]
    assert all(line.endswith("done") for line in components)
    assert "hello" in shell.json("job", "show", str(job))["description"]


def test_explain_says_what_every_site_lacks_and_what_would_cure_it(
    shell: Shell, daemon: Daemon, tmp_path: Path
) -> None:
    holding(shell, daemon, tmp_path)
    job = shell.submit(tmp_path, "true", "components: [{processors: 3}]")
    until(lambda: daemon.client.explain(job).refusal is not None, "the job was tried")
    text = "\n".join(shell.lines("job", "explain", str(job)))
    assert "Number 1 of 1 in its queue" in text
    for site in ("amsterdam", "berlin", "cracow"):
        assert f"3 more idle processors on {site}" in text
    assert "What would help:" in text
    assert "submitted: non-fixed request for 3 processors" in text
    assert len(shell.json("job", "explain", str(job))["refusal"]["shortages"]) == 3


def test_explain_tells_the_story_of_a_job_that_has_ended(shell: Shell) -> None:
    job = shell.json("submit", "hello", "--wait")["id"]
    text = "\n".join(shell.lines("job", "explain", str(job)))
    assert text.index("submitted") < text.index("placed:") < text.index("the barrier opened")


def test_an_unknown_job_is_wrong_use(shell: Shell) -> None:
    for verb in ("show", "explain", "logs", "wait", "cancel"):
        assert "there is no job 999999" in shell("job", verb, "999999", code=2).stderr


def test_cancel_goes_on_after_a_job_that_is_not_there(shell: Shell, daemon: Daemon, tmp_path: Path) -> None:
    job = holding(shell, daemon, tmp_path)
    result = shell("job", "cancel", "999999", str(job), code=2)
    assert "there is no job 999999" in result.stderr
    assert f"Job {job} (mine) is cancelled." in result.stdout
    done = shell.json("submit", "hello", "--wait")["id"]
    assert "had ended already: done" in shell("job", "cancel", str(done)).stdout


def test_waiting_may_have_an_end(shell: Shell, daemon: Daemon, tmp_path: Path) -> None:
    job = holding(shell, daemon, tmp_path)
    assert f"job {job} is still running" in shell("job", "wait", str(job), "--timeout", "0.2", code=1).stderr


# -------------------------------------------------------------------------------------------------- logs


def test_lines_are_marked_with_their_part_when_there_are_several(shell: Shell, tmp_path: Path) -> None:
    script = 'printf "first of %s\\nsecond" "$KOALA_COMPONENT"; echo wrong >&2'
    job = shell.submit(tmp_path, script, "components: [{processors: 1, count: 2}]")
    shell("job", "wait", str(job))
    both = ["0 | first of 0", "0 | second", "1 | first of 1", "1 | second"]
    assert shell("job", "logs", str(job)).stdout.splitlines() == both
    assert shell("job", "logs", str(job), "--part", "1").stdout == "first of 1\nsecond"
    assert shell("job", "logs", str(job), "--stderr", "--part", "0").stdout == "wrong\n"
    assert "it has 2 components" in shell("job", "logs", str(job), "--part", "2", code=2).stderr


def test_following_prints_until_the_job_has_ended(shell: Shell, daemon: Daemon, tmp_path: Path) -> None:
    script = f"echo begun; while [ ! -e '{tmp_path}/end' ]; do sleep 0.3; done; echo ended"
    job = shell.submit(tmp_path, script)
    with Terminal(daemon, "job", "logs", str(job), "--follow") as terminal:
        terminal.until("begun")
        assert "ended" not in terminal.shown
        (tmp_path / "end").touch()
        assert terminal.ended() == 0
        assert terminal.shown.split() == ["begun", "ended"]


def test_output_larger_than_a_call_gives_is_whole(shell: Shell, tmp_path: Path) -> None:
    job = shell.submit(tmp_path, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo line $i; done")
    shell("job", "wait", str(job))
    assert shell("job", "logs", str(job)).stdout == "".join(f"line {number}\n" for number in range(1, 20_001))


def test_a_job_that_has_not_started_has_no_output_yet(shell: Shell, daemon: Daemon, tmp_path: Path) -> None:
    holding(shell, daemon, tmp_path)
    job = shell.submit(tmp_path, "true", ALL)
    assert "--follow waits for it" in shell("job", "logs", str(job), code=2).stderr
