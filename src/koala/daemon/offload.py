"""Reading the store from within the event loop: in threads, with its failures told as those of the daemon.

These threads are for answers alone. However much callers ask for, a submission that is put on record waits for none
of them.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from koala.daemon.errors import UnavailableError
from koala.store import StoreError

# So many answers are read or written at once; others wait.
READS_AT_ONCE_MAX = 8

P = ParamSpec("P")
T = TypeVar("T")

_threads = ThreadPoolExecutor(READS_AT_ONCE_MAX, thread_name_prefix="koala-read")


async def reading(question: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The store's answer; ``UnavailableError`` when it cannot be asked now."""
    try:
        return await aside(question, *arguments, **named)
    except StoreError as error:
        raise UnavailableError(error.for_user()) from None


async def aside(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What a piece of work gives that is too long for the event loop, such as writing a large answer."""
    return await asyncio.get_running_loop().run_in_executor(_threads, functools.partial(work, *arguments, **named))
