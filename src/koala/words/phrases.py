"""Phrases that several sentences share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# A sentence of the journal names at most this many things of one kind; the rest are counted.
NAMES_MAX = 8
# A user's text in a sentence of the journal is cut after this many characters.
TEXT_CHARACTERS_MAX = 200


def listed(names: Sequence[str]) -> str:
    """List names in a sentence: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), *names[-1:]])


def first_named(names: Sequence[str]) -> str:
    """Return the first of many names, and how many more there are."""
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def counted(count: int, thing: str) -> str:
    """Format a number with its noun: ``1 job``, ``2 jobs``."""
    return f"{count} {thing if count == 1 else thing + 's'}"


def tasks(names: Sequence[str]) -> str:
    """Return the first of these tasks by name, and how many more there are."""
    return f"{'task' if len(names) == 1 else 'tasks'} {first_named(names)}"


def jobs(ids: Sequence[int]) -> str:
    """List these jobs."""
    return f"{'job' if len(ids) == 1 else 'jobs'} {', '.join(map(str, ids))}" if ids else "no other jobs"


def nodes(names: Sequence[str]) -> str:
    """List these nodes."""
    return f"{'node' if len(names) == 1 else 'nodes'} {', '.join(names)}"


def sizes_on(places: Iterable[tuple[int | str, str]]) -> list[str]:
    """Format sizes and sites: ``4 on delft``."""
    return [f"{size} on {site}" for size, site in places]


def cut(text: str) -> str:
    """Return the text, cut if it is long."""
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[: TEXT_CHARACTERS_MAX - 3] + "..."


def because(reason: str) -> str:
    """Format a reason that follows a statement, if there is one."""
    return f": {cut(reason)}" if reason else ""


def long_time(seconds: float) -> str:
    """Format a time that may be long: ``95 s``, ``12 min``, ``23 h 59 min``."""
    if seconds < 600.0:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60.0)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
