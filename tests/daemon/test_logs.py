"""The daemon's log: lines of one kind are limited, and what is left out is counted."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from koala.daemon.logs import MINUTE_S, LimitedHandler, LineFormatter


class Clock:
    """Time that passes when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def written(clock: Clock) -> Iterator[tuple[logging.Logger, io.StringIO, LimitedHandler]]:
    stream = io.StringIO()
    handler = LimitedHandler(stream, lines_per_minute_max=3, clock=clock)
    handler.setFormatter(LineFormatter())
    logger = logging.getLogger("koala.test_logs")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(handler)
    yield logger, stream, handler
    logger.removeHandler(handler)


def test_of_one_kind_so_many_lines_are_written_a_minute_and_the_rest_is_counted(
    written: tuple[logging.Logger, io.StringIO, LimitedHandler], clock: Clock
) -> None:
    logger, stream, _ = written
    for number in range(1_000):
        logger.warning("no answer", extra={"number": number})
    logger.warning("of another kind")
    lines = stream.getvalue().splitlines()
    assert [line.partition("koala.test_logs ")[2] for line in lines] == [
        '"no answer" number=0',
        '"no answer" number=1',
        '"no answer" number=2',
        '"of another kind"',
    ]
    clock.now += MINUTE_S
    logger.warning("later")
    told = stream.getvalue().splitlines()[4:]
    assert len(told) == 2
    assert "lines=997" in told[0]
    assert "test_logs.py:" in told[0]
    assert "later" in told[1]


def test_what_was_left_out_is_told_at_the_end_too(
    written: tuple[logging.Logger, io.StringIO, LimitedHandler],
) -> None:
    logger, stream, handler = written
    for _ in range(5):
        logger.error("again")
    handler.close()
    assert "lines=2" in stream.getvalue().splitlines()[-1]


def test_details_that_were_asked_for_are_all_written(
    written: tuple[logging.Logger, io.StringIO, LimitedHandler],
) -> None:
    logger, stream, _ = written
    for _ in range(10):
        logger.debug("detail")
    assert len(stream.getvalue().splitlines()) == 10
