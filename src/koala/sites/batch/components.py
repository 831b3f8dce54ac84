"""The living components of a batch site: what a look at their files and at the batch system means for each of them.

Whatever follows from a look is carried out at the site first and told then. Who looks when is in
``koala.sites.batch.poller``, what a driver may ask in ``koala.sites.batch.site``.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from koala.model.launch import Launch, LaunchError, check_mail_name
from koala.model.messages import ComponentEnded, ComponentReady, ComponentStarting, Outcome, Token
from koala.model.request import Application
from koala.sites.batch.component import Living, Phase
from koala.sites.batch.ends import Ending, best_end, ending, is_complete, may_be_unseen, never_starts
from koala.sites.batch.parse import Found, Sight, parse_looks
from koala.sites.batch.scripts import directory
from koala.sites.batch.scripts.runner import BATCH_S, ScriptRunner, offload_if_large
from koala.sites.batch.system import (
    JOB_NAME_PREFIX,
    BatchEnd,
    BatchId,
    BatchJob,
    BatchOutputError,
    BatchState,
    BatchSystem,
    Listing,
)
from koala.sites.component_directory import Record, Verdict
from koala.sites.protocol import Clock, Deliver, Emit, Mail
from koala.sites.remote_shell import CommandError, CommandTimeoutError

_log = logging.getLogger(__name__)

# A job that its batch system does not know any more is waited for so long: its record may come later than its end.
# Grid Engine writes its accounting every 15 s, and a file server shows it later.
UNKNOWN_GRACE_S = 30.0
# The record of a script that ended by itself is waited for so long: a client of NFS may not see for a minute (its
# option acdirmax) what another machine has written.
UNSEEN_GRACE_S = 90.0
# How many jobs' ends are asked for in one script; fewer after one that took too long.
HISTORY_JOBS_AT_A_TIME = 32
# A job that goes on after it was cancelled is cancelled again after so long.
CANCEL_AGAIN_S = 10.0
_GONE = "its directory at the site was removed or altered while it was there"


class Keeper:
    """All that has not ended, in the order it was accepted.

    A ``tag`` is a token made into a name that no other site and no other Koala gives to its jobs. At a site that
    ``reserves`` every end gives back a reservation, whether anybody knows that there was one or not.
    """

    def __init__(
        self,
        runner: ScriptRunner,
        system: BatchSystem,
        *,
        emit: Emit,
        clock: Clock,
        on_mail: Deliver | None,
        reserves: bool = False,
        unknown_grace_s: float = UNKNOWN_GRACE_S,
        unseen_grace_s: float = UNSEEN_GRACE_S,
    ) -> None:
        self.alive: dict[Token, Living] = {}
        self.unclear: set[Token] = set()  # those whose start failed on the way
        self.root = ""  # the work directory, once it is known
        self.mark = ""  # the part of jobs' names that no other work directory gives
        self._runner = runner
        self._system = system
        self._emit = emit
        self._clock = clock
        self._on_mail = on_mail
        self._reserves = reserves
        self._unknown_grace_s = unknown_grace_s
        self._unseen_grace_s = unseen_grace_s
        self._missed: set[Token] = set()  # those that the last look did not find
        self._history_jobs = HISTORY_JOBS_AT_A_TIME

    @property
    def is_found(self) -> bool:
        """Whether it is known what the site holds."""
        return bool(self.root)

    def leave(self) -> None:
        """Watch nothing any more."""
        self.root = self.mark = ""
        self.alive.clear()
        self.unclear.clear()
        self._missed.clear()

    # ------------------------------------------------------------------------------------------- who is who

    def tag(self, token: Token) -> Token:
        """What the batch system knows a component by."""
        return f"{token}-{self.mark}"

    def token_of(self, tag: Token) -> Token | None:
        """The component that a job's name means; None for one of somebody else."""
        token, _, mark = tag.rpartition("-")
        return token if token and mark == self.mark else None

    def adopt(self, found: Found) -> Living:
        """Watch a component that is on record at the site."""
        living = Living.of(found, self.tag(found.token), now_s())
        if found.batch is not None:
            try:
                living.batch_id = self._system.parse_submitted(found.batch)
            except BatchOutputError as error:
                _log.warning("component %s: what was kept of its submission: %s", found.token, error)
        self.alive[living.token] = living
        return living

    def give_up(self, found: Found) -> Living:
        """Watch a component until its job is gone, of which the site keeps something that cannot be read: it is
        ended. Where that is its record, nobody knows what it asked for."""
        why = f"what the site kept about it cannot be read: {found.spoilt or 'there is no record of it'}"
        if found.record is None or found.record.launch.token != found.token:
            found = msgspec.structs.replace(found, record=Record(sequence=0, launch=_unknown(found.token)))
        living = self.adopt(found)
        self.lose(living, why)
        return living

    def add(self, launch: Launch, sequence: int, batch_id: BatchId | None, reservation: str | None) -> Living:
        """Watch a component that was just made."""
        living = Living(launch, sequence, self.tag(launch.token), now_s())
        living.batch_id, living.reservation = batch_id, reservation
        self.alive[living.token] = living
        return living

    def others(self, listing: Listing) -> int:
        """How many of a listing's processors are not for us: beside those that it tells, what other Koalas' jobs hold
        or will take, and what our own hold beyond what they asked for, as where a node is given as a whole.
        """
        holding = (BatchState.RUNNING, BatchState.ENDING)
        ours = held = 0
        for job in listing.jobs:
            if job.state in holding:
                held += job.processors
                living = self.alive.get(self.token_of(job.token) or "")
                ours += 0 if living is None else min(job.processors, living.launch.processors)
        # Less than none, where what waits will take of what we hold now.
        idle = listing.processors - listing.others - held
        for job in listing.jobs:
            waits = job.state is BatchState.PENDING and job.end is None
            if waits and self.token_of(job.token) is None and job.processors <= idle:
                idle -= job.processors
        return min(listing.processors, max(0, listing.processors - ours - idle))

    # ------------------------------------------------------------------------------------ what files show

    async def take_sights(self, sights: Mapping[Token, Sight]) -> bool:
        """See to what a look at the files showed; whether there was any news."""
        news = False
        for token, sight in sights.items():
            living = self.alive.get(token)
            if living is None:
                continue
            if sight.lost:
                news = self._miss(living) or news
                continue
            self._missed.discard(token)
            if sight.verdict is not None and living.verdict is None:
                living.verdict, news = sight.verdict, True  # whoever put it there never heard that it is there
            if sight.exit_words is not None and living.exit_words is None:
                living.exit_words, news = sight.exit_words, True
            if sight.ready and living.phase is Phase.QUEUED:
                living.phase, news = Phase.READY, True
                if living.released_at is None and not living.is_ending:
                    self._emit(ComponentReady(at=self._clock(), token=token))
            if living.released_at is not None and living.verdict is None:
                news = await self._hand_out(living, sight.mail) or news
        return news

    def _miss(self, living: Living) -> bool:
        """A look did not find its directory. It is lost when the next one does not either: a file server in trouble
        may say for a moment of anything that it is not there. Whether that is news."""
        if living.token in self._missed:
            return self.lose(living)
        self._missed.add(living.token)
        return True

    async def _hand_out(self, living: Living, names: Sequence[str]) -> bool:
        fresh = [name for name in names if name not in living.mailed and is_mail_name(name)]
        if self._on_mail is None:
            return False
        for name in fresh:
            data = await self.mail(living.token, name)
            living.mailed.add(name)
            if data is not None:
                self._on_mail(Mail(token=living.token, name=name, data=data))
        return bool(fresh)

    async def mail(self, token: Token, name: str) -> bytes | None:
        """A piece of mail of a component's outbox."""
        section = (await self._runner.run(directory.mail(self.root, token, name))).section("mail")
        return None if section is None else section.body

    def lose(self, living: Living, why: str = _GONE) -> bool:
        """Its directory is of no use any more, so nothing it does can be known: it is ended. Whether that is news."""
        if living.lost:
            return False
        _log.warning("component %s is ended: %s", living.token, why)
        living.lost = True
        if living.verdict is None:
            living.verdict = Verdict(outcome=Outcome.SITE_FAILED, reason=why)
        return True

    # ------------------------------------------------------------------------- what the batch system shows

    async def take_listing(self, listing: Listing, began: float, busy: Collection[Token]) -> None:
        """See to what a listing showed that began at a time; files were looked at after it.

        Of tokens that are ``busy`` some call is under way.
        """
        by_tag: dict[Token, list[BatchJob]] = {}
        for job in listing.jobs:
            by_tag.setdefault(job.token, []).append(job)
        over: list[tuple[Living, Ending]] = []
        doubtful: list[Living] = []
        cancel = self._strays(listing, busy)
        for living in [each for each in self.alive.values() if each.known_since <= began]:
            jobs = by_tag.get(living.tag, [])
            if any(job.state is not BatchState.OVER for job in jobs):
                living.unknown_since = None
                if any(job.state is BatchState.RUNNING for job in jobs):
                    self._has_begun(living)
                if self._is_to_be_cancelled(living, jobs):
                    cancel.append(living)
            elif not jobs and living.batch_id is None and living.verdict is None and living.exit_words is None:
                continue  # it is still to be submitted
            elif is_complete(story := living.story(best_end(jobs, living.batch_id))) or (
                not jobs and living.batch_id is None
            ):
                over.append((living, ending(story)))
            else:
                doubtful.append(living)
        await self._note_ids(by_tag)
        await self._cancel(cancel)
        # What is known is settled first: nobody knows whether the batch system answers the question.
        await self.settle(over)
        await self.settle(await self._ask_how_they_ended(doubtful, by_tag))

    def _has_begun(self, living: Living) -> None:
        """The batch system has given it its processors; told once, unless its files tell more."""
        if living.phase is Phase.QUEUED and not living.has_begun and not living.is_ending:
            living.has_begun = True
            self._emit(ComponentStarting(at=self._clock(), token=living.token))

    def _strays(self, listing: Listing, busy: Collection[Token]) -> list[Living | Token]:
        """Jobs of components that have ended or never were: a submission that came through late."""
        found: list[Living | Token] = []
        for job in listing.jobs:
            token = self.token_of(job.token)
            if token is None or job.state in (BatchState.OVER, BatchState.ENDING):
                continue
            if token not in self.alive and token not in self.unclear and token not in busy:
                _log.warning("job %s of component %s, which is not here, is cancelled", job.id, token)
                found.append(job.token)
        return found

    def _is_to_be_cancelled(self, living: Living, jobs: Sequence[BatchJob]) -> bool:
        never = next((job.end for job in jobs if job.state is not BatchState.OVER and job.end is not None), None)
        if living.verdict is None and never is not None:
            living.verdict = never_starts(never)
        states = {job.state for job in jobs} - {BatchState.OVER}
        # A submission that came through twice: what still waits has nothing to do any more.
        is_spare = living.exit_words is not None and states <= {BatchState.PENDING, BatchState.HELD}
        if (living.verdict is None and not is_spare) or now_s() < living.cancelled_at + CANCEL_AGAIN_S:
            return False
        return bool(states - {BatchState.ENDING})

    async def _note_ids(self, by_tag: Mapping[Token, Sequence[BatchJob]]) -> None:
        """Keep what the listing tells of jobs, at the site where the answer to a submission never came back."""
        lines: dict[tuple[Token, str], str] = {}
        for living in self.alive.values():
            jobs = by_tag.get(living.tag)
            if not jobs:
                continue
            living.job = next((job for job in jobs if job.id == living.batch_id), jobs[0])
            if living.batch_id is None:
                living.batch_id = living.job.id
                if not living.lost:
                    lines[living.token, directory.BATCH] = living.job.id
        if lines:
            await self._runner.run(directory.put_lines(self.root, lines))

    async def _cancel(self, whom: Sequence[Living | Token]) -> None:
        if not whom:
            return
        text = ""
        for each in whom:
            tag, ids = (
                (each.tag, [each.batch_id] if each.batch_id else []) if isinstance(each, Living) else (each, [])
            )
            text += f"(\n{self._system.cancel(tag, ids)})\n"
        await self._runner.run(text, timeout_s=BATCH_S, calls="cancel", times=len(whom))
        for each in whom:
            if isinstance(each, Living):
                each.cancelled_at = now_s()

    async def _ask_how_they_ended(
        self, doubtful: Sequence[Living], by_tag: Mapping[Token, Sequence[BatchJob]]
    ) -> list[tuple[Living, Ending]]:
        """The ends that the batch system tells, and those that it has not told, or whose scripts have not recorded
        them, for long enough. Those come first that were not asked about for longest, and the others at the next
        look."""
        if not doubtful:
            return []
        asked = sorted(doubtful, key=lambda living: living.asked_at)[: self._history_jobs]
        jobs = [living.for_history() for living in asked]
        told = await self._told(jobs, [living.token for living in asked if living.exit_words is None])
        ends = []
        for living, job in zip(asked, jobs, strict=True):
            living.asked_at = now_s()
            end = told.get(job.id)
            story = living.story(end or best_end(by_tag.get(living.tag, ()), living.batch_id))
            unseen = may_be_unseen(story)
            if is_complete(story) or (end is not None and not unseen):
                ends.append((living, ending(story)))
            elif living.unknown_since is None:
                living.unknown_since = now_s()
            elif now_s() >= living.unknown_since + (self._unseen_grace_s if unseen else self._unknown_grace_s):
                ends.append((living, ending(story)))
        return ends

    async def _told(self, jobs: Sequence[BatchJob], unseen: Sequence[Token]) -> dict[BatchId, BatchEnd]:
        """How the batch system says that jobs ended. After that, those of which nothing was seen are looked at anew:
        what a script records is there before its job ends."""
        text = f"koala_mark history\n(\n{self._system.history(jobs)})\nkoala_mark asked $?\n"
        try:
            done = await self._runner.run(
                text + directory.look_anew(self.root, unseen), timeout_s=BATCH_S, calls="history"
            )
        except CommandTimeoutError:
            # Where accounts are long, each job takes a while.
            self._history_jobs = max(1, self._history_jobs // 2)
            raise
        self._history_jobs = min(HISTORY_JOBS_AT_A_TIME, 2 * self._history_jobs)
        looks = done.section("looks")
        if looks is not None:
            await self.take_sights(parse_looks(looks.text, unseen))
        section = done.section("history")
        if section is None or done.code("asked") != 0:
            raise CommandError(self._runner.commands.host, done.complaint or "the batch system tells no history")
        try:
            return await offload_if_large(len(section.body), lambda: self._system.parse_history(section.text, jobs))
        except BatchOutputError as error:
            raise CommandError(self._runner.commands.host, f"its history makes no sense: {error}") from None

    # ---------------------------------------------------------------------------------------------- ending

    async def settle(self, over: Sequence[tuple[Living, Ending]]) -> None:
        """These hold nothing any more: reservations are given back, ends put on record, all in one script, and then
        told. Of what fails there nothing is told, and the next look brings it here again."""
        if not over:
            return
        events = {living.token: self.end_event(living.token, *how) for living, how in over}
        before = {
            living.token: self._system.unreserve(reservation_name(living.tag))
            for living, _ in over
            if living.reservation is not None or (self._reserves and living.launch.begin_at is not None)
        }
        done = await self._runner.run(
            directory.bury(self.root, list(events.values()), before),
            timeout_s=BATCH_S,
            calls="unreserve" if before else "",
        )
        buried = {section.words[1] for section in done.sections if section.words[:1] == ("buried",)}
        for living, _ in over:
            if living.token not in buried:
                _log.error("component %s cannot be settled yet: %s", living.token, done.complaint)
            elif self.alive.get(living.token) is living:
                del self.alive[living.token]
                self._missed.discard(living.token)
                self._emit(events[living.token])

    def end_event(self, token: Token, outcome: Outcome, reason: str, exit_code: int | None = None) -> ComponentEnded:
        """The end of a component, now."""
        return ComponentEnded(at=self._clock(), token=token, outcome=outcome, reason=reason, exit_code=exit_code)


def reservation_name(tag: Token) -> str:
    """A name for a component's reservation that every batch system takes."""
    return re.sub(r"[^A-Za-z0-9_]", "_", f"{JOB_NAME_PREFIX}{tag}")


def _unknown(token: Token) -> Launch:
    """Stands for what a component was that nobody can read any more; it may have had a reservation."""
    return Launch(token=token, job=0, processors=1, application=Application(script=""), begin_at=0.0)


def is_mail_name(name: str) -> bool:
    """Whether a file of an outbox is mail."""
    try:
        check_mail_name(name)
    except LaunchError:
        return False
    return True


def now_s() -> float:
    """The event loop's time: for how long ago something was, never for when."""
    return asyncio.get_running_loop().time()
