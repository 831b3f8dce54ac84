"""One component that has not ended, as the embedded site watches it, and what its end means."""

from __future__ import annotations

import enum

from koala.model.launch import ABORTED, EXITED, GAVE_UP, KILLED, NO_NODES, Launch
from koala.model.messages import Outcome
from koala.sites.component_directory import ComponentDirectory
from koala.sites.processes import Child, Identity

# Exit codes above this are how a shell says that a signal ended a program.
SIGNALLED = 128


class ComponentPhase(enum.Enum):
    """Where a component is at the site. From STARTING until ENDED it holds its slots."""

    QUEUED = "queued"
    STARTING = "starting"
    READY = "ready"  # at the barrier, or past it once it was released
    ENDED = "ended"


class LocalComponent:
    """A component that has not ended.

    ``verdict`` says that it is being ended and ``reason`` why; force is used from ``kill_at`` on. One that is
    ``lost`` has no directory any more that could be used. ``complaint`` is the last trouble with it that was logged.
    """

    __slots__ = (
        "child",
        "complaint",
        "directory",
        "kill_at",
        "launch",
        "lost",
        "mailed",
        "phase",
        "process",
        "reason",
        "released_at",
        "verdict",
    )

    def __init__(self, launch: Launch, directory: ComponentDirectory) -> None:
        self.launch = launch
        self.directory = directory
        self.phase = ComponentPhase.QUEUED
        self.process: Identity | None = None
        self.child: Child | None = None
        self.released_at: float | None = None
        self.verdict: Outcome | None = None
        self.reason = ""
        self.lost = False
        self.complaint = ""
        self.kill_at = 0.0
        self.mailed: set[str] = set()

    @property
    def processors(self) -> int:
        """The slots that it needs."""
        return self.launch.processors


def ending(component: LocalComponent, exit_words: list[str] | None) -> tuple[Outcome, str, int | None]:
    """What the end of a component means: outcome, reason and the application's exit code.

    ``exit_words`` is what its script recorded; None if it vanished without a word.
    """
    if component.verdict is not None:
        return component.verdict, component.reason or "aborted", recorded_exit_code(exit_words)
    if exit_words is None:
        return Outcome.SITE_FAILED, _why_vanished(component), None
    return recorded_ending(exit_words, component.launch)


def recorded_ending(exit_words: list[str], launch: Launch) -> tuple[Outcome, str, int | None]:
    """What a script's own record of its end means: outcome, reason and the application's exit code."""
    exit_code = recorded_exit_code(exit_words)
    match exit_words[:1]:
        case [word] if word == EXITED and exit_code is not None:
            return _of_exit_code(exit_code)
        case [word] if word == ABORTED:
            return Outcome.ABORTED, "aborted", None
        case [word] if word == GAVE_UP:
            limit_s = launch.barrier_timeout_s
            return Outcome.ABORTED, f"it was not released within its barrier timeout of {limit_s:g} s", None
        case [word] if word == KILLED:
            return Outcome.SITE_FAILED, "a signal ended it at the barrier", None
        case [word] if word == NO_NODES:
            why = "the site did not tell which nodes it has; the log in its directory says why"
            return Outcome.SITE_FAILED, why, None
    return Outcome.SITE_FAILED, f"its record of the exit makes no sense: {' '.join(exit_words)!r}", None


def _of_exit_code(exit_code: int) -> tuple[Outcome, str, int | None]:
    if exit_code == 0:
        return Outcome.DONE, "", 0
    if exit_code > SIGNALLED:
        return Outcome.FAILED, f"exit code {exit_code} (signal {exit_code - SIGNALLED})", exit_code
    return Outcome.FAILED, f"exit code {exit_code}", exit_code


def recorded_exit_code(exit_words: list[str] | None) -> int | None:
    """The application's exit code in a script's record of its end, if there is one."""
    match exit_words:
        case [word, code] if word == EXITED and code.isascii() and code.isdigit() and len(code) <= 3:
            return int(code)
    return None


def _why_vanished(component: LocalComponent) -> str:
    if component.process is None:
        return "its script never began; the log in its directory says why"
    return "its processes vanished without recording an exit code: they were killed, or the machine was restarted"
