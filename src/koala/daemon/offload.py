"""Work beside the event loop, in threads: queries of the store, long computations, and calls that may hang.

The pool is for answers only. However much callers ask for, a submission never waits for one of its threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from koala.model.errors import UnavailableError
from koala.store import StoreError

# At most this many answers are read or written at once; others wait.
READS_AT_ONCE_MAX = 8

P = ParamSpec("P")
T = TypeVar("T")

_pools: list[ThreadPoolExecutor] = []  # the pool in use, made when first needed


async def query(question: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return the store's answer. Raises ``UnavailableError`` if the store cannot be queried now."""
    try:
        return await offload(question, *arguments, **named)
    except StoreError as error:
        raise UnavailableError(error.for_user()) from None


async def offload(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return the result of work that takes too long for the event loop, such as writing a large answer."""
    if not _pools:
        _pools.append(ThreadPoolExecutor(READS_AT_ONCE_MAX, thread_name_prefix="koala-read"))
    return await asyncio.get_running_loop().run_in_executor(_pools[0], functools.partial(work, *arguments, **named))


def end_threads() -> None:
    """Wait for the answers under way, and end the threads; later answers start new ones."""
    while _pools:
        _pools.pop().shutdown()


async def in_own_thread(work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """Return the result of work that may hang, such as a call to a server that does not answer.

    The work has a thread of its own that the end of the process does not wait for, so it must leave nothing behind
    that the next start does not clear up. A caller that is cancelled stops waiting; the thread goes on to its own
    end.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failure = None, None
        try:
            result = work(*arguments, **named)
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has closed, and nobody waits for the result
            loop.call_soon_threadsafe(tell, result, failure)

    threading.Thread(target=run, name=f"koala-{work.__name__}", daemon=True).start()
    return await answer
