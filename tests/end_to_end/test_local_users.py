"""Local users take processors between placement and claiming: a job goes elsewhere, or back to its queue, and loses
nothing. There is such a time because its input file is on its way.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala.lab import Lab
from tests.support.live_daemon import until
from tests.support.real_grid import PROCESSORS, SITES, WAIT_S, RealGrid, real_grid

MBIT_S = 32.0
# The one comes in 16 s: before it is claimed, Koala, which asks every 5 s, hears of a local user. The other in 3 s.
LATE_BYTES, SOON_BYTES = 64_000_000, 12_000_000
SOON_S = 8 * SOON_BYTES / (MBIT_S * 1e6)
CLAIM_FRACTION = 0.9
# Less than a local user has patience, and enough for a component that starts at once.
BARRIER_S = 10
# Less than that by far: what waits behind a local user is claimed elsewhere in time.
PATIENCE_S = 1
LOCAL_S = 600


@pytest.fixture(scope="module")
def shared_waiting(the_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGrid]:
    """A daemon between whose sites files take a while, and that claims shortly before they are there."""
    directory = tmp_path_factory.mktemp("waiting")
    with real_grid(
        the_lab,
        directory,
        MBIT_S,
        claim_fraction=CLAIM_FRACTION,
        barrier_timeout_s=BARRIER_S,
        queue_patience_s=PATIENCE_S,
        answer_timeout_s=20,
    ) as grid:
        grid.register(directory / "late", LATE_BYTES, "beta", "gamma")
        grid.register(directory / "soon", SOON_BYTES, "beta")
        grid.register(directory / "near", SOON_BYTES, "beta", "gamma")
        yield grid


@pytest.fixture
def waiting(shared_waiting: RealGrid) -> Iterator[RealGrid]:
    """The same, idle before and after."""
    yield shared_waiting
    shared_waiting.clear()


def test_a_component_moves_to_another_cluster_when_a_local_user_takes_its_own(waiting: RealGrid) -> None:
    """Koala hears of the local user by itself, before it claims."""
    job = waiting.submit(
        "policy: WF\ninput_files: [late]\napplication: {script: wc -c <late}\n"
        "components: [{processors: 6, count: 2}]\n"
    )
    waiting.in_state(job, "placed")
    assert [place.site for place in waiting.client.job(job).places] == ["alpha", "beta"]
    number = waiting.local_job("alpha", PROCESSORS, LOCAL_S)
    until(lambda: waiting.client.site("alpha").others == PROCESSORS, "Koala hears of the local user's job")
    assert waiting.client.job(job).state == "placed", waiting.story(job)
    found = waiting.done(job)
    assert "component 0 moved from alpha, where it could not start, to gamma" in waiting.told(job)
    assert [each.site for each in waiting.last_run(job)] == ["gamma", "beta"]
    assert "alpha" not in {each.site for each in found.components}, waiting.story(job)
    assert found.runs == 1, waiting.story(job)
    assert [waiting.printed(job, part).strip() for part in range(2)] == [str(LATE_BYTES)] * 2
    assert waiting.is_running("alpha", number), "the local user's job was not disturbed"
    waiting.nothing_is_held()
    until(lambda: not waiting.client.overview().transfers, "the file is on its way to alpha no more")


def test_a_fixed_job_that_a_local_user_keeps_from_the_barrier_goes_back_and_runs_once(
    waiting: RealGrid, tmp_path: Path
) -> None:
    """The daemon is held up from the placement on until it must claim: it claims what the local user has by then."""
    log = tmp_path / "log"
    job = waiting.submit(
        f"input_files: [soon]\napplication:\n  script: |\n    echo $KOALA_COMPONENT >>'{log}'\n"
        "components:\n- {processors: 4, site: alpha}\n- {processors: 4, site: gamma}\n"
    )
    number = overtaken(waiting, job)
    until(lambda: bool(waiting.ours("alpha") and waiting.ours("gamma")), "both clusters have a component", WAIT_S)
    until(lambda: waiting.client.probe("alpha").others == PROCESSORS, "Koala hears of the local user's job", WAIT_S)

    until(lambda: came_back(waiting, job), "the job goes back to its queue", WAIT_S)
    until(lambda: not any(waiting.ours(site) for site in SITES), "no cluster has anything of it", WAIT_S)
    assert waiting.client.job(job).state == "waiting", waiting.story(job)
    assert waiting.is_running("alpha", number), "the local user's job was not disturbed"
    assert not log.exists(), "nothing has run"

    waiting.cancel_as_operator("alpha", number)
    found = waiting.done(job)
    given_up = [each for each in found.components if each.released_at is None]
    assert {each.site for each in given_up} == {"alpha", "gamma"}, waiting.story(job)
    assert all(each.ended_at is not None for each in given_up), waiting.story(job)
    assert found.runs == 1, waiting.story(job)
    assert sorted(log.read_text().split()) == ["0", "1"], "every component ran once"
    waiting.nothing_is_held()


def test_a_component_that_waits_behind_a_local_user_is_claimed_elsewhere_while_the_other_stays(
    waiting: RealGrid, tmp_path: Path
) -> None:
    """As above, but its site is of no matter to the user, and the third cluster has the file."""
    log = tmp_path / "log"
    job = waiting.submit(
        f"policy: WF\ninput_files: [near]\napplication:\n  script: |\n    echo $KOALA_COMPONENT >>'{log}'\n"
        "    wc -c <near\ncomponents: [{processors: 6, count: 2}]\n"
    )
    number = overtaken(waiting, job)
    found = waiting.done(job)
    assert "component 0 moved from alpha, where it could not start, to gamma" in waiting.told(job)
    (given_up,) = [each for each in found.components if each.released_at is None]
    assert given_up.site == "alpha", "it was claimed there first"
    assert [each.site for each in waiting.last_run(job)] == ["gamma", "beta"], waiting.story(job)
    assert found.runs == 1, waiting.story(job)
    assert sorted(log.read_text().split()) == ["0", "1"], "every component ran once"
    assert [waiting.printed(job, part).strip() for part in range(2)] == [str(SOON_BYTES)] * 2
    assert waiting.is_running("alpha", number), "the local user's job was not disturbed"
    waiting.nothing_is_held()


def overtaken(grid: RealGrid, job: int) -> str:
    """The daemon is held up from the placement on until it must claim; meanwhile a local user takes alpha. Returns
    the number of his job."""
    grid.in_state(job, "placed")
    starts_at = grid.client.job(job).since + SOON_S
    grid.daemon.send(signal.SIGSTOP)
    try:
        number = grid.local_job("alpha", PROCESSORS, LOCAL_S)
        until(lambda: grid.is_running("alpha", number), "the local user's job runs")
        until(lambda: time.time() > starts_at, "the time to claim has come")
    finally:
        grid.daemon.send(signal.SIGCONT)
    return number


def came_back(grid: RealGrid, job: int) -> bool:
    """Whether a job was given up at the barrier for a component that did not start at alpha."""
    backs = [line for line in grid.told(job) if line.startswith("back to its placement queue: ")]
    return any("did not reach the barrier in time" in line and "alpha" in line for line in backs)
