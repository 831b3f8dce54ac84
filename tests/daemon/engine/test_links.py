"""A live grid with link capacities: a module keeps a job from links that are full, also after a restart."""

from __future__ import annotations

from pathlib import Path

from tests.support.live_daemon import running_daemon, until

GRID = """\
name: networked
sites:
  a: {kind: local, processors: 2}
  b: {kind: local, processors: 2}
  c: {kind: local, processors: 2}
network: {uplink_mbit_s: 100}
scheduler: {policy: B1, scan_interval_s: 0}
"""
TALKER = """\
name: talker
components: [{processors: 1, site: a}, {processors: 1, site: b}]
communication: {bisection_mbit_s: 150}
application: {executable: sleep, arguments: ["600"]}
"""
# On its own site there is room for two of the three, and of the other links two are full.
TOTAL = """\
name: total
flexible: {processors: 3}
home: c
communication: {bisection_mbit_s: 10}
application: {executable: "true"}
"""


def test_a_job_waits_for_a_full_link_through_a_restart_and_starts_when_it_is_free(tmp_path: Path) -> None:
    with running_daemon(tmp_path, grid=GRID) as daemon:
        client = daemon.client
        talker = client.submit(TALKER, source="talker.yaml").job.id
        until(lambda: client.job(talker).state == "running", "the first job runs")
        tried = client.dry_run(TOTAL, source="total.yaml")
        assert tried.refusal is not None
        total = client.submit(TOTAL, source="total.yaml").job.id
        assert client.job(total).state == "waiting"
        refusal = client.explain(total).refusal
        assert refusal is not None
        assert refusal == tried.refusal
        daemon.kill()
        daemon.start()
        until(lambda: client.job(talker).state == "running", "the first job is found running")
        assert client.job(total).state == "waiting"
        assert client.explain(total).refusal == refusal
        client.cancel(talker)
        assert client.wait_ended(total, timeout_s=120.0).state == "done"
        assert sum(place.processors for place in client.job(total).places) == 3
        assert len(client.job(total).places) == 2
