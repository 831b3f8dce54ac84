"""An option of a batch script as given, and why some accepted options have no effect."""

from __future__ import annotations

from dataclasses import dataclass

SITE = "the grid file says this for each site"
MAIL = "Koala sends no mail; koala job wait and koala events tell of a job"
PRIORITY = "Koala decides when and in which order jobs start; #KOALA --priority high or low says which come first"
SUBMITTER = "it is for the one who submits"


@dataclass(frozen=True, slots=True)
class OptionWord:
    """A word of an option line without its quotes.

    ``places`` are the positions of its characters in the script, and ``quoted`` those that stood in quotes.
    """

    text: str
    index: int
    places: tuple[int, ...] = ()
    quoted: frozenset[int] = frozenset()

    def part(self, start: int, end: int | None = None) -> OptionWord:
        """Return the word from one of its characters to another."""
        index = self.places[start] if start < len(self.places) else self.index + start
        return OptionWord(self.text[start:end], index, self.places[start:end], self.quoted)

    def between_commas(self) -> list[OptionWord]:
        """Return the parts of the word between commas: A='x,y',B=1 and "A=1,B=2" have two each."""
        parts: list[OptionWord] = []
        start = 0
        for at, character in enumerate(self.text):
            # Quotes keep a comma inside a value; quotes that began before the part's name enclose several parts.
            kept = self.places[at] in self.quoted and self.places[start] not in self.quoted
            if character == "," and not kept:
                parts.append(self.part(start, at))
                start = at + 1
        return [*parts, self.part(start)]


@dataclass(frozen=True, slots=True)
class Option:
    """An option as given: its long name, its value (empty if it takes none) and its place."""

    name: str
    value: OptionWord
    index: int
