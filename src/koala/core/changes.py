"""What has changed since the last write: code that changes a part of the core's state notes it here.

A driver that keeps a record writes these parts with the event that changed them. Queues and counters are few: they
are compared with what was last written, so nobody notes them.
"""

from __future__ import annotations

from koala.model.messages import Token
from koala.model.request import FileName, JobId


class Changes:
    """The parts that have changed, by name, in the order of their changes."""

    __slots__ = (
        "applications",
        "claims",
        "elements",
        "files",
        "jobs",
        "links",
        "places",
        "runs",
        "sites",
        "transfers",
        "usual_runs",
    )

    def __init__(self) -> None:
        self.jobs: dict[JobId, None] = {}
        self.places: dict[JobId, None] = {}  # jobs with new places, or with changes in their long memory
        self.runs: dict[JobId, None] = {}  # jobs with components that have sent traffic, left or produced outputs
        self.elements: dict[tuple[JobId, int], None] = {}  # an array, and the position of an element that is not done
        self.claims: dict[Token, None] = {}
        self.transfers: dict[tuple[FileName, tuple[int, int] | None, int], None] = {}  # file, piece, site
        self.sites: dict[int, None] = {}
        self.links: dict[tuple[int, int], None] = {}
        self.applications: dict[str, None] = {}
        self.usual_runs: dict[tuple[str, str], None] = {}  # by user and job name; empty: all the user's
        self.files: dict[FileName, None] = {}

    def clear(self) -> None:
        """Forget everything."""
        for name in self.__slots__:
            getattr(self, name).clear()
