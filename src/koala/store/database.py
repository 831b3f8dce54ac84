"""The differences between the two databases: how to connect, how to be the only daemon, how a transaction begins.

Everything else in this package is the same for both. A reader's transaction sees one moment of the database
throughout. A writer's is durable once it has been committed, whatever then happens to the process or the machine.
"""

from __future__ import annotations

import abc
import fcntl
import os
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, make_url, text

from koala.store.errors import StoreError, explained

# How long a connection waits for another one that writes, and a starting daemon for one that is ending.
BUSY_TIMEOUT_S = 30
LOCK_TIMEOUT_S = 5
# Timeouts for a server that cannot be reached.
CONNECT_TIMEOUT_S = 10
SILENCE_TIMEOUT_S = 30
# At most this many callers read at the same time; others wait.
READERS_MAX = 40
# The size that a write-ahead log is cut back to after it had to grow.
WAL_BYTES_KEPT = 67_108_864
# The first half of the advisory lock's key; the second half is the schema that holds the tables.
_LOCK_CLASS = 0x6B6F616C  # "koal"
_WRITES = "koala_writes"
# Encodings of a PostgreSQL database that can store every text.
_ENCODINGS = ("UTF8", "SQL_ASCII")


class Database(abc.ABC):
    """A database that this process alone uses as a store, from ``acquire`` to ``release``."""

    name: str  # for messages: without a password
    engine: Engine

    @abc.abstractmethod
    def acquire(self) -> None:
        """Make sure that no other daemon uses the database, or raise ``StoreError``."""

    def check(self) -> None:
        """Raise ``StoreError`` if present writes would be lost although they seem to succeed."""
        return

    def connect_writer(self) -> Connection:
        """Return a connection for writing. There must be only one at a time."""
        return self.engine.connect().execution_options(**{_WRITES: True})

    def release(self) -> None:
        """Close all connections, and let another daemon use the database."""
        self.engine.dispose()


def database_of(url: str | Path) -> Database:
    """Return the database at an address: a path or ``sqlite:///PATH`` is a file, ``postgresql://...`` is on a
    server."""
    if isinstance(url, Path):
        return SqliteDatabase(url)
    advice = "write sqlite:///PATH or postgresql://USER@HOST/NAME"
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):
        raise StoreError("URL", f"this is not the address of a database; {advice}") from None
    kind = parsed.drivername
    if kind in ("sqlite", "sqlite+pysqlite"):
        if parsed.database in (None, "", ":memory:") or parsed.query or parsed.host:
            raise StoreError(
                "URL", "SQLite keeps the store in a file; write sqlite:///PATH, with four slashes if absolute"
            )
        return SqliteDatabase(Path(str(parsed.database)))
    if kind in ("postgresql", "postgres", "postgresql+psycopg"):
        return PostgresDatabase(parsed)
    raise StoreError("URL", f"{kind!r} is not a kind of database that Koala knows; {advice}")


class SqliteDatabase(Database):
    """A file, the write-ahead log beside it, and a lock file that belongs to the daemon that uses them."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self.name = str(path)
        self._lock: int | None = None
        self._file: tuple[int, int] | None = None
        self.engine = create_engine(
            URL.create("sqlite", database=str(self._path)),
            creator=self._connect,
            pool_size=READERS_MAX,
            max_overflow=0,
        )
        event.listen(self.engine, "connect", self._set_up)
        event.listen(self.engine, "begin", _begin_sqlite)

    def acquire(self) -> None:
        if self._lock is not None:
            return
        try:
            # Two paths to one file must lead to one lock.
            self._path = self._path.resolve()
            lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise explained(self.name, "open it", error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Submissions are private, so the file is readable only by its owner from the start.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._file = self._found()
        except BlockingIOError:
            os.close(lock)
            raise _in_use(self.name) from None
        except OSError as error:
            os.close(lock)
            raise explained(self.name, "open it", error) from None
        self._lock = lock

    def release(self) -> None:
        super().release()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def check(self) -> None:
        """Raise ``StoreError`` if the file was removed or replaced: it would still accept writes, which nobody would
        ever find."""
        try:
            found = self._found()
        except OSError as error:
            raise explained(self.name, "find it any more", error) from None
        if found != self._file:
            raise StoreError(
                self.name,
                "another file was put in its place; stop the daemon, put the right one there, and start it again",
            )

    def _found(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_dev, found.st_ino

    def _connect(self) -> sqlite3.Connection:
        """Connect without creating a file, so that a missing file is noticed."""
        self.check()
        address = f"file:{quote(str(self._path))}?mode=rw"
        return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False)

    def _set_up(self, connection: sqlite3.Connection, record: Any) -> None:
        connection.isolation_level = None  # transactions begin only in _begin_sqlite
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            connection.close()
            raise StoreError(
                self.name, f"its file system allows only the journal mode {mode!r}; put it on a local disk"
            )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction. A writer takes the write lock at once, because a transaction that has read can no longer
    wait for it."""
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class PostgresDatabase(Database):
    """A database of a PostgreSQL server. The writing connection holds the lock: a lost connection loses both."""

    def __init__(self, url: URL) -> None:
        url = url.set(drivername="postgresql+psycopg")
        self.name = url.set(drivername="postgresql").render_as_string(hide_password=True)
        try:
            self.engine = create_engine(
                url,
                connect_args={name: value for name, value in _CONNECTION_DEFAULTS.items() if name not in url.query},
                isolation_level="REPEATABLE READ",
                pool_size=READERS_MAX // 4,
                max_overflow=READERS_MAX - READERS_MAX // 4,
                pool_pre_ping=True,
            )
        except ImportError:
            raise StoreError(
                self.name, "PostgreSQL needs the library psycopg; install koala-scheduler[postgres]"
            ) from None

    def acquire(self) -> None:
        """Do nothing: ``connect_writer`` takes the lock."""

    def connect_writer(self) -> Connection:
        connection = super().connect_writer()
        try:
            with connection.begin():
                self._lock(connection)
        except BaseException:
            connection.invalidate()
            connection.close()
            raise
        return connection

    def _lock(self, connection: Connection) -> None:
        """Hold the lock while the connection lives. The server may take a while to notice the end of a killed daemon,
        so wait a little."""
        connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'"))
        try:
            connection.execute(
                text("SELECT pg_advisory_lock(:lock, hashtext(coalesce(current_schema(), '')))"),
                {"lock": _LOCK_CLASS},
            )
        except exc.OperationalError as error:
            if getattr(error.orig, "sqlstate", None) == "55P03":  # lock_not_available
                raise _in_use(self.name) from None
            raise
        connection.execute(text("SET lock_timeout = 0"))
        encoding = connection.scalar(text("SHOW server_encoding"))
        if encoding not in _ENCODINGS:
            message = f"its encoding {encoding} cannot hold every text; create it again with ENCODING 'UTF8'"
            raise StoreError(self.name, message)
        # Acknowledged data must be on disk, whatever the server's default is.
        connection.execute(
            text(
                "SELECT set_config('synchronous_commit', 'on', false) "
                "WHERE current_setting('synchronous_commit') = 'off'"
            )
        )


_CONNECTION_DEFAULTS: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "client_encoding": "utf8",
    "application_name": "koala",
    "keepalives_idle": SILENCE_TIMEOUT_S,
    "tcp_user_timeout": SILENCE_TIMEOUT_S * 1_000,
}


def _in_use(name: str) -> StoreError:
    return StoreError(
        name, "another Koala daemon uses it; stop that one first, or give this one a database of its own"
    )
