"""What the steps of a check share: their results, and the context in which they ask the site.

The other modules of this folder contain the steps; ``check.py`` has their order and dependencies.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

import msgspec

from koala.model.grid import BatchSettings, Site
from koala.model.nodes import NodeClass
from koala.sites.batch.system import BatchSystem
from koala.sites.protocol import Clock
from koala.sites.remote_shell import ShellResult

# Limit for one question to a site: the clients of a batch system hang for long if its controller is down.
QUESTION_TIMEOUT_S = 20.0
# At most this much of a program's output is repeated to the user.
_COMPLAINT_CHARACTERS_MAX = 300


class StepStatus(enum.StrEnum):
    """The status of a step. After a warning the site can be used, though not for everything."""

    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"
    SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one step found, in words, with advice where something can be done."""

    step: str
    sign: StepStatus
    words: str
    advice: str = ""


class StepResult(msgspec.Struct, frozen=True):
    """What a step found."""

    sign: StepStatus
    words: str
    advice: str = ""


def passed(words: str) -> StepResult:
    """Return a result for a step that found no problem."""
    return StepResult(StepStatus.PASSED, words)


def warned(words: str, advice: str) -> StepResult:
    """Return a result for a site that can be used, but not for everything."""
    return StepResult(StepStatus.WARNED, words, advice)


def failed(words: str, advice: str) -> StepResult:
    """Return a result for a site that cannot be used until this is fixed."""
    return StepResult(StepStatus.FAILED, words, advice)


def skipped(words: str) -> StepResult:
    """Return a result for a step that was not tried."""
    return StepResult(StepStatus.SKIPPED, words)


class RunsScripts(Protocol):
    """Runs shell scripts at the login host of a site; raises OSError if that is not possible."""

    async def run(self, text: str, *, timeout_s: float) -> ShellResult: ...

    async def close(self) -> None: ...


class Reply(msgspec.Struct, frozen=True):
    """An answer as text. ``greeting`` is the output of the login before the answer."""

    code: int
    printed: str
    complaint: str
    greeting: str

    @property
    def reason(self) -> str:
        """The reason for a failure in the program's words: its errors, or else its output."""
        said = " ".join((self.complaint.strip() or self.printed.strip()).split())
        return said[:_COMPLAINT_CHARACTERS_MAX] or f"it ended with {self.code} and said nothing"


class UnansweredError(OSError):
    """The site did not answer a question of a check; the message says why."""


class CheckContext:
    """One check of a site: its steps ask the site here, and keep what later steps need.

    ``checks`` belong to its batch system. ``owner`` is the prospective user of the site, as its work directory names
    the user. ``nonce`` is unique to this check; everything that the check creates at a site is named after it.
    ``programs_here`` are directories of this machine that hold programs for sites whose commands run here.
    """

    def __init__(
        self,
        site: Site,
        runner: RunsScripts,
        make_system: Callable[[BatchSettings], BatchSystem],
        checks: SystemChecks,
        *,
        owner: str,
        clock: Clock,
        nonce: str,
        programs_here: tuple[str, ...] = (),
        patience_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        assert site.batch is not None, "a site under a batch system"
        self.site = site
        self.settings: BatchSettings = site.batch
        self.runner = runner
        self.make_system = make_system
        self.batch = make_system(self.settings)
        self.checks = checks
        self.owner = owner
        self.clock = clock
        self.nonce = nonce
        self.programs_here = programs_here
        self.patience_s = patience_s
        self.sleep = sleep
        self.work = ""  # the absolute path of the work directory, once it is known
        self.queue_processors: int | None = None  # all processors of the queue, available or not
        self.nodes: tuple[NodeClass, ...] = ()  # from the listing

    async def ask(self, text: str, *, timeout_s: float = QUESTION_TIMEOUT_S) -> Reply:
        """Run a script at the site. Raises ``UnansweredError`` if no answer came."""
        try:
            answer = await self.runner.run(text, timeout_s=timeout_s)
        except OSError as error:
            raise UnansweredError(" ".join(str(error).split())[:_COMPLAINT_CHARACTERS_MAX]) from error
        printed, complaint, greeting = (
            each.decode(errors="replace") for each in (answer.stdout, answer.stderr, answer.greeting)
        )
        return Reply(answer.code, printed, complaint, greeting)

    @property
    def token(self) -> str:
        """The name of the jobs that this check submits."""
        return f"check-{self.nonce}"

    @property
    def home(self) -> str:
        """The directory of this check at the site; it exists only while a step needs it."""
        return f"{self.work}/{self.token}"

    @property
    def processors_tried(self) -> int:
        """The number of processors that the jobs of a check request: two if possible, to try what only parallel jobs
        need."""
        return min(2, self.site.processors)


# The function of a step. It returns no result where it does not apply.
StepFunction: TypeAlias = Callable[[CheckContext], Awaitable[StepResult | None]]


class Step(msgspec.Struct, frozen=True):
    """One step: its name, its function, and the steps that must have passed before."""

    name: str
    run: StepFunction
    needs: tuple[str, ...] = ()


class SystemChecks(msgspec.Struct, frozen=True, kw_only=True):
    """The steps specific to a batch system, and what the other steps need to know about it.

    ``programs`` are the commands that Koala calls, each with advice if it is missing; ``lists`` is the command that
    lists jobs. With ``dry_options`` a submission is only checked. ``controller`` and ``queue`` are steps of every
    system. ``before_listing`` and ``after_listing`` are further steps by name; the step for processors needs the
    former.
    """

    programs: tuple[str, ...]
    programs_advice: str
    lists: str
    dry_options: tuple[str, ...]
    controller: Callable[[CheckContext], Awaitable[StepResult]]
    queue: StepFunction
    before_listing: tuple[tuple[str, StepFunction], ...] = ()
    after_listing: tuple[tuple[str, StepFunction], ...] = ()


def listed(words: list[str]) -> str:
    """Return words as a list in a sentence."""
    return ", ".join(words) or "none"
