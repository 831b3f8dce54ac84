"""How often the daemon asks a site under a batch system: briskly where a job waits and something was done or has
changed a short while ago, and ever more rarely while it waits and nothing does."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import pytest

from koala.core.life.states import JobState
from koala.core.state.ledger import Ledger
from koala.daemon.engine.batch import activity_at
from koala.daemon.perform.interface import Silences, SiteDefects
from koala.daemon.upkeep.site_poller import PROBE_IDLE_S, PROBE_S, PROBES_BRISK, SitePoller
from koala.model.messages import AnyEvent, SiteReported
from koala.sites import LiveSite

HOUR_S = 3_600.0
# By then whoever waits has waited long.
LATER_S = HOUR_S / 2
# It shows within half a second that there is something to ask for.
SOON_S = 1.0


class PaperQueue(list[str]):
    """Jobs that wait, and what the real queues tell beside."""

    next_position = 0
    next_at = float("inf")


class PaperGrid:
    """An engine, the ledger of its core, and a batch site that was never silent so far. Time passes when somebody
    sleeps; what is planned happens on the way."""

    name = "a"

    def __init__(self) -> None:
        self.time = 1_000.0
        self.begun = self.time
        self.others = 0
        self.is_gone = False
        self.asked_at: list[float] = []
        self.plans: dict[float, Callable[[], Awaitable[None]]] = {}
        self.high, self.low, self.claiming = PaperQueue(), PaperQueue(), PaperQueue()
        self.states = dict.fromkeys(JobState, 0) | {JobState.RUNNING: 1}
        self.belief = SimpleNamespace(processors=4, others=0, does_not_report=False)
        self.index = {"a": 0}
        self.sites = SimpleNamespace(sites=[self.belief], turnover=[1])

    def now(self) -> float:
        return self.time

    def report(self, event: AnyEvent) -> None:
        if isinstance(event, SiteReported):
            self.belief.others = event.others

    def settle(self, seq: int) -> None:
        raise AssertionError("a poller settles nothing")

    async def probe(self) -> SiteReported:
        self.asked_at.append(self.time - self.begun)
        if self.is_gone:
            raise OSError("nobody is there")
        return SiteReported(at=self.time, site="a", processors=4, others=self.others)

    async def sleep(self, wait_s: float) -> None:
        self.time += wait_s
        for at in [at for at in self.plans if at <= self.time - self.begun]:
            await self.plans.pop(at)()
        if self.time > self.begun + HOUR_S:
            raise asyncio.CancelledError

    def asked_between(self, since_s: float, until_s: float) -> int:
        return sum(since_s <= at < until_s for at in self.asked_at)

    def is_asked_briskly_from(self, since_s: float) -> bool:
        return self.asked_between(since_s, since_s + SOON_S + PROBES_BRISK * PROBE_S) >= PROBES_BRISK


Change = Callable[[PaperGrid, SitePoller], None]


def pass_an_hour(
    grid: PaperGrid,
    monkeypatch: pytest.MonkeyPatch,
    later: Change | None = None,
    *,
    submits: bool = False,
    under_batch_system: bool = True,
) -> None:
    """The site is asked for an hour; in the middle of it something changes, or a job comes."""
    poller = SitePoller(
        grid,
        {"a": cast(LiveSite, grid)},
        Silences(grid),
        SiteDefects(),
        lambda site: activity_at(site, cast(Ledger, grid)),
        ("a",) if under_batch_system else (),
    )

    async def happens() -> None:
        if later is not None:
            later(grid, poller)
        if submits:
            await poller.freshen()

    grid.plans[LATER_S] = happens
    monkeypatch.setattr(asyncio, "sleep", grid.sleep)

    async def scenario() -> None:
        with pytest.raises(asyncio.CancelledError):
            await poller._keep_asking(cast(LiveSite, grid))

    asyncio.run(scenario())


def waiting() -> PaperGrid:
    """A job waits in a queue."""
    grid = PaperGrid()
    grid.low.append("a job")
    return grid


@pytest.mark.parametrize(
    ("state", "queue", "is_asked_briskly"),
    [
        (JobState.RUNNING, None, False),
        (JobState.RUNNING, "high", True),
        (JobState.RUNNING, "low", True),
        (JobState.RUNNING, "claiming", True),
        (JobState.STARTING, None, True),
        (JobState.UNWINDING, None, True),
    ],
)
def test_a_batch_system_is_asked_rarely_while_jobs_only_run(
    monkeypatch: pytest.MonkeyPatch, state: JobState, queue: str | None, is_asked_briskly: bool
) -> None:
    grid = PaperGrid()
    grid.states[state] += 1
    if queue is not None:
        getattr(grid, queue).append("a job")
    pass_an_hour(grid, monkeypatch)
    brisk_s = PROBES_BRISK * PROBE_S
    assert grid.asked_between(0.0, brisk_s) == (PROBES_BRISK if is_asked_briskly else 1)


def test_a_job_that_waits_for_long_while_nothing_changes_costs_little_more_than_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    idle, grid = PaperGrid(), waiting()
    pass_an_hour(idle, monkeypatch)
    pass_an_hour(grid, monkeypatch)
    assert len(idle.asked_at) == pytest.approx(HOUR_S / PROBE_IDLE_S, abs=2)
    assert len(grid.asked_at) <= len(idle.asked_at) + 2 * PROBES_BRISK
    waits = [after - before for before, after in itertools.pairwise(grid.asked_at)]
    assert waits == sorted(waits), "ever more rarely"
    assert waits[-1] == PROBE_IDLE_S


def test_an_embedded_site_is_asked_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = PaperGrid()
    pass_an_hour(grid, monkeypatch, under_batch_system=False)
    assert len(grid.asked_at) == pytest.approx(HOUR_S / PROBE_S, abs=2)


def one_of_ours_starts_or_ends(grid: PaperGrid, _: SitePoller) -> None:
    grid.sites.turnover[0] += 1


def a_job_comes_back_to_its_queue(grid: PaperGrid, _: SitePoller) -> None:
    grid.high.append("another job")
    grid.high.next_position += 1


def a_call_of_it_fails(grid: PaperGrid, _: SitePoller) -> None:
    grid.belief.does_not_report = True


@pytest.mark.parametrize(
    "change",
    [
        one_of_ours_starts_or_ends,
        a_job_comes_back_to_its_queue,
        a_call_of_it_fails,
    ],
)
def test_what_we_do_there_has_it_asked_at_once_and_briskly(monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    grid = waiting()
    pass_an_hour(grid, monkeypatch, change)
    assert grid.asked_between(LATER_S - PROBE_IDLE_S, LATER_S) <= 1
    assert grid.asked_between(LATER_S, LATER_S + SOON_S) == 1
    assert grid.is_asked_briskly_from(LATER_S)
    assert grid.asked_between(HOUR_S - 5 * PROBE_IDLE_S, HOUR_S) <= 6, "and then ever more rarely again"


def test_a_submission_has_it_asked_at_once_and_briskly_whoever_waits_already(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = waiting()
    pass_an_hour(grid, monkeypatch, submits=True)
    assert grid.asked_between(LATER_S, LATER_S + SOON_S) == 1, "what it heard for the job will do"
    assert grid.is_asked_briskly_from(LATER_S)


def test_news_of_the_site_has_it_asked_briskly(monkeypatch: pytest.MonkeyPatch) -> None:
    def a_local_user_comes(grid: PaperGrid, _: SitePoller) -> None:
        grid.others = 3

    grid = waiting()
    pass_an_hour(grid, monkeypatch, a_local_user_comes)
    heard = next(at for at in grid.asked_at if at >= LATER_S)
    assert heard <= LATER_S + PROBE_IDLE_S
    assert grid.belief.others == 3
    assert grid.is_asked_briskly_from(heard)


def test_a_site_that_answers_again_is_asked_briskly(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = waiting()

    def it_is_silent(grid: PaperGrid, _: SitePoller) -> None:
        grid.is_gone = True

    async def comes_back() -> None:
        grid.is_gone = False

    back_s = LATER_S + 10 * PROBE_IDLE_S
    grid.plans[back_s] = comes_back
    pass_an_hour(grid, monkeypatch, it_is_silent)
    heard = next(at for at in grid.asked_at if at >= back_s)
    assert grid.is_asked_briskly_from(heard)


def test_processors_are_claimed_by_what_was_heard_a_moment_before(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, grid = waiting(), PaperGrid()
    pass_an_hour(usual, monkeypatch)
    claims_s = max(at for at in usual.asked_at if at < LATER_S) + PROBE_IDLE_S / 2
    assert usual.asked_between(claims_s - PROBE_S, claims_s) == 0
    grid.claiming.append("a placed job")
    grid.claiming.next_at = grid.begun + claims_s

    async def is_claimed() -> None:
        grid.claiming.clear()
        grid.claiming.next_at = float("inf")

    grid.plans[claims_s] = is_claimed
    pass_an_hour(grid, monkeypatch)
    assert grid.asked_between(claims_s - PROBE_S, claims_s) == 1
