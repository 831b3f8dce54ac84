"""Checkpoints on real clusters: a job is asked to save by the signal, and goes on from there on another cluster."""

from __future__ import annotations

from pathlib import Path

from tests.support.live_daemon import until
from tests.support.real_grid import SITES, WAIT_S, RealGrid

# Each component counts its runs in its checkpoint, which it saves when the signal comes, and then ends. The third run
# is the last.
COUNTS = """\
checkpoint: {{directory: ckpt, signal: USR1, grace: 120s}}
application:
  script: |
    runs=$(cat "$KOALA_CHECKPOINT/runs" 2>/dev/null || echo 0)
    save() {{
        echo $((runs + 1)) >"$KOALA_CHECKPOINT/runs.part" && mv "$KOALA_CHECKPOINT/runs.part" "$KOALA_CHECKPOINT/runs"
    }}
    trap 'save; exit 0' USR1
    echo "run $KOALA_RUN goes on from $runs"
    if [ "$KOALA_RUN" = 3 ]; then exit 0; fi
    : >'{begun}'".$KOALA_COMPONENT.$KOALA_RUN"
    while :; do sleep 0.2; done
components:
- {{processors: 5}}
- {{processors: 5}}
"""


def test_a_requeued_job_goes_on_from_its_checkpoint_on_other_clusters(grid: RealGrid, tmp_path: Path) -> None:
    """Each run has one of the three clusters less, so that both components come from Slurm to Grid Engine or back, or
    to another Slurm, and one of them at least each time."""
    left_out = ("beta", "alpha", "gamma")
    grid.client.drain(left_out[0])
    job = grid.submit(COUNTS.format(begun=tmp_path / "begun"))
    sites = []
    for run in (1, 2):
        for part in (0, 1):
            until((tmp_path / f"begun.{part}.{run}").exists, f"component {part} of run {run} has begun", WAIT_S)
        sites.append({each.site for each in grid.client.job(job).components if each.run == run})
        grid.client.drain(left_out[run])
        grid.client.resume(left_out[run - 1])
        grid.client.requeue(job)
    found = grid.done(job)
    sites.append({each.site for each in grid.last_run(job)})
    assert sites == [{*SITES} - {site} for site in left_out], grid.story(job)
    assert (found.runs, found.failures) == (3, 0), grid.story(job)
    assert [grid.printed(job, part) for part in (0, 1)] == ["run 3 goes on from 2\n"] * 2, grid.story(job)
    saved = [each for each in found.components if each.run < 3]
    assert {each.outcome for each in saved} == {"done"}, "each ended by itself in its time of grace"
    assert found.checkpoint is not None
    assert {(each.run, each.site) for each in found.checkpoint.saved} == {(2, site) for site in sites[1]}
    assert all(each.saved_at is not None and each.size_bytes > 0 for each in found.checkpoint.saved)
