"""The construction of shell scripts, and the division of their output into sections.

A section follows a mark that cannot occur by chance. Output of a login shell precedes the first mark and is ignored;
a script that did not print its last mark did not reach its end. The files ``*.sh`` contain the functions that scripts
call, which receive values as quoted words and never by formatting.
"""

from __future__ import annotations

import functools
import importlib.resources
import secrets
import shlex
from collections.abc import Iterable, Sequence

import msgspec

_LAST = "end"
_PLAIN = frozenset(
    b' !#$&()*+,-./:;<=>?@[]^_`{|}~"\n\t0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'
)


class OutputSection(msgspec.Struct, frozen=True):
    """A section of a script's output: the words of its mark, and all text up to the next mark."""

    words: tuple[str, ...]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text, whatever it contains."""
        return self.body.decode(errors="replace")


class FramedScript:
    """A shell script with marks of its own.

    In ``body`` the function ``koala_mark WORDS...`` begins a section, and ``$koala_new`` is a unique word for the
    names of files that are being written. An exit before the end of the body leaves the script unfinished.
    """

    def __init__(self, body: str) -> None:
        self._mark = f"@{secrets.token_hex(8)}"
        self.text = (
            f"koala_new={secrets.token_hex(6)}\n"
            f"koala_mark() {{ printf '\\n%s %s\\n' {shlex.quote(self._mark)} \"$*\"; }}\n"
            f"{body}koala_mark {_LAST}\n"
        )

    def sections(self, printed: bytes) -> list[OutputSection]:
        """Return all sections in the output, whether the script reached its end or not."""
        pieces = printed.split(f"\n{self._mark} ".encode())[1:]
        found = []
        for piece in pieces:
            line, _, body = piece.partition(b"\n")
            found.append(OutputSection(tuple(line.decode(errors="replace").split()), body))
        return found

    def is_done(self, sections: Sequence[OutputSection]) -> bool:
        """Return True if the script reached its end."""
        return bool(sections) and sections[-1].words == (_LAST,)


@functools.cache
def shell_file(package: str, name: str) -> str:
    """Return the shell functions in a file of a package."""
    return importlib.resources.files(package).joinpath(name).read_text(encoding="utf-8")


def quoted(words: Iterable[str]) -> str:
    """Return words for ``sh``, each quoted."""
    return " ".join(map(shlex.quote, words))


def call(function: str, *words: str | int) -> str:
    """Return a line that calls a shell function."""
    return f"{quoted((function, *map(str, words)))}\n"


def assign(**values: str | int) -> str:
    """Return lines that set variables of the shell."""
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())


def function(name: str, body: str) -> str:
    """Return a shell function of these commands, which may be none."""
    return f"{name}() {{\n:\n{body}}}\n"


def printing(data: bytes) -> str:
    """Return a command of ``sh`` that prints exactly these bytes; ``printf`` is built into every shell."""
    pieces = []
    for byte in data:
        if byte == ord("%"):
            pieces.append("%%")
        elif byte in _PLAIN:
            pieces.append(chr(byte))
        else:
            pieces.append(f"\\{byte:03o}")
    return f"printf '{''.join(pieces)}'"


def directory_word(path: str) -> str:
    """Return a directory as one word of ``sh``; a leading '~' is the user's home at the site."""
    if path == "~":
        return '"$HOME"'
    if path.startswith("~/"):
        return f'"$HOME"/{shlex.quote(path[2:])}'
    return shlex.quote(path)
