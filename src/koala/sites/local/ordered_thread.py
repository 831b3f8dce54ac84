"""A thread that does one thing after the other for callers in an event loop, so that slow files hold up nobody else.

What is done there, and that a kill may come in the middle of it, is for the callers to see to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class OrderedThread:
    """Made in an event loop, which is the one that it serves."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def do(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What the call gives, after all that came before it.

        A caller that gives up waiting may or may not have had its way; what it asks for next still comes after.
        """
        return await asyncio.wrap_future(self._thread.submit(call, *arguments, **named), loop=self._loop)

    def tell(self, listener: Callable[P, object], *arguments: P.args, **named: P.kwargs) -> None:
        """From within the thread: call someone in the event loop, in this order, before ``do`` returns there."""
        self._loop.call_soon_threadsafe(lambda: listener(*arguments, **named))

    async def finish(self, last: Callable[[], None]) -> None:
        """Do this last thing, which happens also when the caller gives up waiting, and take nothing more."""
        done = self._thread.submit(last)
        self._thread.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(done, loop=self._loop))
