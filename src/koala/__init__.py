"""Koala: a co-allocating scheduler for many clusters.

``koala.Client`` and ``koala.AsyncClient`` talk to a running daemon; they are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from koala.version import __version__

if TYPE_CHECKING:
    from koala.client import AsyncClient, Client, ClientError

__all__ = ["AsyncClient", "Client", "ClientError", "__version__"]

_LAZY = frozenset({"AsyncClient", "Client", "ClientError"})

if not TYPE_CHECKING:  # a type checker knows the names above, and should complain of others

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            return getattr(importlib.import_module("koala.client"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted(__all__)
