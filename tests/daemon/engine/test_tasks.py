"""A live grid of two sites runs a job of tasks: one component a site, each told which tasks it holds."""

from __future__ import annotations

from pathlib import Path

from tests.support.live_daemon import running_daemon, until

GRID = """\
name: halves
sites:
  a: {kind: local, processors: 3}
  b: {kind: local, processors: 3}
scheduler: {policy: WF, scan_interval_s: 0, probe_every_s: 0}  # whoever else loads this machine
"""
TASKS = """\
mcr: 800
tasks: {read: 1, left: 1, right: 1, mix: 1, encode: 1, store: 1}
edges: [[read, left, 9], [left, right, 9], [mix, encode, 9], [encode, store, 9], [right, mix, 1]]
"""
JOB = f"""\
name: film
application:
  executable: sh
  arguments: [-c, "echo $KOALA_TASKS"]
  environment: {{KOALA_TASKS: nobody}}
{TASKS}"""
LONG = f"name: long\napplication: {{executable: sleep, arguments: ['600']}}\n{TASKS}"


def test_each_component_learns_which_tasks_it_holds(tmp_path: Path) -> None:
    with running_daemon(tmp_path, grid=GRID) as daemon:
        client = daemon.client
        job = client.submit(JOB, source="film.yaml").job.id
        assert client.wait_ended(job, timeout_s=120.0).state == "done"
        told = client.job(job)
        assert told.policy == "WASE"
        assert [(place.site, place.processors) for place in told.places] == [("a", 3), ("b", 3)]
        printed = [client.output(job, part=part).text for part in (0, 1)]
        assert printed == ["read left right\n", "mix encode store\n"]


def test_a_job_of_tasks_waits_through_a_restart_and_is_mapped_when_there_is_room(tmp_path: Path) -> None:
    with running_daemon(tmp_path, grid=GRID) as daemon:
        client = daemon.client
        first = client.submit(LONG, source="long.yaml").job.id
        until(lambda: client.job(first).state == "running", "the first job runs")
        job = client.submit(JOB, source="film.yaml").job.id
        assert client.job(job).state == "waiting"
        daemon.kill()
        daemon.start()
        until(lambda: client.job(first).state == "running", "the first job is found running")
        client.cancel(first)
        assert client.wait_ended(job, timeout_s=120.0).state == "done"
