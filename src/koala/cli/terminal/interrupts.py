"""Ctrl-C in a verb that has something to finish first: the signal is noted, and acted on where the verb asks.

So nothing is interrupted between starting a process and knowing of it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts(signals: Sequence[signal.Signals] = (signal.SIGINT,)) -> Iterator[Callable[[], bool]]:
    """While the context lasts, the first of these signals is only noted, as the function tells; a second one raises
    KeyboardInterrupt, in case something hangs. Only the main thread gets signals; in another this does nothing."""
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
    """While the context lasts, the first of these signals raises KeyboardInterrupt as Ctrl-C does, so that what was
    set up is taken down. Those that follow do nothing: systemd may send SIGHUP right after SIGTERM."""
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
    """While the context lasts, these signals do nothing: what is put in order takes a bounded time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
