"""The protocol between the live driver and a site, under any batch system.

A site is built with a callback for its events and a clock for its times. ``koala.model.messages`` has the contract of
tokens; this module defines how a driver uses it, and what holds after a failure.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

from koala.model.errors import Fault
from koala.model.launch import Go, Launch, NodeShare
from koala.model.messages import AnyEvent, Outcome, SiteReported, Token

# One answer of ``LiveSite.output`` contains at most this many bytes.
OUTPUT_BYTES_MAX = 1_048_576

Clock: TypeAlias = Callable[[], float]
Emit: TypeAlias = Callable[[AnyEvent], None]


class SiteError(ValueError):
    """A site cannot do what it was asked, and says what would help. Nothing was changed. ``fault`` says whose fault
    that is: a refusal on account of a job is no failure of the site."""

    def __init__(self, site: str, message: str, fault: Fault = Fault.SITE) -> None:
        super().__init__(f"site {site}: {message}")
        self.site = site
        self.message = message
        self.fault = fault

    def for_user(self) -> str:
        """Return the site, the problem and advice."""
        return f"site {self.site}: {self.message}"


class NotNowError(OSError):
    """A site has accepted a component that its batch system cannot take yet, since there are too many jobs. It
    retries by itself, and the component ends like any other; nobody needs to start it again."""


class UnseenError(OSError):
    """A site answers, but cannot see or use the directory of one component. Its watch finds out if that is permanent;
    it says nothing about the site, since the component's own application may have caused it."""


class Stream(enum.StrEnum):
    """An output stream of an application."""

    STDOUT = "stdout"
    STDERR = "stderr"


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """Mail from a component for the others of its job; the driver interprets it by its name."""

    token: Token
    name: str
    data: bytes


Deliver: TypeAlias = Callable[[Mail], None]
# Called with the name of a site that was found, and the tokens of all components that it keeps anything about, ended
# or not, before it acts on them. If the call raises ``SiteError`` the site is not used.
Found: TypeAlias = Callable[[str, Collection[Token]], None]


class LiveSite(Protocol):
    """A place that runs components.

    - A call that returns has happened, and survives a kill of the driver at any later point. A call that raised, or
      never returned, may have happened or not: repeat it. Every call may be repeated.
    - Events are emitted from within these calls and from a watch that ``open`` starts, in the driver's event loop,
      never before their content is on record at the site. An event may come more than once; a driver that was killed
      before it handled one asks again.
    - The clock gives seconds that continue through a restart of the driver, as ``time.time`` does.
    """

    @property
    def name(self) -> str:
        """The site's name in the grid."""
        ...

    @property
    def calls(self) -> Mapping[str, int]:
        """The number of calls to its batch system since this object was made, by purpose; empty without a batch
        system."""
        ...

    @property
    def clock_ahead_s(self) -> float | None:
        """How far its clock is ahead of the driver's, by its last report; None if it is the same clock or that is
        unknown."""
        ...

    async def open(self) -> None:
        """Find again everything that was started here, and begin to watch it.

        Raises ``SiteError`` if another running driver holds the site, and if the driver rejects what is found
        (``Found``). So does every other call to a site that is not open. A site that cannot be reached or used yet
        opens all the same, and is silent; the driver receives what is found there later.
        """
        ...

    async def close(self) -> None:
        """Stop watching. Running and waiting components continue; another ``open`` finds them."""
        ...

    async def start(self, launch: Launch, script: str) -> None:
        """Accept a component: run ``script`` once there are processors for it. Emits ``ComponentAccepted``.

        The same token again starts nothing and emits its newest event. A token that was aborted or asked about before
        it came is refused, as is one that can never fit: ``ComponentEnded`` with ``Outcome.REFUSED``. After an
        ``OSError`` nothing was started, except after ``NotNowError``: then the component is accepted, and waits here
        for room.
        """
        ...

    async def abort(
        self, token: Token, *, outcome: Outcome = Outcome.ABORTED, reason: str = "", fault: Fault | None = None
    ) -> None:
        """End a component in any state; answered by ``ComponentEnded``, at once or when the last process is gone.

        That event carries ``outcome``, ``reason`` and ``fault``, which the site keeps from the return of this call
        on; without a reason it says in which state the abort found the component. After a second abort the first
        values stand. An unknown token is remembered, so that it can never start. An ended component keeps its end.
        """
        ...

    async def ask(self, tokens: Sequence[Token]) -> None:
        """Emit the newest event of each token. An unknown token is ``Outcome.ABSENT``, and will never start."""
        ...

    async def release(self, token: Token, go: Go) -> None:
        """Open the barrier for one component: its input files appear, then it starts the application.

        Emits nothing, since the application's end will be reported. It does nothing for a component that has ended,
        is being aborted or is unknown. After a second release the first ``go`` stands. Raises ``SiteError``, with
        whose fault it is, if an input file is missing or cannot be linked, or a path leads out of the site's file
        area; then nothing was released.
        """
        ...

    async def deliver(self, token: Token, name: str, data: bytes) -> None:
        """Put mail of other components into a component's inbox. The first mail of a name stands.

        It does nothing for a component that has ended or is being ended. Raises ``SiteError`` for an unknown token;
        then nothing was delivered.
        """
        ...

    async def fetch(self, token: Token, name: str) -> bytes | None:
        """Return the mail of that name in a component's outbox, or None while there is none.

        A site also passes each new piece of mail to the callback it was built with, again after each ``open``.
        """
        ...

    async def output(self, token: Token, stream: Stream, offset: int, limit: int = OUTPUT_BYTES_MAX) -> bytes:
        """Return what the application has written from byte ``offset`` on, at most ``limit`` bytes; empty if nothing
        yet.

        Works while it runs and afterwards. Raises ``SiteError`` for a token that was never accepted here.
        """
        ...

    async def nodes(self, token: Token) -> tuple[NodeShare, ...]:
        """Return the nodes that a component holds, its script's own first, and its share of each; empty until it is
        ready.

        The first node's name is the address at which components of other sites reach it; the others are names by
        which the nodes of this site reach each other.
        """
        ...

    async def probe(self) -> SiteReported:
        """Return the site's report about itself now: its working processors, and how many of them other users hold.

        Raises ``OSError`` or ``SiteError`` if it has no report; then nothing is known about it.
        """
        ...

    async def held(self) -> tuple[Token, ...]:
        """Return the tokens of all live components, in the order of acceptance."""
        ...

    async def forget(self, token: Token) -> None:
        """Remove everything about an ended component: its directory, its output, the memory of its token.

        For a driver that will never use the token again. An unknown token changes nothing. Raises ``SiteError`` for a
        component that has not ended.
        """
        ...
