"""The options that a daemon is started with, the addresses where it then listens, and the error of a failed start."""

from __future__ import annotations

from pathlib import Path

import msgspec

from koala.model.grid import Grid
from koala.model.request import SiteName

LOG_LEVELS = ("debug", "info", "warning", "error")
# Findings that a start asks about, unless they are accepted beforehand.
ACCEPTABLE = ("clock", "database")


class StartError(ValueError):
    """The daemon cannot start as asked, and nothing was changed. The message says what is wrong and what to do."""

    def for_user(self) -> str:
        """Return the message."""
        return str(self)


class DaemonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a daemon. ``state`` is its directory; ``database`` a URL, by default SQLite in that directory;
    ``listen`` a host and a port (0 for any) for callers with tokens, in addition to the socket in the directory. An
    address that others can reach needs ``tls_cert`` and ``tls_key``, or ``insecure``. ``accepts`` are the findings of
    ``ACCEPTABLE`` that are right although they differ from the last start. ``detached``: it has no terminal."""

    grid: Grid
    state: Path
    database: str | None = None
    listen: tuple[str, int] | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    log_level: str = "info"
    accepts: frozenset[str] = frozenset()
    detached: bool = False


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses where a daemon answers: its socket, and its URL if it listens on an address too. ``silent`` are
    the unusable sites with their trouble; ``warnings`` are for the owner."""

    socket: Path
    url: str | None = None
    silent: tuple[tuple[SiteName, str], ...] = ()
    warnings: tuple[str, ...] = ()
