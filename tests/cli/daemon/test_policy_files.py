"""Policies of the operator's own on a live grid: named in the grid file or to ``koala up``, and known to restarts."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from click.testing import CliRunner

from koala.cli import koala
from tests.support.live_cli import Shell, job_file
from tests.support.live_daemon import running_daemon

LAST = '''"""All on the last site."""
from koala.policies import policy


@policy("LAST")
def last(idle, sizes, left, chosen):
    """All on the last site."""
    for component, size in enumerate(sizes):
        if left[-1] < size:
            return component
        chosen[component] = len(idle) - 1
        left[-1] -= size
    return -1
'''
GRID = """# mine
sites:
  alpha: {processors: 4, kind: local}
  beta: {processors: 2, kind: local}
scheduler: {policy: LAST, scan_interval_s: 0}
"""


def places(shell: Shell, directory: Path, policy: str = "") -> list[str]:
    text = f"components: [{{processors: 1}}]\n{policy}"
    answer = shell.json("submit", "--dry-run", str(job_file(directory, "true", text)))
    return [place["site"] for place in answer["places"]]


def test_a_policy_of_a_grid_file_is_live_and_is_found_by_a_restart_and_by_a_replay(tmp_path: Path) -> None:
    (tmp_path / "last.py").write_text(LAST, encoding="utf-8")
    with running_daemon(tmp_path, grid=f"{GRID}policy_files:\n- last.py\n# the end\n") as daemon:
        shell = Shell(daemon.server)
        assert places(shell, tmp_path) == ["beta"]
        assert places(shell, tmp_path, "policy: WF") == ["alpha"]
        kept = daemon.state / "grid.yaml"
        assert yaml.safe_load(kept.read_text())["policy_files"] == [str(tmp_path / "last.py")]
        assert kept.read_text().endswith("# the end\n")
        workload = tmp_path / "one.yaml"
        workload.write_text(
            "jobs: [{at_s: 0, execution_s: 0.1, job: {components: [{processors: 1}]}}]\n", encoding="utf-8"
        )
        replayed = shell.json("replay", str(workload), "--compare")
        assert replayed["policy"] == "LAST"
        assert replayed["simulated"]["policy"] == "LAST"
        daemon.kill()
        (tmp_path / "grid.yaml").unlink()
        daemon.start(("--state", str(daemon.state)))
        assert places(shell, tmp_path) == ["beta"]


def test_a_policy_file_that_is_named_to_up_is_kept_in_the_grid(tmp_path: Path) -> None:
    path = tmp_path / "last.py"
    path.write_text(LAST, encoding="utf-8")
    with running_daemon(tmp_path, grid=GRID, options=("--policy-file", str(path))) as daemon:
        shell = Shell(daemon.server)
        assert places(shell, tmp_path) == ["beta"]
        kept = (daemon.state / "grid.yaml").read_text()
        assert yaml.safe_load(kept)["policy_files"] == [str(path)]
        assert yaml.safe_load(kept)["sites"] == yaml.safe_load(GRID)["sites"]
        assert kept.startswith("# mine\n")


def test_a_submitter_names_a_policy_and_never_a_file(tmp_path: Path) -> None:
    path = tmp_path / "last.py"
    path.write_text(LAST, encoding="utf-8")
    with running_daemon(tmp_path) as daemon:
        shell = Shell(daemon.server)
        for line in (f"policy: {path}", f"policy: LAST\npolicy_files: [{path}]"):
            job = job_file(tmp_path, "true", f"components: [{{processors: 1}}]\n{line}")
            assert "there is no policy" not in shell("submit", str(job), code=2).stderr


def test_a_policy_file_that_is_not_there_keeps_the_daemon_from_starting(tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text(f"{GRID}policy_files: [gone.py]\n", encoding="utf-8")
    told = CliRunner().invoke(koala, ["up", "--grid", str(grid), "--state", str(tmp_path / "state")])
    assert told.exit_code == 2
    assert f"{tmp_path}/gone.py: it cannot be read: No such file" in told.stderr
    assert not (tmp_path / "state").exists()


def test_verbs_that_take_a_grid_know_the_policies_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "last.py").write_text(LAST, encoding="utf-8")
    grid = tmp_path / "grid.yaml"
    grid.write_text("{policy_files: [last.py], sites: {a: {processors: 4}, b: {processors: 2}}}", encoding="utf-8")
    words = ["place", "--grid", str(grid), "--components", "1", "--policy", "LAST", "--json"]
    done = CliRunner().invoke(koala, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["components"][0]["site"] == "b"
