"""Repeats failed work, ever more rarely, until it works or is no longer wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

# The first retry comes after this long, later ones ever more rarely.
RETRY_FIRST_S = 0.5
RETRY_MOST_S = 30.0
# Work that our own code raises on is tried this often before it is set aside.
DEFECT_TRIES_MAX = 3


async def retry_until_done(
    attempt: Callable[[], Awaitable[None]],
    failed: Callable[[Exception], None],
    wanted: Callable[[], bool] = lambda: True,
    *,
    first_s: float = RETRY_FIRST_S,
    most_s: float = RETRY_MOST_S,
) -> None:
    """Make an attempt, again after ``first_s`` and then ever more rarely, until it returns or is not wanted.

    ``failed`` is called with the error of every attempt that raised.
    """
    wait_s = first_s
    while wanted():
        try:
            await attempt()
        except Exception as error:
            failed(error)
        else:
            return
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, most_s)
