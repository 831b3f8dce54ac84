"""What the applications raise when a user has asked for something that cannot be done."""

from __future__ import annotations


class ApplicationError(ValueError):
    """The user's wish cannot be met; the message says which one, why, and what to do.

    It is raised by every process alike, from what all of them know, so that none is left waiting for the others.
    """

    def for_user(self) -> str:
        """What to print."""
        return str(self)
