"""What every test run needs."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A run that a shell started in the background ignores Ctrl-C, and so would the programs that tests interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
