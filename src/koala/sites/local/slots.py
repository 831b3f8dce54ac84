"""The live components of an embedded site and their slots: who starts, what became of each, how it ends.

Plain calls, one after the other, in any one thread of their owner's choice. After each call the disk is in a state
that loses nothing if the process is killed. ``koala.sites.local.worker`` serves the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from koala.model.errors import Fault
from koala.model.launch import LOG, SCRIPT, Launch
from koala.model.messages import ComponentEnded, ComponentReady, Outcome, Token
from koala.model.nodes import TASK_MEMORY_BYTES_MIN, NodeSize
from koala.sites import processes
from koala.sites.component import NOT_MEASURED, TOLD_STDERR, LiveComponent, LivePhase, Usage, ending
from koala.sites.component_directory import MAILS_MAX, AbortRecord
from koala.sites.control_groups import remove_group
from koala.sites.local.directory import ComponentDirectory, is_spoilt
from koala.sites.local.supervisor import MEMORY_BYTES
from koala.sites.protocol import Clock, Deliver, Emit, Mail

_log = logging.getLogger(__name__)

# The program that runs the script of a component, and ends everything the script starts.
SUPERVISOR = Path(__file__).with_name("supervisor.py")


# The variable that tells programs which GPUs of the machine they may use.
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


def memory_bytes(launch: Launch) -> int:
    """Return the memory of all tasks of a component."""
    return 0 if launch.needs is None else launch.needs.memory_bytes * launch.task_count


def gpu_count(launch: Launch) -> int:
    """Return the number of GPUs of all tasks of a component."""
    return 0 if launch.needs is None else launch.needs.gpus * launch.task_count


class LocalComponent(LiveComponent):
    """A live component. Once it is aborted, force is used from ``kill_at`` on.

    ``complaint`` is the last problem with it that was logged.
    """

    def __init__(self, launch: Launch, directory: ComponentDirectory) -> None:
        super().__init__(launch)
        self.directory = directory
        self.process: processes.Identity | None = None
        self.child: processes.Child | None = None
        self.complaint = ""
        self.kill_at = 0.0
        self.gpus: tuple[int, ...] = ()  # its GPUs of the machine, from its start on

    def why_unrecorded(self) -> str:
        """Return why its script has recorded no end."""
        if self.process is None:
            return "its script never began; the log in its directory says why"
        return (
            "its processes vanished without recording an exit code: they were killed, the machine was restarted, or "
            "its directory could not be written, of which the log there tells"
        )


class Slots:
    """``processors`` slots; ``others`` returns how many are not available to components now.

    One component's directory may be missing or invalid, since the application can reach it: that ends this component
    and affects no other. Errors of the disk itself are raised, and the work that they interrupted is retried.
    """

    def __init__(
        self,
        processors: int,
        others: Callable[[], int],
        *,
        emit: Emit,
        on_mail: Deliver | None,
        clock: Clock,
        first_fit: bool,
        grace_s: float,
        environment: Mapping[str, str],
        node: NodeSize | None = None,
    ) -> None:
        self.node = NodeSize(processors) if node is None else node
        self.alive: dict[Token, LocalComponent] = {}  # all live components, in the order of acceptance
        self._processors = processors
        self._others = others
        self._emit = emit
        self._on_mail = on_mail
        self._clock = clock
        self._first_fit = first_fit
        self._grace_s = grace_s
        self._environment = environment
        self._serving = False
        self._serve_again = False
        self._held_up = ""  # why nobody can be started now
        self._inspecting = False
        self._census: processes.Census | None = None  # taken since this inspection began, and since the last start

    @property
    def held(self) -> int:
        """The number of slots that components hold. May be read from any thread."""
        return sum(each.processors for each in self.alive.copy().values() if each.phase is not LivePhase.QUEUED)

    @property
    def is_busy(self) -> bool:
        """True if there is anything to inspect."""
        return bool(self._held_up) or any(each.phase is not LivePhase.QUEUED for each in self.alive.values())

    # ------------------------------------------------------------------------------------------- starting

    def serve(self) -> None:
        """Give free slots to waiting components, in the order of acceptance. A failed start is retried at the next
        inspection."""
        self._serve_again = True
        if self._serving:
            return  # the outer call continues: a component that cannot start leaves, which serves again
        self._serving = True
        try:
            while self._serve_again:
                self._serve_again = False
                self._serve_once()
        finally:
            self._serving = False

    def _serve_once(self) -> None:
        self._held_up = ""
        for_components = self._processors - self._others()
        free = for_components - self.held
        for component in list(self.alive.values()):
            if component.phase is not LivePhase.QUEUED:
                continue
            if component.processors <= free and self._has_needs(component):
                try:
                    self._start(component)
                except OSError as error:
                    self._held_up = f"component {component.token} cannot be started: {error}"
                    return
                free = for_components - self.held  # a start that failed has taken nothing
            elif not self._first_fit:
                return

    def _has_needs(self, component: LocalComponent) -> bool:
        """Return True if memory and GPUs are free for all its tasks."""
        launch = component.launch
        if launch.needs is None:
            return True
        holders = [each for each in self.alive.values() if each.phase is not LivePhase.QUEUED]
        if launch.needs.memory_bytes:
            held_bytes = sum(memory_bytes(each.launch) for each in holders)
            if memory_bytes(launch) > max(0, self.node.memory_bytes) - held_bytes:
                return False
        return gpu_count(launch) <= len(self._free_gpus())

    def _free_gpus(self) -> list[int]:
        held = {gpu for each in self.alive.values() if each.phase is not LivePhase.QUEUED for gpu in each.gpus}
        return [gpu for gpu in range(self.node.gpus_of()) if gpu not in held]

    def _start(self, component: LocalComponent) -> None:
        # The mark comes first: if we are killed between the two, its slots still count as held.
        component.gpus = tuple(self._free_gpus()[: gpu_count(component.launch)])
        try:
            component.directory.put_spawned(component.gpus)
        except OSError as error:
            if not is_spoilt(error):
                raise
            self.lose(component, error)
            return
        component.phase = LivePhase.STARTING
        self.spawn(component)

    def spawn(self, component: LocalComponent) -> None:
        """Start the process of a component that was marked for it. If a component has two processes, only one
        continues."""
        self._census = None
        try:
            environment = self._with_needs(component)
            component.child = processes.spawn(component.directory.home, SCRIPT, LOG, environment, SUPERVISOR)
        except OSError as error:
            why = f"the site could not start a process: {error.strerror}"
            self.condemn(component, AbortRecord(outcome=Outcome.SITE_FAILED, reason=why, fault=Fault.SITE))
            self.inspect(component)

    def _with_needs(self, component: LocalComponent) -> Mapping[str, str]:
        """Return what the component inherits: its memory, and its own GPUs, none if it requested none."""
        more = {}
        if self.node.gpus:
            more[VISIBLE_GPUS] = ",".join(map(str, component.gpus))
        if memory_bytes(component.launch):
            # With less memory not even its script could run, which would look like a failure of the site.
            more[MEMORY_BYTES] = str(max(memory_bytes(component.launch), TASK_MEMORY_BYTES_MIN))
        return {**self._environment, **more} if more else self._environment

    # --------------------------------------------------------------------------------------------- ending

    def condemn(self, component: LocalComponent, abort: AbortRecord) -> None:
        """Mark it as being ended. The first outcome and reason stand."""
        if component.abort is None:
            component.abort = abort
            component.kill_at = self._clock() + self._grace_s

    def begin_end(self, component: LocalComponent, abort: AbortRecord) -> None:
        """Ask its processes to end; those that miss their deadline are killed."""
        if component.phase is LivePhase.QUEUED:
            why = abort.reason or "aborted in the site's queue"
            self.settle(component, abort.outcome, why, None, abort.fault)
            return
        if component.abort is not None:
            return
        self.condemn(component, abort)
        if component.process is None:
            component.process = component.directory.identity()
        if component.process is not None:
            processes.end(component.process, component.directory.home, by_force=False)

    def lose(self, component: LocalComponent, error: OSError) -> None:
        """End it at once by force: its directory is unusable, so nothing it does can be observed."""
        if not component.lost:
            _log.warning("component %s is ended, as its directory cannot be used: %s", component.token, error)
        component.lost = True
        if component.process is None and component.child is not None:
            component.process = processes.identity_of(component.child)
        why = f"its directory at the site was removed or altered while it was there: {error.strerror}"
        self.condemn(component, AbortRecord(outcome=Outcome.SITE_FAILED, reason=why))
        self._inspect_lost(component)

    def settle(
        self,
        component: LocalComponent,
        outcome: Outcome,
        reason: str,
        exit_code: int | None,
        fault: Fault | None,
        *,
        stderr_line: str = "",
        usage: Usage = NOT_MEASURED,
    ) -> None:
        """Record the end of a component that holds nothing any more, report it, and give its slots to others."""
        event = ComponentEnded(
            at=self._clock(),
            token=component.token,
            outcome=outcome,
            reason=reason,
            exit_code=exit_code,
            fault=fault,
            stderr_line=stderr_line,
            processor_s=usage.processor_s,
            peak_memory_bytes=usage.peak_memory_bytes,
        )
        component.directory.settle(event)
        component.phase = LivePhase.ENDED
        if component.child is not None:
            processes.has_left(component.child)  # so that no zombie stays behind
        del self.alive[component.token]
        self._emit(event)
        self.serve()

    def _settle(self, component: LocalComponent, exit_words: list[str] | None) -> None:
        remove_group(component.directory.home)
        unrecorded, released = component.why_unrecorded(), component.released_at is not None
        how = ending(component.launch, component.abort, exit_words, unrecorded, released=released)
        directory, is_told = component.directory, exit_words is not None and how[0] in TOLD_STDERR
        used = NOT_MEASURED if component.lost else directory.usage()
        used = component.believed(used, self._clock(), self._processors)
        self.settle(component, *how, stderr_line=directory.last_line() if is_told else "", usage=used)

    # ----------------------------------------------------------------------------------------- inspection

    def inspect_all(self) -> str:
        """Inspect all, whatever is wrong with one of them; return what is wrong with the site, or an empty string."""
        trouble = ""
        self._inspecting = True
        for component in list(self.alive.values()):
            try:
                self.inspect(component)
            except OSError as error:
                trouble = f"component {component.token} cannot be inspected: {error}"
            except Exception as error:
                if component.complaint != repr(error):
                    component.complaint = repr(error)
                    _log.exception("component %s cannot be inspected", component.token)
        self._inspecting, self._census = False, None
        if self._held_up:
            self.serve()
        return trouble or self._held_up

    def inspect(self, component: LocalComponent) -> None:
        """Find out what became of one component, and act on it."""
        if component.phase in (LivePhase.QUEUED, LivePhase.ENDED):
            return
        try:
            if component.lost:
                self._inspect_lost(component)
            else:
                self._inspect_present(component)
        except OSError as error:
            if component.lost or not is_spoilt(error):
                raise
            self.lose(component, error)

    def _members(self, component: LocalComponent) -> list[int]:
        if self._census is not None:
            return self._census.members(component.process, component.directory.home)
        census = processes.Census()
        if self._inspecting:
            self._census = census  # for the others that are inspected
        return census.members(component.process, component.directory.home)

    def _inspect_lost(self, component: LocalComponent) -> None:
        if self._members(component):
            processes.end(component.process, component.directory.home, by_force=True)
            return
        self._settle(component, None)

    def _inspect_present(self, component: LocalComponent) -> None:
        child_left = component.child is None or processes.has_left(component.child)
        component.directory.check()
        if component.process is None:
            component.process = component.directory.identity()
        if component.process is None and not child_left:
            self._inspect_unborn(component)
            return
        # In this order: a script that has just ended has recorded it before.
        alive = component.process is not None and processes.is_alive(component.process)
        exit_words = component.directory.exit_words()
        if alive and exit_words is None:
            self._inspect_running(component)
        elif self._members(component):
            # The script is over; processes that it left must not hold processors any longer.
            processes.end(component.process, component.directory.home, by_force=True)
        else:
            self._settle(component, exit_words)

    def _inspect_unborn(self, component: LocalComponent) -> None:
        """Inspect a component whose process has not identified itself yet; if it is to end and never does, it is
        killed."""
        if component.abort is not None and self._clock() >= component.kill_at:
            assert component.child is not None
            processes.end(processes.identity_of(component.child), component.directory.home, by_force=True)

    def _inspect_running(self, component: LocalComponent) -> None:
        now = self._clock()
        directory, process = component.directory, component.process
        if component.abort is not None:
            if now >= component.kill_at:
                processes.end(process, directory.home, by_force=True)
            return
        if component.phase is LivePhase.STARTING and directory.is_ready():
            component.phase = LivePhase.READY
            if component.released_at is None:
                self._emit(ComponentReady(at=now, token=directory.token))
        if component.released_at is None:
            return
        left_s = component.walltime_left_s(now)
        if left_s is not None and left_s < 0:
            self.begin_end(component, component.timed_out())
            return
        if self._on_mail is not None:
            self._hand_out_mail(component, self._on_mail)

    def _hand_out_mail(self, component: LocalComponent, on_mail: Deliver) -> None:
        for name in component.directory.outbox():
            if len(component.mailed) >= MAILS_MAX:
                return
            data = component.directory.mail(name) if name not in component.mailed else None
            if data is not None:
                component.mailed.add(name)
                on_mail(Mail(token=component.token, name=name, data=data))
