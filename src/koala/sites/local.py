"""The embedded site: processors of this machine, handed out as slots, with everything about them on disk.

Components are detached processes; this object only watches them. Kill it at any point and make another on the
same root: it finds every component again. What is on disk is in ``koala.sites.folder``, how processes are started
and ended in ``koala.sites.shell``.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from koala.launching import (
    LOG,
    MAIL_BYTES_MAX,
    SCRIPT,
    WORK,
    Go,
    Launch,
    LaunchError,
    check_mail_name,
    check_token,
)
from koala.messages import (
    AnyEvent,
    ComponentAccepted,
    ComponentEnded,
    ComponentReady,
    ComponentRunning,
    Outcome,
    SiteReported,
    SiteSilent,
    Token,
)
from koala.sites import shell
from koala.sites.folder import GONE, Folder, Record
from koala.sites.site import OUTPUT_BYTES_MAX, Clock, Deliver, Emit, Mail, SiteError, Stream
from koala.sites.staging import stage
from koala.sites.watched import Phase, Watched, ending

# How often living components are looked at; a site where none lives is not looked at.
POLL_S = 0.05
# How long an application may take to end after SIGTERM before it gets SIGKILL.
GRACE_S = 5.0
# How long the watch rests when this machine fails it, for example with a full disk.
REST_S = 1.0
# The file in the site's root in which its owner writes how many processors others use. No file means none.
OTHERS = "others"
OTHERS_BYTES_MAX = 64


class LocalSite:
    """A site of ``processors`` slots below the directory ``root``. Keeps the promises of ``koala.sites.site.Site``.

    Its owner may keep processors for other users by writing their number into the file ``others`` of the root: new
    components start only in what is left, those that run go on.

    ``first_fit`` lets a small component pass a large one that waits for slots; without it they start in order.
    ``environment`` is what components inherit, by default the harmless part of this process's own. ``host`` is the
    address at which components of other sites reach this machine.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        processors: int,
        *,
        emit: Emit,
        clock: Clock,
        on_mail: Deliver | None = None,
        first_fit: bool = True,
        grace_s: float = GRACE_S,
        host: str = "127.0.0.1",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._name = name
        self._given_root = root
        self._processors = processors
        self._emit = emit
        self._clock = clock
        self._on_mail = on_mail
        self._first_fit = first_fit
        self._grace_s = grace_s
        self._host = host
        self._environment = shell.own_environment() if environment is None else dict(environment)
        self._components = root / "components"
        self._files = root / "files"
        self._alive: dict[Token, Watched] = {}  # all that have not ended, in the order they were accepted
        self._sequence = 0
        self._others = 0  # as last read
        self._lock = contextlib.ExitStack()
        self._wake = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The site's name in the grid."""
        return self._name

    @property
    def files(self) -> Path:
        """The site's file area: replicas live here, and input files are links into it."""
        return self._files

    @property
    def processors(self) -> int:
        """How many slots there are."""
        return self._processors

    @property
    def processors_held(self) -> int:
        """How many of them components hold now."""
        return sum(each.processors for each in self._alive.values() if each.phase is not Phase.QUEUED)

    @property
    def others_file(self) -> Path:
        """Where the site's owner says how many processors other users have."""
        return self._components.parent / OTHERS

    # ------------------------------------------------------------------------------- opening and closing

    async def open(self) -> None:
        """Find again what was started here, and watch it. See ``Site.open``."""
        if self._watch is not None:
            return
        self._given_root.mkdir(parents=True, exist_ok=True)
        # A component knows itself by its real path, so that is the one to look for among processes.
        root = self._given_root.resolve()
        self._components, self._files = root / "components", root / "files"
        self._components.mkdir(exist_ok=True)
        self._files.mkdir(exist_ok=True)
        self._take_lock(root)
        self._find_again()
        self._serve()
        self._wake.set()
        self._watch = asyncio.create_task(self._keep_watching(), name=f"watch {self._name}")

    async def close(self) -> None:
        """Stop watching, touch nothing. See ``Site.close``."""
        watch, self._watch = self._watch, None
        if watch is None:
            return
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch
        self._alive.clear()
        self._lock.close()

    def _take_lock(self, root: Path) -> None:
        """The kernel drops the lock with the process, however it ends."""
        file = self._lock.enter_context((root / "lock").open("ab"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise SiteError(self._name, f"{root} is in use by another driver; stop that one first") from None

    def _find_again(self) -> None:
        found: list[tuple[Record, Folder]] = []
        for home in list(self._components.iterdir()):
            if home.name.endswith(GONE):
                # What its driver was killed at removing.
                shutil.rmtree(home, ignore_errors=True)
            folder = Folder(self._components, home.name)
            # A name with a dot in front was about to become a component when its driver was killed.
            record = None if home.name.startswith(".") else folder.record()
            if record is None:
                continue
            self._sequence = max(self._sequence, record.sequence)
            if folder.ended() is None:
                found.append((record, folder))
        for record, folder in sorted(found, key=lambda pair: pair[0].sequence):
            watched = Watched(record.launch, folder)
            self._alive[record.launch.token] = watched
            watched.released_at = folder.released_at()
            if folder.was_spawned():
                watched.phase = Phase.STARTING
                watched.process = folder.identity()
        # Only now is it known which slots are held.
        for watched in list(self._alive.values()):
            if watched.phase is Phase.STARTING and watched.process is None:
                # Its process may not have come to the point of saying so; of two, one goes on.
                self._spawn(watched)
            if watched.phase is Phase.QUEUED and watched.folder.is_aborted():
                self._settle(watched, Outcome.ABORTED, "aborted in the site's queue", None)
            elif watched.phase is not Phase.ENDED and watched.folder.is_aborted():
                self._begin_end(watched, Outcome.ABORTED)

    # ---------------------------------------------------------------------------------------- commands

    async def start(self, launch: Launch, script: str) -> None:
        """Take a component, once. See ``Site.start``."""
        folder = self._folder(launch.token)
        if folder.exists():
            if folder.record() is None:
                self._bury(folder, Outcome.REFUSED, "its abort or a question about it came first")
            else:
                self._emit(self._newest(launch.token))
            return
        if launch.processors > self._processors:
            why = f"it asks for {launch.processors} processors and {self._name} has {self._processors}"
            self._bury(folder, Outcome.REFUSED, why)
            return
        self._sequence += 1
        folder.create(Record(sequence=self._sequence, launch=launch), script)
        self._alive[launch.token] = Watched(launch, folder)
        self._emit(ComponentAccepted(at=self._clock(), token=launch.token))
        self._serve()

    async def abort(self, token: Token) -> None:
        """End a component wherever it is. See ``Site.abort``."""
        folder = self._folder(token)
        watched = self._alive.get(token)
        if watched is None:
            if folder.exists():
                self._emit(self._newest(token))
            else:
                self._bury(folder, Outcome.ABORTED, "aborted before it came")
            return
        self._look_at(watched)
        if watched.phase is Phase.ENDED:
            return
        folder.put_abort()
        if watched.phase is Phase.QUEUED:
            self._settle(watched, Outcome.ABORTED, "aborted in the site's queue", None)
        else:
            self._begin_end(watched, Outcome.ABORTED)

    async def ask(self, tokens: Sequence[Token]) -> None:
        """Emit the newest event of each token. See ``Site.ask``."""
        for token in tokens:
            folder = self._folder(token)
            if folder.exists():
                self._emit(self._newest(token))
            else:
                self._bury(folder, Outcome.ABSENT, "never heard of")

    async def release(self, token: Token, go: Go) -> None:
        """Open the barrier for one component. See ``Site.release``."""
        check_token(token)
        watched = self._alive.get(token)
        if watched is None or watched.verdict is not None or watched.released_at is not None:
            return
        stage(self._name, self._files, watched.folder.home / WORK, go.links)
        now = self._clock()
        watched.folder.put_go(go, now)
        watched.released_at = now

    async def deliver(self, token: Token, name: str, data: bytes) -> None:
        """Put mail into a component's inbox. See ``Site.deliver``."""
        check_token(token)
        check_mail_name(name)
        if len(data) > MAIL_BYTES_MAX:
            raise LaunchError("mail", f"{name!r} has more than {MAIL_BYTES_MAX} bytes (MAIL_BYTES_MAX)")
        watched = self._alive.get(token)
        if watched is not None:
            watched.folder.put_mail(name, data)

    async def fetch(self, token: Token, name: str) -> bytes | None:
        """Mail of a component's outbox. See ``Site.fetch``."""
        check_mail_name(name)
        return self._folder(token).mail(name)

    async def output(self, token: Token, stream: Stream, offset: int, limit: int = OUTPUT_BYTES_MAX) -> bytes:
        """What the application has written. See ``Site.output``."""
        folder = self._folder(token)
        record = folder.record()
        if record is None:
            raise SiteError(self._name, f"there is no component {token} here; look at the job's own list of them")
        if offset < 0 or limit < 0:
            raise SiteError(self._name, f"there is no output at {offset} of {limit} bytes; write 0 or more")
        return folder.output(stream, record.launch.application, offset, min(limit, OUTPUT_BYTES_MAX))

    async def nodes(self, token: Token) -> tuple[str, ...]:
        """This machine, once the component is ready. See ``Site.nodes``."""
        return (self._host,) if self._folder(token).is_ready() else ()

    async def probe(self) -> SiteReported:
        """Its slots, and those that its owner keeps for others. See ``Site.probe``."""
        self._others = self._read_others()
        self._serve()  # some of what others had may be free now
        return SiteReported(
            at=self._clock(), site=self._name, processors=self._processors, others=min(self._others, self._processors)
        )

    async def held(self) -> tuple[Token, ...]:
        """All that have not ended. See ``Site.held``."""
        return tuple(self._alive)

    async def forget(self, token: Token) -> None:
        """Remove an ended component's directory. See ``Site.forget``."""
        folder = self._folder(token)
        if token in self._alive:
            raise SiteError(self._name, f"component {token} has not ended; abort it and wait for its end first")
        gone = folder.vanish()
        if gone is not None:
            await asyncio.to_thread(shutil.rmtree, gone, ignore_errors=True)

    def _read_others(self) -> int:
        """What the file says. Raises ``SiteError`` where it is not a number of processors."""
        try:
            with self.others_file.open("rb") as file:
                text = file.read(OTHERS_BYTES_MAX + 1).decode(errors="replace").strip()
        except FileNotFoundError:
            return 0
        if len(text) > OTHERS_BYTES_MAX or not (text.isascii() and text.isdigit()):
            raise SiteError(
                self._name, f"{self.others_file} says {text!r}; write a number of processors, or remove it"
            )
        return int(text)

    def _folder(self, token: Token) -> Folder:
        check_token(token)
        return Folder(self._components, token)

    def _newest(self, token: Token) -> AnyEvent:
        now = self._clock()
        watched = self._alive.get(token)
        if watched is None:
            ended = Folder(self._components, token).ended()
            assert ended is not None, "a component that is not alive here has its end on record"
            return ended
        if watched.phase is Phase.READY and watched.released_at is not None:
            return ComponentRunning(at=now, token=token)
        if watched.phase is Phase.READY:
            return ComponentReady(at=now, token=token)
        return ComponentAccepted(at=now, token=token)

    # --------------------------------------------------------------------------------- a component's life

    def _serve(self) -> None:
        """Give free slots to those who wait, the first accepted first."""
        # A file that makes no sense is for ``probe`` to complain about; until then the last number holds.
        with contextlib.suppress(OSError, SiteError):
            self._others = self._read_others()
        free = self._processors - self.processors_held - self._others
        for watched in list(self._alive.values()):
            if watched.phase is not Phase.QUEUED:
                continue
            if watched.processors <= free:
                free -= watched.processors
                self._spawn(watched)
            elif not self._first_fit:
                return

    def _spawn(self, watched: Watched) -> None:
        folder = watched.folder
        # Marked first: if we are killed between the two, its slots still count as held.
        watched.phase = Phase.STARTING
        try:
            folder.put_spawned()
            watched.child = shell.spawn(folder.home, SCRIPT, LOG, self._environment)
        except OSError as error:
            self._settle(watched, Outcome.SITE_FAILED, f"the site could not start a process: {error.strerror}", None)
            return
        self._wake.set()

    def _begin_end(self, watched: Watched, verdict: Outcome) -> None:
        if watched.verdict is not None:
            return
        watched.verdict = verdict
        watched.kill_at = self._clock() + self._grace_s
        if watched.process is None:
            watched.process = watched.folder.identity()
        if watched.process is not None:
            shell.end(watched.process, watched.folder.home, by_force=False)
        self._wake.set()

    def _settle(self, watched: Watched, outcome: Outcome, reason: str, exit_code: int | None) -> None:
        """It holds nothing any more: on record first, then told, then its slots go to others."""
        event = ComponentEnded(
            at=self._clock(), token=watched.folder.token, outcome=outcome, reason=reason, exit_code=exit_code
        )
        watched.folder.put_ended(event)
        watched.phase = Phase.ENDED
        if watched.child is not None:
            shell.has_left(watched.child)  # so that no zombie stays behind
        del self._alive[watched.folder.token]
        self._emit(event)
        self._serve()

    def _bury(self, folder: Folder, outcome: Outcome, reason: str) -> None:
        event = ComponentEnded(at=self._clock(), token=folder.token, outcome=outcome, reason=reason)
        folder.bury(event)
        self._emit(event)

    # ----------------------------------------------------------------------------------------- the watch

    async def _keep_watching(self) -> None:
        while True:
            if not any(each.phase is not Phase.QUEUED for each in self._alive.values()):
                self._wake.clear()
                await self._wake.wait()
            try:
                for watched in list(self._alive.values()):
                    self._look_at(watched)
            except OSError as error:
                self._emit(SiteSilent(at=self._clock(), site=self._name, reason=f"cannot be watched: {error}"))
                await asyncio.sleep(REST_S)
            await asyncio.sleep(POLL_S)

    def _look_at(self, watched: Watched) -> None:
        """Find out what became of one component, and see to what follows."""
        if watched.phase in (Phase.QUEUED, Phase.ENDED):
            return
        child_left = watched.child is not None and shell.has_left(watched.child)
        if watched.process is None:
            watched.process = watched.folder.identity()
        if watched.process is None:
            if child_left:
                self._settle(watched, *ending(watched, None))
            return
        # In this order: a script that has just ended has recorded it before.
        alive = shell.is_alive(watched.process)
        exit_words = watched.folder.exit_words()
        if alive and exit_words is None:
            self._look_at_living(watched)
        elif shell.members(watched.process, watched.folder.home):
            # The script is over; whatever it left behind must not go on holding processors.
            shell.end(watched.process, watched.folder.home, by_force=True)
        else:
            self._settle(watched, *ending(watched, exit_words))

    def _look_at_living(self, watched: Watched) -> None:
        now = self._clock()
        folder, process = watched.folder, watched.process
        assert process is not None
        if watched.verdict is not None:
            if now >= watched.kill_at:
                shell.end(process, folder.home, by_force=True)
            return
        if watched.phase is Phase.STARTING and folder.is_ready():
            watched.phase = Phase.READY
            if watched.released_at is None:
                self._emit(ComponentReady(at=now, token=folder.token))
        if watched.released_at is None:
            return
        walltime_s = watched.launch.walltime_s
        if walltime_s is not None and now - watched.released_at > walltime_s:
            self._begin_end(watched, Outcome.TIMED_OUT)
            return
        if self._on_mail is not None:
            for name in folder.outbox():
                data = folder.mail(name) if name not in watched.mailed else None
                if data is not None:
                    watched.mailed.add(name)
                    self._on_mail(Mail(token=folder.token, name=name, data=data))
