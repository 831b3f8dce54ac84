"""Work in a thread of its own that nobody waits for at the end of the process: for what may hang, such as a server
that does not answer, and leaves nothing behind that the next start does not clear up."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_own_thread(work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """What the work gives. Who is cancelled stops waiting; the thread goes on to its own end, or the process's."""
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
        with contextlib.suppress(RuntimeError):  # the loop has closed, and nobody is there to be told
            loop.call_soon_threadsafe(tell, result, failure)

    threading.Thread(target=run, name=f"koala-{work.__name__}", daemon=True).start()
    return await answer
