"""What a driver may ask of an embedded site, as plain calls that come one after the other in one thread.

What is on disk is in ``koala.sites.component_directory``, what becomes of living components in
``koala.sites.local.slots``. Who calls, and who looks when, is in ``koala.sites.local.site``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from koala.model.launch import MAIL_BYTES_MAX, WORK, Go, Launch, LaunchError, check_mail_name, check_token
from koala.model.messages import (
    AnyEvent,
    ComponentAccepted,
    ComponentEnded,
    ComponentReady,
    ComponentRunning,
    Outcome,
    SiteReported,
    Token,
)
from koala.sites import processes as shell
from koala.sites.component_directory import (
    GONE,
    NEW,
    Folder,
    Record,
    UnreadableError,
    Verdict,
    is_spoilt,
    read_regular,
)
from koala.sites.local.component import Phase, Watched
from koala.sites.local.slots import Slots
from koala.sites.local.staging import stage
from koala.sites.protocol import OUTPUT_BYTES_MAX, Clock, Deliver, Emit, SiteError, Stream

_log = logging.getLogger(__name__)

# The file in the site's root in which its owner writes how many processors others use. No file means none.
OTHERS = "others"
OTHERS_BYTES_MAX = 64


class _Found(NamedTuple):
    """A component that lives, its place among the others, and what an abort of it said."""

    sequence: int
    watched: Watched
    verdict: Verdict | None


class Keeper:
    """A site of ``processors`` slots below ``root``, from ``open`` to ``close``. See ``koala.sites.protocol.Site``.

    Whatever is wrong with one component's directory is the end of that component, and no error of the call.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        processors: int,
        *,
        emit: Emit,
        on_mail: Deliver | None,
        clock: Clock,
        first_fit: bool,
        grace_s: float,
        environment: Mapping[str, str],
    ) -> None:
        self._name = name
        self._root = root
        self._components = root / "components"
        self._files = root / "files"
        self._processors = processors
        self._emit = emit
        self._clock = clock
        self._sequence = 0
        self._others = 0  # as last read
        self._lock = contextlib.ExitStack()
        self.slots = Slots(
            processors,
            self._others_or_last,
            emit=emit,
            on_mail=on_mail,
            clock=clock,
            first_fit=first_fit,
            grace_s=grace_s,
            environment=environment,
        )

    # ------------------------------------------------------------------------------- opening and closing

    def open(self) -> None:
        """Find again what was started here. ``end_strays`` and ``slots.serve`` are to follow."""
        self._components.mkdir(parents=True, exist_ok=True)
        self._files.mkdir(exist_ok=True)
        self._take_lock()
        self._find_again()

    def close(self) -> None:
        """Let another driver have the site."""
        self._lock.close()

    def _take_lock(self) -> None:
        """The kernel drops the lock with the process, however it ends."""
        file = self._lock.enter_context((self._root / "lock").open("ab"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise SiteError(self._name, f"{self._root} is in use by another driver; stop that one first") from None

    def _find_again(self) -> None:
        found: list[_Found] = []
        for home in list(self._components.iterdir()):
            if home.name.startswith("."):
                if home.name.endswith((NEW, GONE)):
                    # What its driver was killed at making or removing.
                    shutil.rmtree(home, ignore_errors=True)
                continue
            folder = Folder(self._components, home.name)
            if not (_is_token(home.name) and folder.exists()):
                continue
            try:
                living = self._recall(folder)
            except (UnreadableError, OSError) as error:
                if isinstance(error, OSError) and not (is_spoilt(error) or error.errno == errno.EIO):
                    raise  # it is not about this component
                self._give_up(folder, error)
            else:
                found += [] if living is None else [living]
        found.sort(key=lambda each: each.sequence)
        self.slots.alive.update((each.watched.folder.token, each.watched) for each in found)
        # Only now is it known which slots are held.
        for each in found:
            try:
                self._resume(each.watched, each.verdict)
            except OSError as error:
                _log.warning("site %s: component %s: %s", self._name, each.watched.folder.token, error)

    def _recall(self, folder: Folder) -> _Found | None:
        """A component that has not ended; None for one that has."""
        ended = folder.ended()
        try:
            record = folder.record()
        except UnreadableError:
            if ended is None:
                raise
            return None
        if record is not None:
            self._sequence = max(self._sequence, record.sequence)
        if ended is not None:
            return None
        if record is None:
            raise UnreadableError("there is no record of it")
        watched = Watched(record.launch, folder)
        watched.released_at = folder.released_at()
        if folder.was_spawned():
            watched.phase = Phase.STARTING
            watched.process = folder.identity()
        return _Found(record.sequence, watched, folder.verdict())

    def _resume(self, watched: Watched, verdict: Verdict | None) -> None:
        if watched.phase is Phase.STARTING and watched.process is None:
            # Its process may not have come to the point of saying so; of two, one goes on.
            self.slots.spawn(watched)
        if verdict is not None and watched.phase is not Phase.ENDED:
            self.slots.begin_end(watched, verdict.outcome, verdict.reason)

    def _give_up(self, folder: Folder, error: Exception) -> None:
        """What the site kept about it is spoilt: end what may run of it, and say so."""
        _log.error("site %s: component %s cannot be found again: %s", self._name, folder.token, error)
        with contextlib.suppress(OSError):
            shell.end(folder.identity(), folder.home, by_force=True)
        try:
            self._bury(folder, Outcome.SITE_FAILED, f"what the site kept about it cannot be read: {error}")
        except OSError as again:
            _log.error("site %s: nor can its end be put on record: %s", self._name, again)

    def end_strays(self) -> bool:
        """End processes of components that have ended, or that nothing is known of; whether there were any.

        Their directory was removed. One that nobody remembers is remembered from now on, as failed.
        """
        strays = shell.strays(self._components, self.slots.alive)
        for token, pids in strays.items():
            _log.error("site %s: processes of component %s, which is not here, are ended", self._name, token)
            shell.kill(pids)
            folder = Folder(self._components, token)
            if _is_token(token) and not folder.exists():
                self._bury(folder, Outcome.SITE_FAILED, "its directory at the site was removed while it ran")
        return bool(strays)

    # ---------------------------------------------------------------------------------------- commands

    def start(self, launch: Launch, script: str) -> None:
        """See ``Site.start``."""
        folder = self._folder(launch.token)
        if launch.token in self.slots.alive:
            self._emit(self._newest(launch.token))
            return
        if folder.exists():
            if not folder.has_record():
                self._bury(folder, Outcome.REFUSED, "its abort or a question about it came first")
                return
            if self._tell_end(folder):
                return
            # The disk failed when it was all but accepted, and the driver was told so.
        if launch.processors > self._processors:
            why = f"it asks for {launch.processors} processors and {self._name} has {self._processors}"
            self._bury(folder, Outcome.REFUSED, why)
            return
        if not folder.exists():
            self._sequence += 1
            folder.create(Record(sequence=self._sequence, launch=launch), script)
        self.slots.alive[launch.token] = Watched(launch, folder)
        self._emit(ComponentAccepted(at=self._clock(), token=launch.token))
        self.slots.serve()

    def abort(self, token: Token, outcome: Outcome, reason: str) -> None:
        """See ``Site.abort``."""
        folder = self._folder(token)
        watched = self.slots.alive.get(token)
        if watched is None:
            if not self._tell_end(folder):
                self._bury(folder, outcome, reason or "aborted before it came")
            return
        self.slots.look_at(watched)
        if watched.phase is Phase.ENDED or watched.lost:
            return
        try:
            if folder.verdict() is None:
                # What is already bringing about its end is what the end will say, also after a kill.
                folder.put_abort(Verdict(outcome=watched.verdict or outcome, reason=watched.reason or reason))
            self.slots.begin_end(watched, outcome, reason)
        except OSError as error:
            if not is_spoilt(error):
                raise
            self.slots.lose(watched, error)

    def ask(self, tokens: Sequence[Token]) -> None:
        """See ``Site.ask``."""
        for token in tokens:
            folder = self._folder(token)
            if token in self.slots.alive:
                self._emit(self._newest(token))
            elif not folder.exists():
                self._bury(folder, Outcome.ABSENT, "never heard of")
            elif not self._tell_end(folder):
                self._bury(folder, Outcome.SITE_FAILED, "the site has lost what it kept about it")

    def release(self, token: Token, go: Go) -> None:
        """See ``Site.release``."""
        check_token(token)
        watched = self.slots.alive.get(token)
        if watched is None or watched.verdict is not None or watched.released_at is not None:
            return
        now = self._clock()
        try:
            watched.folder.check()
            stage(self._name, self._files, watched.folder.home / WORK, go.links)
            watched.folder.put_go(go, now)
        except OSError as error:
            if not is_spoilt(error):
                raise
            self.slots.lose(watched, error)
            return
        watched.released_at = now

    def deliver(self, token: Token, name: str, data: bytes) -> None:
        """See ``Site.deliver``."""
        folder = self._folder(token)
        check_mail_name(name)
        if len(data) > MAIL_BYTES_MAX:
            raise LaunchError("mail", f"{name!r} has more than {MAIL_BYTES_MAX} bytes (MAIL_BYTES_MAX)")
        watched = self.slots.alive.get(token)
        if watched is None:
            if not folder.exists():
                raise SiteError(self._name, f"there is no component {token} here to get mail; start it first")
            return
        if watched.verdict is not None:
            return
        try:
            folder.put_mail(name, data)
        except OSError as error:
            if not is_spoilt(error):
                raise
            self.slots.lose(watched, error)

    def fetch(self, token: Token, name: str) -> bytes | None:
        """See ``Site.fetch``."""
        check_mail_name(name)
        return self._folder(token).mail(name)

    def output(self, token: Token, stream: Stream, offset: int, limit: int) -> bytes:
        """See ``Site.output``."""
        folder = self._folder(token)
        try:
            record = folder.record()
        except UnreadableError as error:
            raise SiteError(
                self._name, f"the output of component {token} cannot be found any more: {error}"
            ) from None
        if record is None:
            raise SiteError(self._name, f"there is no component {token} here; look at the job's own list of them")
        if offset < 0 or limit < 0:
            raise SiteError(self._name, f"there is no output at {offset} of {limit} bytes; write 0 or more")
        return folder.output(stream, record.launch.application, offset, min(limit, OUTPUT_BYTES_MAX))

    def processors_ready(self, token: Token) -> int | None:
        """With how many processors a component has reached the barrier; None before that, and where it is lost."""
        folder = self._folder(token)
        if not folder.is_ready():
            return None
        watched = self.slots.alive.get(token)
        if watched is not None:
            return watched.processors
        try:
            record = folder.record()
        except UnreadableError:
            return None
        return None if record is None else record.launch.processors

    def probe(self) -> SiteReported:
        """See ``Site.probe``."""
        self._others = self._read_others()
        self.slots.serve()  # some of what others had may be free now
        return SiteReported(
            at=self._clock(), site=self._name, processors=self._processors, others=min(self._others, self._processors)
        )

    def held(self) -> tuple[Token, ...]:
        """See ``Site.held``."""
        return tuple(self.slots.alive)

    def vanish(self, token: Token) -> Path | None:
        """Take an ended component's directory out of sight; what is returned is for the caller to remove."""
        folder = self._folder(token)
        if token in self.slots.alive:
            raise SiteError(self._name, f"component {token} has not ended; abort it and wait for its end first")
        return folder.vanish()

    # ------------------------------------------------------------------------------------ what it knows

    def _others_or_last(self) -> int:
        # A file that makes no sense is for ``probe`` to complain about; until then the last number holds.
        with contextlib.suppress(OSError, SiteError):
            self._others = self._read_others()
        return self._others

    def _read_others(self) -> int:
        """What the file says. Raises ``SiteError`` where it is not a number of processors."""
        path = self._root / OTHERS
        data = read_regular(path, OTHERS_BYTES_MAX + 1)
        if data is None and not path.exists():
            return 0
        text = "" if data is None else data.decode(errors="replace").strip()
        if len(text) > OTHERS_BYTES_MAX or not (text.isascii() and text.isdigit()):
            raise SiteError(self._name, f"{path} says {text!r}; write a number of processors, or remove it")
        return int(text)

    def _folder(self, token: Token) -> Folder:
        check_token(token)
        return Folder(self._components, token)

    def _newest(self, token: Token) -> AnyEvent:
        """The newest event of a living component."""
        now = self._clock()
        watched = self.slots.alive[token]
        if watched.phase is Phase.READY and watched.released_at is not None:
            return ComponentRunning(at=now, token=token)
        if watched.phase is Phase.READY:
            return ComponentReady(at=now, token=token)
        return ComponentAccepted(at=now, token=token)

    def _tell_end(self, folder: Folder) -> bool:
        """Emit how a component ended that does not live; whether that is on record."""
        try:
            ended = folder.ended()
        except UnreadableError as error:
            self._bury(folder, Outcome.SITE_FAILED, f"what the site kept about it cannot be read: {error}")
            return True
        if ended is None:
            return False
        self._emit(ended)
        return True

    def _bury(self, folder: Folder, outcome: Outcome, reason: str) -> None:
        event = ComponentEnded(at=self._clock(), token=folder.token, outcome=outcome, reason=reason)
        folder.bury(event)
        self._emit(event)


def _is_token(name: str) -> bool:
    try:
        check_token(name)
    except LaunchError:
        return False
    return True
