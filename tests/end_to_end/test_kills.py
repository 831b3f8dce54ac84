"""The daemon is killed at random moments with co-allocated jobs on real clusters: nothing is lost or runs twice.

``KOALA_REAL_KILLS=20`` runs the long form; ``KOALA_REAL_KILLS_SEED`` chooses another storm.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from pathlib import Path

import pytest

from koala.lab import Lab
from tests.support.real_grid import SITES, RealGrid, real_grid

KILLS = int(os.environ.get("KOALA_REAL_KILLS", "3"))
SEED = int(os.environ.get("KOALA_REAL_KILLS_SEED", "1"))
JOBS = 2 * KILLS
PATIENCE_S = 120.0 + 30.0 * KILLS
# The file comes in 2 s, in which the daemon may be killed too.
MBIT_S = 16.0
DATA_BYTES = 4_000_000

JOB = """
name: job-{number}
limits: {{restarts: 5}}
application:
  script: |
    me="$KOALA_JOB $KOALA_COMPONENT ${{KOALA_HOME##*/}}"
    echo "start $me" >>'{log}'
    {work}
    echo "end $me" >>'{log}'
{shape}
"""


def jobs(log: Path, data: bytes, rng: random.Random) -> list[str]:
    """In turn fixed jobs, non-fixed ones, flexible ones, and fixed ones that read a file."""
    made = []
    for number in range(JOBS):
        kind = ("fixed", "non-fixed", "flexible", "reading")[number % 4]
        work = f"sleep {rng.uniform(0.2, 3.0):.1f}"
        sites = rng.sample(SITES, rng.randint(1, 3))
        if kind == "reading":
            # Where it is brought to.
            sites = ["alpha", "gamma"]
            work += f"; echo '{hashlib.sha256(data).hexdigest()}  data' | sha256sum -c - || exit 1"
        places = ["" if kind == "non-fixed" else f", site: {site}" for site in sites]
        shape = "components:" + "".join(f"\n- {{processors: {rng.randint(1, 3)}{place}}}" for place in places)
        if kind == "reading":
            shape = f"input_files: [data]\n{shape}"
        elif kind == "flexible":
            shape = f"policy: FCM\nflexible: {{processors: {rng.randint(9, 12)}}}"
        made.append(JOB.format(number=number, log=log, work=work, shape=shape))
    return made


@pytest.mark.timeout(PATIENCE_S + 60)
def test_a_daemon_killed_at_random_moments_loses_nothing_on_real_clusters(the_lab: Lab, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    log, data = tmp_path / "log", tmp_path / "data"
    log.touch()
    data.write_bytes(rng.randbytes(DATA_BYTES))
    waiting = jobs(log, data.read_bytes(), rng)
    ids: list[int] = []
    with real_grid(the_lab, tmp_path, MBIT_S, barrier_timeout_s=120, answer_timeout_s=20) as grid:
        grid.client.register("data", "beta", path=str(data))
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
    """What the applications wrote, each line at the end of the file, and what is on record tell the same story."""
    running: dict[tuple[str, str], str] = {}
    started: list[str] = []
    for line in log.read_text().splitlines():
        word, job, part, token = line.split()
        if word == "start":
            other = running.get((job, part))
            assert other is None, f"{token} and {other} of one component ran at the same time\n{grid.story(int(job))}"
            running[job, part] = token
            started.append(token)
        else:
            assert running.pop((job, part)) == token, f"{token} ended twice"
    assert not running, "every application came to its end"
    of_record: list[str] = []
    for number in ids:
        run = grid.last_run(number)
        assert [each.part for each in run] == list(range(len(run)))
        # Neither an application nor a cluster fails here, and a daemon that starts again gives nothing up.
        assert grid.client.job(number).runs == 1, grid.story(number)
        of_record += [each.token for each in run]
    assert sorted(started) == sorted(of_record), "all that started is on record, and nothing started twice"
