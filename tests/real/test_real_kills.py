"""The daemon is killed at random moments with co-allocated jobs on real clusters: nothing is lost or runs twice.

``KOALA_REAL_KILLS=20`` runs the long form; ``KOALA_REAL_KILLS_SEED`` chooses another storm.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from real_grid import SITES, RealGrid, real_grid

from koala.lab import Lab

KILLS = int(os.environ.get("KOALA_REAL_KILLS", "4"))
SEED = int(os.environ.get("KOALA_REAL_KILLS_SEED", "1"))
JOBS = 2 * KILLS
PATIENCE_S = 120.0 + 30.0 * KILLS

JOB = """
name: job-{number}
limits: {{restarts: 5}}
application:
  script: |
    me="$KOALA_JOB $KOALA_COMPONENT ${{KOALA_HOME##*/}}"
    echo "start $me" >>'{log}'
    sleep {nap}
    echo "end $me" >>'{log}'
components:
{components}
"""


def jobs(log: Path, rng: random.Random) -> list[str]:
    """Fixed and non-fixed jobs of one to three components."""
    made = []
    for number in range(JOBS):
        sites = rng.sample(SITES, rng.randint(1, 3))
        fixed = number % 2 == 0
        lines = []
        for site in sites:
            place = f", site: {site}" if fixed else ""
            lines.append(f"- {{processors: {rng.randint(1, 3)}{place}}}")
        nap = round(rng.uniform(0.2, 3.0), 1)
        made.append(JOB.format(number=number, log=log, nap=nap, components="\n".join(lines)))
    return made


@pytest.mark.timeout(PATIENCE_S + 60)
def test_a_daemon_killed_at_random_moments_loses_nothing_on_real_clusters(the_lab: Lab, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    log = tmp_path / "log"
    log.touch()
    waiting = jobs(log, rng)
    ids: list[int] = []
    with real_grid(the_lab, tmp_path, barrier_timeout_s=30, answer_timeout_s=20) as grid:
        for _ in range(KILLS):
            ids += [grid.submit(waiting.pop()), grid.submit(waiting.pop())]
            time.sleep(rng.uniform(0.0, 4.0))
            grid.daemon.kill()
            grid.daemon.start()
        found = [grid.done(job, PATIENCE_S) for job in ids]
        grid.nothing_is_held()
        assert len(list(grid.client.each_job())) == JOBS
        check(grid, log, ids)
        assert {job.name for job in found} == {f"job-{number}" for number in range(JOBS)}


def check(grid: RealGrid, log: Path, ids: list[int]) -> None:
    """What the applications wrote and what is on record tell the same story."""
    started: dict[str, int] = {}
    for line in log.read_text().splitlines():
        word, _, _, token = line.split()
        if word == "start":
            started[token] = started.get(token, 0) + 1
    assert set(started.values()) <= {1}, "no component ran twice"
    for job in ids:
        run = grid.last_run(job)
        assert [each.part for each in run] == list(range(len(run)))
        assert all(started.get(each.token) == 1 for each in run), grid.story(job)
