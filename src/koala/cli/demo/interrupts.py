"""Ctrl-C in a program that must put things in order first: a signal is noted, and acted on at the points that ask.

So nothing is interrupted between starting a process and knowing of it.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While the context lasts, the first signal is noted for ``check``, and a second one interrupts at once, in case
    something hangs. After ``ignore`` none does anything."""

    def __init__(self) -> None:
        self._noted = False
        self._ignored = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                # Under nohup a lost terminal is no reason to end.
                if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raises KeyboardInterrupt if a signal has come."""
        if self._noted:
            raise KeyboardInterrupt

    def ignore(self) -> None:
        """From here on everything is put in order, which takes a bounded time and must not be interrupted."""
        self._ignored = True

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._ignored:
            return
        if self._noted:
            raise KeyboardInterrupt
        self._noted = True
