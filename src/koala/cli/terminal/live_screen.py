"""A live screen: reads the journal in the background, reads keys, and draws in a loop.

The caller decides what is drawn: a function from the console and the latest entries to a renderable.
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
# The shortest and the longest interval between drawings, since bars move without events too.
DRAW_S_MIN = 0.25
DRAW_S_MAX = 2.0
KEYS_S = 0.1
AWAY_PAUSE_S = 2.0
_QUIT = frozenset(b"qQ\x03\x04")


class LatestEntries:
    """The newest entries of the journal, read by a thread of its own while the program runs.

    It waits for a daemon that goes away; ``away`` is the reason meanwhile.
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
                        # The last entries are shown at once, not only new ones.
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
    """Draw on the whole terminal until q or Ctrl-C, which is the usual end and no interruption. Waits for a daemon
    that goes away. ``instead`` is the advice if there is no terminal."""
    from rich.live import Live

    screen = console()
    if not screen.is_terminal:
        raise UserError(f"standard output is not a terminal; {instead}")
    client.exchange.on_wait = None  # the screen reports it
    latest = LatestEntries(str(client.address))
    picture = draw(screen, latest)  # an error here is reported before the screen is taken
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
    """Yield a function that waits for a key without Enter and returns True to end; without a terminal it only
    waits."""
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
