"""How a component's processors are claimed: its directory is created and its job submitted, in a reservation if the
site's settings request one and its batch system grants it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from koala.model.grid import BatchSettings, Claims
from koala.model.launch import LOG, SCRIPT, Launch
from koala.model.messages import Token
from koala.sites.backoff import Backoff
from koala.sites.batch.component import BatchComponent
from koala.sites.batch.components import BatchComponents, now_s, reservation_name
from koala.sites.batch.parse import parse_found
from koala.sites.batch.scripts import directory
from koala.sites.batch.scripts.runner import BATCH_S, ScriptResult, ScriptRunner
from koala.sites.batch.system import BatchId, BatchOutputError, BatchSubmission, BatchSystem, WantedReservation
from koala.sites.batch.timings import BatchTimings
from koala.sites.component_directory import COMPONENTS, RESERVATION, AcceptanceRecord, RecordedComponent
from koala.sites.protocol import Clock, NotNowError
from koala.sites.remote_shell import ShellError

_log = logging.getLogger(__name__)

# A job that is to start sooner than this is claimed at the barrier: a reservation would come too late.
RESERVE_AHEAD_S = 5.0
# The reservation may begin this much later than the job's start if others hold its processors until then: components
# wait for each other at the barrier. At most this share of the scheduler's ``barrier_timeout_s`` is spent on it.
RESERVE_LATE_S = 60.0
_LATE_SHARE = 0.25
# The batch system's own limit exceeds ours by this much.
LIMIT_SLACK_S = 60.0

# The fields of a launch that are the same at every attempt.
_LASTING = ("token", "job", "processors", "application", "part", "parts", "job_type")

# The component that lives now, the one that was there before, or why the batch system refuses it.
Accepted: TypeAlias = BatchComponent | RecordedComponent | str


class BatchSubmitter:
    """Submits components. ``sequence`` belongs to the component accepted last, ``job_limit_s`` returns how long a job
    may run at the site, as far as it is known. ``barrier_timeout_s`` is the scheduler's: a job may wait this long for
    a component after its start time."""

    def __init__(
        self,
        name: str,
        settings: BatchSettings,
        system: BatchSystem,
        runner: ScriptRunner,
        components: BatchComponents,
        timings: BatchTimings,
        *,
        clock: Clock,
        job_limit_s: Callable[[], float | None],
        barrier_timeout_s: float,
    ) -> None:
        self.sequence = 0
        self._job_limit_s = job_limit_s
        self._late_s = min(RESERVE_LATE_S, _LATE_SHARE * barrier_timeout_s)
        self._crowded = Backoff(timings.crowded_first_s, timings.crowded_most_s)
        self._crowded_until = 0.0
        self._name = name
        self._settings = settings
        self._system = system
        self._runner = runner
        self._components = components
        self._clock = clock

    @property
    def is_crowded(self) -> bool:
        """True if it is too soon for another submission, since the last one found no room."""
        return now_s() < self._crowded_until

    def expect_room(self) -> None:
        """Allow the next submission, since one of our jobs has ended."""
        self._crowded.reset()
        self._crowded_until = 0.0

    async def accept(self, launch: Launch, script: str) -> Accepted:
        """Accept a component and submit it. Raises ``ShellError`` if it is unknown whether that happened, and
        ``NotNowError`` if the component lives and its job is to be submitted later."""
        self.sequence += 1
        record = AcceptanceRecord(sequence=self.sequence, launch=_without_script(launch))
        site = directory.site_text(self._settings.job_environment, self._settings.search_path, self._system.on_node())
        if self._is_reserved(launch):
            # The directory comes first, so that every reservation has a component that cancels it.
            making = directory.make(self._components.root, record, script, site)
            found = parse_found((await self._runner.run(making)).sections)
            if found:
                return found[0]
            answer, reservation = await self._submit_in(launch, await self._reserve(launch))
            return self._accepted(record, answer, reservation)
        submission = self._system.submit(self._submission(launch, None))
        text = directory.make(self._components.root, record, script, site, submission)
        done = await self._runner.run(text, timeout_s=BATCH_S, calls="submit")
        found = parse_found(done.sections)
        if found:
            return found[0]
        answer = self._answer(done)
        if answer.refusal is not None and launch.exclude_nodes:
            answer = await self._submit_anywhere(launch, answer.refusal)
        return self._accepted(record, answer, None)

    def _accepted(self, record: AcceptanceRecord, answer: _Answer, reservation: str | None) -> Accepted:
        if answer.refusal is not None:
            return answer.refusal
        component = self._components.add(record.launch, answer.id, reservation)
        self._check_room(answer)
        return component

    def _check_room(self, answer: _Answer) -> None:
        """Raise ``NotNowError`` if there was no room for a submission."""
        if answer.no_room is None:
            self.expect_room()
            return
        self._crowded_until = now_s() + self._crowded.wait_s
        self._crowded.grow()
        raise NotNowError(f"{self._runner.shell.host}: {answer.no_room}")

    async def submit(self, component: BatchComponent) -> str | None:
        """Submit a component that is on record, perhaps again; return the reason if the batch system refuses it.
        Raises ``NotNowError`` if it is to be submitted later."""
        if component.reservation is None and self._may_have_reserved(component.launch):
            component.reservation = await self._reserve_again(component.launch)
        answer, component.reservation = await self._submit_in(component.launch, component.reservation)
        if not answer.barred:
            component.known_since = now_s()
            component.batch_id = answer.id
        self._check_room(answer)
        return answer.refusal

    async def _submit(self, launch: Launch, reservation: str | None) -> _Answer:
        answer = await self._submit_once(launch, reservation)
        if answer.refusal is not None and launch.exclude_nodes and reservation is None:
            return await self._submit_anywhere(launch, answer.refusal)
        return answer

    async def _submit_anywhere(self, launch: Launch, refusal: str) -> _Answer:
        """Submit a component without its excluded nodes, after the batch system refused it with them: there may be no
        other nodes, or none with these names any more."""
        words = "site %s refuses component %s kept off %s, so that it may run on every node: %s"
        _log.info(words, self._name, launch.token, ", ".join(launch.exclude_nodes), refusal)
        return await self._submit_once(msgspec.structs.replace(launch, exclude_nodes=()), None)

    async def _submit_once(self, launch: Launch, reservation: str | None) -> _Answer:
        text = self._system.submit(self._submission(launch, reservation))
        return self._answer(
            await self._runner.run(
                directory.submit(self._components.root, launch.token, text), timeout_s=BATCH_S, calls="submit"
            )
        )

    def _submission(self, launch: Launch, reservation: str | None) -> BatchSubmission:
        # The nodes of a reservation are chosen already.
        excluded = launch.exclude_nodes if reservation is None else ()
        tagged = msgspec.structs.replace(launch, token=self._components.tag(launch.token), exclude_nodes=excluded)
        return BatchSubmission(
            launch=tagged,
            home=f"{self._components.root}/{COMPONENTS}/{launch.token}",
            script=SCRIPT,
            log=LOG,
            limit_s=self._limit_s(launch),
            reservation=reservation,
        )

    def _limit_s(self, launch: Launch) -> float | None:
        if launch.walltime_s is None:
            return None
        limit_s = launch.barrier_timeout_s + launch.walltime_s + LIMIT_SLACK_S
        most_s = self._job_limit_s()
        return limit_s if most_s is None else min(limit_s, most_s)

    def _answer(self, done: ScriptResult) -> _Answer:
        if done.section("barred") is not None:
            return _Answer(barred=True)
        section, code = done.section("submitted"), done.code("submitted")
        if section is None or code is None:
            raise ShellError(self._runner.shell.host, "nothing is known of a submission")
        if code != 0:
            refusal = self._system.refusal(code, section.text, done.complaint)
            if refusal is None:
                why = done.complaint or f"the submission failed with exit code {code}"
                if self._system.has_no_room(code, section.text, done.complaint):
                    return _Answer(no_room=why)
                raise ShellError(self._runner.shell.host, why)
            return _Answer(refusal=refusal)
        try:
            return _Answer(id=self._system.parse_submitted(section.text))
        except BatchOutputError as error:
            raise ShellError(self._runner.shell.host, f"the answer to a submission: {error}") from None

    # ------------------------------------------------------------------------------------------ reservations

    def _may_have_reserved(self, launch: Launch) -> bool:
        """Return True if a reservation may ever have been requested. It would hold processors alone, so tasks that
        need more have none."""
        if self._settings.claims is not Claims.RESERVATION or launch.needs is not None:
            return False
        return launch.begin_at is not None and launch.walltime_s is not None

    def _is_reserved(self, launch: Launch) -> bool:
        begin_at = launch.begin_at if self._may_have_reserved(launch) else None
        return begin_at is not None and begin_at > self._clock() + RESERVE_AHEAD_S

    async def _submit_in(self, launch: Launch, reservation: str | None) -> tuple[_Answer, str | None]:
        """Submit a component that is on record into its reservation, and at the barrier if there is none or it is
        refused; return the answer, and the reservation of the job."""
        answer = await self._submit(launch, reservation)
        if answer.refusal is None or reservation is None:
            return answer, reservation
        words = "site %s refuses component %s in its reservation, which is given back: %s"
        _log.info(words, self._name, launch.token, answer.refusal)
        await self._give_back(launch)
        return await self._submit(launch, None), None

    async def _reserve_again(self, launch: Launch) -> str | None:
        """Return the reservation for the job if an earlier attempt may have made it and never received the answer: it
        has the same name, so it is found. If it is too late for one, no reservation is left."""
        if self._is_reserved(launch):
            return await self._reserve(launch)
        await self._give_back(launch)
        return None

    async def _give_back(self, launch: Launch) -> None:
        """Cancel the reservation of a component, if there is any. Raises ``ShellError`` while one may exist: together
        with a job at the barrier it would hold the processors twice."""
        unreserve = self._system.unreserve(reservation_name(self._components.tag(launch.token)))
        text = f"(\n{unreserve})\nkoala_mark unreserved $?\n"
        done = await self._runner.run(text, timeout_s=BATCH_S, calls="unreserve")
        if done.code("unreserved") != 0:
            why = done.complaint or "the batch system gives no reason"
            raise ShellError(self._runner.shell.host, f"a reservation cannot be given back: {why}")
        await self._runner.run(directory.put_lines(self._components.root, {(launch.token, RESERVATION): None}))

    def _wanted(self, launch: Launch, name: str, begin_s: float) -> WantedReservation:
        """Return the reservation to request. Our own jobs have limits there that they never reach: jobs count as
        ending in time by their walltimes."""
        ending = [
            component.tag
            for component in self._components.alive.values()
            if component.ends_at is not None and component.ends_at <= begin_s + self._late_s
        ]
        return WantedReservation(
            name=name,
            processors=launch.processors,
            begin_s=begin_s,
            length_s=(self._limit_s(launch) or 0.0) + LIMIT_SLACK_S,
            late_s=self._late_s,
            ending=tuple(ending),
        )

    async def _reserve(self, launch: Launch) -> str | None:
        """Reserve processors and return the reservation; None if the site grants none, and the barrier must do. A
        repeated request returns the same one."""
        assert launch.begin_at is not None, "it was asked whether there is one"
        name = reservation_name(self._components.tag(launch.token))
        text = self._system.reserve(self._wanted(launch, name, launch.begin_at))
        done = await self._runner.run(
            f"koala_mark reserve\n(\n{text})\nkoala_mark reserved $?\n", timeout_s=BATCH_S, calls="reserve"
        )
        section = done.section("reserve")
        if section is None or done.code("reserved") != 0:
            why = done.complaint or ("" if section is None else section.text.strip())
            _log.info("site %s gives component %s no reservation: %s", self._name, launch.token, why)
            await self._give_back(launch)  # a batch system may have made one all the same
            return None
        try:
            reservation = self._system.parse_reserved(section.text)
        except BatchOutputError as error:
            _log.info("site %s: the reservation of component %s: %s", self._name, launch.token, error)
            await self._give_back(launch)
            return None
        line: dict[tuple[Token, str], str | None] = {(launch.token, RESERVATION): reservation}
        await self._runner.run(directory.put_lines(self._components.root, line))
        return reservation


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a submission. A ``barred`` one was not made, since the component is aborted. One with
    ``no_room``, which says why, is to be made again."""

    id: BatchId | None = None
    refusal: str | None = None
    no_room: str | None = None
    barred: bool = False


def is_same(recorded: Launch, launch: Launch) -> bool:
    """Return True if the recorded launch is the one to start. Times and paths of programs may differ: they belong to
    the attempt."""
    asked = _without_script(launch)
    return all(getattr(recorded, name) == getattr(asked, name) for name in _LASTING)


def _without_script(launch: Launch) -> Launch:
    """Return what is worth keeping in the record: the text of a script is in the component's script."""
    if not launch.application.script:
        return launch
    return msgspec.structs.replace(launch, application=msgspec.structs.replace(launch.application, script=""))
