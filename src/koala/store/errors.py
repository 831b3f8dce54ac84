"""Errors of the store: the name of the database, what is wrong with it and what to do."""

from __future__ import annotations

import sqlite3

from sqlalchemy import exc


class StoreError(ValueError):
    """A call of the store failed, and nothing of it was stored. It may be repeated when the cause is gone."""

    def __init__(self, database: str, message: str) -> None:
        super().__init__(f"database {database}: {message}")
        self.database = database
        self.message = message

    def for_user(self) -> str:
        """Return the database, what is wrong with it and what to do."""
        return str(self)


# Parts of a database's messages, in lower case, each with its cure; the first match counts.
_CURES = (
    ("disk is full", "free some space on its disk"),
    ("no space left", "free some space on the server's disk"),
    ("disk quota", "free some space on its disk"),
    ("readonly", "let this user write the file and its directory"),
    ("read-only", "name a database that may be written"),
    ("unable to open", "create its directory, and let this user write there"),
    ("not a database", "it is another kind of file; name a new one"),
    ("malformed", "the file is damaged; restore it from a backup"),
    ("is locked", "another program is writing to it; end that program"),
    ("disk i/o", "its disk fails, or is full; look at the system's log"),
    ("already exists", "it holds tables of another program; name an empty database"),
    ("password", "put the right user and password into the URL"),
    ("authentication", "put the right user and password into the URL"),
    ("permission denied", "grant this user the right to create and change tables there"),
    ('" does not exist', "create it, or correct its name in the URL"),
    ("too many c", "raise max_connections of the server, or end some connections"),
    ("lock timeout", "end the program that holds its tables"),
)


def explained(database: str, doing: str, error: Exception) -> StoreError:
    """Turn the error of a driver or of the system into one for the daemon's operator."""
    cause = error.orig if isinstance(error, exc.StatementError) and error.orig is not None else error
    lines = str(cause).strip().splitlines()
    said = lines[0].strip().rstrip(".;") if lines else type(cause).__name__
    if isinstance(cause, OverflowError):
        return StoreError(database, f"cannot {doing}: a number has more than 64 bits; give a smaller one")
    text = str(cause).lower()
    cure = next((cure for sign, cure in _CURES if sign in text), None)
    if cure is None:
        is_sqlite = isinstance(cause, sqlite3.Error | OSError)
        cure = "check the file and its disk" if is_sqlite else "check that the server runs and can be reached"
    return StoreError(database, f"cannot {doing}: {said}; {cure}")
