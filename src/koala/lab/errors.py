"""What goes wrong with a lab, as messages for its user."""

from __future__ import annotations


class LabError(ValueError):
    """A lab that cannot be brought up or used: names the thing, what is wrong, and what to do."""

    def for_user(self) -> str:
        """The message."""
        return str(self)


class LabFailedError(LabError):
    """Something was tried and failed; the code tells the command line that it was no wrong use."""

    code = "conflict"


class LabIsUpError(LabError):
    """There is a lab in the directory already. ``same`` tells whether it is as it was asked for."""

    def __init__(self, message: str, *, same: bool) -> None:
        super().__init__(message)
        self.same = same
