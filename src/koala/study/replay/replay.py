"""A replay on a live grid: submits each job at its time, follows the journal until all have ended, and evaluates it.

There is one call for each job and one stream of the journal. A daemon that goes away is awaited within the client's
patience; a submission has a client token of its own, so that no job comes twice. ``plan`` has what is submitted,
``record`` what the journal shows, ``result`` the evaluation.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import NamedTuple, cast

import msgspec

from koala.client import AsyncClient, ClientError, InvalidError, TooLargeError
from koala.descriptions import write_job_yaml
from koala.model.api import JournalEntry, Overview, SiteHistory
from koala.model.request import JobId
from koala.simulator.told_times import ToldTime
from koala.study.replay.plan import OmittedJob, PlannedJob, ReplayPlan
from koala.study.replay.record import ReplayRecord
from koala.study.replay.result import Replayed, ReplaySubmission, holds, measured_period, result, uses, waste

# How often the replay checks for the user's interrupt, and how often it reports progress.
LOOK_S = 0.2
TELL_S = 1.0
# After this time without news of its jobs, the replay asks about waiting ones: some may never fit.
QUIET_S = 10.0
ASKED_AT_ONCE = 20
# With plans, waiting jobs are asked for their start: at this interval, at most this many at once, and each once.
WHEN_S = 1.0
WHEN_AT_ONCE = 5
# How long an interrupted replay waits for the answer to a last submission, and for the end of cancelled jobs.
LAST_ANSWER_S = 10.0
CANCELLED_S = 60.0
# How long the last components may take to release their processors after the last job has ended.
LETTING_GO_S = 5.0


class ReplayProgress(NamedTuple):
    """The progress of a replay: jobs submitted, running and ended, and their total; ``left_s`` if it can be
    estimated."""

    submitted: int
    running: int
    ended: int
    jobs: int
    left_s: float | None


Tell = Callable[[ReplayProgress], None]


class Replay:
    """One replay. It calls ``stop`` from time to time to see if it must end early; with ``keep`` the jobs submitted
    by then continue, without it they are cancelled."""

    def __init__(
        self,
        client: AsyncClient,
        plan: ReplayPlan,
        *,
        stop: Callable[[], bool],
        tell: Tell | None = None,
        keep: bool = False,
    ) -> None:
        self._client = client
        self._plan = plan
        self._stop = stop
        self._tell = tell
        self._keep = keep
        self._record = ReplayRecord()
        self._news = asyncio.Event()
        self._news_at = time.monotonic()
        self._told_at = -TELL_S
        self._begun_at = 0.0
        self._held_back_s = 0.0
        self._token = uuid.uuid4().hex
        self._submitted: list[ReplaySubmission] = []
        self._refused: list[OmittedJob] = []
        self._given_up: dict[JobId, str] = {}
        self._unanswered: int | None = None
        self._stopped = ""
        self._asks_when = False
        self._asked_when_at = -WHEN_S
        self._told_when: dict[JobId, ToldTime] = {}

    async def run(self, overview: Overview, *, policy: str, seed: int = 1, notes: Sequence[str] = ()) -> Replayed:
        """Submit, follow and evaluate; ``overview`` is from just before. Raises ClientError if the daemon stays away.

        ``policy`` and ``seed`` are for the result's job table, ``notes`` are remarks in addition to the plan's.
        """
        self._asks_when = overview.plan_depth > 0
        async with self._following(overview.last_seq):
            self._begun_at = time.monotonic()
            await self._submit_all()
            if not self._stopped:
                await self._until(self._all_ended, give_up=True)
            left_behind = await self._cancel_rest() if self._stopped else []
            if not left_behind:
                await self._let_go()
        return await self._added_up(overview, policy, seed, notes, left_behind)

    # ---------------------------------------------------------------------------------------- the journal

    @asynccontextmanager
    async def _following(self, after: int) -> AsyncGenerator[None, None]:
        self._follower = asyncio.create_task(self._follow(after))
        try:
            yield
        finally:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)

    async def _follow(self, after: int) -> None:
        entries = cast("AsyncGenerator[JournalEntry, None]", self._client.follow(after=after))
        async with aclosing(entries):
            async for entry in entries:
                if self._record.take(entry):
                    self._news_at = time.monotonic()
                    self._news.set()

    async def _look(self, within_s: float) -> None:
        """Let time pass, a moment at most, or until there is news; raise the error that ended the stream of the
        journal."""
        if self._follower.done():
            self._follower.result()
        self._news.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), max(0.0, min(LOOK_S, within_s)))
        if not self._stopped and self._stop():
            self._stopped = f"interrupted after {time.monotonic() - self._begun_at:.0f} s"
            self._client.exchange.patience_s = min(self._client.exchange.patience_s, LAST_ANSWER_S)
        now = time.monotonic()
        if self._asks_when and now - self._asked_when_at >= WHEN_S and not self._stopped:
            self._asked_when_at = now
            await self._ask_when()
        if self._tell is not None and now - self._told_at >= TELL_S:
            self._told_at = now
            self._tell(self._progress(now - self._begun_at))

    async def _ask_when(self) -> None:
        """Ask about the first waiting jobs; a job without a predicted time is asked again."""
        for job in sorted(self._record.waiting - self._told_when.keys())[:WHEN_AT_ONCE]:
            found = await self._client.explain(job)
            if found.expected_at is None:
                return  # those behind it have no plan either
            self._told_when[job] = ToldTime(found.expected_at, found.latest_at)

    async def _until(
        self, condition: Callable[[], bool], *, within_s: float = float("inf"), give_up: bool = False
    ) -> None:
        """Wait for a condition, for the time given, or for a new interrupt."""
        before, end = self._stopped, time.monotonic() + within_s
        while not condition() and self._stopped == before and time.monotonic() < end:
            await self._look(end - time.monotonic())
            if give_up and time.monotonic() - self._news_at > QUIET_S:
                self._news_at = time.monotonic()
                await self._give_up_hopeless()

    def _progress(self, elapsed_s: float) -> ReplayProgress:
        submitted, jobs = len(self._submitted), len(self._plan.jobs)
        ended = submitted - len(self._record.unended)
        to_submit_s = max(0.0, self._plan.jobs[-1].at_s - elapsed_s) if self._plan.jobs else 0.0
        left_s = max(to_submit_s, elapsed_s * (jobs - ended) / ended) if ended else None
        return ReplayProgress(submitted, len(self._record.running), ended, jobs, left_s)

    # --------------------------------------------------------------------------------------- submission

    async def _submit_all(self) -> None:
        for job in self._plan.jobs:
            while (early_s := -self._late_s(job.at_s)) > 0 and not self._stopped:
                await self._look(early_s)
            await self._hold_back()
            if self._stopped:
                return
            await self._submit(job)
            if self._stopped:
                return

    def _late_s(self, at_s: float) -> float:
        """Return how long ago, on this machine's clock, a job of the plan was due."""
        return time.monotonic() - self._begun_at - self._held_back_s - at_s

    async def _hold_back(self) -> None:
        most, waiting = self._plan.hold_when_waiting, self._record.waiting
        if most is None or len(waiting) < most:
            return
        since = time.monotonic()
        await self._until(lambda: len(waiting) < most, give_up=True)
        self._held_back_s += time.monotonic() - since

    async def _submit(self, job: PlannedJob) -> None:
        """Submit one job and wait for the answer, so that jobs are on record in order."""
        call = asyncio.ensure_future(
            self._client.submit(
                write_job_yaml(job.request), source="replay.yaml", client_token=f"replay-{self._token}-{job.name}"
            )
        )
        while not call.done() and not self._stopped:
            await asyncio.wait([call], timeout=LOOK_S)
            if not call.done():
                await self._look(0.0)
        if not call.done():
            await asyncio.wait([call], timeout=LAST_ANSWER_S)
        if not call.done():
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            self._unanswered = job.name
            return
        try:
            answer = call.result()
        except (InvalidError, TooLargeError) as error:
            self._refused.append(OmittedJob(job.name, job.request, error.message))
            return
        self._record.own(answer.job.id, answer.job.submitted_at)
        self._submitted.append(
            ReplaySubmission(
                job=answer.job.id,
                name=job.name,
                # The table of jobs shows the policy that the daemon chose.
                request=msgspec.structs.replace(job.request, policy=answer.job.policy),
                planned_s=job.at_s,
                lag_s=self._late_s(job.at_s),
            )
        )

    # ----------------------------------------------------------------------------------------- the end

    def _all_ended(self) -> bool:
        return not self._record.unended

    async def _give_up_hopeless(self) -> None:
        """Cancel the waiting jobs that, by the daemon's answer, can never fit, after a while without news."""
        for job in sorted(self._record.waiting - self._given_up.keys())[:ASKED_AT_ONCE]:
            refusal = (await self._client.explain(job)).refusal
            if refusal is not None and refusal.permanent:
                self._given_up[job] = f"it can never fit: {refusal.reason}; {refusal.cure}"
                await self._client.cancel(job)

    async def _cancel_rest(self) -> list[JobId]:
        """End the submitted jobs after an interrupt, unless they are to be kept; return those that continue."""
        if self._keep:
            return sorted(self._record.unended)
        try:
            for job in sorted(self._record.unended):
                await self._client.cancel(job)
            await self._until(self._all_ended, within_s=CANCELLED_S)
        except ClientError:  # the daemon stays away; the known results are worth a report
            return sorted(self._record.unended)
        return sorted(self._record.unended)

    async def _let_go(self) -> None:
        """Give the last components the time to release their processors after all jobs have ended."""
        with suppress(ClientError):
            await self._until(lambda: not self._record.holds_something, within_s=LETTING_GO_S)

    async def _added_up(
        self, overview: Overview, policy: str, seed: int, notes: Sequence[str], left_behind: Sequence[JobId]
    ) -> Replayed:
        zero_at = self._zero_at(overview.now)
        try:
            now = (await self._client.overview()).now
            period = measured_period(self._record, zero_at, now, cut_off=bool(self._stopped))
            histories = await self._histories(overview, *period)
        except ClientError:
            if not self._stopped:
                raise
            # The daemon stays away, and its user wants an end: the known results are worth a report.
            now = zero_at + time.monotonic() - self._begun_at
            period = measured_period(self._record, zero_at, now, cut_off=True)
            histories = {}
        components = self._record.components()
        unfinished = {**self._given_up, **dict.fromkeys(left_behind, "it goes on")}
        return Replayed(
            result=result(
                self._record,
                self._submitted,
                unfinished,
                uses(overview.sites, histories, components, *period),
                policy=policy,
                seed=seed,
                zero_at=zero_at,
                now=now,
                stopped=self._stopped,
                not_submitted=len(self._plan.jobs) - len(self._submitted) - len(self._refused),
                notes=[*self._plan.notes, *notes],
                told=self._told_when if self._asks_when else None,
            ),
            submissions=self._submitted,
            refused=self._refused,
            waste=waste(components, now),
            holds=holds(components, [site.name for site in overview.sites], zero_at),
            left_behind=left_behind,
            unanswered=self._unanswered,
        )

    async def _histories(self, overview: Overview, from_at: float, to_at: float) -> dict[str, SiteHistory]:
        """Return the holders of each site's processors, by the daemon's account."""
        if to_at <= from_at:
            return {}
        return {
            site.name: await self._client.history(site.name, from_at=from_at, to_at=to_at) for site in overview.sites
        }

    def _zero_at(self, otherwise_at: float) -> float:
        """Return the beginning of the replay on the daemon's clock, by the first job that it has on record."""
        if not self._submitted:
            return otherwise_at
        first = self._submitted[0]
        return self._record.jobs[first.job].submitted_at - first.planned_s - first.lag_s
