"""An explanation of the core in words for people."""

from __future__ import annotations

from typing import Any

import msgspec

from koala.core.standing import JobExplanation
from koala.words.standing import meaning


def in_words(explained: JobExplanation, more: str = "") -> dict[str, Any]:
    """Return the whole explanation for callers and for the record: its meaning in words, followed by ``more``, and
    all other fields unchanged."""
    fields: dict[str, Any] = msgspec.to_builtins(explained)
    del fields["standing"]
    return fields | {"meaning": meaning(explained) + more}
