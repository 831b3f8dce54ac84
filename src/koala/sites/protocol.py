"""The protocol between the live driver and a site, whatever batch system rules it.

Events go to a callback that the site was built with, times come from a clock that it was built with. The contract of
tokens is the one of ``koala.model.messages``; here is how a driver speaks it, and what holds after a failure.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

from koala.model.errors import Fault
from koala.model.launch import Go, Launch, NodeShare
from koala.model.messages import AnyEvent, Outcome, SiteReported, Token

# One answer of ``LiveSite.output`` holds at most so much.
OUTPUT_BYTES_MAX = 1_048_576

Clock: TypeAlias = Callable[[], float]
Emit: TypeAlias = Callable[[AnyEvent], None]


class SiteError(ValueError):
    """A site cannot do what it was asked, and says what would help. Nothing was changed. ``fault`` is whose that is:
    what it refuses on account of a job is no failure of the site."""

    def __init__(self, site: str, message: str, fault: Fault = Fault.SITE) -> None:
        super().__init__(f"site {site}: {message}")
        self.site = site
        self.message = message
        self.fault = fault

    def for_user(self) -> str:
        """The site, what is wrong and what to do."""
        return f"site {self.site}: {self.message}"


class NotNowError(OSError):
    """A site has accepted a component that its batch system does not take yet, as there are too many jobs. It tries
    again by itself, and the component ends as any other; nobody need start it again."""


class UnseenError(OSError):
    """A site answers, and does not see the directory of one component, or cannot use it. Whether that is so for good
    its watch tells; of the site it says nothing, since the component's own application may have done it."""


class Stream(enum.StrEnum):
    """What an application writes to."""

    STDOUT = "stdout"
    STDERR = "stderr"


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a component has for the others of its job; the driver knows what to make of it by its name."""

    token: Token
    name: str
    data: bytes


Deliver: TypeAlias = Callable[[Mail], None]
# Called with the name of a site that was found, and the tokens of all components that it keeps anything of, ended or
# not, before anything is done with them. Where it raises ``SiteError`` the site is not used.
Found: TypeAlias = Callable[[str, Collection[Token]], None]


class LiveSite(Protocol):
    """A place that runs components.

    - A call that returns has happened, and stays so through a kill of the driver at any later point. A call that
      raised, or never returned, may have happened or not: repeat it. Every call may be repeated.
    - Events are emitted from within these calls and from a watch that ``open`` starts, in the driver's event loop,
      never before what they report is on record at the site. An event may come more than once; the driver that was
      killed before it handled one asks again.
    - The clock gives seconds that go on counting through a restart of the driver, as ``time.time`` does.
    """

    @property
    def name(self) -> str:
        """The site's name in the grid."""
        ...

    @property
    def calls(self) -> Mapping[str, int]:
        """How often its batch system was called since this object was made, by what for; empty without one."""
        ...

    @property
    def clock_ahead_s(self) -> float | None:
        """How far its clock is ahead of the driver's, as it last told; None where it is the same or unknown."""
        ...

    async def open(self) -> None:
        """Find again everything that was started here, and begin to watch it.

        Raises ``SiteError`` when another driver holds the site for as long as it runs, and where the driver does not
        agree with what is found (``Found``). So does every other call to a site that is not open. A site that cannot
        be reached or used yet opens all the same, and is silent; what is found there is shown to the driver then.
        """
        ...

    async def close(self) -> None:
        """Stop watching. What runs goes on, what waits at the barrier goes on waiting; another ``open`` finds it."""
        ...

    async def start(self, launch: Launch, script: str) -> None:
        """Take a component: run ``script`` once there are processors for it. Emits ``ComponentAccepted``.

        The same token again starts nothing and emits its newest event. A token that was aborted or asked about
        before it came is refused, as is one that can never fit: ``ComponentEnded`` with ``Outcome.REFUSED``.
        When it raises ``OSError`` nothing was started. ``NotNowError`` is one: then the component is accepted, and
        waits here until there is room for it.
        """
        ...

    async def abort(
        self, token: Token, *, outcome: Outcome = Outcome.ABORTED, reason: str = "", fault: Fault | None = None
    ) -> None:
        """End a component wherever it is; answered by ``ComponentEnded``, at once or when the last process is gone.

        That event tells ``outcome``, ``reason`` and ``fault``, which the site keeps from the return of this call on;
        without a reason it says where the abort found the component. Aborted twice, the first ones stand. A token
        never heard of is remembered, so that it can never start. One that has ended keeps its end.
        """
        ...

    async def ask(self, tokens: Sequence[Token]) -> None:
        """Emit the newest event of each token. One never heard of is ``Outcome.ABSENT``, and will never start."""
        ...

    async def release(self, token: Token, go: Go) -> None:
        """Open the barrier for one component: its input files appear, then it starts the application.

        Emits nothing, as the application's end will be reported. For a component that has ended, is being aborted or
        was never heard of it does nothing. Released twice, the first ``go`` stands. Raises ``SiteError``, with whose
        fault it is, when an input file is missing or cannot be linked, or a path leads out of the site's file area;
        then nothing was released.
        """
        ...

    async def deliver(self, token: Token, name: str, data: bytes) -> None:
        """Put mail of other components into a component's inbox. The first mail of a name stands.

        For a component that has ended or is being ended it does nothing. Raises ``SiteError`` for a token that the
        site does not know; then nothing was delivered.
        """
        ...

    async def fetch(self, token: Token, name: str) -> bytes | None:
        """The mail of that name in a component's outbox, or None while there is none.

        A site also hands each new piece of mail to the callback it was built with, again after each ``open``.
        """
        ...

    async def output(self, token: Token, stream: Stream, offset: int, limit: int = OUTPUT_BYTES_MAX) -> bytes:
        """What the application has written from byte ``offset`` on, at most ``limit`` bytes; empty if nothing yet.

        Works while it runs and afterwards. Raises ``SiteError`` for a token that never was accepted here.
        """
        ...

    async def nodes(self, token: Token) -> tuple[NodeShare, ...]:
        """The nodes that a component holds, its script's own first, and its share of each; none until it is ready.

        The first one's name is the address at which components of other sites reach it; the others are names by
        which the nodes of this site know each other.
        """
        ...

    async def probe(self) -> SiteReported:
        """What the site says of itself now: its working processors, and how many of them other users hold.

        Raises ``OSError`` or ``SiteError`` when it cannot tell; then nothing is known of it.
        """
        ...

    async def held(self) -> tuple[Token, ...]:
        """The tokens of all components that have not ended here, in the order they were accepted."""
        ...

    async def forget(self, token: Token) -> None:
        """Remove everything about a component that has ended: its directory, its output, the memory of its token.

        For a driver that will never name the token again. A token never heard of changes nothing. Raises
        ``SiteError`` for a component that has not ended.
        """
        ...
