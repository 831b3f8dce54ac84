"""The living components of an embedded site and the slots they hold: who starts, what became of each, how it ends.

Plain calls, one after the other, in whichever thread their owner chose. Each leaves the disk such that a kill at any
point loses nothing. What a driver may ask is in ``koala.sites.local.worker``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from koala.model.launch import LOG, SCRIPT
from koala.model.messages import ComponentEnded, ComponentReady, Outcome, Token
from koala.sites import processes as shell
from koala.sites.component_directory import is_spoilt
from koala.sites.local.component import Phase, Watched, ending
from koala.sites.protocol import Clock, Deliver, Emit, Mail

_log = logging.getLogger(__name__)


class Slots:
    """``processors`` slots, of which ``others`` tells how many are not for components now.

    One component's directory may be gone or spoilt, for the application can reach it: that ends this component and
    touches no other. Errors of the disk itself are raised, and what they kept from happening is tried again.
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
    ) -> None:
        self.alive: dict[Token, Watched] = {}  # all that have not ended, in the order they were accepted
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
        self._looking = False
        self._census: shell.Census | None = None  # taken since this look began, and since the last start

    @property
    def held(self) -> int:
        """How many slots components hold. May be asked from any thread."""
        return sum(each.processors for each in self.alive.copy().values() if each.phase is not Phase.QUEUED)

    @property
    def is_busy(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self._held_up) or any(each.phase is not Phase.QUEUED for each in self.alive.values())

    # ------------------------------------------------------------------------------------------- starting

    def serve(self) -> None:
        """Give free slots to those who wait, the first accepted first. What fails is tried again at the next look."""
        self._serve_again = True
        if self._serving:
            return  # the call that serves sees to it: a component that cannot start leaves, which serves again
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
        for watched in list(self.alive.values()):
            if watched.phase is not Phase.QUEUED:
                continue
            if watched.processors <= free:
                try:
                    self._start(watched)
                except OSError as error:
                    self._held_up = f"component {watched.folder.token} cannot be started: {error}"
                    return
                free = for_components - self.held  # a start that failed has taken nothing
            elif not self._first_fit:
                return

    def _start(self, watched: Watched) -> None:
        # Marked first: if we are killed between the two, its slots still count as held.
        try:
            watched.folder.put_spawned()
        except OSError as error:
            if not is_spoilt(error):
                raise
            self.lose(watched, error)
            return
        watched.phase = Phase.STARTING
        self.spawn(watched)

    def spawn(self, watched: Watched) -> None:
        """Start the process of a component that was marked for it. Of two processes of one component one goes on."""
        self._census = None
        try:
            watched.child = shell.spawn(watched.folder.home, SCRIPT, LOG, self._environment)
        except OSError as error:
            self.condemn(watched, Outcome.SITE_FAILED, f"the site could not start a process: {error.strerror}")
            self.look_at(watched)

    # --------------------------------------------------------------------------------------------- ending

    def condemn(self, watched: Watched, outcome: Outcome, reason: str) -> None:
        """From now on it is being ended. The first outcome and reason stand."""
        if watched.verdict is not None:
            return
        watched.verdict, watched.reason = outcome, reason
        watched.kill_at = self._clock() + self._grace_s

    def begin_end(self, watched: Watched, outcome: Outcome, reason: str) -> None:
        """Ask its processes to end; those that have not when their time is up are ended by force."""
        if watched.phase is Phase.QUEUED:
            self.settle(watched, outcome, reason or "aborted in the site's queue", None)
            return
        if watched.verdict is not None:
            return
        self.condemn(watched, outcome, reason)
        if watched.process is None:
            watched.process = watched.folder.identity()
        if watched.process is not None:
            shell.end(watched.process, watched.folder.home, by_force=False)

    def lose(self, watched: Watched, error: OSError) -> None:
        """Its directory is of no use any more, so nothing it does can be known: it ends at once, by force."""
        if not watched.lost:
            _log.warning("component %s is ended, as its directory cannot be used: %s", watched.folder.token, error)
        watched.lost = True
        if watched.process is None and watched.child is not None:
            watched.process = shell.identity_of(watched.child)
        self.condemn(
            watched,
            Outcome.SITE_FAILED,
            f"its directory at the site was removed or altered while it was there: {error.strerror}",
        )
        self._look_at_lost(watched)

    def settle(self, watched: Watched, outcome: Outcome, reason: str, exit_code: int | None) -> None:
        """It holds nothing any more: on record first, then told, then its slots go to others."""
        event = ComponentEnded(
            at=self._clock(), token=watched.folder.token, outcome=outcome, reason=reason, exit_code=exit_code
        )
        watched.folder.bury(event)
        watched.phase = Phase.ENDED
        if watched.child is not None:
            shell.has_left(watched.child)  # so that no zombie stays behind
        del self.alive[watched.folder.token]
        self._emit(event)
        self.serve()

    # -------------------------------------------------------------------------------------------- looking

    def look(self) -> str:
        """Look at all, whatever is wrong with one of them. What is wrong with the site, or nothing."""
        trouble = ""
        self._looking = True
        for watched in list(self.alive.values()):
            try:
                self.look_at(watched)
            except OSError as error:
                trouble = f"component {watched.folder.token} cannot be watched: {error}"
            except Exception as error:
                if watched.complaint != repr(error):
                    watched.complaint = repr(error)
                    _log.exception("component %s cannot be looked at", watched.folder.token)
        self._looking, self._census = False, None
        if self._held_up:
            self.serve()
        return trouble or self._held_up

    def look_at(self, watched: Watched) -> None:
        """Find out what became of one component, and see to what follows."""
        if watched.phase in (Phase.QUEUED, Phase.ENDED):
            return
        try:
            if watched.lost:
                self._look_at_lost(watched)
            else:
                self._look_at_present(watched)
        except OSError as error:
            if watched.lost or not is_spoilt(error):
                raise
            self.lose(watched, error)

    def _members(self, watched: Watched) -> list[int]:
        if self._census is not None:
            return self._census.members(watched.process, watched.folder.home)
        census = shell.Census()
        if self._looking:
            self._census = census  # for the others that are looked at
        return census.members(watched.process, watched.folder.home)

    def _look_at_lost(self, watched: Watched) -> None:
        if self._members(watched):
            shell.end(watched.process, watched.folder.home, by_force=True)
            return
        self.settle(watched, *ending(watched, None))

    def _look_at_present(self, watched: Watched) -> None:
        child_left = watched.child is None or shell.has_left(watched.child)
        watched.folder.check()
        if watched.process is None:
            watched.process = watched.folder.identity()
        if watched.process is None and not child_left:
            self._look_at_unborn(watched)
            return
        # In this order: a script that has just ended has recorded it before.
        alive = watched.process is not None and shell.is_alive(watched.process)
        exit_words = watched.folder.exit_words()
        if alive and exit_words is None:
            self._look_at_living(watched)
        elif self._members(watched):
            # The script is over; whatever it left behind must not go on holding processors.
            shell.end(watched.process, watched.folder.home, by_force=True)
        else:
            self.settle(watched, *ending(watched, exit_words))

    def _look_at_unborn(self, watched: Watched) -> None:
        """Its process runs and has not said who it is; one that is to end and never says it is ended by force."""
        if watched.verdict is not None and self._clock() >= watched.kill_at:
            assert watched.child is not None
            shell.end(shell.identity_of(watched.child), watched.folder.home, by_force=True)

    def _look_at_living(self, watched: Watched) -> None:
        now = self._clock()
        folder, process = watched.folder, watched.process
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
            self.begin_end(watched, Outcome.TIMED_OUT, f"it ran longer than its walltime of {walltime_s:g} s")
            return
        if self._on_mail is not None:
            self._hand_out_mail(watched, self._on_mail)

    def _hand_out_mail(self, watched: Watched, on_mail: Deliver) -> None:
        for name in watched.folder.outbox():
            data = watched.folder.mail(name) if name not in watched.mailed else None
            if data is not None:
                watched.mailed.add(name)
                on_mail(Mail(token=watched.folder.token, name=name, data=data))
