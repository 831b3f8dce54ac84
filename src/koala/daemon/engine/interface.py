"""What those who perform commands may know of the engine, what they tell it, and how they repeat what failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from koala import files
from koala.core import Scheduler
from koala.daemon.engine.live_rows import LiveRows
from koala.daemon.engine.outbox import Outbox
from koala.model.messages import AnyEvent
from koala.model.request import FileName, SiteName

# A site call that has not returned after so long counts as failed, and is made again.
SITE_CALL_S = 120.0


class EngineInterface(Protocol):
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
    def outbox(self) -> Outbox:
        """What is still to be performed."""
        ...

    @property
    def entries(self) -> Mapping[FileName, files.CatalogueEntry]:
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
