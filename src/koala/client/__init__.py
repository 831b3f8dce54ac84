"""The typed client of the daemon's API: ``Client``, ``AsyncClient``, and the errors that they raise.

Their arguments and answers are the schema of the API, ``koala.model.api``. The clients and their libraries are loaded
at their first use, so that callers that only need the daemon's state directory do not pay for them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from koala.client.address import Address, default_state, find_address, find_token, parse_address
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

if TYPE_CHECKING:
    from koala.client.client import AsyncClient, Client
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

_LAZY = {"AsyncClient": "client", "Client": "client", "ENDED_STATES": "exchange"}

if not TYPE_CHECKING:  # a type checker sees the names above, and should reject others

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            return getattr(importlib.import_module(f"koala.client.{_LAZY[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted(__all__)
