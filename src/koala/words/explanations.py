"""An explanation of the core in the words in which people read it."""

from __future__ import annotations

from typing import Any

import msgspec

from koala.core.story import JobExplanation
from koala.words.facts import told
from koala.words.standing import meaning


class ToldEntry(msgspec.Struct, frozen=True):
    """An entry of a story in words: when, and what was decided and why."""

    at: float
    text: str


def story(explained: JobExplanation) -> list[ToldEntry]:
    """The story of a job in words."""
    return [ToldEntry(entry.at, told(entry)) for entry in explained.story]


def in_words(explained: JobExplanation, more: str = "") -> dict[str, Any]:
    """Everything about where a job stands, as it goes to callers and on record: its meaning, with what is said
    ``more`` of it, and its story in words, and all else as it is."""
    fields: dict[str, Any] = msgspec.to_builtins(explained)
    del fields["standing"]
    return fields | {"meaning": meaning(explained) + more, "story": msgspec.to_builtins(story(explained))}
