"""Why a call of the daemon failed: one family of errors, which the daemon raises, the API sends as code and HTTP
status, and the client raises again. Also who caused the failure of a component or a transfer."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from koala.model.api import ProblemAt


# The code of a conflict for lack of places: the same call may succeed later.
NO_PLACE = "no_place"


class ClientError(ValueError):
    """A client's call failed. ``message`` names the thing, what is wrong with it and what to do.

    ``code`` is for programs, ``status`` is the HTTP status of the answer (None where there was no answer), and
    ``problems`` are the defects of a description. ``http_status`` is the status that the API sends.

    >>> from koala import Client, ClientError
    >>> with Client() as koala:
    ...     try:
    ...         koala.job(1000)
    ...     except ClientError as error:
    ...         print(error.code, error.status, error.for_user())
    not_found 404 there is no job 1000; koala jobs lists the existing ones
    """

    default_code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500

    def __init__(
        self, message: str, problems: Sequence[ProblemAt] = (), *, code: str | None = None, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.status = status
        self.problems = tuple(problems)

    def for_user(self) -> str:
        """Return the message, and each problem with its place and cure that the message does not contain already."""
        lines = [self.message]
        for problem in self.problems:
            if problem.message in self.message:
                continue
            place = "" if problem.line is None else f"line {problem.line}, column {problem.column}: "
            lines.append(f"  {place}{problem.message}")
            if problem.cure:
                lines.append(f"    {problem.cure}")
        return "\n".join(lines)


class InvalidError(ClientError):
    """The call asks for something that makes no sense; ``problems`` say where."""

    default_code = "invalid"
    http_status = 422


class NotSignedInError(ClientError):
    """The daemon requires an access token, or does not know the one that it received."""

    default_code = "not_signed_in"
    http_status = 401


class ForbiddenError(ClientError):
    """The caller, or its access token, is not allowed to do this."""

    default_code = "forbidden"
    http_status = 403


class NotFoundError(ClientError):
    """The thing does not exist, or the caller may not know of it."""

    default_code = "not_found"
    http_status = 404


class ConflictError(ClientError):
    """The call conflicts with the present state."""

    default_code = "conflict"
    http_status = 409


class TooLargeError(ClientError):
    """The call exceeds a limit."""

    default_code = "too_large"
    http_status = 413


class TooManyError(ClientError):
    """The caller exceeds the rate of calls; wait a little."""

    default_code = "too_many"
    http_status = 429


class UnavailableError(ClientError):
    """The daemon runs but cannot work now, for example because it cannot reach its store; try again."""

    default_code = "unavailable"
    http_status = 503


class Fault(enum.StrEnum):
    """Who caused a failure. Only failures of the site count against it."""

    JOB = "job"  # its request cannot be met, or its application failed
    USER = "user"  # somebody forgot, removed or altered a file that it needs
    SITE = "site"  # the site, its batch system or a node
    OURS = "ours"  # the daemon's machine, Koala's own data, or the order of its messages

    @property
    def is_own(self) -> bool:
        """True if the job would fail at any site. Such a job ends after too many of these failures."""
        return self in (Fault.JOB, Fault.USER)

    @property
    def in_words(self) -> str:
        """The fault in words for people."""
        return _IN_WORDS[self]


_IN_WORDS = {
    Fault.JOB: "the job's own fault",
    Fault.USER: "caused by a change to a file that it needs",
    Fault.SITE: "the site's fault",
    Fault.OURS: "the fault of Koala or of its machine",
}
