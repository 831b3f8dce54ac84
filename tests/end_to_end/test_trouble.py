"""What goes wrong on real clusters: others have taken processors, a controller is away, a cluster always fails.

What local users take after a job was placed is in ``test_real_local_users``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from koala.client import ConflictError
from koala.lab import Lab
from koala.model.grid import BatchSettings, Site
from koala.sites.batch.systems import system_of
from tests.support.live_daemon import until
from tests.support.real_grid import PROCESSORS, SITES, SLURM_SITES, WAIT_S, RealGrid, real_grid, waits_for

SLEEP = """
application:
  executable: sleep
  arguments: ["%s"]
"""


def test_local_users_jobs_count_as_taken(grid: RealGrid) -> None:
    numbers = {site: grid.local_job(site, 5, 600) for site in SITES}
    for site, number in numbers.items():
        until(partial(grid.is_running, site, number), f"the local user's job runs at {site}")

    def idle() -> dict[str, int]:
        return {site: grid.client.probe(site).idle for site in SITES}

    # What was heard a moment ago answers a probe too.
    until(lambda: idle() == dict.fromkeys(SITES, PROCESSORS - 5), "Koala counts the local users' jobs")
    job = grid.submit(
        f"{SLEEP % 1}policy: WF\ncomponents:\n- {{processors: 3}}\n- {{processors: 3}}\n- {{processors: 3}}\n"
    )
    grid.done(job)
    assert sorted(each.site for each in grid.last_run(job)) == sorted(SITES)


def test_a_program_that_is_missing_on_one_node_runs_on_another_of_the_same_cluster(
    grid: RealGrid, tmp_path: Path
) -> None:
    """It is missing on whichever node comes first."""
    bad = tmp_path / "bad"
    job = grid.submit(
        "application:\n  script: |\n"
        f"    [ -e '{bad}' ] || echo \"$SLURMD_NODENAME\" >'{bad}'\n"
        f'    if [ "$(cat \'{bad}\')" = "$SLURMD_NODENAME" ]; then exit 127; fi\n'
        '    echo "done on $SLURMD_NODENAME"\n'
        "components:\n- {processors: 2, site: alpha}\n"
    )
    found = grid.done(job)
    node = bad.read_text().strip()
    assert found.runs == 2, grid.story(job)
    told = [line.text for line in grid.client.explain(job).story]
    assert f"not on node {node} at alpha, where it failed" in "\n".join(told)


@pytest.mark.parametrize("site", SITES)
def test_machines_are_told_by_the_batch_system_of_each_site(grid: RealGrid, site: str) -> None:
    kind = "slurm" if site in SLURM_SITES else "grid_engine"
    system = system_of(Site(name=site, processors=1, kind=kind, batch=BatchSettings(work_directory="/w")))
    nodes = system.parse_loads(grid.lab.run(site, "sh", "-c", system.loads()).stdout)
    assert sum(node.processors for node in nodes) == PROCESSORS


def test_a_controller_that_is_away_for_a_while_loses_nothing(grid: RealGrid, tmp_path: Path) -> None:
    """The application ends meanwhile, everywhere."""

    gate = tmp_path / "gate"

    def ended() -> set[str]:
        return {each.site for each in grid.client.job(job).components if each.ended_at is not None}

    job = grid.submit(
        f"application:\n  script: |\n    {waits_for(gate)}; echo finished\n"
        "components:\n- {processors: 2, site: alpha}\n- {processors: 2, site: beta}\n- {processors: 2, site: gamma}\n"
    )
    grid.in_state(job, "running")
    grid.lab.stop_controller("beta")
    try:
        until(lambda: grid.client.probe("beta").silent_reason != "", "Koala notices that beta is silent", WAIT_S)
        gate.touch()
        until(lambda: ended() == {"alpha", "gamma"}, "the other components end", WAIT_S)
        assert grid.client.job(job).state == "running", "silence is not an end"
    finally:
        grid.lab.start_controller("beta")
    found = grid.done(job)
    assert found.runs == 1, grid.story(job)
    until(lambda: grid.client.probe("beta").silent_reason == "", "beta answers again")
    grid.nothing_is_held()


def test_a_lost_cluster_gives_up_its_job_and_ends_what_it_still_runs_when_it_is_back(
    grid: RealGrid, tmp_path: Path
) -> None:
    """Its controller is killed, and the component runs on there while the job runs elsewhere."""
    gate = tmp_path / "gate"
    size = PROCESSORS - 2  # so that each is at a cluster of its own
    job = grid.submit(
        f"application:\n  script: |\n    {waits_for(gate)}; echo finished\n"
        f"policy: WF\ncomponents:\n- {{processors: {size}}}\n- {{processors: {size}}}\n"
    )
    grid.in_state(job, "running")
    gone = min({each.site for each in grid.client.job(job).places} & set(SLURM_SITES))
    with pytest.raises(ConflictError, match=rf"{gone} answers.*koala site drain {gone}"):
        grid.client.declare_lost(gone)
    grid.lab.stop_controller(gone, by_force=True)
    try:
        until(lambda: grid.client.probe(gone).silent_reason != "", f"Koala notices that {gone} is silent", WAIT_S)
        assert grid.client.site(gone).jobs_to_restart == [job]
        lost = grid.client.declare_lost(gone)
        assert lost.lost
        assert f"{gone} is lost" in lost.problem
        until(lambda: grid.client.job(job).runs == 2, "the job runs elsewhere", WAIT_S)
        assert {each.site for each in grid.client.job(job).places} == set(SITES) - {gone}
    finally:
        grid.lab.start_controller(gone)
    until(lambda: grid.client.probe(gone).lost == "", f"{gone} is used again", WAIT_S)
    (fenced,) = [each for each in grid.client.job(job).components if each.site == gone]
    assert fenced.outcome == "aborted"
    assert not grid.ours(gone), "it was ended before the site is used again"
    gate.touch()
    found = grid.done(job)
    assert (found.runs, found.failures) == (2, 0), grid.story(job)
    grid.nothing_is_held()


def test_a_cluster_that_is_killed_with_its_jobs_is_fenced_and_used_again_when_it_is_back(
    grid: RealGrid, tmp_path: Path
) -> None:
    """Its controller, its nodes and the processes of its jobs are killed at once, as when its power goes."""
    gate, log = tmp_path / "gate", tmp_path / "log"
    size = PROCESSORS - 2  # so that each is at a cluster of its own
    job = grid.submit(
        f"application:\n  script: |\n    {waits_for(gate)}; echo run $KOALA_RUN >>'{log}'\n"
        f"policy: WF\ncomponents:\n- {{processors: {size}}}\n- {{processors: {size}}}\n"
    )
    grid.in_state(job, "running")
    gone = min({each.site for each in grid.client.job(job).places} & set(SLURM_SITES))
    grid.lab.kill_site(gone)
    try:
        until(lambda: grid.client.probe(gone).silent_reason != "", f"Koala notices that {gone} is silent", WAIT_S)
        assert grid.client.job(job).state == "running", "silence is not an end"
        assert grid.client.declare_lost(gone).lost
        until(lambda: grid.client.job(job).runs == 2, "the job runs elsewhere", WAIT_S)
        assert {each.site for each in grid.client.job(job).places} == set(SITES) - {gone}
    finally:
        grid.lab.start_site(gone)
    until(lambda: grid.client.probe(gone).lost == "", f"{gone} is used again", WAIT_S)
    assert not grid.ours(gone), "nothing of ours came back with it"
    gate.touch()
    found = grid.done(job)
    assert (found.runs, found.failures) == (2, 0), grid.story(job)
    assert log.read_text().split("\n")[:-1] == ["run 2", "run 2"], "one run counts"
    again = grid.submit(f"application:\n  script: exit 0\ncomponents:\n- {{processors: 2, site: {gone}}}\n")
    grid.done(again)
    grid.nothing_is_held()


def test_what_a_test_leaves_is_told_with_its_name_and_ended(
    the_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck() -> None:
        raise AssertionError("Koala does not let go")

    with real_grid(the_lab, tmp_path, site_restarts_max=0) as grid:
        job = grid.submit(f"{SLEEP % 600}components:\n- {{processors: 2, site: alpha}}\n")
        grid.in_state(job, "running")
        with monkeypatch.context() as patched:
            patched.setattr(grid, "_clear", stuck)
            with pytest.raises(
                AssertionError, match=r"test_what_a_test_leaves.* left behind .*does not let go"
            ) as told:
                grid.clear()
        for what in ("alpha: usable, 2 ours", f"job {job} is running", f"the barrier of job {job} opens", "koala-"):
            assert what in str(told.value)
        assert grid.ours("alpha") == []


def test_a_cluster_that_always_fails_is_taken_out_after_the_threshold(the_lab: Lab, tmp_path: Path) -> None:
    """Nothing else is to be had until then: what runs elsewhere in the meantime proves nothing."""
    with real_grid(the_lab, tmp_path, error_threshold=2, cooldown_s=600, restarts_max=10) as grid:
        elsewhere = set(SITES) - {"alpha"}
        for site in elsewhere:
            grid.client.drain(site)
        # Every job that comes to alpha is ended by its operator, and not by itself.
        job = grid.submit(
            'application:\n  script: |\n    [ "$SLURM_CLUSTER_NAME" != alpha ] || sleep 600\n'
            "components:\n- {processors: 6}\n"
        )

        def alpha_is_out() -> bool:
            ours = grid.ours("alpha")
            if ours:
                grid.cancel_as_operator("alpha", *ours)
            return grid.client.site("alpha").trust != "usable"

        until(alpha_is_out, "alpha is taken out", WAIT_S)
        assert grid.client.job(job).state == "waiting", grid.story(job)
        for site in elsewhere:
            grid.client.resume(site)
        grid.done(job)
        assert grid.client.site("alpha").trust == "unusable"
        assert {each.site for each in grid.last_run(job)} <= elsewhere
        grid.client.resume("alpha")
