"""Why a call of the client did not give what was asked for: a family of errors, a kind for each thing to do next."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from koala.model.api import ProblemAt


class ClientError(ValueError):
    """A call did not succeed. ``message`` names the thing, what is wrong with it and what to do.

    ``code`` is for programs, ``status`` the HTTP status (None where there was no answer), and ``problems`` are the
    places in a description that are wrong.
    """

    default_code: ClassVar[str] = "error"

    def __init__(
        self, message: str, *, code: str | None = None, status: int | None = None, problems: Sequence[ProblemAt] = ()
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


class WrongAddressError(ClientError):
    """The address of the server, or the token for it, cannot be used as it is written."""

    default_code = "wrong_address"


class UnreachableError(ClientError):
    """No daemon answers there, or the connection was lost and did not come back."""

    default_code = "unreachable"


class BadAnswerError(ClientError):
    """Something answers there, but not as Koala's daemon does, or the daemon broke down over the call."""

    default_code = "bad_answer"


class InvalidError(ClientError):
    """What was asked for makes no sense; ``problems`` say where."""

    default_code = "invalid"


class NotSignedInError(ClientError):
    """The server wants a token, or does not know the one it was given."""

    default_code = "not_signed_in"


class ForbiddenError(ClientError):
    """The token does not allow this."""

    default_code = "forbidden"


class NotFoundError(ClientError):
    """There is no such thing, or the caller may not know of it."""

    default_code = "not_found"


class ConflictError(ClientError):
    """It cannot be done as things are now."""

    default_code = "conflict"


class TooLargeError(ClientError):
    """More than a limit allows."""

    default_code = "too_large"


class TooManyError(ClientError):
    """More calls than the rate allows; wait a little."""

    default_code = "too_many"


class UnavailableError(ClientError):
    """The daemon runs but cannot work now, for example because its store is not reachable."""

    default_code = "unavailable"


_BY_STATUS: dict[int, type[ClientError]] = {
    400: InvalidError,
    401: NotSignedInError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: TooLargeError,
    422: InvalidError,
    429: TooManyError,
    503: UnavailableError,
}
# Said before what the daemon says, since that is about HTTP.
_NO_TOKEN = "set KOALA_TOKEN to a token, or write one into ~/.config/koala/token; the daemon says: "  # noqa: S105
# What the daemon's words about lists are on the command line, where most readers are.
_LISTS = {
    "look at the list of jobs": "koala jobs lists those that there are",
    "look at the list of files": "koala files lists those that there are",
}


def error_of(status: int, code: str, message: str, problems: Sequence[ProblemAt]) -> ClientError:
    """The error for an answer that is not a success."""
    kind = _BY_STATUS.get(status, BadAnswerError)
    if status == HTTPStatus.UNAUTHORIZED and "KOALA_TOKEN" not in message:
        message = _NO_TOKEN + message
    for list_words, verb in _LISTS.items():
        message = message.replace(list_words, verb)
    return kind(message, code=code, status=status, problems=problems)
