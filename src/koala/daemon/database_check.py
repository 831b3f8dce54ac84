"""Checks that a database belongs to the state directory that it is opened for.

The components of embedded sites are in the directory; the database records them. With another directory the same
database would start every job a second time; with another database the directory's components would be ended as
unknown ones.
"""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

import msgspec

from koala.daemon.options import StartError
from koala.daemon.state_directory import write_whole
from koala.store import StateDirectory, Store

IDENTITY_NAME = "identity"


class IdentityRecord(msgspec.Struct, frozen=True):
    """The permanent identity of a state directory, and the database that it was last used with; empty until one is
    tied to it."""

    identity: str
    database: str


def check_database(state: Path, store: Store, *, accepted: bool) -> None:
    """Raise ``StartError`` if the two do not belong together and this is not accepted; otherwise tie them."""
    known = _read(state / IDENTITY_NAME)
    owner = store.state_directory()
    if not accepted:
        if owner is not None and (known is None or known.identity != owner.identity):
            raise StartError(
                f"database {store.name} belongs to the state directory {owner.path} on {owner.host}, where its "
                "embedded sites are; start with --state there, or, if that is gone for good, take it over with "
                "`--accept database`: what still runs there is not found again"
            )
        if owner is None and known is not None and known.database and not store.last_at():
            raise StartError(
                f"database {store.name} is empty, and the state directory {state} was used with {known.database}: "
                "name that one, put it back where it was, or start afresh with `--accept database`: jobs on record "
                "are forgotten, and what runs at embedded sites is ended"
            )
    identity = secrets.token_hex(16) if known is None else known.identity
    ours = StateDirectory(identity=identity, host=socket.gethostname(), path=str(state))
    # A start that is interrupted here must leave the two as they were, or tied.
    if known is None:
        _write(state, IdentityRecord(identity, ""))
    if owner != ours:
        store.give_to(ours)
    record = IdentityRecord(identity, store.name)
    if record != known:
        _write(state, record)


def _write(state: Path, record: IdentityRecord) -> None:
    write_whole(state / IDENTITY_NAME, msgspec.json.encode(record))


def _read(path: Path) -> IdentityRecord | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=IdentityRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise StartError(f"{path} cannot be read ({error}); remove it, and start with `--accept database`") from None
