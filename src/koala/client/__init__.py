"""The typed client of the daemon's API: ``Client``, ``AsyncClient``, and the errors that they raise.

Their arguments and answers are the schema of the API, ``koala.model.api``.
"""

from koala.client.address import Address, default_state, find_address, find_token, parse_address
from koala.client.client import AsyncClient, Client
from koala.client.errors import (
    BadAnswerError,
    ClientError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    NotSignedInError,
    TooLargeError,
    TooManyError,
    UnavailableError,
    UnreachableError,
    WrongAddressError,
)
from koala.client.exchange import ENDED_STATES

__all__ = [
    "ENDED_STATES",
    "Address",
    "AsyncClient",
    "BadAnswerError",
    "Client",
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
    "default_state",
    "find_address",
    "find_token",
    "parse_address",
]
