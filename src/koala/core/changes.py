"""What has changed since it was written last: whoever changes a part of the core's state notes it here.

A driver that keeps a record writes these parts with the event that changed them. Queues and counters are few: they
are compared with what was written last, and nobody notes them.
"""

from __future__ import annotations

from koala.model.messages import Token
from koala.model.request import FileName, JobId


class Changes:
    """The parts that have changed, by their names, in the order in which they did."""

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
        self.places: dict[JobId, None] = {}  # jobs with other places, or with more in their long memory
        self.runs: dict[JobId, None] = {}  # jobs with components that have sent, left or made something
        self.elements: dict[tuple[JobId, int], None] = {}  # an array, and the position of an element that is not done
        self.claims: dict[Token, None] = {}
        self.transfers: dict[tuple[FileName, tuple[int, int] | None, int], None] = {}  # file, piece, site
        self.sites: dict[int, None] = {}
        self.links: dict[tuple[int, int], None] = {}
        self.applications: dict[str, None] = {}
        self.usual_runs: dict[tuple[str, str], None] = {}  # by user and name of the job, empty for all of the user
        self.files: dict[FileName, None] = {}

    def clear(self) -> None:
        """Forget everything."""
        for name in self.__slots__:
            getattr(self, name).clear()
