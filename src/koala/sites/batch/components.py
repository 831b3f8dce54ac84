"""The live components of a batch site: what their files and the batch system's listing mean for each.

Every consequence is first carried out at the site and then reported. ``koala.sites.batch.poller`` decides when files
and listings are polled, ``koala.sites.batch.site`` serves the driver.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from koala.model.errors import Fault
from koala.model.launch import Launch, LaunchError, check_mail_name
from koala.model.messages import ComponentEnded, ComponentReady, ComponentStarting, Outcome, Token
from koala.model.request import Application
from koala.sites.batch.component import BatchComponent, best_end, never_starts
from koala.sites.batch.parse import ComponentStatus, parse_statuses
from koala.sites.batch.scripts import directory
from koala.sites.batch.scripts.runner import BATCH_S, ScriptRunner, offload_if_large
from koala.sites.batch.system import (
    JOB_NAME_PREFIX,
    BatchEnd,
    BatchId,
    BatchJob,
    BatchListing,
    BatchOutputError,
    BatchState,
    BatchSystem,
)
from koala.sites.batch.timings import BatchTimings
from koala.sites.component import NOT_MEASURED, TOLD_STDERR, Ending, LivePhase, Usage
from koala.sites.component_directory import BATCH, MAILS_MAX, AbortRecord, AcceptanceRecord, RecordedComponent
from koala.sites.protocol import Clock, Deliver, Emit, Mail
from koala.sites.remote_shell import ShellError, ShellTimeoutError

_log = logging.getLogger(__name__)

_GONE = "its directory at the site was removed or altered while it was there"


class BatchComponents:
    """All live components, in the order of acceptance.

    A ``tag`` is a token turned into a job name that no other site and no other Koala uses. At a site that
    ``reserves``, every end cancels the component's reservation, known or not.
    """

    def __init__(
        self,
        runner: ScriptRunner,
        system: BatchSystem,
        timings: BatchTimings,
        processors: int,
        *,
        emit: Emit,
        clock: Clock,
        on_mail: Deliver | None,
        reserves: bool = False,
    ) -> None:
        self.alive: dict[Token, BatchComponent] = {}
        self.unclear: set[Token] = set()  # the components whose start failed on the way
        self.root = ""  # the work directory, once it is known
        self.mark = ""  # the part of job names that is unique to this work directory
        self._runner = runner
        self._system = system
        self._emit = emit
        self._clock = clock
        self._on_mail = on_mail
        self._reserves = reserves
        self._timings = timings
        self._processors = processors
        self._missed: set[Token] = set()  # the components that the last poll did not find
        self._history_jobs = timings.history_jobs_max

    @property
    def is_found(self) -> bool:
        """True if the contents of the site are known."""
        return bool(self.root)

    def leave(self) -> None:
        """Stop watching all components."""
        self.root = self.mark = ""
        self.alive.clear()
        self.unclear.clear()
        self._missed.clear()

    # ------------------------------------------------------------------------------------------- identities

    def tag(self, token: Token) -> Token:
        """Return the name of a component in the batch system."""
        return f"{token}-{self.mark}"

    def token_of(self, tag: Token) -> Token | None:
        """Return the component that a job's name denotes; None for other jobs."""
        token, _, mark = tag.rpartition("-")
        return token if token and mark == self.mark else None

    def adopt(self, found: RecordedComponent) -> BatchComponent:
        """Watch a component that is on record at the site."""
        component = BatchComponent.of(found, self.tag(found.token), now_s())
        if found.batch is not None:
            try:
                component.batch_id = self._system.parse_submitted(found.batch)
            except BatchOutputError as error:
                _log.warning("component %s: what was kept of its submission: %s", found.token, error)
        self.alive[component.token] = component
        return component

    def give_up(self, found: RecordedComponent) -> BatchComponent:
        """End a component whose files at the site cannot be read, and watch it until its job is gone. If its record
        is unreadable, its request is unknown."""
        why = f"what the site kept about it cannot be read: {found.problem}"
        if found.record is None or found.record.launch.token != found.token:
            found = msgspec.structs.replace(found, record=AcceptanceRecord(sequence=0, launch=_unknown(found.token)))
        component = self.adopt(found)
        self.lose(component, why, found.spoilt_fault)
        return component

    def add(self, launch: Launch, batch_id: BatchId | None, reservation: str | None) -> BatchComponent:
        """Watch a component that was just created."""
        component = BatchComponent(launch, self.tag(launch.token), now_s())
        component.batch_id, component.reservation = batch_id, reservation
        self.alive[component.token] = component
        return component

    def others(self, listing: BatchListing) -> int:
        """Return how many processors of a listing are not for us: those that it counts as used by others, those that
        the jobs of other Koalas hold or will take, and those that our own jobs hold beyond their requests, as on
        exclusive nodes."""
        holding = (BatchState.RUNNING, BatchState.ENDING)
        ours = held = 0
        for job in listing.jobs:
            if job.state in holding:
                held += job.processors
                component = self.alive.get(self.token_of(job.token) or "")
                ours += 0 if component is None else min(job.processors, component.processors)
        # Negative where waiting jobs will take processors that we hold now.
        idle = listing.processors - listing.others - held
        for job in listing.jobs:
            waits = job.state is BatchState.PENDING and job.end is None
            if waits and self.token_of(job.token) is None and job.processors <= idle:
                idle -= job.processors
        return min(listing.processors, max(0, listing.processors - ours - idle))

    def shown(self, listing: BatchListing) -> tuple[Token, ...]:
        """Return our components that hold a part of the listed nodes."""
        if not listing.nodes:
            return ()
        holding = (BatchState.RUNNING, BatchState.ENDING)
        tokens = [self.token_of(job.token) for job in listing.jobs if job.state in holding]
        return tuple(token for token in tokens if token is not None)

    # ---------------------------------------------------------------------------------------------- files

    async def take_statuses(self, statuses: Mapping[Token, ComponentStatus]) -> bool:
        """Act on what the files show; return True if there was any news."""
        news = False
        for token, status in statuses.items():
            component = self.alive.get(token)
            if component is None:
                continue
            if status.lost:
                news = self._miss(component) or news
                continue
            self._missed.discard(token)
            if status.abort is not None and component.abort is None:
                component.abort, news = status.abort, True  # its writer received no confirmation
            if status.exit_words is not None and component.exit_words is None:
                component.exit_words, news = status.exit_words, True
                component.nodes = tuple(status.nodes)
                component.stderr_line = status.stderr_line
                component.usage = status.usage
            if status.ready and component.phase is LivePhase.QUEUED:
                component.phase, news = LivePhase.READY, True
                if component.released_at is None and not component.is_ending:
                    self._emit(ComponentReady(at=self._clock(), token=token))
            if component.released_at is not None and component.abort is None:
                news = await self._hand_out(component, status.mail) or news
        return news

    def _miss(self, component: BatchComponent) -> bool:
        """Note that a poll did not find its directory; return True if that is news. It is lost if the next poll does
        not find it either: a file server in trouble may report any file as missing for a moment."""
        if component.token in self._missed:
            return self.lose(component)
        self._missed.add(component.token)
        return True

    async def _hand_out(self, component: BatchComponent, names: Sequence[str]) -> bool:
        if self._on_mail is None:
            return False
        news = False
        for name in names:
            if name in component.mailed or not is_mail_name(name) or len(component.mailed) >= MAILS_MAX:
                continue
            component.mailed.add(name)  # a poll and a listing may show it at the same time
            try:
                data = await self.mail(component.token, name)
            except BaseException:
                component.mailed.discard(name)
                raise
            news = True
            if data is not None:
                self._on_mail(Mail(token=component.token, name=name, data=data))
        return news

    async def mail(self, token: Token, name: str) -> bytes | None:
        """Return a piece of mail from a component's outbox."""
        section = (await self._runner.run(directory.mail(self.root, token, name))).section("mail")
        return None if section is None else section.body

    def lose(self, component: BatchComponent, why: str = _GONE, fault: Fault | None = None) -> bool:
        """End a component whose directory is unusable, since nothing it does can be observed; return True if that is
        news."""
        if component.lost:
            return False
        _log.warning("component %s is ended: %s", component.token, why)
        component.lost = True
        if component.abort is None:
            outcome = Outcome.FAILED if fault is Fault.JOB else Outcome.SITE_FAILED
            component.abort = AbortRecord(outcome=outcome, reason=why, fault=fault)
        return True

    # ------------------------------------------------------------------------------------ the batch system

    async def take_listing(self, listing: BatchListing, began: float, busy: Collection[Token]) -> None:
        """Act on a listing that began at a given time; files were inspected after it.

        A call is in progress for each of the ``busy`` tokens.
        """
        by_tag: dict[Token, list[BatchJob]] = {}
        for job in listing.jobs:
            by_tag.setdefault(job.token, []).append(job)
        over: list[tuple[BatchComponent, Ending]] = []
        doubtful: list[BatchComponent] = []
        cancel = self._strays(listing, busy)
        for component in [each for each in self.alive.values() if each.known_since <= began]:
            jobs = by_tag.get(component.tag, [])
            if any(job.state is not BatchState.OVER for job in jobs):
                component.unknown_since = None
                if any(job.state is BatchState.RUNNING for job in jobs):
                    self._has_begun(component)
                if self._is_to_be_cancelled(component, jobs):
                    cancel.append(component)
            elif not jobs and component.batch_id is None and component.abort is None and component.exit_words is None:
                continue  # it is still to be submitted
            elif (evidence := component.evidence(best_end(jobs, component.batch_id))).is_complete or (
                not jobs and component.batch_id is None
            ):
                over.append((component, evidence.ending()))
            else:
                doubtful.append(component)
        await self._note_ids(by_tag)
        await self._cancel(cancel)
        # Known ends are settled first: the batch system may not answer the question.
        await self.settle(over)
        await self.settle(await self._ask_how_they_ended(doubtful, by_tag))

    def _has_begun(self, component: BatchComponent) -> None:
        """Report once that the batch system has granted its processors, unless its files show more."""
        if component.phase is LivePhase.QUEUED and not component.has_begun and not component.is_ending:
            component.has_begun = True
            self._emit(ComponentStarting(at=self._clock(), token=component.token))

    def _strays(self, listing: BatchListing, busy: Collection[Token]) -> list[BatchComponent | Token]:
        """Return jobs of components that have ended or never existed: submissions that came through late."""
        found: list[BatchComponent | Token] = []
        for job in listing.jobs:
            token = self.token_of(job.token)
            if token is None or job.state in (BatchState.OVER, BatchState.ENDING):
                continue
            if token not in self.alive and token not in self.unclear and token not in busy:
                _log.warning("job %s of component %s, which is not here, is cancelled", job.id, token)
                found.append(job.token)
        return found

    def _is_to_be_cancelled(self, component: BatchComponent, jobs: Sequence[BatchJob]) -> bool:
        never = next((job.end for job in jobs if job.state is not BatchState.OVER and job.end is not None), None)
        if component.abort is None and never is not None:
            component.abort = never_starts(never)
        states = {job.state for job in jobs} - {BatchState.OVER}
        # A submission that came through twice: the job that still waits has nothing left to do.
        is_spare = component.exit_words is not None and states <= {BatchState.PENDING, BatchState.HELD}
        if (
            component.abort is None and not is_spare
        ) or now_s() < component.cancelled_at + self._timings.cancel_again_s:
            return False
        return bool(states - {BatchState.ENDING})

    async def _note_ids(self, by_tag: Mapping[Token, Sequence[BatchJob]]) -> None:
        """Record the job ids of a listing at the site, for submissions whose answer never came back."""
        lines: dict[tuple[Token, str], str] = {}
        for component in self.alive.values():
            jobs = by_tag.get(component.tag)
            if not jobs:
                continue
            component.job = next((job for job in jobs if job.id == component.batch_id), jobs[0])
            if component.batch_id is None:
                component.batch_id = component.job.id
                if not component.lost:
                    lines[component.token, BATCH] = component.job.id
        if lines:
            await self._runner.run(directory.put_lines(self.root, lines))

    async def _cancel(self, whom: Sequence[BatchComponent | Token]) -> None:
        if not whom:
            return
        text = ""
        for each in whom:
            tag, ids = (
                (each.tag, [each.batch_id] if each.batch_id else [])
                if isinstance(each, BatchComponent)
                else (each, [])
            )
            text += f"(\n{self._system.cancel(tag, ids)})\n"
        await self._runner.run(text, timeout_s=BATCH_S, calls="cancel", times=len(whom))
        for each in whom:
            if isinstance(each, BatchComponent):
                each.cancelled_at = now_s()

    async def _ask_how_they_ended(
        self, doubtful: Sequence[BatchComponent], by_tag: Mapping[Token, Sequence[BatchJob]]
    ) -> list[tuple[BatchComponent, Ending]]:
        """Return the ends that the batch system reports, and the ends that it or the script has failed to report for
        too long. The components that were not asked about for longest come first, the others follow at the next
        listing."""
        if not doubtful:
            return []
        asked = sorted(doubtful, key=lambda component: component.asked_at)[: self._history_jobs]
        jobs = [component.for_history() for component in asked]
        told = await self._told(jobs, [component.token for component in asked if component.exit_words is None])
        ends = []
        for component, job in zip(asked, jobs, strict=True):
            component.asked_at = now_s()
            end = told.get(job.id)
            evidence = component.evidence(end or best_end(by_tag.get(component.tag, ()), component.batch_id))
            unseen = evidence.may_be_unseen
            if evidence.is_complete or (end is not None and not unseen):
                ends.append((component, evidence.ending()))
            elif component.unknown_since is None:
                component.unknown_since = now_s()
            elif now_s() >= component.unknown_since + (
                self._timings.unseen_grace_s if unseen else self._timings.unknown_grace_s
            ):
                ends.append((component, evidence.ending()))
        return ends

    async def _told(self, jobs: Sequence[BatchJob], unseen: Sequence[Token]) -> dict[BatchId, BatchEnd]:
        """Return how the batch system says that jobs ended. Components without any visible end are inspected again
        afterwards: a script writes its record before its job ends."""
        text = f"koala_mark history\n(\n{self._system.history(jobs)})\nkoala_mark asked $?\n"
        try:
            done = await self._runner.run(
                text + directory.inspect_anew(self.root, unseen), timeout_s=BATCH_S, calls="history"
            )
        except ShellTimeoutError:
            # Where accounting files are long, each job takes a while.
            self._history_jobs = max(1, self._history_jobs // 2)
            raise
        self._history_jobs = min(self._timings.history_jobs_max, 2 * self._history_jobs)
        inspected = done.section("inspected")
        if inspected is not None:
            await self.take_statuses(parse_statuses(inspected.text, unseen))
        section = done.section("history")
        if section is None or done.code("asked") != 0:
            raise ShellError(self._runner.shell.host, done.complaint or "the batch system tells no history")
        try:
            return await offload_if_large(len(section.body), lambda: self._system.parse_history(section.text, jobs))
        except BatchOutputError as error:
            raise ShellError(self._runner.shell.host, f"its history makes no sense: {error}") from None

    # ---------------------------------------------------------------------------------------------- ending

    async def settle(self, over: Sequence[tuple[BatchComponent, Ending]]) -> None:
        """Settle components that hold nothing any more: one script cancels reservations and records the ends, which
        are then reported. A component that fails there is not reported, and the next listing settles it again."""
        if not over:
            return
        events = {
            component.token: self.end_event(
                component.token,
                *how,
                nodes=component.nodes,
                stderr_line=component.stderr_line,
                usage=component.believed(component.usage, self._clock(), self._processors),
            )
            for component, how in over
        }
        before = {
            component.token: self._system.unreserve(reservation_name(component.tag))
            for component, _ in over
            if component.reservation is not None or (self._reserves and component.launch.begin_at is not None)
        }
        done = await self._runner.run(
            directory.settle(self.root, list(events.values()), before),
            timeout_s=BATCH_S,
            calls="unreserve" if before else "",
        )
        settled = {section.words[1] for section in done.sections if section.words[:1] == ("settled",)}
        for component, _ in over:
            if component.token not in settled:
                _log.error("component %s cannot be settled yet: %s", component.token, done.complaint)
            elif self.alive.get(component.token) is component:
                del self.alive[component.token]
                self._missed.discard(component.token)
                self._emit(events[component.token])

    def end_event(
        self,
        token: Token,
        outcome: Outcome,
        reason: str,
        exit_code: int | None = None,
        fault: Fault | None = None,  # the last field of an ``Ending``
        *,
        nodes: tuple[str, ...] = (),
        stderr_line: str = "",
        usage: Usage = NOT_MEASURED,
    ) -> ComponentEnded:
        """Return the end of a component, now."""
        at = self._clock()
        return ComponentEnded(
            at=at,
            token=token,
            outcome=outcome,
            reason=reason,
            exit_code=exit_code,
            fault=fault,
            nodes=nodes,
            stderr_line=stderr_line if outcome in TOLD_STDERR else "",
            processor_s=usage.processor_s,
            peak_memory_bytes=usage.peak_memory_bytes,
        )


def reservation_name(tag: Token) -> str:
    """Return a name for a component's reservation that every batch system accepts."""
    return re.sub(r"[^A-Za-z0-9_]", "_", f"{JOB_NAME_PREFIX}{tag}")


def _unknown(token: Token) -> Launch:
    """Return a stand-in for a component whose record is unreadable; it may have had a reservation."""
    return Launch(token=token, job=0, processors=1, application=Application(script=""), begin_at=0.0)


def is_mail_name(name: str) -> bool:
    """Return True if a file of an outbox is mail."""
    try:
        check_mail_name(name)
    except LaunchError:
        return False
    return True


def now_s() -> float:
    """Return the event loop's time: for intervals, never for points in time."""
    return asyncio.get_running_loop().time()
