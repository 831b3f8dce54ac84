"""A site under a batch system: components are its jobs, and everything about them is in a directory at the site.

Nothing is installed there: every action is a short shell script. Kill this object at any point and make another with
the same settings: it finds every component again. ``koala.sites.batch.components`` interprets files and listings,
``koala.sites.batch.poller`` polls them; this module serves the driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import msgspec

from koala.model.errors import Fault
from koala.model.grid import BatchSettings, Claims, SchedulerParameters
from koala.model.launch import (
    MAIL_BYTES_MAX,
    Go,
    Launch,
    LaunchError,
    NodeShare,
    check_mail_name,
    check_token,
)
from koala.model.messages import AnyEvent, ComponentEnded, Outcome, SiteReported, SiteSilent, Token
from koala.model.nodes import releases_within
from koala.sites import links
from koala.sites.batch.component import BatchComponent
from koala.sites.batch.components import BatchComponents
from koala.sites.batch.parse import parse_found, parse_nodes
from koala.sites.batch.poller import BatchPoller
from koala.sites.batch.scripts import directory
from koala.sites.batch.scripts.runner import BATCH_S, REMOVE_S, ScriptRunner
from koala.sites.batch.submit import BatchSubmitter, is_same
from koala.sites.batch.system import BatchSystem
from koala.sites.batch.timings import DEFAULT_TIMINGS, BatchTimings
from koala.sites.component import Ending, LivePhase
from koala.sites.component_directory import (
    AbortRecord,
    RecordedComponent,
    is_token,
    output_paths,
    parse_time,
    proved,
)
from koala.sites.protocol import (
    OUTPUT_BYTES_MAX,
    Clock,
    Deliver,
    Emit,
    Found,
    NotNowError,
    SiteError,
    Stream,
    UnseenError,
)
from koala.sites.remote_shell import RemoteShell, ShellError, ShellTimeoutError

_log = logging.getLogger(__name__)

# The length of the mark of a work directory.
_MARK_CHARACTERS = 8


class BatchSite:
    """A site of at most ``processors`` processors. Keeps the promises of ``koala.sites.protocol.LiveSite``.

    ``owner`` names the Koala that uses the site's work directory; another one cannot use it. ``open`` succeeds even
    if the site does not answer or another Koala owns its directory: the site is then silent, every call raises
    ``OSError``, and it is searched when it answers again. ``shell`` replaces the connection that the settings
    describe. ``barrier_timeout_s`` is the scheduler's.
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
        on_found: Found | None = None,
        shell: RemoteShell | None = None,
        timings: BatchTimings = DEFAULT_TIMINGS,
        barrier_timeout_s: float = SchedulerParameters().barrier_timeout_s,
    ) -> None:
        self._name = name
        self._settings = settings
        self._processors = processors
        self._owner = owner
        self._on_found = on_found
        self._emit = emit
        self._clock = clock
        self._runner = ScriptRunner(
            shell or RemoteShell(ssh=settings.ssh, through=settings.through, environment=dict(settings.environment))
        )
        self._components = BatchComponents(
            self._runner,
            system,
            timings,
            processors,
            emit=self._tell,
            clock=clock,
            on_mail=on_mail,
            reserves=settings.claims is Claims.RESERVATION,
        )
        self._poller = BatchPoller(
            name,
            self._runner,
            system,
            self._components,
            timings,
            emit=self._tell,
            clock=clock,
            present=self._be_present,
            time_out=self._time_out,
            submit=self._submit_again,
            busy=lambda: self._turns.tokens,
        )
        self._submitter = BatchSubmitter(
            name,
            settings,
            system,
            self._runner,
            self._components,
            timings,
            clock=clock,
            job_limit_s=lambda: self._poller.job_limit_s,
            barrier_timeout_s=barrier_timeout_s,
        )
        self._system = system
        self._open = False
        self._finding = asyncio.Lock()
        self._turns = _TurnsByToken()

    @property
    def name(self) -> str:
        """The site's name in the grid."""
        return self._name

    @property
    def calls(self) -> Counter[str]:
        """The number of calls to the batch system by purpose: submit, listing, cancel, history, reserve, ..."""
        return self._runner.calls

    @property
    def clock_ahead_s(self) -> float | None:
        """How far its clock was ahead of ours at the last listing; None if it shares our clock, or if that is
        unknown."""
        is_remote = self._settings.ssh is not None or bool(self._settings.through)
        return self._poller.clock_ahead_s if is_remote else None

    # ------------------------------------------------------------------------------- opening and closing

    async def open(self) -> None:
        """Find again what was started here, and watch it. See ``LiveSite.open``."""
        if self._open:
            return
        self._open = True
        try:
            await self._be_present()
        except OSError as error:
            self._tell(SiteSilent(at=self._clock(), site=self._name, reason=str(error)))
        except BaseException:
            self._open = False
            await self._runner.shell.close()
            raise
        self._poller.start()

    async def close(self) -> None:
        """Stop watching, touch nothing. See ``LiveSite.close``."""
        if not self._open:
            return
        self._open = False
        await self._poller.stop()
        self._components.leave()
        await self._runner.shell.close()

    def _tell(self, event: AnyEvent) -> None:
        """Emit an event unless the site is closed; after that, events stay on record for ``ask``."""
        if isinstance(event, ComponentEnded):
            self._submitter.expect_room()
        if self._open:
            self._emit(event)

    async def _be_present(self) -> None:
        """Ensure that the site is open and its contents were found. Raises ``SiteError`` and ``OSError``
        otherwise."""
        if not self._open:
            raise SiteError(self._name, "it is not open; open it first")
        if self._components.is_found:
            return
        async with self._finding:
            if not self._components.is_found:
                await self._find()
                self._poller.poll_soon()

    async def _find(self) -> None:
        work_directory, host = self._settings.work_directory, self._runner.shell.host
        done = await self._runner.run(
            directory.open_work_directory(work_directory, self._owner, _mark_of(self._owner, work_directory))
        )
        owner = done.section("owner")
        if owner is not None and owner.text != self._owner:
            raise ShellError(
                host,
                f"{work_directory} is in use by another driver, {owner.text!r}; give this site a work_directory "
                f"of its own, or remove the file {directory.OWNER} there if that one is gone for good",
            )
        root, mark = done.section("root"), done.section("mark")
        if root is None or mark is None:
            raise ShellError(host, f"{work_directory} cannot be used")
        known = done.section("known")
        if self._on_found is not None and known is not None:
            self._on_found(self._name, tuple(name for name in known.text.splitlines() if is_token(name)))
        found = parse_found(done.sections)
        self._components.root, self._components.mark = root.text.removesuffix("\n"), mark.text
        whole = [(each.record.sequence, each) for each in found if each.record is not None and not each.spoilt]
        for sequence, each in sorted(whole, key=lambda pair: pair[0]):
            self._components.adopt(each)
            self._submitter.sequence = sequence
        for each in found:
            if each.token not in self._components.alive:
                _log.error("site %s: component %s cannot be found again: %s", self._name, each.token, each.spoilt)
                self._components.give_up(each)

    # ---------------------------------------------------------------------------------------- commands

    async def start(self, launch: Launch, script: str) -> None:
        """Accept a component, once. See ``LiveSite.start``."""
        async with self._turn(launch.token):
            try:
                await self._start(launch, script)
            except NotNowError:
                self._components.unclear.discard(launch.token)
                self._tell_newest(launch.token)
                raise

    async def _start(self, launch: Launch, script: str) -> None:
        component = self._components.alive.get(launch.token)
        if component is not None:
            await self._start_again(launch, component)
            return
        refusal = self._refusal(launch)
        if refusal:
            await self._refuse(launch, refusal)
            return
        self._components.unclear.add(launch.token)
        outcome = await self._submitter.accept(launch, script)
        if isinstance(outcome, RecordedComponent):
            await self._meet(launch, outcome)
        elif isinstance(outcome, str):
            await self._settle(self._components.end_event(launch.token, *self._refused(outcome)))
        else:
            self._tell(outcome.newest(self._clock()))
        self._components.unclear.discard(launch.token)

    async def _start_again(self, launch: Launch, component: BatchComponent) -> None:
        """Handle the start of a component that is here already. A different launch under its token is ended, since
        nobody knows about it any more."""
        if not component.lost and not is_same(component.launch, launch):
            self._refuse_other(launch, component.launch)
            await self._end(
                launch.token, AbortRecord(reason="a daemon that does not know of it came to use its token")
            )
            return
        if component.batch_id is None and not component.is_ending:
            await self._submit(component)
        self._tell_newest(launch.token)

    def _refuse_other(self, launch: Launch, known: Launch) -> None:
        """Refuse a launch whose token was given to a different one, by a daemon with another database: the outcome of
        that one must not be reported for this one."""
        what = f"part {known.part} of {known.parts} of job {known.job}, on {known.processors} processors"
        why = (
            f"token {launch.token} is taken at {self._name}, by {what}, of another database; give the site a "
            "work_directory of its own, or go back to that database"
        )
        self._tell(self._components.end_event(launch.token, Outcome.REFUSED, why, fault=Fault.OURS))

    def _refusal(self, launch: Launch) -> str:
        """Return why a component can never run here; empty if it can."""
        if launch.processors > self._processors:
            return f"it asks for {launch.processors} processors and {self._name} has {self._processors}"
        limit_s = self._poller.job_limit_s
        if limit_s is not None and launch.walltime_s is not None and launch.walltime_s > limit_s:
            return f"its walltime is {launch.walltime_s:g} s and {self._name} runs no job longer than {limit_s:g} s"
        return ""

    def _refused(self, refusal: str) -> Ending:
        """Return the meaning of the batch system's refusal of a submission."""
        if self._system.is_for_what_it_asks(refusal):
            return Outcome.UNSUITABLE, refusal, None, Fault.JOB
        return Outcome.REFUSED, refusal, None, Fault.SITE

    async def _refuse(self, launch: Launch, why: str) -> None:
        event = self._components.end_event(launch.token, Outcome.UNSUITABLE, why, fault=Fault.JOB)
        found = parse_found((await self._runner.run(directory.ask(self._components.root, [event]))).sections)
        await self._meet(launch, found[0])

    async def _meet(self, launch: Launch, found: RecordedComponent) -> None:
        """Handle the start of a component that is already on record."""
        refused = (Outcome.REFUSED, Outcome.UNSUITABLE)
        if found.ended is None and found.spoilt:
            self._components.give_up(found)
            self._tell_newest(launch.token)
        elif found.ended is None and found.record is not None:
            await self._start_again(launch, self._components.adopt(found))
        elif found.record is not None and not is_same(found.record.launch, launch):
            self._refuse_other(launch, found.record.launch)
        elif found.ended is not None and (found.record is not None or found.ended.outcome in refused):
            self._tell(found.ended)
        else:
            why = "its abort or a question about it came first"
            await self._settle(self._components.end_event(launch.token, Outcome.REFUSED, why, fault=Fault.OURS))

    def _tell_newest(self, token: Token) -> None:
        component = self._components.alive.get(token)
        if component is not None:
            self._tell(component.newest(self._clock()))

    async def _submit_again(self, component: BatchComponent) -> None:
        if self._submitter.is_crowded:
            return
        async with self._alone(component.token):
            try:
                await self._submit(component)
            except NotNowError as error:
                _log.info("site %s cannot take component %s yet: %s", self._name, component.token, error)
            else:
                self._poller.poll_soon()

    async def _submit(self, component: BatchComponent) -> None:
        """Submit a component that the batch system may never have received, once a listing shows that."""
        if component.batch_id is None:
            await self._poller.listing(0.0)
        if (
            component.batch_id is not None
            or component.is_ending
            or self._components.alive.get(component.token) is not component
        ):
            return
        refusal = await self._submitter.submit(component)
        if refusal is not None:
            await self._components.settle([(component, self._refused(refusal))])

    async def abort(
        self, token: Token, *, outcome: Outcome = Outcome.ABORTED, reason: str = "", fault: Fault | None = None
    ) -> None:
        """End a component in any state. See ``LiveSite.abort``."""
        async with self._turn(token):
            component = self._components.alive.get(token)
            if component is not None and component.lost:
                return
            await self._end(token, AbortRecord(outcome=outcome, reason=reason, fault=fault))

    async def _time_out(self, component: BatchComponent) -> None:
        async with self._turn(component.token):
            await self._end(component.token, component.timed_out())

    async def _end(self, token: Token, abort: AbortRecord) -> None:
        """Record an abort and cancel the job; a batch system that does not answer is asked again later."""
        component = self._components.alive.get(token)
        if component is not None and component.phase is LivePhase.QUEUED and not abort.reason:
            abort = msgspec.structs.replace(abort, reason="aborted in the site's queue")
        why = abort.reason or "aborted before it came"
        unknown = self._components.end_event(token, abort.outcome, why, fault=abort.fault)
        ids = [component.batch_id] if component is not None and component.batch_id is not None else []
        cancel = self._system.cancel(self._components.tag(token), ids)
        done, error = await self._runner.try_to_run(
            directory.abort(self._components.root, token, abort, unknown, cancel), timeout_s=BATCH_S, calls="cancel"
        )
        found = parse_found(done.sections)
        if error is not None and not (isinstance(error, ShellTimeoutError) and found):
            raise error
        self._components.unclear.discard(token)
        if found[0].ended is not None:
            self._components.alive.pop(token, None)
            self._tell(found[0].ended)
            return
        if component is None:
            component = self._components.give_up(found[0]) if found[0].spoilt else self._adopt(found[0])
        if found[0].abort is None:
            self._components.lose(component)
        elif component.abort is None:
            kept = found[0].abort
            is_ours = kept == msgspec.structs.replace(abort, fault=proved(abort.fault))
            component.abort = abort if is_ours else kept
        if done.code("cancelled") == 0:
            component.cancelled_at = asyncio.get_running_loop().time()

    def _adopt(self, found: RecordedComponent) -> BatchComponent:
        if found.record is None:
            raise ShellError(self._runner.shell.host, f"component {found.token} cannot be put on record")
        return self._components.adopt(found)

    async def ask(self, tokens: Sequence[Token]) -> None:
        """Emit the newest event of each token. See ``LiveSite.ask``."""
        async with contextlib.AsyncExitStack() as stack:
            await self._be_present()
            for token in sorted(set(tokens)):
                await stack.enter_async_context(self._turn(token))
            unknown = [token for token in dict.fromkeys(tokens) if token not in self._components.alive]
            ends: dict[Token, ComponentEnded] = {}
            if unknown:
                events = [self._components.end_event(token, Outcome.ABSENT, "never heard of") for token in unknown]
                done = await self._runner.run(directory.ask(self._components.root, events))
                for found in parse_found(done.sections):
                    self._learn(found, ends)
            for token in tokens:
                component = self._components.alive.get(token)
                if component is not None:
                    self._tell(component.newest(self._clock()))
                elif token in ends:
                    self._tell(ends[token])

    def _learn(self, found: RecordedComponent, ends: dict[Token, ComponentEnded]) -> None:
        if found.ended is not None:
            ends[found.token] = found.ended
        elif found.spoilt:
            self._components.give_up(found)
        else:
            self._adopt(found)

    async def release(self, token: Token, go: Go) -> None:
        """Open the barrier for one component. See ``LiveSite.release``."""
        async with self._turn(token):
            component = self._components.alive.get(token)
            if component is None or component.abort is not None or component.released_at is not None:
                return
            now = self._clock()
            text = directory.release(self._components.root, token, go, now, links.stage(go.links))
            done = await self._runner.run(text)
            trouble, released = done.section("trouble"), done.section("released")
            if done.section("lost") is not None:
                self._components.lose(component)
            elif done.section("unseen") is not None:
                raise UnseenError(f"{self._name}: the directory of {token} is not to be seen, or closed")
            elif trouble is not None:
                raise links.refused(self._name, trouble.words[1], go.links[int(trouble.words[2])])
            elif released is not None:
                component.released_at = parse_time(released.text) or now
            elif component.abort is None:
                raise ShellError(self._runner.shell.host, f"the barrier of {token} stays shut: {done.complaint}")

    async def deliver(self, token: Token, name: str, data: bytes) -> None:
        """Put mail into a component's inbox. See ``LiveSite.deliver``."""
        check_mail_name(name)
        if len(data) > MAIL_BYTES_MAX:
            raise LaunchError("mail", f"{name!r} has more than {MAIL_BYTES_MAX} bytes (MAIL_BYTES_MAX)")
        async with self._turn(token):
            component = self._components.alive.get(token)
            if component is not None and component.abort is not None:
                return
            done = await self._runner.run(directory.deliver(self._components.root, token, name, data))
            if done.section("unknown") is not None and component is None:
                raise SiteError(self._name, f"there is no component {token} here to get mail; start it first")
            if done.section("unknown") is not None:
                raise ShellError(self._runner.shell.host, f"the directory of {token} is not to be seen")
            if component is not None and done.section("lost") is not None:
                self._components.lose(component)

    async def fetch(self, token: Token, name: str) -> bytes | None:
        """Mail of a component's outbox. See ``LiveSite.fetch``."""
        check_token(token)
        check_mail_name(name)
        await self._be_present()
        return await self._components.mail(token, name)

    async def output(self, token: Token, stream: Stream, offset: int, limit: int = OUTPUT_BYTES_MAX) -> bytes:
        """Return what the application has written. See ``LiveSite.output``."""
        check_token(token)
        await self._be_present()
        if offset < 0 or limit < 0:
            raise SiteError(self._name, f"there is no output at {offset} of {limit} bytes; write 0 or more")
        component = self._components.alive.get(token)
        launch = component.launch if component is not None else await self._recorded(token)
        paths = output_paths(stream, launch.application)
        text = directory.output(self._components.root, token, paths, offset, min(limit, OUTPUT_BYTES_MAX))
        section = (await self._runner.run(text)).section("output")
        return b"" if section is None else section.body

    async def _recorded(self, token: Token) -> Launch:
        """Return what was accepted for an ended component. Raises ``SiteError`` if nothing was."""
        found = parse_found((await self._runner.run(directory.show(self._components.root, [token]))).sections)[0]
        if found.record is not None and not found.spoilt:
            return found.record.launch
        if found.spoilt:
            raise SiteError(self._name, f"the output of component {token} cannot be found any more: {found.spoilt}")
        raise SiteError(self._name, f"there is no component {token} here; look at the job's own list of them")

    async def nodes(self, token: Token) -> tuple[NodeShare, ...]:
        """Return its nodes, once it is ready. See ``LiveSite.nodes``."""
        check_token(token)
        await self._be_present()
        done = await self._runner.run(directory.nodes(self._components.root, token))
        component = self._components.alive.get(token)
        return parse_nodes(self._name, done, self._settings, 0 if component is None else component.launch.processors)

    async def probe(self) -> SiteReported:
        """Return its processors as the batch system reports them, those that others hold, and until when. See
        ``LiveSite.probe``."""
        await self._be_present()
        listing = await self._poller.listing()
        if listing.missing:
            raise SiteError(self._name, listing.missing)
        ours = listing.processors - self._components.others(listing)
        processors = min(self._processors, listing.processors)
        others = max(0, processors - ours)
        releases = tuple(releases_within(listing.releases, others))
        return SiteReported(
            at=self._clock(),
            site=self._name,
            processors=processors,
            others=others,
            releases=releases,
            nodes=listing.nodes,
            shown=self._components.shown(listing),
            named=listing.named,
        )

    async def held(self) -> tuple[Token, ...]:
        """Return all live components. See ``LiveSite.held``."""
        await self._be_present()
        return tuple(self._components.alive)

    async def forget(self, token: Token) -> None:
        """Remove an ended component's directory. See ``LiveSite.forget``."""
        async with self._turn(token):
            if token in self._components.alive:
                raise SiteError(self._name, f"component {token} has not ended; abort it and wait for its end first")
            done, error = await self._runner.try_to_run(
                directory.forget(self._components.root, token), timeout_s=REMOVE_S
            )
            # Once it is hidden nobody waits for the rest; leftovers go when the site is opened.
            if error is not None and done.section("gone") is None:
                raise error

    async def _settle(self, event: ComponentEnded) -> None:
        done = await self._runner.run(directory.settle(self._components.root, [event]))
        if done.section("settled") is None:
            why = f"the end of component {event.token} cannot be put on record: {done.complaint}"
            raise ShellError(self._runner.shell.host, why)
        self._tell(event)

    @contextlib.asynccontextmanager
    async def _turn(self, token: Token) -> AsyncIterator[None]:
        """Serialise calls about one component, and poll soon afterwards for their effects."""
        async with self._alone(token):
            try:
                yield
            finally:
                self._poller.poll_soon()

    @contextlib.asynccontextmanager
    async def _alone(self, token: Token) -> AsyncIterator[None]:
        check_token(token)
        await self._be_present()
        async with self._turns.take(token):
            yield


class _TurnsByToken:
    """The calls in progress; calls about the same component run one after the other."""

    def __init__(self) -> None:
        self._locks: dict[Token, asyncio.Lock] = {}
        self._counts: Counter[Token] = Counter()

    @property
    def tokens(self) -> frozenset[Token]:
        """The components of all calls, running or waiting for their turn."""
        return frozenset(self._locks)

    @contextlib.asynccontextmanager
    async def take(self, token: Token) -> AsyncIterator[None]:
        """Wait until no other call concerns this component."""
        self._counts[token] += 1
        try:
            async with self._locks.setdefault(token, asyncio.Lock()):
                yield
        finally:
            self._counts[token] -= 1
            if not self._counts[token]:
                del self._counts[token], self._locks[token]


def _mark_of(owner: str, work_directory: str) -> str:
    """Return the mark of a new work directory. It is always the same, so that earlier jobs are recognised after the
    directory was removed."""
    return hashlib.sha256(f"{owner}\n{work_directory}".encode()).hexdigest()[:_MARK_CHARACTERS]
