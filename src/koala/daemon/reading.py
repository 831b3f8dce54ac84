"""Reading the store from within the event loop: in a thread, with its failures told as those of the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from koala.daemon.errors import UnavailableError
from koala.store import StoreError

P = ParamSpec("P")
T = TypeVar("T")


async def reading(question: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The store's answer; ``UnavailableError`` when it cannot be asked now."""
    try:
        return await asyncio.to_thread(question, *arguments, **named)
    except StoreError as error:
        raise UnavailableError(error.for_user()) from None
