"""The options that ``koala up`` keeps for the next start: the address, its certificate, and the database.

A password of the database is kept nowhere, and is not accepted on the command line, which everybody on the machine
can read: it comes from a file, from the environment, or from PostgreSQL's own ``~/.pgpass``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import click
import msgspec
from click.core import ParameterSource

from koala.cli.errors import UserError

RECORD_NAME = "start.json"
DATABASE_VARIABLE = "KOALA_DATABASE"
# The longest database address that is read from a file.
DATABASE_FILE_BYTES_MAX = 65_536
_PASSWORD = "password"  # noqa: S105 - the name of a parameter


class StartRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a start, as written on the command line; paths are absolute."""

    listen: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    database: str | None = None
    database_file: str | None = None

    def in_words(self) -> str:
        """Format the options of a start that has this record."""
        words = [
            f"--{name.replace('_', '-')} {value}"
            for name, value in msgspec.to_builtins(self).items()
            if not isinstance(value, bool)
        ]
        return " ".join([*words, *(["--insecure"] if self.insecure else [])])


def read_record(state: Path) -> StartRecord:
    """Return the record of the last start with this state; an empty one before the first."""
    path = state / RECORD_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=StartRecord)
    except (FileNotFoundError, NotADirectoryError):
        return StartRecord()
    except (OSError, msgspec.MsgspecError) as error:
        raise UserError(f"{path} cannot be read ({error}); remove it, and name the options again") from None


def keep_record(state: Path, record: StartRecord) -> None:
    """Keep the record for the next start."""
    from koala.daemon.state_directory import write_whole

    write_whole(state / RECORD_NAME, msgspec.json.encode(record))


# ------------------------------------------------------------------------------------------------- the address


def with_address(
    known: StartRecord, *, listen: str | None, no_listen: bool, cert: Path | None, key: Path | None, insecure: bool
) -> StartRecord:
    """Return the record with this address; without one it keeps the former address, and without a certificate the
    former one."""
    if (cert is None) != (key is None):
        raise UserError("--tls-cert and --tls-key belong together; give both")
    if no_listen and listen is not None:
        raise UserError("--listen and --no-listen are given together; keep one of the two")
    if listen is None and (cert is not None or insecure):
        raise UserError("--tls-cert, --tls-key and --insecure are about --listen HOST:PORT; give it too")
    if listen is None and not no_listen:
        return known
    tls_cert, tls_key = (known.tls_cert, known.tls_key) if listen is not None and not insecure else (None, None)
    if cert is not None and key is not None:
        tls_cert, tls_key = str(cert.absolute()), str(key.absolute())
    return msgspec.structs.replace(known, listen=listen, tls_cert=tls_cert, tls_key=tls_key, insecure=insecure)


# ------------------------------------------------------------------------------------------------ the database


def database_options(call: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a database."""
    file = click.option(
        "--database-file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="A file of yours alone with the address of the database, which may have a password.",
    )
    url = click.option(
        "--database",
        metavar="URL",
        envvar=DATABASE_VARIABLE,
        show_envvar=True,
        help="postgresql://... without a password; by default that of the last start, at first SQLite in the state "
        "directory.",
    )
    return url(file(call))


def chosen_database(
    ctx: click.Context, known: StartRecord, database: str | None, file: Path | None
) -> tuple[str | None, StartRecord]:
    """Return the address of the database, None for the one in the state directory, and the record with it."""
    on_command_line = ctx.get_parameter_source("database") is ParameterSource.COMMANDLINE
    if file is not None and database is not None and on_command_line:
        raise UserError("--database and --database-file are given together; keep one of the two")
    if file is not None:
        record = msgspec.structs.replace(known, database=None, database_file=str(file.absolute()))
    elif database is not None:
        bare = _without_password(database)
        if on_command_line and bare != database:
            raise UserError(
                "--database: everybody on this machine can read the password in the list of processes; write the "
                f"address into a file of yours alone and name that with --database-file, or set {DATABASE_VARIABLE}"
            )
        return database, msgspec.structs.replace(known, database=bare, database_file=None)
    else:
        record = known
    if record.database_file is None:
        return record.database, record
    return _read_address(Path(record.database_file)), record


def _read_address(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(DATABASE_FILE_BYTES_MAX + 1)
        mode = path.stat().st_mode
    except OSError as error:
        raise UserError(f"--database-file {path} cannot be read: {error.strerror}; check the path") from None
    text = content.decode("utf-8", errors="replace").strip()
    if not text or len(content) > DATABASE_FILE_BYTES_MAX or len(text.splitlines()) > 1:
        raise UserError(
            f"--database-file {path}: it must hold one address alone, such as postgresql://USER@HOST/NAME"
        )
    if mode & 0o077 and _without_password(text) != text:
        raise UserError(f"--database-file {path}: others may read the password in it; chmod 600 it")
    return text


def _without_password(url: str) -> str:
    """Return the address without its password, unchanged if it has none or is invalid."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    asked: list[tuple[str, str]] = parse_qsl(parts.query, keep_blank_values=True)
    kept: list[Any] = [(name, value) for name, value in asked if name != _PASSWORD]
    user, at, host = parts.netloc.rpartition("@")
    if ":" not in user and len(kept) == len(asked):
        return url
    query = parts.query if len(kept) == len(asked) else urlencode(kept)
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}", query=query))
