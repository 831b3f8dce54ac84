"""Errors of a lab, as messages for its user."""

from __future__ import annotations


class LabError(ValueError):
    """A lab cannot be brought up or used: the message names the thing, what is wrong, and what to do."""

    def for_user(self) -> str:
        """Return the message."""
        return str(self)


class LabFailedError(LabError):
    """Something was tried and failed; the code shows the command line that the usage was not wrong."""

    code = "conflict"


class LabIsUpError(LabError):
    """The directory has a running lab already. ``same`` is True if that lab has the requested options."""

    def __init__(self, message: str, *, same: bool) -> None:
        super().__init__(message)
        self.same = same
