"""A site under a batch system: components are its jobs, and everything about them is in a directory at the site.

Nothing is installed there: all that happens are short texts for ``sh``. Kill this object at any point and make
another with the same settings: it finds every component again. What a look means is in
``koala.sites.batch.keeper``, when the site is looked at in ``koala.sites.batch.watching``; here is what a driver may
ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import msgspec

from koala.grid import BatchSettings, Claims
from koala.launching import (
    MAIL_BYTES_MAX,
    Go,
    Launch,
    LaunchError,
    NodeShare,
    check_mail_name,
    check_token,
)
from koala.messages import AnyEvent, ComponentEnded, Outcome, SiteReported, SiteSilent, Token
from koala.sites.batch import errands, links
from koala.sites.batch.addresses import parse_nodes
from koala.sites.batch.claiming import Claimer
from koala.sites.batch.keeper import UNKNOWN_GRACE_S, Keeper, reservation_name
from koala.sites.batch.living import Living, Phase
from koala.sites.batch.looking import Found, parse_found, parse_time
from koala.sites.batch.outputs import output_paths
from koala.sites.batch.place import BATCH_S, REMOVE_S, Place
from koala.sites.batch.system import BatchSystem
from koala.sites.batch.watching import Watch
from koala.sites.commands import CommandError, Commands, CommandTimeoutError
from koala.sites.folder import Verdict
from koala.sites.site import OUTPUT_BYTES_MAX, Clock, Deliver, Emit, SiteError, Stream

_log = logging.getLogger(__name__)


class BatchSite:
    """A site of at most ``processors`` processors. Keeps the promises of ``koala.sites.site.Site``.

    ``owner`` names the Koala that uses the site's work directory; another one cannot open it. Opening a site that
    does not answer succeeds: it is then silent, every call raises ``OSError``, and all is found out when it answers
    again. ``commands`` stands for the way to the site that the settings describe.
    """

    def __init__(
        self,
        name: str,
        settings: BatchSettings,
        system: BatchSystem,
        processors: int,
        *,
        owner: str,
        emit: Emit,
        clock: Clock,
        on_mail: Deliver | None = None,
        commands: Commands | None = None,
        unknown_grace_s: float = UNKNOWN_GRACE_S,
    ) -> None:
        self._name = name
        self._settings = settings
        self._processors = processors
        self._owner = owner
        self._emit = emit
        self._clock = clock
        self._place = Place(
            commands or Commands(ssh=settings.ssh, through=settings.through, environment=dict(settings.environment))
        )
        self._keeper = Keeper(
            self._place,
            system,
            emit=self._tell,
            clock=clock,
            on_mail=on_mail,
            reserves=settings.claims is Claims.RESERVATION,
            unknown_grace_s=unknown_grace_s,
        )
        self._watch = Watch(
            name,
            self._place,
            system,
            self._keeper,
            emit=self._tell,
            clock=clock,
            present=self._be_present,
            time_out=self._time_out,
            submit=self._submit_again,
            busy=lambda: tuple(self._turns),
        )
        self._claimer = Claimer(
            name,
            settings,
            system,
            self._place,
            self._keeper,
            clock=clock,
            job_limit_s=lambda: self._watch.job_limit_s,
        )
        self._system = system
        self._open = False
        self._finding = asyncio.Lock()
        self._turns: weakref.WeakValueDictionary[Token, asyncio.Lock] = weakref.WeakValueDictionary()

    @property
    def name(self) -> str:
        """The site's name in the grid."""
        return self._name

    @property
    def calls(self) -> Counter[str]:
        """How often the batch system was called, and what for: submit, listing, cancel, history, reserve, ..."""
        return self._place.calls

    # ------------------------------------------------------------------------------- opening and closing

    async def open(self) -> None:
        """Find again what was started here, and watch it. See ``Site.open``."""
        if self._open:
            return
        self._open = True
        try:
            await self._be_present()
        except OSError as error:
            self._tell(SiteSilent(at=self._clock(), site=self._name, reason=str(error)))
        except BaseException:
            self._open = False
            await self._place.commands.close()
            raise
        self._watch.start()

    async def close(self) -> None:
        """Stop watching, touch nothing. See ``Site.close``."""
        if not self._open:
            return
        self._open = False
        await self._watch.stop()
        self._keeper.leave()
        await self._place.commands.close()

    def _tell(self, event: AnyEvent) -> None:
        """A closed site tells nothing more; what it would have told is on record, for whoever asks."""
        if self._open:
            self._emit(event)

    async def _be_present(self) -> None:
        """The site is open, and what it holds was found. Raises ``SiteError`` and ``OSError`` when not."""
        if not self._open:
            raise SiteError(self._name, "it is not open; open it first")
        if self._keeper.is_found:
            return
        async with self._finding:
            if not self._keeper.is_found:
                await self._find()
                self._watch.hurry()

    async def _find(self) -> None:
        text = errands.open_place(self._settings.work_directory, self._owner, secrets.token_hex(4))
        done = await self._place.do(text)
        root, mark, owner = (done.section(name) for name in ("root", "mark", "owner"))
        if root is None or mark is None or owner is None:
            raise CommandError(self._place.commands.host, f"{self._settings.work_directory} cannot be used")
        if owner.text != self._owner:
            place = f"{self._settings.work_directory} on {self._place.commands.host}"
            raise SiteError(
                self._name,
                f"{place} is in use by another driver, {owner.text!r}; give this site a work_directory of its own, "
                f"or remove the file {errands.OWNER} there if that one is gone for good",
            )
        found = parse_found(done.sections)
        self._keeper.root, self._keeper.mark = root.text.removesuffix("\n"), mark.text
        whole = [(each.record.sequence, each) for each in found if each.record is not None and not each.spoilt]
        for sequence, each in sorted(whole, key=lambda pair: pair[0]):
            self._keeper.adopt(each)
            self._claimer.sequence = sequence
        for each in found:
            if each.token not in self._keeper.alive:
                await self._give_up(each)

    async def _give_up(self, found: Found) -> None:
        """What the site kept about it is spoilt: end what may run of it, and say so."""
        why = found.spoilt or "there is no record of it"
        _log.error("site %s: component %s cannot be found again: %s", self._name, found.token, why)
        reason = f"what the site kept about it cannot be read: {why}"
        tag = self._keeper.tag(found.token)
        cancel = f"(\n{self._system.cancel(tag, [])})\n"
        if self._settings.claims is Claims.RESERVATION:
            cancel += f"(\n{self._system.unreserve(reservation_name(tag))})\n"
        try:
            await self._place.do(cancel, timeout_s=BATCH_S, calls="cancel")
            await self._bury(self._keeper.end_event(found.token, Outcome.SITE_FAILED, reason))
        except CommandError as error:
            # Its job is cancelled as one that nobody knows, and whoever asks about it learns the same.
            _log.error("site %s: nor can it be ended yet: %s", self._name, error)

    # ---------------------------------------------------------------------------------------- commands

    async def start(self, launch: Launch, script: str) -> None:
        """Take a component, once. See ``Site.start``."""
        async with self._turn(launch.token):
            living = self._keeper.alive.get(launch.token)
            if living is not None:
                if living.batch_id is None and not living.is_ending:
                    await self._submit(living)
                self._tell_newest(launch.token)
                return
            refusal = self._refusal(launch)
            if refusal:
                await self._refuse(launch, refusal)
                return
            self._keeper.unclear.add(launch.token)
            outcome = await self._claimer.claim(launch, script)
            if isinstance(outcome, Found):
                await self._meet(launch, outcome)
            elif isinstance(outcome, str):
                await self._bury(self._keeper.end_event(launch.token, Outcome.REFUSED, outcome))
            else:
                self._tell(outcome.newest(self._clock()))
            self._keeper.unclear.discard(launch.token)

    def _refusal(self, launch: Launch) -> str:
        """Why a component can never run here; empty if it can."""
        if launch.processors > self._processors:
            return f"it asks for {launch.processors} processors and {self._name} has {self._processors}"
        limit_s = self._watch.job_limit_s
        if limit_s is not None and launch.walltime_s is not None and launch.walltime_s > limit_s:
            return f"its walltime is {launch.walltime_s:g} s and {self._name} runs no job longer than {limit_s:g} s"
        return ""

    async def _refuse(self, launch: Launch, why: str) -> None:
        event = self._keeper.end_event(launch.token, Outcome.REFUSED, why)
        found = parse_found((await self._place.do(errands.ask(self._keeper.root, [event]))).sections)
        await self._meet(launch, found[0])

    async def _meet(self, launch: Launch, found: Found) -> None:
        """A component that is to start was known before."""
        known = found.record is not None or (found.ended is not None and found.ended.outcome is Outcome.REFUSED)
        if found.ended is not None and known:
            self._tell(found.ended)
        elif found.ended is not None or found.record is None:
            why = "its abort or a question about it came first"
            await self._bury(self._keeper.end_event(launch.token, Outcome.REFUSED, why))
        else:
            living = self._keeper.adopt(found)
            if living.batch_id is None and not living.is_ending:
                await self._submit(living)
            self._tell_newest(launch.token)

    def _tell_newest(self, token: Token) -> None:
        living = self._keeper.alive.get(token)
        if living is not None:
            self._tell(living.newest(self._clock()))

    async def _submit_again(self, living: Living) -> None:
        async with self._turn(living.token):
            await self._submit(living)

    async def _submit(self, living: Living) -> None:
        """Submit what the batch system may never have got, once a listing shows that it has not."""
        if living.batch_id is None:
            await self._watch.listing(0.0)
        if living.batch_id is not None or living.is_ending or self._keeper.alive.get(living.token) is not living:
            return
        refusal = await self._claimer.submit(living)
        if refusal is not None:
            await self._keeper.settle([(living, (Outcome.REFUSED, refusal, None))])

    async def abort(self, token: Token, *, outcome: Outcome = Outcome.ABORTED, reason: str = "") -> None:
        """End a component wherever it is. See ``Site.abort``."""
        async with self._turn(token):
            living = self._keeper.alive.get(token)
            if living is not None and living.lost:
                return
            await self._end(token, Verdict(outcome=outcome, reason=reason))

    async def _time_out(self, living: Living) -> None:
        limit_s = living.launch.walltime_s
        verdict = Verdict(outcome=Outcome.TIMED_OUT, reason=f"it ran longer than its walltime of {limit_s:g} s")
        async with self._turn(living.token):
            await self._end(living.token, verdict)

    async def _end(self, token: Token, verdict: Verdict) -> None:
        """Put an abort on record and cancel the job; a batch system that does not answer is asked again later."""
        living = self._keeper.alive.get(token)
        if living is not None and living.phase is Phase.QUEUED and not verdict.reason:
            verdict = msgspec.structs.replace(verdict, reason="aborted in the site's queue")
        unknown = self._keeper.end_event(token, verdict.outcome, verdict.reason or "aborted before it came")
        ids = [living.batch_id] if living is not None and living.batch_id is not None else []
        cancel = self._system.cancel(self._keeper.tag(token), ids)
        done, error = await self._place.try_to_do(
            errands.abort(self._keeper.root, token, verdict, unknown, cancel), timeout_s=BATCH_S, calls="cancel"
        )
        found = parse_found(done.sections)
        if error is not None and not (isinstance(error, CommandTimeoutError) and found):
            raise error
        self._keeper.unclear.discard(token)
        if found[0].ended is not None:
            self._keeper.alive.pop(token, None)
            self._tell(found[0].ended)
            return
        if living is None:
            if found[0].record is None:
                raise CommandError(self._place.commands.host, f"component {token} cannot be put on record")
            living = self._keeper.adopt(found[0])
        if found[0].verdict is None:
            self._keeper.lose(living)
        elif living.verdict is None:
            living.verdict = found[0].verdict
        if done.code("cancelled") == 0:
            living.cancelled_at = asyncio.get_running_loop().time()

    async def ask(self, tokens: Sequence[Token]) -> None:
        """Emit the newest event of each token. See ``Site.ask``."""
        async with contextlib.AsyncExitStack() as stack:
            await self._be_present()
            for token in sorted(set(tokens)):
                await stack.enter_async_context(self._turn(token))
            unknown = [token for token in dict.fromkeys(tokens) if token not in self._keeper.alive]
            ends: dict[Token, ComponentEnded] = {}
            if unknown:
                events = [self._keeper.end_event(token, Outcome.ABSENT, "never heard of") for token in unknown]
                done = await self._place.do(errands.ask(self._keeper.root, events))
                for found in parse_found(done.sections):
                    await self._learn(found, ends)
            for token in tokens:
                living = self._keeper.alive.get(token)
                if living is not None:
                    self._tell(living.newest(self._clock()))
                elif token in ends:
                    self._tell(ends[token])

    async def _learn(self, found: Found, ends: dict[Token, ComponentEnded]) -> None:
        if found.ended is not None and not found.spoilt:
            ends[found.token] = found.ended
        elif found.record is not None and not found.spoilt:
            self._keeper.adopt(found)
        else:
            why = f"what the site kept about it cannot be read: {found.spoilt or 'it cannot be put on record'}"
            ends[found.token] = self._keeper.end_event(found.token, Outcome.SITE_FAILED, why)
            await self._place.do(errands.bury(self._keeper.root, [ends[found.token]]))

    async def release(self, token: Token, go: Go) -> None:
        """Open the barrier for one component. See ``Site.release``."""
        async with self._turn(token):
            living = self._keeper.alive.get(token)
            if living is None or living.verdict is not None or living.released_at is not None:
                return
            now = self._clock()
            text = errands.release(self._keeper.root, token, go, now, links.stage(token, go.links))
            done = await self._place.do(text)
            trouble, released = done.section("trouble"), done.section("released")
            if done.section("lost") is not None:
                self._keeper.lose(living)
            elif trouble is not None:
                raise SiteError(self._name, links.complaint(trouble.words[1], go.links[int(trouble.words[2])]))
            elif released is not None:
                living.released_at = parse_time(released.text) or now
            elif living.verdict is None:
                raise CommandError(self._place.commands.host, f"the barrier of {token} stays shut: {done.complaint}")

    async def deliver(self, token: Token, name: str, data: bytes) -> None:
        """Put mail into a component's inbox. See ``Site.deliver``."""
        check_mail_name(name)
        if len(data) > MAIL_BYTES_MAX:
            raise LaunchError("mail", f"{name!r} has more than {MAIL_BYTES_MAX} bytes (MAIL_BYTES_MAX)")
        async with self._turn(token):
            living = self._keeper.alive.get(token)
            if living is not None and living.verdict is not None:
                return
            done = await self._place.do(errands.deliver(self._keeper.root, token, name, data))
            if done.section("unknown") is not None and living is None:
                raise SiteError(self._name, f"there is no component {token} here to get mail; start it first")
            if living is not None and (done.section("unknown") or done.section("lost")) is not None:
                self._keeper.lose(living)

    async def fetch(self, token: Token, name: str) -> bytes | None:
        """Mail of a component's outbox. See ``Site.fetch``."""
        check_token(token)
        check_mail_name(name)
        await self._be_present()
        return await self._keeper.mail(token, name)

    async def output(self, token: Token, stream: Stream, offset: int, limit: int = OUTPUT_BYTES_MAX) -> bytes:
        """What the application has written. See ``Site.output``."""
        check_token(token)
        await self._be_present()
        if offset < 0 or limit < 0:
            raise SiteError(self._name, f"there is no output at {offset} of {limit} bytes; write 0 or more")
        living = self._keeper.alive.get(token)
        launch = living.launch if living is not None else await self._recorded(token)
        paths = output_paths(stream, launch.application)
        text = errands.output(self._keeper.root, token, paths, offset, min(limit, OUTPUT_BYTES_MAX))
        section = (await self._place.do(text)).section("output")
        return b"" if section is None else section.body

    async def _recorded(self, token: Token) -> Launch:
        """What was accepted of one that has ended. Raises ``SiteError`` where nothing was."""
        found = parse_found((await self._place.do(errands.show(self._keeper.root, [token]))).sections)[0]
        if found.record is not None and not found.spoilt:
            return found.record.launch
        if found.spoilt:
            raise SiteError(self._name, f"the output of component {token} cannot be found any more: {found.spoilt}")
        raise SiteError(self._name, f"there is no component {token} here; look at the job's own list of them")

    async def nodes(self, token: Token) -> tuple[NodeShare, ...]:
        """Its nodes, once it is ready. See ``Site.nodes``."""
        check_token(token)
        await self._be_present()
        done = await self._place.do(errands.nodes(self._keeper.root, token))
        living = self._keeper.alive.get(token)
        return parse_nodes(self._name, done, self._settings, 0 if living is None else living.launch.processors)

    async def probe(self) -> SiteReported:
        """Its processors as the batch system tells them, and what others have of them. See ``Site.probe``."""
        await self._be_present()
        listing = await self._watch.listing()
        ours = listing.processors - self._keeper.others(listing)
        processors = min(self._processors, listing.processors)
        return SiteReported(
            at=self._clock(), site=self._name, processors=processors, others=max(0, processors - ours)
        )

    async def held(self) -> tuple[Token, ...]:
        """All that have not ended. See ``Site.held``."""
        await self._be_present()
        return tuple(self._keeper.alive)

    async def forget(self, token: Token) -> None:
        """Remove an ended component's directory. See ``Site.forget``."""
        async with self._turn(token):
            if token in self._keeper.alive:
                raise SiteError(self._name, f"component {token} has not ended; abort it and wait for its end first")
            done, error = await self._place.try_to_do(errands.forget(self._keeper.root, token), timeout_s=REMOVE_S)
            # Once it is out of sight nobody need wait for the rest; what is left goes when the site is opened.
            if error is not None and done.section("gone") is None:
                raise error

    async def _bury(self, event: ComponentEnded) -> None:
        done = await self._place.do(errands.bury(self._keeper.root, [event]))
        if done.section("buried") is None:
            why = f"the end of component {event.token} cannot be put on record: {done.complaint}"
            raise CommandError(self._place.commands.host, why)
        self._tell(event)

    @contextlib.asynccontextmanager
    async def _turn(self, token: Token) -> AsyncIterator[None]:
        """Calls about one component come one after the other; what they did may show soon."""
        check_token(token)
        await self._be_present()
        lock = self._turns.setdefault(token, asyncio.Lock())
        async with lock:
            try:
                yield
            finally:
                self._watch.hurry()
