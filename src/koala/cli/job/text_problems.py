"""Shows the problems in the text of a submission at their places: the daemon reports the places, and the text is
here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from koala.descriptions.errors import ERRORS_MAX, SourceText

if TYPE_CHECKING:
    from koala.client import InvalidError
    from koala.model.api import ProblemAt

# The daemon accepts a name of this length; its end gives the format.
_SOURCE_CHARACTERS_MAX = 255


def source_to_send(source: str) -> str:
    """Return the name for the daemon, which takes the format from its end."""
    return source[-_SOURCE_CHARACTERS_MAX:]


def shown_at_place(error: InvalidError, text: str, source: str) -> str:
    """Return the problems in the text, each with its source line, as ``koala place`` shows them."""
    if not error.problems:
        return error.for_user()
    lines = SourceText(text, source)
    shown = [_told(problem, lines) for problem in error.problems]
    if len(shown) >= ERRORS_MAX:
        shown.append(f"these are the first {ERRORS_MAX} problems in {source}; there may be more")
    return "\n".join(shown)


def _told(problem: ProblemAt, text: SourceText) -> str:
    if problem.line is None or problem.column is None:
        return "\n  ".join(filter(None, (f"{text.source}: {problem.message}", problem.cure)))
    before = text.text.split("\n")[: problem.line - 1]
    index = sum(len(line) + 1 for line in before) + problem.column - 1
    return text.problem(index, problem.message, problem.cure).for_user(text.source)
