"""The hosts that a user's ssh configuration names: its ``Host`` lines without wildcards, ``Include`` followed.

Only names are taken from it. How a host is reached is left to the ssh program.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from koala.cli.errors import UserError, advice

# Limits on what is read. ssh itself follows includes so deep.
SSH_FILES_MAX = 100
SSH_FILE_BYTES_MAX = 1_048_576
SSH_INCLUDES_DEEP_MAX = 16
SSH_HOSTS_MAX = 200

_WILD = frozenset("*?!")
# A keyword, blanks or an equals sign, and words.
_LINE = re.compile(r"\s*([A-Za-z]+)(?:\s*=\s*|\s+)(.*)")


def ssh_hosts(config: Path) -> list[str]:
    """The hosts in the order of the file, each once. Raises ``UserError`` where the file cannot be read."""
    reader = _Reader(config.parent)
    reader.read(config, 0)
    return list(reader.hosts)


class _Reader:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.hosts: dict[str, None] = {}
        self._files = 0

    def read(self, path: Path, depth: int) -> None:
        self._files += 1
        if depth > SSH_INCLUDES_DEEP_MAX or self._files > SSH_FILES_MAX:
            raise UserError(
                f"{path}: more than {SSH_FILES_MAX} files (SSH_FILES_MAX), or {SSH_INCLUDES_DEEP_MAX} inside each "
                "other (SSH_INCLUDES_DEEP_MAX); check the Include lines"
            )
        for line in _text(path).splitlines():
            keyword, words = _parsed(line)
            if keyword == "host":
                for word in words:
                    if not _WILD & set(word) and not word.startswith("-"):
                        self.hosts[word] = None
                if len(self.hosts) > SSH_HOSTS_MAX:
                    raise UserError(
                        f"{path}: more than {SSH_HOSTS_MAX} hosts (SSH_HOSTS_MAX); "
                        "write those of clusters into a file of their own, for --ssh-config"
                    )
            elif keyword == "include":
                for word in words:
                    for found in self._included(word):
                        self.read(found, depth + 1)

    def _included(self, pattern: str) -> list[Path]:
        """The files that an Include means; like ssh, it says nothing of those that are not there."""
        path = Path(pattern).expanduser()
        whole = path if path.is_absolute() else self.directory / path
        return sorted(
            found for found in Path(whole.anchor).glob(str(whole.relative_to(whole.anchor))) if found.is_file()
        )


def _parsed(line: str) -> tuple[str, list[str]]:
    """The keyword in lower case and its words; nothing for comments and what makes no sense."""
    found = _LINE.fullmatch(line)
    if found is None:
        return "", []
    try:
        return found[1].lower(), shlex.split(found[2], comments=True)
    except ValueError:  # quotes that are not closed
        return "", []


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(SSH_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {advice(error)}") from None
    if len(content) > SSH_FILE_BYTES_MAX:
        raise UserError(f"{path}: larger than {SSH_FILE_BYTES_MAX} bytes (SSH_FILE_BYTES_MAX); name another file")
    return content.decode(errors="replace")
