"""Why a call of the daemon was not carried out: one family of errors, which the daemon raises, the API tells by code
and HTTP status, and the client raises again. And whose the failure of a component or a transfer is."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from koala.model.api import ProblemAt


# The code of a conflict for lack of places: a refusal that another time may not give.
NO_PLACE = "no_place"


class ClientError(ValueError):
    """A client's call did not succeed. ``message`` names the thing, what is wrong with it and what to do.

    ``code`` is for programs, ``status`` the HTTP status of the answer (None where there was no answer), and
    ``problems`` are the places in a description that are wrong. ``http_status`` is what the API answers with.

    >>> from koala import Client, ClientError
    >>> with Client() as koala:
    ...     try:
    ...         koala.job(1000)
    ...     except ClientError as error:
    ...         print(error.code, error.status, error.for_user())
    not_found 404 there is no job 1000; koala jobs lists those that there are
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
        """The message, and every problem with its place and its cure that the message does not tell already."""
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
    """What was asked for makes no sense; ``problems`` say where."""

    default_code = "invalid"
    http_status = 422


class NotSignedInError(ClientError):
    """The daemon wants an access token, or does not know the one it was given."""

    default_code = "not_signed_in"
    http_status = 401


class ForbiddenError(ClientError):
    """The caller, or its access token, is not allowed to do this."""

    default_code = "forbidden"
    http_status = 403


class NotFoundError(ClientError):
    """There is no such thing, or the caller may not know of it."""

    default_code = "not_found"
    http_status = 404


class ConflictError(ClientError):
    """It cannot be done as things are now."""

    default_code = "conflict"
    http_status = 409


class TooLargeError(ClientError):
    """More than a limit allows."""

    default_code = "too_large"
    http_status = 413


class TooManyError(ClientError):
    """More calls than the rate allows; wait a little."""

    default_code = "too_many"
    http_status = 429


class UnavailableError(ClientError):
    """The daemon runs but cannot work now, for example because its store is not reachable; try again."""

    default_code = "unavailable"
    http_status = 503


class Fault(enum.StrEnum):
    """Whose a failure is. Only its own counts against a site."""

    JOB = "job"  # what it asks for cannot be done, or its application did it
    USER = "user"  # what somebody did with what it needs: a file of it was forgotten, removed or altered
    SITE = "site"  # the site, its batch system or a node
    OURS = "ours"  # the machine of the daemon, what Koala keeps, or the order in which it told of things

    @property
    def is_own(self) -> bool:
        """Whether the job would fail at any site: it ends when that has happened too often."""
        return self in (Fault.JOB, Fault.USER)

    @property
    def in_words(self) -> str:
        """For people."""
        return _IN_WORDS[self]


_IN_WORDS = {
    Fault.JOB: "the job's own fault",
    Fault.USER: "for what became of what it needs",
    Fault.SITE: "the site's fault",
    Fault.OURS: "the fault of Koala or of its machine",
}
