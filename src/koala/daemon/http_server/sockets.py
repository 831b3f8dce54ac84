"""The sockets that the daemon answers at: made before anything else starts, so that an unavailable address is an
error at once, and safe from their first moment on."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import stat
from pathlib import Path

import msgspec

from koala.daemon.options import DaemonOptions, StartError

SOCKET_NAME = "koala.sock"
# sockaddr_un has 108 bytes on Linux, and a NUL ends the path.
SOCKET_PATH_BYTES_MAX = 107
OWNER_ONLY_MODE = 0o600
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class ListenAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A bound TCP socket. ``hosts`` are the names that callers may use, None for any."""

    bound: socket.socket
    url: str
    tls: ssl.SSLContext | None
    hosts: frozenset[str] | None


def bind_unix(state: Path) -> socket.socket:
    """Make the socket in the state directory, for its owner alone. A socket that an earlier daemon left is replaced:
    the caller holds the directory's lock, so nobody answers there."""
    path = state / SOCKET_NAME
    size_bytes = len(os.fsencode(path))
    if size_bytes > SOCKET_PATH_BYTES_MAX:
        raise StartError(
            f"the path of the socket, {path}, has {size_bytes} bytes, and a socket's path has at most "
            f"{SOCKET_PATH_BYTES_MAX} (SOCKET_PATH_BYTES_MAX); name a directory with a shorter path with --state"
        )
    try:
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
        else:
            raise StartError(f"{path} is in the way and is not a socket; move it elsewhere")
    except FileNotFoundError:
        pass
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # As the file is made, not after: others can never connect. The umask belongs to the whole process.
        os.fchmod(bound.fileno(), OWNER_ONLY_MODE)
        bound.bind(os.fsencode(path))
        path.chmod(OWNER_ONLY_MODE)  # if the file does not inherit the descriptor's mode
    except OSError as error:
        bound.close()
        raise StartError(f"the socket {path} cannot be made: {error.strerror}") from None
    bound.setblocking(False)
    return bound


def bind_tcp(options: DaemonOptions) -> ListenAddress | None:
    """Bind the address that the options name, None without one."""
    if (options.tls_cert is None) != (options.tls_key is None):
        raise StartError("TLS needs both a certificate and its key: give --tls-cert and --tls-key, or neither")
    if options.listen is None:
        if options.tls_cert is not None:
            raise StartError("a certificate is for an address; give --listen HOST:PORT too")
        return None
    host, port = options.listen
    family, where = _resolved(host, port)
    loopback = ipaddress.ip_address(where[0]).is_loopback
    if not loopback and options.tls_cert is None and not options.insecure:
        raise StartError(
            f"{host} can be reached from other machines, and without TLS tokens would travel readable; give "
            "--tls-cert and --tls-key, listen on 127.0.0.1, or accept the risk with --insecure"
        )
    tls = None if options.tls_cert is None or options.tls_key is None else _tls(options.tls_cert, options.tls_key)
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(where)
        bound.listen()  # two sockets may be bound to a free port, but only one can listen there
    except OSError as error:
        bound.close()
        raise StartError(f"cannot listen on {host}:{port}: {error.strerror}; name another with --listen") from None
    bound.setblocking(False)
    shown_host = f"[{host}]" if ":" in host else host
    url = f"{'https' if tls else 'http'}://{shown_host}:{bound.getsockname()[1]}"
    hosts = LOOPBACK_NAMES | {shown_host.lower()} if loopback else None
    return ListenAddress(bound=bound, url=url, tls=tls, hosts=hosts)


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    if not 0 <= port <= 65_535:
        raise StartError(f"{port} is not a port; write 0 to 65535, where 0 takes any free one")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise StartError(f"{host!r} is not an address of this machine: {error}; name another with --listen") from None
    family, _, _, _, where = found[0]
    return family, (str(where[0]), int(where[1]))


def _tls(certificate: Path, key: Path) -> ssl.SSLContext:
    for option, path in (("--tls-cert", certificate), ("--tls-key", key)):
        try:
            path.read_bytes()
        except OSError as error:
            raise StartError(
                f"{option} {path} cannot be read: {error.strerror}; name a PEM file that this user may read"
            ) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # OpenSSL would ask for a password on the terminal; an empty one refuses such a key instead.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        raise StartError(
            f"--tls-cert {certificate} and --tls-key {key} are not a certificate with its unprotected key, both in "
            f"PEM: {error}; name the two files that belong together"
        ) from None
    return context
