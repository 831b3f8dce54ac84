"""An explanation of the core in the words in which people read it."""

from __future__ import annotations

from typing import Any

import msgspec

from koala.core.standing import JobExplanation
from koala.words.standing import meaning


def in_words(explained: JobExplanation, more: str = "") -> dict[str, Any]:
    """Everything about where a job stands, as it goes to callers and on record: its meaning, with what is said
    ``more`` of it, and all else as it is."""
    fields: dict[str, Any] = msgspec.to_builtins(explained)
    del fields["standing"]
    return fields | {"meaning": meaning(explained) + more}
