"""The address of the daemon and the token of the caller: their forms, and where they are found.

An address is ``unix:/path/to/koala.sock`` or ``http(s)://host:port``. This module reads the environment and the file
of the token; it connects to nothing.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from koala.client.errors import WrongAddressError

SERVER_VARIABLE = "KOALA_SERVER"
TOKEN_VARIABLE = "KOALA_TOKEN"  # noqa: S105 -- the name of a variable
TOKEN_FILE_VARIABLE = "KOALA_TOKEN_FILE"  # noqa: S105
CA_FILE_VARIABLE = "KOALA_CA_FILE"
SOCKET_NAME = "koala.sock"
TOKEN_BYTES_MAX = 4_096

_FORM = "write unix:/path/to/koala.sock, http://HOST:PORT or https://HOST:PORT"
_TOKEN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a daemon: ``socket`` is the path of its unix socket, or None for a daemon at ``url``."""

    url: str
    socket: Path | None = None

    def __str__(self) -> str:
        return self.url if self.socket is None else f"unix:{self.socket}"

    @property
    def is_local(self) -> bool:
        """True if the daemon is certainly on this machine, so that no proxy stands in between."""
        host = urlsplit(self.url).hostname or ""
        if self.socket is not None or host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """Return the address that a text names. Raises ``WrongAddressError`` if it names none."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path or "\0" in path:
            raise WrongAddressError(f"{text!r} names no socket; {_FORM}")
        return Address("http://localhost", Path(path).expanduser())
    if text.startswith("/"):
        raise WrongAddressError(f"{text!r} is a path; write unix:{text} for a socket there")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise WrongAddressError(f"{text!r} is not an address: {error}; {_FORM}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise WrongAddressError(f"{text!r} is not an address; {_FORM}")
    if parts.username is not None or parts.query or parts.fragment or parts.path not in ("", "/"):
        raise WrongAddressError(f"{text!r} has more than a host and a port; {_FORM}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return Address(f"{parts.scheme}://{host}" + ("" if port is None else f":{port}"))


def default_state(environment: Mapping[str, str] | None = None) -> Path:
    """Return the default state directory of a daemon: below $XDG_STATE_HOME or ~/.local/state."""
    return _below(environment, "XDG_STATE_HOME", Path(".local", "state"))


def find_address(text: str | None = None, environment: Mapping[str, str] | None = None) -> Address:
    """Return the given address, else the one in KOALA_SERVER, else the socket of the default state directory."""
    known = os.environ if environment is None else environment
    chosen = text or known.get(SERVER_VARIABLE)
    if chosen:
        return parse_address(chosen)
    return Address("http://localhost", default_state(known) / SOCKET_NAME)


def find_token(environment: Mapping[str, str] | None = None) -> str | None:
    """Return the token in KOALA_TOKEN, else in the file that KOALA_TOKEN_FILE names, else in
    ~/.config/koala/token."""
    known = os.environ if environment is None else environment
    if known.get(TOKEN_VARIABLE):
        return checked_token(known[TOKEN_VARIABLE], TOKEN_VARIABLE)
    named = known.get(TOKEN_FILE_VARIABLE)
    path = _token_path(known)
    try:
        with path.open("rb") as file:
            text = file.read(TOKEN_BYTES_MAX + 1)
    except FileNotFoundError:
        if named:
            raise WrongAddressError(f"{TOKEN_FILE_VARIABLE} {path}: there is no such file; check the name") from None
        return None
    except OSError as error:
        raise WrongAddressError(f"{path}: the token cannot be read: {error.strerror}; make it readable") from None
    return checked_token(text.decode("latin-1"), str(path))


def token_file(environment: Mapping[str, str] | None = None) -> Path | None:
    """Return the file that ``find_token`` reads; None if the environment has the token itself, or there is no
    file."""
    known = os.environ if environment is None else environment
    path = _token_path(known)
    return None if known.get(TOKEN_VARIABLE) or not path.exists() else path


def _token_path(environment: Mapping[str, str]) -> Path:
    named = environment.get(TOKEN_FILE_VARIABLE)
    return Path(named) if named else _below(environment, "XDG_CONFIG_HOME", Path(".config")) / "token"


def checked_token(text: str, origin: str) -> str:
    """Return a token without surrounding blanks. Raises ``WrongAddressError`` if it cannot stand in a request."""
    token = text.strip()
    if len(token) > TOKEN_BYTES_MAX or _TOKEN.fullmatch(token) is None:
        raise WrongAddressError(
            f"{origin}: this is not a token; it must be the one line that `koala token create` printed"
        )
    return token


def _below(environment: Mapping[str, str] | None, variable: str, instead: Path) -> Path:
    known = os.environ if environment is None else environment
    base = known.get(variable, "")
    # The XDG rules require that a relative path is ignored.
    return (Path(base) if base.startswith("/") else Path.home() / instead) / "koala"
