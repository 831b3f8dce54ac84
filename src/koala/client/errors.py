"""The errors of the client: those that the daemon sends (``koala.model.errors``), and those of a missing answer."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from koala.model.errors import (
    ClientError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    NotSignedInError,
    TooLargeError,
    TooManyError,
    UnavailableError,
)

if TYPE_CHECKING:
    from koala.model.api import ProblemAt

__all__ = [
    "BadAnswerError",
    "ClientError",
    "ConflictError",
    "ForbiddenError",
    "InvalidError",
    "NotFoundError",
    "NotSignedInError",
    "TooLargeError",
    "TooManyError",
    "UnavailableError",
    "UnreachableError",
    "WrongAddressError",
    "error_of",
]


class WrongAddressError(ClientError):
    """The address of the server, or the token for it, is not valid as written."""

    default_code = "wrong_address"


class UnreachableError(ClientError):
    """No daemon answers at the address, or the connection was lost and did not come back."""

    default_code = "unreachable"


class BadAnswerError(ClientError):
    """The answer is not one of Koala's daemon, or the daemon broke down over the call."""

    default_code = "bad_answer"


_KINDS = (
    InvalidError,
    NotSignedInError,
    ForbiddenError,
    NotFoundError,
    ConflictError,
    TooLargeError,
    TooManyError,
    UnavailableError,
)
_BY_STATUS: dict[int, type[ClientError]] = {400: InvalidError} | {kind.http_status: kind for kind in _KINDS}
# Stands in front of the daemon's message, which is about HTTP.
_NO_TOKEN = "set KOALA_TOKEN to a token, or write one into ~/.config/koala/token; the daemon says: "  # noqa: S105
# The daemon's words about lists, with the commands that stand for them: most readers are at the command line.
_LISTS = {
    "look at the list of jobs": "koala jobs lists the existing ones",
    "look at the list of files": "koala files lists the existing ones",
}


def error_of(status: int, code: str, message: str, problems: Sequence[ProblemAt]) -> ClientError:
    """Return the error for an answer that is not a success."""
    kind = _BY_STATUS.get(status, BadAnswerError)
    if status == HTTPStatus.UNAUTHORIZED and "KOALA_TOKEN" not in message:
        message = _NO_TOKEN + message
    problems = [msgspec.structs.replace(each, cure=_for_a_shell(each.cure)) for each in problems]
    return kind(_for_a_shell(message), code=code, status=status, problems=problems)


def _for_a_shell(message: str) -> str:
    for list_words, verb in _LISTS.items():
        message = message.replace(list_words, verb)
    return message
