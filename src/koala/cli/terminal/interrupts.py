"""Ctrl-C in a verb that must finish something first: the signal is noted, and the verb acts on it when it asks.

So no interrupt falls between starting a process and recording it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts(signals: Sequence[signal.Signals] = (signal.SIGINT,)) -> Iterator[Callable[[], bool]]:
    """Only note the first of these signals while the context lasts, and yield the function that reports it; a second
    one raises KeyboardInterrupt, in case something hangs. Only the main thread gets signals; in another this does
    nothing."""
    noted = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal noted
        noted = True
        for number in before:
            signal.signal(number, signal.default_int_handler)

    before = {}
    if threading.current_thread() is threading.main_thread():
        # Under nohup a lost terminal is no reason to end.
        chosen = [
            number for number in signals if number is not signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
        ]
        before = {number: signal.signal(number, note) for number in chosen}
    try:
        yield lambda: noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ended_like_ctrl_c(signals: Sequence[signal.Signals]) -> Iterator[None]:
    """Let the first of these signals raise KeyboardInterrupt as Ctrl-C does while the context lasts, so that cleanup
    runs. Later ones do nothing: systemd may send SIGHUP right after SIGTERM."""
    taken = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal taken
        if not taken:
            taken = True
            signal.default_int_handler(number, frame)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    chosen = [each for each in signals if signal.getsignal(each) != signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in chosen}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def uninterrupted(signals: Sequence[signal.Signals]) -> Iterator[None]:
    """Ignore these signals while the context lasts: the cleanup takes a bounded time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
