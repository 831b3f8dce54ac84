"""The calls of a driver to an embedded site, as plain functions that run one after the other in one thread.

``koala.sites.local.directory`` has what is on disk, ``koala.sites.local.slots`` the live components.
``koala.sites.local.site`` makes the calls and schedules the inspections.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from koala.model.errors import Fault
from koala.model.launch import ABORT, MAIL_BYTES_MAX, Go, InputLink, Launch, LaunchError, check_mail_name, check_token
from koala.model.messages import (
    ComponentAccepted,
    ComponentEnded,
    Outcome,
    SiteReported,
    Token,
)
from koala.model.nodes import NodeClass, NodePool, NodeSize
from koala.sites import links, processes
from koala.sites.component import LivePhase
from koala.sites.component_directory import (
    COMPONENTS,
    ENDED,
    FILES,
    RECORD,
    AbortRecord,
    AcceptanceRecord,
    RecordedComponent,
    is_token,
)
from koala.sites.local.directory import (
    GONE,
    NEW,
    ComponentDirectory,
    UnreadableError,
    is_spoilt,
    read_regular,
)
from koala.sites.local.removal import remove_tree
from koala.sites.local.slots import LocalComponent, Slots, gpu_count
from koala.sites.protocol import OUTPUT_BYTES_MAX, Clock, Deliver, Emit, SiteError, Stream
from koala.sites.shell_script import FramedScript, call

_log = logging.getLogger(__name__)

# The file in the site's root in which its owner writes how many processors others use. No file means none.
OTHERS = "others"
OTHERS_BYTES_MAX = 64


class LocalWorker:
    """A site of ``processors`` slots below ``root``, from ``open`` to ``close``. See ``LiveSite``.

    A problem with one component's directory ends that component, and is no error of the call.
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
        node: NodeClass | None = None,
    ) -> None:
        self._node = NodeClass(1, NodeSize(processors), NodeSize(processors)) if node is None else node
        self._name = name
        self._root = root
        self._components = root / COMPONENTS
        self._files = root / FILES
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
            node=self._node.whole,
        )

    # ------------------------------------------------------------------------------- opening and closing

    def open(self) -> tuple[Token, ...]:
        """Take the site without changing anything; return the components that it keeps anything about. Call
        ``find_again``, ``end_strays`` and ``slots.serve`` next."""
        self._components.mkdir(parents=True, exist_ok=True)
        self._files.mkdir(exist_ok=True)
        self._take_lock()
        return tuple(home.name for home in self._components.iterdir() if is_token(home.name))

    def close(self) -> None:
        """Release the site for another driver."""
        self._lock.close()

    def _take_lock(self) -> None:
        """Lock the site. The kernel releases the lock with the process, however it ends."""
        file = self._lock.enter_context((self._root / "lock").open("ab"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise SiteError(self._name, f"{self._root} is in use by another driver; stop that one first") from None

    def find_again(self) -> None:
        """Find again what was started here."""
        found: list[tuple[RecordedComponent, LocalComponent]] = []
        for home in list(self._components.iterdir()):
            if home.name.startswith("."):
                if home.name.endswith((NEW, GONE)):
                    # Left by a driver that was killed while creating or removing it.
                    remove_tree(home)
                continue
            directory = ComponentDirectory(self._components, home.name)
            if not (is_token(home.name) and directory.exists()):
                continue
            try:
                found += self._recall(directory)
            except (UnreadableError, OSError) as error:
                if isinstance(error, OSError) and not (is_spoilt(error) or error.errno == errno.EIO):
                    raise  # it does not concern this component
                self._give_up(directory, error)
        found.sort(key=lambda each: 0 if each[0].record is None else each[0].record.sequence)
        self.slots.alive.update((component.token, component) for _, component in found)
        # Only now it is known which slots are held.
        for recorded, component in found:
            try:
                self._resume(component, recorded.abort)
            except OSError as error:
                _log.warning("site %s: component %s: %s", self._name, component.token, error)

    def _recall(self, directory: ComponentDirectory) -> list[tuple[RecordedComponent, LocalComponent]]:
        """Return a live component with its record; nothing for an ended one."""
        recorded = directory.recorded()
        if recorded.record is not None:
            self._sequence = max(self._sequence, recorded.record.sequence)
        if recorded.ended is not None:
            return []
        if recorded.record is None or recorded.problem:
            raise UnreadableError(recorded.problem, recorded.spoilt_fault)
        component = LocalComponent(recorded.record.launch, directory)
        component.released_at = recorded.released_at
        if directory.was_spawned():
            component.phase = LivePhase.STARTING
            component.gpus = directory.gpus(gpu_count(component.launch), self._node.whole.gpus_of())
            component.process = directory.identity()
        return [(recorded, component)]

    def _resume(self, component: LocalComponent, abort: AbortRecord | None) -> None:
        if component.phase is LivePhase.STARTING and component.process is None:
            # Its process may not have identified itself yet; if there are two, one continues.
            self.slots.spawn(component)
        if abort is not None and component.phase is not LivePhase.ENDED:
            self.slots.begin_end(component, abort)

    def _give_up(self, directory: ComponentDirectory, error: Exception) -> None:
        """End whatever may run of a component whose files are invalid, and record that."""
        _log.error("site %s: component %s cannot be found again: %s", self._name, directory.token, error)
        with contextlib.suppress(OSError):
            processes.end(directory.identity(), directory.home, by_force=True)
        fault = error.fault if isinstance(error, UnreadableError) else None
        try:
            self._settle_spoilt(directory, str(error), fault)
        except OSError as again:
            _log.error("site %s: nor can its end be put on record: %s", self._name, again)

    def end_strays(self) -> bool:
        """End processes of components that have ended or are unknown; return True if there were any.

        The directory of an unknown one was removed. It is on record from now on, as failed.
        """
        strays = processes.strays(self._components, self.slots.alive)
        for token, pids in strays.items():
            _log.error("site %s: processes of component %s, which is not here, are ended", self._name, token)
            processes.kill(pids)
            directory = ComponentDirectory(self._components, token)
            if is_token(token) and not directory.exists():
                self._settle(directory, Outcome.SITE_FAILED, "its directory at the site was removed while it ran")
        return bool(strays)

    # ---------------------------------------------------------------------------------------- commands

    def start(self, launch: Launch, script: str) -> None:
        """See ``LiveSite.start``."""
        directory = self._directory(launch.token)
        if launch.token in self.slots.alive:
            self._emit(self.slots.alive[launch.token].newest(self._clock()))
            return
        if directory.exists():
            if not directory.has_record():
                self._settle(directory, Outcome.REFUSED, "its abort or a question about it came first", Fault.OURS)
                return
            if self._tell_end(directory):
                return
            # The disk failed when it was almost accepted, and the driver received that error.
        if launch.processors > self._processors:
            why = f"it asks for {launch.processors} processors and {self._name} has {self._processors}"
            self._settle(directory, Outcome.REFUSED, why, Fault.SITE)
            return
        if launch.needs is not None and not self._could_ever_run(launch):
            why = f"{self._name} has no place for {launch.task_count} tasks of {launch.shape}"
            self._settle(directory, Outcome.UNSUITABLE, why, Fault.JOB)
            return
        if not directory.exists():
            self._sequence += 1
            directory.create(AcceptanceRecord(sequence=self._sequence, launch=launch), script)
        self.slots.alive[launch.token] = LocalComponent(launch, directory)
        self._emit(ComponentAccepted(at=self._clock(), token=launch.token))
        self.slots.serve()

    def _could_ever_run(self, launch: Launch) -> bool:
        """Return True if all tasks fit at once on an empty site."""
        return NodePool.whole((self._node,)).places(launch.shape) >= launch.task_count

    def abort(self, token: Token, abort: AbortRecord) -> None:
        """See ``LiveSite.abort``."""
        directory = self._directory(token)
        component = self.slots.alive.get(token)
        if component is None:
            if not self._tell_end(directory):
                self._settle(directory, abort.outcome, abort.reason or "aborted before it came", abort.fault)
            return
        self.slots.inspect(component)
        if component.phase is LivePhase.ENDED or component.lost:
            return
        try:
            if directory.recorded(ABORT).abort is None:
                # The abort that already causes its end stays in its record, even after a kill.
                directory.put_abort(component.abort or abort)
            self.slots.begin_end(component, abort)
        except OSError as error:
            if is_spoilt(error):
                self.slots.lose(component, error)
                return
            # Its processes end even without room for a record; the driver receives the error, and asks again.
            self.slots.begin_end(component, abort)
            raise

    def ask(self, tokens: Sequence[Token]) -> None:
        """See ``LiveSite.ask``."""
        for token in tokens:
            directory = self._directory(token)
            if token in self.slots.alive:
                self._emit(self.slots.alive[token].newest(self._clock()))
            elif not directory.exists():
                self._settle(directory, Outcome.ABSENT, "never heard of")
            elif not self._tell_end(directory):
                self._settle(directory, Outcome.SITE_FAILED, "the site has lost what it kept about it")

    def release(self, token: Token, go: Go) -> None:
        """See ``LiveSite.release``."""
        check_token(token)
        component = self.slots.alive.get(token)
        if component is None or component.abort is not None or component.released_at is not None:
            return
        now = self._clock()
        try:
            component.directory.check()
            self._stage(token, go.links)
            component.directory.put_go(go, now)
        except OSError as error:
            if not is_spoilt(error):
                raise
            self.slots.lose(component, error)
            return
        component.released_at = now

    def _stage(self, token: Token, wanted: Sequence[InputLink]) -> None:
        """Make the links to input files. Raises ``SiteError`` if one is not permitted."""
        if not wanted:
            return
        staged = 'if [ -z "${koala_trouble-}" ]; then koala_mark staged; fi\n'
        script = FramedScript(links.stage(wanted) + call("koala_stage", token) + staged)
        printed, complaint = processes.run_script(script.text, self._components)
        for section in script.sections(printed):
            match section.words:
                case ["trouble", what, index]:
                    raise links.refused(self._name, what, wanted[int(index)])
                case ["lost"]:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), token)
                case ["staged"]:
                    return
        raise OSError(errno.EIO, f"input files cannot be linked: {complaint.decode(errors='replace').strip()}")

    def deliver(self, token: Token, name: str, data: bytes) -> None:
        """See ``LiveSite.deliver``."""
        directory = self._directory(token)
        check_mail_name(name)
        if len(data) > MAIL_BYTES_MAX:
            raise LaunchError("mail", f"{name!r} has more than {MAIL_BYTES_MAX} bytes (MAIL_BYTES_MAX)")
        component = self.slots.alive.get(token)
        if component is None:
            if not directory.exists():
                raise SiteError(self._name, f"there is no component {token} here to get mail; start it first")
            return
        if component.abort is not None:
            return
        try:
            directory.put_mail(name, data)
        except OSError as error:
            if not is_spoilt(error):
                raise
            self.slots.lose(component, error)

    def fetch(self, token: Token, name: str) -> bytes | None:
        """See ``LiveSite.fetch``."""
        check_mail_name(name)
        return self._directory(token).mail(name)

    def output(self, token: Token, stream: Stream, offset: int, limit: int) -> bytes:
        """See ``LiveSite.output``."""
        if offset < 0 or limit < 0:
            raise SiteError(self._name, f"there is no output at {offset} of {limit} bytes; write 0 or more")
        directory = self._directory(token)
        launch = self._launch(directory)
        return directory.output(stream, launch.application, offset, min(limit, OUTPUT_BYTES_MAX))

    def _launch(self, directory: ComponentDirectory) -> Launch:
        """Return what was accepted. Raises ``SiteError`` if nothing was, or if it is unreadable by now."""
        if directory.token in self.slots.alive:
            return self.slots.alive[directory.token].launch
        recorded = directory.recorded(RECORD)
        if recorded.spoilt:
            why = f"the output of component {directory.token} cannot be found any more: {recorded.spoilt}"
            raise SiteError(self._name, why)
        if recorded.record is None:
            why = f"there is no component {directory.token} here; look at the job's own list of them"
            raise SiteError(self._name, why)
        return recorded.record.launch

    def processors_ready(self, token: Token) -> int | None:
        """Return how many processors a component has at the barrier; None before that, and if it is lost."""
        directory = self._directory(token)
        if not directory.is_ready():
            return None
        component = self.slots.alive.get(token)
        if component is not None:
            return component.processors
        recorded = directory.recorded(RECORD)
        return None if recorded.record is None or recorded.spoilt else recorded.record.launch.processors

    def probe(self) -> SiteReported:
        """See ``LiveSite.probe``."""
        self._others = self._read_others()
        self.slots.serve()  # processors of others may have become free
        return SiteReported(
            at=self._clock(), site=self._name, processors=self._processors, others=min(self._others, self._processors)
        )

    def held(self) -> tuple[Token, ...]:
        """See ``LiveSite.held``."""
        return tuple(self.slots.alive)

    def hide(self, token: Token) -> Path | None:
        """Hide an ended component's directory; the caller removes the returned path."""
        directory = self._directory(token)
        if token in self.slots.alive:
            raise SiteError(self._name, f"component {token} has not ended; abort it and wait for its end first")
        return directory.hide()

    # ------------------------------------------------------------------------------------ what it knows

    def _others_or_last(self) -> int:
        # ``probe`` reports an invalid file; until then the last number counts.
        with contextlib.suppress(OSError, SiteError):
            self._others = self._read_others()
        return self._others

    def _read_others(self) -> int:
        """Return the number in the file. Raises ``SiteError`` if it is not a number of processors."""
        path = self._root / OTHERS
        data = read_regular(path, OTHERS_BYTES_MAX + 1)
        if data is None and not path.exists():
            return 0
        text = "" if data is None else data.decode(errors="replace").strip()
        if len(text) > OTHERS_BYTES_MAX or not (text.isascii() and text.isdigit()):
            raise SiteError(self._name, f"{path} says {text!r}; write a number of processors, or remove it")
        return int(text)

    def _directory(self, token: Token) -> ComponentDirectory:
        check_token(token)
        return ComponentDirectory(self._components, token)

    def _tell_end(self, directory: ComponentDirectory) -> bool:
        """Emit the end of a component that is not live; return True if it is on record."""
        recorded = directory.recorded(ENDED)
        if recorded.spoilt:
            self._settle_spoilt(directory, recorded.spoilt, recorded.spoilt_fault)
        elif recorded.ended is not None:
            self._emit(recorded.ended)
        return bool(recorded.spoilt) or recorded.ended is not None

    def _settle_spoilt(self, directory: ComponentDirectory, problem: str, fault: Fault | None) -> None:
        outcome = Outcome.FAILED if fault is Fault.JOB else Outcome.SITE_FAILED
        self._settle(directory, outcome, f"what the site kept about it cannot be read: {problem}", fault)

    def _settle(
        self, directory: ComponentDirectory, outcome: Outcome, reason: str, fault: Fault | None = None
    ) -> None:
        event = ComponentEnded(at=self._clock(), token=directory.token, outcome=outcome, reason=reason, fault=fault)
        directory.settle(event)
        self._emit(event)
