"""The problems of a user's text, each with its place and advice, and the error that holds them.

Every reader in this folder reports through these; none of them prints.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

# At most this many problems of one document are reported; the rest are counted.
ERRORS_MAX = 20
# The largest document that is read, in bytes of UTF-8.
TEXT_BYTES_MAX = 1024 * 1024
# The same limit for files of task graphs and of machines, which may have hundreds of thousands of entries.
LARGE_TEXT_BYTES_MAX = 64 * 1024 * 1024
# At most this many characters of a source line are shown under a message.
SHOWN_CHARACTERS_MAX = 100
# Characters that no text contains: NUL, and halves of surrogate pairs (bytes that were not UTF-8).
NOT_TEXT = re.compile("[\\0\ud800-\udfff]")
# Characters that no name contains: names stand in tables and logs, where they would move the cursor or begin a line.
CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f]")
CONTROL_ADVICE = "take it out; a name is one line of visible characters"


class Limit(NamedTuple):
    """A limit, with its name in the reference."""

    name: str
    most: int


TEXT_LIMIT = Limit("TEXT_BYTES_MAX", TEXT_BYTES_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem: what is wrong, what to write instead, and where (1-based; None if it has no place).

    ``excerpt`` is the source line as shown and ``caret`` how many columns of a terminal stand before the place.
    """

    message: str
    advice: str
    line: int | None = None
    column: int | None = None
    excerpt: str | None = None
    caret: int = 0

    def for_user(self, source: str) -> str:
        """Return the problem as four lines: place and message, source line, caret, advice if there is any."""
        place = source if self.line is None else f"{source}:{self.line}:{self.column}"
        lines = [f"{place}: {self.message}"]
        if self.excerpt is not None:
            lines += [f"  {self.excerpt}", f"  {' ' * self.caret}^"]
        if self.advice:
            lines.append(f"  {self.advice}")
        return "\n".join(lines)


class DescriptionError(ValueError):
    """A text that cannot be read as intended, with every problem found in it (up to ERRORS_MAX).

    ``line``, ``column``, ``message`` and ``advice`` are those of the first problem. ``unreported`` problems were only
    counted; if the reading ``stopped``, there may be any number of others.
    """

    def __init__(
        self, source: str, problems: Iterable[Problem], *, unreported: int = 0, stopped: bool = False
    ) -> None:
        ordered = sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))
        assert ordered, "an error has at least one problem"
        self.source = source
        self.problems = tuple(ordered[:ERRORS_MAX])
        self.problems_unreported = len(ordered) - len(self.problems) + unreported
        self._stopped = stopped
        first = self.problems[0]
        self.line = first.line
        self.column = first.column
        self.message = first.message
        self.advice = first.advice
        super().__init__(first.for_user(source))

    def reworded(self, message_of: Callable[[Problem], str]) -> DescriptionError:
        """Return the same error with other messages."""
        problems = [dataclasses.replace(each, message=message_of(each)) for each in self.problems]
        return DescriptionError(self.source, problems, unreported=self.problems_unreported, stopped=self._stopped)

    @property
    def others(self) -> str:
        """The number of problems beside the reported ones, in words."""
        count = self.problems_unreported
        return f"{'at least ' if self._stopped else ''}{count} more {'problem' if count == 1 else 'problems'}"

    def for_user(self) -> str:
        """Return every problem, one after the other in the order of the text."""
        parts = [problem.for_user(self.source) for problem in self.problems]
        if self.problems_unreported:
            parts.append(f"and {self.others} in {self.source}")
        return "\n".join(parts)


def refuse_any(source: str, problems: Iterable[Problem]) -> None:
    """Raise if there are problems. The iterator is read only as far as problems are reported."""
    found = list(itertools.islice(problems, ERRORS_MAX + 1))
    if found:
        raise DescriptionError(source, found, stopped=len(found) > ERRORS_MAX)


class ProblemList:
    """The problems of one text as a reader finds them. The reading stops at more than are reported."""

    def __init__(self, content: SourceText) -> None:
        self._content = content
        self._found: list[Problem] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def note(self, index: int, message: str, advice: str) -> None:
        """Keep a problem at the character with this index; raise DescriptionError if there are too many to report."""
        self._found.append(self._content.problem(index, message, advice))
        if len(self._found) > ERRORS_MAX:
            raise DescriptionError(self._content.source, self._found, stopped=True)

    def refuse(self) -> None:
        """Raise DescriptionError if there are problems."""
        if self._found:
            raise DescriptionError(self._content.source, self._found)


class SourceText:
    """A text with its source name and the line and column of every character."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self._starts = [0]
        start = text.find("\n")
        while start != -1:
            self._starts.append(start + 1)
            start = text.find("\n", start + 1)

    def problem(self, index: int, message: str, advice: str) -> Problem:
        """Return a problem at the character with this index (the end of the text at most)."""
        index = max(0, min(index, len(self.text)))
        line = bisect.bisect_right(self._starts, index)
        start = self._starts[line - 1]
        excerpt, caret = _excerpt(self._line(line), index - start)
        return Problem(
            message=message, advice=advice, line=line, column=index - start + 1, excerpt=excerpt, caret=caret
        )

    def error(self, index: int, message: str, advice: str) -> DescriptionError:
        """Return the error for one problem at the character with this index."""
        return DescriptionError(self.source, [self.problem(index, message, advice)])

    def _line(self, line: int) -> str:
        start = self._starts[line - 1]
        end = self._starts[line] - 1 if line < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r")


def _excerpt(line: str, column: int) -> tuple[str, int]:
    """Return the part of a line around a column (0-based), safe to print, and the column's place in it."""
    column = min(column, len(line))
    start = 0
    if len(line) > SHOWN_CHARACTERS_MAX:
        start = max(0, min(column - SHOWN_CHARACTERS_MAX // 2, len(line) - SHOWN_CHARACTERS_MAX))
    shown = line[start : start + SHOWN_CHARACTERS_MAX]
    # A control character in the excerpt could move the cursor of a terminal or recolour it.
    safe = "".join(_shown_character(character) for character in shown)
    before = "..." if start > 0 else ""
    after = "..." if start + SHOWN_CHARACTERS_MAX < len(line) else ""
    return before + safe + after, len(before) + sum(map(_columns, safe[: column - start]))


def _columns(character: str) -> int:
    """Return how many columns of a terminal a character takes: two in the scripts of East Asia, none for
    a mere accent."""
    if unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def _shown_character(character: str) -> str:
    if character == "\t":
        return " "
    return "\N{REPLACEMENT CHARACTER}" if is_unprintable(character) else character


def is_unprintable(character: str) -> bool:
    """Return True if a character is a control character, half of a surrogate pair, or redirects text."""
    return unicodedata.category(character) in {"Cc", "Cs", "Cf", "Zl", "Zp"}


def shown(value: object, characters_max: int = 60) -> str:
    """Return a value for a message: quoted if it is text, shortened, without control characters."""
    if value is None:
        return "nothing"
    return printable(repr(value) if isinstance(value, str) else str(value), characters_max)


def printable(text: str, characters_max: int = 60) -> str:
    """Return a user's text for a message, without quotes: shortened, without control characters."""
    safe = text[: characters_max + 1]
    if not safe.isprintable():
        safe = "".join(map(_shown_character, safe))
    return safe if len(safe) <= characters_max else safe[: characters_max - 3] + "..."


def control_problem(name: str) -> str | None:
    """Return what is wrong with a name that contains a control character, by its first one; None if
    it contains none."""
    found = CONTROL.search(name)
    return None if found is None else f"the name holds the control character U+{ord(found[0]):04X}"


def checked_source(text: str, source: str, limit: Limit = TEXT_LIMIT) -> SourceText:
    """Return the text as a source; refuse it if it is too large or contains what no text file contains."""
    text = text.removeprefix("\N{BYTE ORDER MARK}")
    content = SourceText(text, source)
    size_bytes = len(text.encode("utf-8", errors="surrogatepass"))
    if size_bytes > limit.most:
        raise DescriptionError(
            source,
            [
                Problem(
                    message=f"the text has {size_bytes} bytes, more than {limit.most} ({limit.name})",
                    advice="make it smaller; large data belongs in the files it names",
                )
            ],
        )
    found = NOT_TEXT.search(text)
    if found is not None and found[0] == "\0":
        raise content.error(found.start(), "there is a NUL character here", "take it out; this must be a text file")
    if found is not None:
        raise content.error(found.start(), "these bytes are not UTF-8", "save the file in UTF-8")
    return content


def decoded(data: bytes, source: str) -> str:
    """Return the bytes of a file as text, or raise an error at the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        content = SourceText(before, source)
        raise content.error(
            len(before), f"the byte 0x{data[error.start]:02x} here is not UTF-8", "save the file in UTF-8"
        ) from None
