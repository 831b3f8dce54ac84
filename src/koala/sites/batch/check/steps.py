"""What the steps of a check share: their results, and the context in which they ask the site.

The steps themselves are in the other modules of this folder, their order and dependencies in ``check.py``.
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

# How long one question to a site may take: clients of a batch system whose controller is down hang for long.
QUESTION_TIMEOUT_S = 20.0
# How much of what a program said is repeated to the user.
_COMPLAINT_CHARACTERS_MAX = 300


class StepStatus(enum.StrEnum):
    """What a step found. After a warning the site can be used, though not for everything."""

    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"
    SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one step found, in words, and what to do about it where there is something to do."""

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
    """All is well."""
    return StepResult(StepStatus.PASSED, words)


def warned(words: str, advice: str) -> StepResult:
    """The site can be used, but not for everything."""
    return StepResult(StepStatus.WARNED, words, advice)


def failed(words: str, advice: str) -> StepResult:
    """The site cannot be used before this is mended."""
    return StepResult(StepStatus.FAILED, words, advice)


def skipped(words: str) -> StepResult:
    """The step was not tried."""
    return StepResult(StepStatus.SKIPPED, words)


class RunsScripts(Protocol):
    """Runs shell scripts at the login host of a site; OSError where that is not possible."""

    async def run(self, text: str, *, timeout_s: float) -> ShellResult: ...

    async def close(self) -> None: ...


class Reply(msgspec.Struct, frozen=True):
    """An answer as text. ``greeting`` is what the login printed before it, of its own accord."""

    code: int
    printed: str
    complaint: str
    greeting: str

    @property
    def reason(self) -> str:
        """Why it did not work, in the words of the program; what it complained of, or else what it printed."""
        said = " ".join((self.complaint.strip() or self.printed.strip()).split())
        return said[:_COMPLAINT_CHARACTERS_MAX] or f"it ended with {self.code} and said nothing"


class UnansweredError(OSError):
    """The site did not answer a question of a check; the words say why."""


class CheckContext:
    """One check of a site: its steps ask the site here, and keep for later steps what they learnt.

    ``checks`` are those of its batch system.
    ``owner`` is who would use the site, as its work directory names it.
    ``nonce`` is a word that no other check has; whatever a check makes at a site is named by it.
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
        self.work = ""  # the work directory as an absolute path, once it is known
        self.queue_processors: int | None = None  # all that the queue has, whether they can be used now or not
        self.nodes: tuple[NodeClass, ...] = ()  # as the listing tells of them

    async def ask(self, text: str, *, timeout_s: float = QUESTION_TIMEOUT_S) -> Reply:
        """Run a script at the site. Raises ``UnansweredError`` where there was no answer."""
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
        """Names the jobs that this check submits."""
        return f"check-{self.nonce}"

    @property
    def home(self) -> str:
        """The directory of this check at the site; there only while a step needs it."""
        return f"{self.work}/{self.token}"

    @property
    def processors_tried(self) -> int:
        """How many processors the jobs of a check ask for: two where there are, so that what only jobs of several
        need is tried too."""
        return min(2, self.site.processors)


# What a step does. Where it does not apply it has no result.
StepFunction: TypeAlias = Callable[[CheckContext], Awaitable[StepResult | None]]


class Step(msgspec.Struct, frozen=True):
    """One step: its name, what it does, and the steps that must have passed before."""

    name: str
    run: StepFunction
    needs: tuple[str, ...] = ()


class SystemChecks(msgspec.Struct, frozen=True, kw_only=True):
    """The steps that know a batch system, and what the others need to know of it.

    ``programs`` are those that Koala calls, with advice where one is missing; ``lists`` is the one that lists jobs.
    With ``dry_options`` a submission is only checked. ``controller`` and ``queue`` are steps of every system.
    ``before_listing`` and ``after_listing`` are further ones by name: without the former there are no processors.
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
    """Words in a sentence."""
    return ", ".join(words) or "none"
