"""What those who perform commands may know of the engine, and what they tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from koala import files
from koala.core import Scheduler
from koala.daemon.live_rows import LiveRows
from koala.daemon.owing import Owed
from koala.messages import AnyEvent, Outcome, Token
from koala.model import FileName, SiteName

# A site call that has not returned after so long counts as failed, and is made again.
SITE_CALL_S = 120.0
# What failed is tried again after so long, then ever more rarely.
RETRY_FIRST_S = 0.5
RETRY_MOST_S = 30.0


class Desk(Protocol):
    """The engine as its helpers see it. The core's books may be a batch ahead of the record, the rows never are."""

    @property
    def scheduler(self) -> Scheduler:
        """The core, which a recovery replaces."""
        ...

    @property
    def rows(self) -> LiveRows:
        """What is on record of everything that lives."""
        ...

    @property
    def owed(self) -> Owed:
        """What is still to be performed."""
        ...

    @property
    def entries(self) -> Mapping[FileName, files.Entry]:
        """The replica catalogue as it is on record."""
        ...

    def now(self) -> float:
        """The engine's time."""
        ...

    def report(self, event: AnyEvent) -> None:
        """Something happened. It is handled soon, unless the engine is just recovering: then the sites are asked."""
        ...

    def settle(self, seq: int) -> None:
        """A command has been performed."""
        ...

    def silent(self, site: SiteName, who: str, reason: str) -> None:
        """A call of a site failed. ``who`` called it, for ``answered`` to name."""
        ...

    def answered(self, site: SiteName, who: str) -> None:
        """A call of a site came back."""
        ...

    def condemn(self, token: Token, outcome: Outcome, reason: str) -> None:
        """The component is about to be aborted for this reason, which is what its end is to say."""
        ...


def next_wait_s(wait_s: float) -> float:
    """How long to wait before the next try, after one that had waited so long."""
    return min(2 * wait_s, RETRY_MOST_S)
