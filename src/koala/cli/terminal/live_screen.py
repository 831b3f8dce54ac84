"""A screen that is renewed as things happen: the journal read in the background, keys, and the loop that draws.

What is drawn is the caller's affair: a function from the console and the latest entries to something to show.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from koala.cli.errors import UserError
from koala.cli.terminal.output import console

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from koala.client import Client
    from koala.model.api import JournalEntry

    Draw = Callable[[Console, "LatestEntries"], RenderableType]

ENTRIES_KEPT = 200
# Drawn at most so often, and at least so often, since bars move without events too.
DRAW_S_MIN = 0.25
DRAW_S_MAX = 2.0
KEYS_S = 0.1
AWAY_PAUSE_S = 2.0
_QUIT = frozenset(b"qQ\x03\x04")


class LatestEntries:
    """The newest entries of the journal, read by a thread of its own for as long as the program runs.

    A daemon that goes away is waited for; ``away`` says why meanwhile.
    """

    def __init__(self, server: str) -> None:
        self.entries: deque[JournalEntry] = deque(maxlen=ENTRIES_KEPT)
        self.away = ""
        self.changed = threading.Event()
        self._server = server

    def begin(self) -> None:
        """Start reading."""
        threading.Thread(target=self._read, name="journal", daemon=True).start()

    def _read(self) -> None:
        from koala.client import Client, ClientError

        after: int | None = None
        while True:
            try:
                with Client(self._server) as client:
                    if after is None:
                        # The last entries are shown at once, and not only what happens from now on.
                        after = max(0, client.overview().last_seq - ENTRIES_KEPT)
                    for entry in client.follow(after=after):
                        after = entry.seq
                        self.away = ""
                        self.entries.append(entry)
                        self.changed.set()
            except ClientError as error:
                self.away = error.for_user()
                self.changed.set()
            time.sleep(AWAY_PAUSE_S)


def watch_screen(client: Client, draw: Draw, *, instead: str) -> None:
    """Draw on the whole terminal until q or Ctrl-C, which is the usual end and no interruption. A daemon that goes
    away is waited for. ``instead`` says what to do where there is no terminal."""
    from rich.live import Live

    screen = console()
    if not screen.is_terminal:
        raise UserError(f"standard output is no terminal; {instead}")
    client.exchange.on_wait = None  # the screen tells it
    latest = LatestEntries(str(client.address))
    picture = draw(screen, latest)  # an error here is told before the screen is taken
    latest.begin()
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(picture, console=screen, screen=True, auto_refresh=False) as live,
        _keys() as quit_asked,
    ):
        drawn_at = time.monotonic()
        while not quit_asked(KEYS_S):
            waited_s = time.monotonic() - drawn_at
            if waited_s < DRAW_S_MIN or (waited_s < DRAW_S_MAX and not latest.changed.is_set()):
                continue
            latest.changed.clear()
            live.update(_drawn(draw, screen, latest), refresh=True)
            drawn_at = time.monotonic()


def _drawn(draw: Draw, screen: Console, latest: LatestEntries) -> RenderableType:
    from rich.text import Text

    from koala.client import ClientError

    try:
        return draw(screen, latest)
    except ClientError as error:
        return Text(f"{error.for_user()}\n\nTrying again; q ends.", style="red")


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Keys without Enter where standard input is a terminal: a function that waits and says whether to end."""
    if not sys.stdin.isatty():
        yield _never
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def quit_asked(timeout_s: float) -> bool:
        ready, _, _ = select.select([descriptor], [], [], timeout_s)
        if not ready:
            return False
        typed = os.read(descriptor, 64)
        return not typed or any(key in _QUIT for key in typed)

    try:
        yield quit_asked
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _never(timeout_s: float) -> bool:
    time.sleep(timeout_s)
    return False
