"""Why the daemon did not do what a caller asked: each with a code for programs and a message for people."""

from __future__ import annotations

from collections.abc import Sequence

from koala.model.api import ProblemAt


class ServiceError(ValueError):
    """A call was not carried out; nothing was changed. ``message`` names the thing, what is wrong and what to do."""

    code = "error"
    status = 500

    def __init__(self, message: str, problems: Sequence[ProblemAt] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.problems = tuple(problems)

    def for_user(self) -> str:
        """The message."""
        return self.message


class InvalidError(ServiceError):
    """What was asked for makes no sense."""

    code = "invalid"
    status = 422


class NotSignedInError(ServiceError):
    """The caller did not say who it is."""

    code = "not_signed_in"
    status = 401


class ForbiddenError(ServiceError):
    """The caller may not do this."""

    code = "forbidden"
    status = 403


class NotFoundError(ServiceError):
    """There is no such thing, or the caller may not know of it."""

    code = "not_found"
    status = 404


class ConflictError(ServiceError):
    """It cannot be done as things are now."""

    code = "conflict"
    status = 409


class TooLargeError(ServiceError):
    """More than a limit allows."""

    code = "too_large"
    status = 413


class TooManyError(ServiceError):
    """More calls than the rate allows."""

    code = "too_many"
    status = 429


class UnavailableError(ServiceError):
    """The daemon cannot do anything now, for example because its store is not reachable; try again."""

    code = "unavailable"
    status = 503
