"""How a component's processors are claimed: its directory is made and its job submitted, in a reservation where the
site's settings ask for one and its batch system gives one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from koala.grid import BatchSettings, Claims
from koala.launching import LOG, SCRIPT, Launch
from koala.messages import Token
from koala.sites.batch import errands
from koala.sites.batch.keeper import Keeper, now_s, reservation_name
from koala.sites.batch.living import Living
from koala.sites.batch.looking import Found, parse_found
from koala.sites.batch.place import BATCH_S, Done, Place
from koala.sites.batch.system import BatchId, BatchOutputError, BatchSystem, Submission
from koala.sites.commands import CommandError
from koala.sites.folder import Record
from koala.sites.site import Clock

_log = logging.getLogger(__name__)

# A job that is to start sooner than this is claimed at the barrier: a reservation would come too late.
RESERVE_AHEAD_S = 5.0
# The batch system's own limit comes so long after ours.
LIMIT_SLACK_S = 60.0

# The component that lives now, the one that was there before, or why the batch system refuses it.
Claimed: TypeAlias = Living | Found | str


class Claimer:
    """Submits components. ``sequence`` is that of the one accepted last, ``job_limit_s`` tells how long a job may run
    at the site, as far as is known."""

    def __init__(
        self,
        name: str,
        settings: BatchSettings,
        system: BatchSystem,
        place: Place,
        keeper: Keeper,
        *,
        clock: Clock,
        job_limit_s: Callable[[], float | None],
    ) -> None:
        self.sequence = 0
        self._job_limit_s = job_limit_s
        self._name = name
        self._settings = settings
        self._system = system
        self._place = place
        self._keeper = keeper
        self._clock = clock

    async def claim(self, launch: Launch, script: str) -> Claimed:
        """Accept a component and submit it. Raises ``CommandError`` when it is not known whether that happened."""
        self.sequence += 1
        record = Record(sequence=self.sequence, launch=_without_script(launch))
        site = errands.site_text(self._settings.job_environment, self._settings.search_path, self._system.on_node())
        make = errands.make(self._keeper.root, record, script, site)
        if self._is_reserved(launch):
            # The directory comes first, so that a reservation is never without a component that gives it back.
            found = parse_found((await self._place.do(make + errands.submit_if_made("exit 1\n"))).sections)
            return found[0] if found else await self._claim_reserved(record)
        text = make + errands.submit_if_made(self._system.submit(self._submission(launch, None)))
        done = await self._place.do(text, timeout_s=BATCH_S, calls="submit")
        found = parse_found(done.sections)
        return found[0] if found else self._claimed(record, self._answer(done), None)

    def _claimed(self, record: Record, answer: _Answer, reservation: str | None) -> Claimed:
        if answer.refusal is not None:
            return answer.refusal
        return self._keeper.add(record.launch, record.sequence, answer.id, reservation)

    async def submit(self, living: Living) -> str | None:
        """Submit a component that is on record; why the batch system refuses it, if it does."""
        done = await self._submit(living.launch, living.reservation)
        if done.section("barred") is not None:
            return None
        living.known_since = now_s()
        answer = self._answer(done)
        living.batch_id = answer.id
        return answer.refusal

    async def _submit(self, launch: Launch, reservation: str | None) -> Done:
        text = self._system.submit(self._submission(launch, reservation))
        return await self._place.do(
            errands.submit(self._keeper.root, launch.token, text), timeout_s=BATCH_S, calls="submit"
        )

    def _submission(self, launch: Launch, reservation: str | None) -> Submission:
        tagged = msgspec.structs.replace(launch, token=self._keeper.tag(launch.token))
        return Submission(
            launch=tagged,
            home=f"{self._keeper.root}/{errands.COMPONENTS}/{launch.token}",
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

    def _answer(self, done: Done) -> _Answer:
        section, code = done.section("submitted"), done.code("submitted")
        if section is None or code is None:
            raise CommandError(self._place.commands.host, "nothing is known of a submission")
        if code != 0:
            refusal = self._system.refusal(code, section.text, done.complaint)
            if refusal is None:
                why = done.complaint or f"the submission failed with exit code {code}"
                raise CommandError(self._place.commands.host, why)
            return _Answer(refusal=refusal)
        try:
            return _Answer(id=self._system.parse_submitted(section.text))
        except BatchOutputError as error:
            raise CommandError(self._place.commands.host, f"the answer to a submission: {error}") from None

    # ------------------------------------------------------------------------------------------ reservations

    def _is_reserved(self, launch: Launch) -> bool:
        if self._settings.claims is not Claims.RESERVATION or launch.begin_at is None or launch.walltime_s is None:
            return False
        return launch.begin_at > self._clock() + RESERVE_AHEAD_S

    async def _claim_reserved(self, record: Record) -> Claimed:
        """Submit a component that is on record into a reservation, and at the barrier where that is refused."""
        launch = record.launch
        reservation = await self._reserve(launch)
        answer = self._answer(await self._submit(launch, reservation))
        if answer.refusal is not None and reservation is not None:
            words = "site %s refuses component %s in its reservation, which is given back: %s"
            _log.info(words, self._name, launch.token, answer.refusal)
            unreserve = self._system.unreserve(reservation_name(self._keeper.tag(launch.token)))
            await self._place.do(f"(\n{unreserve})\n", timeout_s=BATCH_S, calls="unreserve")
            await self._place.do(errands.put_lines(self._keeper.root, {(launch.token, errands.RESERVATION): None}))
            reservation = None
            answer = self._answer(await self._submit(launch, None))
        return self._claimed(record, answer, reservation)

    async def _reserve(self, launch: Launch) -> str | None:
        """What the job is to run in; None where the site gives none, and the barrier must do."""
        assert launch.begin_at is not None, "it was asked whether there is one"
        name = reservation_name(self._keeper.tag(launch.token))
        length_s = (self._limit_s(launch) or 0.0) + LIMIT_SLACK_S
        text = self._system.reserve(name, launch.processors, launch.begin_at, length_s)
        done = await self._place.do(
            f"koala_mark reserve\n(\n{text})\nkoala_mark reserved $?\n", timeout_s=BATCH_S, calls="reserve"
        )
        section = done.section("reserve")
        if section is None or done.code("reserved") != 0:
            why = done.complaint or ("" if section is None else section.text.strip())
            _log.info("site %s gives component %s no reservation: %s", self._name, launch.token, why)
            return None
        try:
            reservation = self._system.parse_reserved(section.text)
        except BatchOutputError as error:
            _log.info("site %s: the reservation of component %s: %s", self._name, launch.token, error)
            return None
        line: dict[tuple[Token, str], str | None] = {(launch.token, errands.RESERVATION): reservation}
        await self._place.do(errands.put_lines(self._keeper.root, line))
        return reservation


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    id: BatchId | None = None
    refusal: str | None = None


def _without_script(launch: Launch) -> Launch:
    """What is worth keeping in the record: the text of a script is in the component's script."""
    if not launch.application.script:
        return launch
    return msgspec.structs.replace(launch, application=msgspec.structs.replace(launch.application, script=""))
