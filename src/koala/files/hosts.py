"""The hosts of shell scripts about files, this machine or a site's login host, and the meaning of their failures.

The scripts are the ``.sh`` files beside the modules that use them. They need nothing beyond POSIX and what every
Linux has, and receive paths only quoted. ``koala.sites.remote_shell`` runs them.
"""

from __future__ import annotations

import errno
import os
import shlex
from importlib import resources

from koala.model.grid import BatchSettings
from koala.sites.remote_shell import ALIVE_S, CONNECT_S, RemoteShell, ssh_program

# The time limit of a script that only looks, or changes names.
SCRIPT_S = 60.0
# A script that reads whole files has additional time, at this speed.
READ_BYTES_PER_S = 10_000_000
# The messages of programs, in the language of LC_ALL=C, and their meanings; causes come before their consequences.
_MEANINGS = {os.strerror(number): number for number in (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR,
    errno.EIO, errno.ENAMETOOLONG, errno.ENOENT,
)}  # fmt: skip
_MESSAGE_CHARACTERS_MAX = 300
# The options of ssh: it never asks, and takes everything else from the user's configuration.
_OPTIONS = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "-o", f"ServerAliveInterval={ALIVE_S}")
SSH = ("ssh", *_OPTIONS)


class Host:
    """This machine, or with ``settings`` the login host of a site. ``ssh`` is this machine's ssh command, by default
    the one that ``ssh_program`` returns."""

    def __init__(
        self, shell: RemoteShell, settings: BatchSettings | None = None, *, ssh: tuple[str, ...] | None = None
    ) -> None:
        self._shell = shell
        self._settings = settings
        self.ssh = (*ssh_program(), *_OPTIONS) if ssh is None else ssh

    @property
    def ssh_name(self) -> str | None:
        """Its name for ssh, if ssh alone reaches it."""
        settings = self._settings
        return None if settings is None or settings.through else settings.ssh

    @property
    def is_local(self) -> bool:
        """True if this machine sees its files."""
        return self._settings is None or (self._settings.ssh is None and not self._settings.through)

    async def run(self, script: str, *, timeout_s: float = SCRIPT_S) -> str:
        """Run a script, which ends at its first failure, and return its output.

        Raises an ``OSError``, with the number of the cause if the message of the failing program is known.
        """
        answer = await self._shell.run(f"LC_ALL=C; export LC_ALL; set -e\n{script}", timeout_s=timeout_s)
        if answer.code != 0:
            raise failure(answer.code, answer.stderr.decode(errors="replace"))
        return answer.stdout.decode(errors="surrogateescape")

    async def close(self) -> None:
        """Close connections that were kept open between scripts."""
        await self._shell.close()

    def shell_command(self, line: str) -> str:
        """Return a command for ``sh`` on this machine that runs a one-line script there, with this standard input."""
        settings = self._settings
        if settings is None:
            return shlex.join(["sh", "-c", line])
        exports = "".join(f"export {name}={shlex.quote(value)}; " for name, value in settings.environment)
        words = ["sh", "-c", exports + line]
        if settings.ssh is not None:
            # The login shell there splits the words again, whichever shell it is.
            words = [*self.ssh, "-T", settings.ssh, shlex.join(words)]
        return shlex.join([*settings.through, *words])


def failure(code: int, message: str) -> OSError:
    """Turn the messages of programs that ended with a code into the error that a system call would have raised."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    words = " ".join(lines)[-_MESSAGE_CHARACTERS_MAX:] or f"a command ended with {code}"
    for meaning, number in _MEANINGS.items():
        if any(line.endswith(meaning) or f"{meaning} (" in line for line in lines):
            return OSError(number, meaning if number != errno.ENOENT else words)
    return OSError(errno.EIO, words)


def read_limit_s(size_bytes: int) -> float:
    """Return the time limit of a script that reads this many bytes."""
    return SCRIPT_S + size_bytes / READ_BYTES_PER_S


def quoted_path(path: str) -> str:
    """Return a path as one word for ``sh``; a leading '~/' is the home directory there."""
    return '"$HOME"/' + shlex.quote(path[2:]) if path.startswith("~/") else shlex.quote(path)


def shell_functions(package: str, name: str) -> str:
    """Return the functions of a ``.sh`` file of a package, without its comments."""
    text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    return "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("#"))
