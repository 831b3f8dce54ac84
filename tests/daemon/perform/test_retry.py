"""Repeating what failed."""

from __future__ import annotations

import asyncio

import pytest

from koala.daemon.perform.retry import retry_until_done


def test_what_fails_is_tried_again_ever_more_rarely_until_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    errors: list[Exception] = []

    async def sleep(wait_s: float) -> None:
        waits.append(wait_s)

    async def attempt() -> None:
        if len(errors) < 10:
            raise OSError("not yet")

    async def never() -> None:
        raise AssertionError("nobody wants it")

    async def scenario() -> None:
        monkeypatch.setattr(asyncio, "sleep", sleep)
        await retry_until_done(attempt, errors.append, first_s=0.5, most_s=30.0)
        await retry_until_done(never, errors.append, lambda: False)
        monkeypatch.undo()

    asyncio.run(scenario())
    assert len(errors) == 10
    assert waits == [min(0.5 * 2**tries, 30.0) for tries in range(10)]
    assert waits[-1] == 30.0
