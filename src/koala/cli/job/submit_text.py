"""The text of a job to submit: where it is read from, and what is wrong with it, shown at its place.

The daemon tells the places; the text is known here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from koala.cli.errors import UserError
from koala.cli.examples import read_named
from koala.descriptions import decoded
from koala.descriptions.errors import ERRORS_MAX, SourceText

if TYPE_CHECKING:
    from koala.client import InvalidError
    from koala.model.api import ProblemAt

STANDARD_INPUT = "standard input"
# The daemon takes a name of so many characters; its end tells the format.
_SOURCE_CHARACTERS_MAX = 255


def read_text(job: str) -> tuple[str, str]:
    """The text of a file, of an example or of standard input, and what to call it in messages."""
    from koala.model.api import DESCRIPTION_BYTES_MAX

    if job == "-":
        shown = STANDARD_INPUT
        data = sys.stdin.buffer.read(DESCRIPTION_BYTES_MAX + 1)
    elif Path(job).is_file():
        shown = os.fsencode(job).decode("utf-8", errors="replace")
        with Path(job).open("rb") as file:
            data = file.read(DESCRIPTION_BYTES_MAX + 1)
    else:
        return read_named("job", job)
    if len(data) > DESCRIPTION_BYTES_MAX:
        raise UserError(
            f"{shown}: a job has at most {DESCRIPTION_BYTES_MAX} bytes (DESCRIPTION_BYTES_MAX), and this has more; "
            "put a large script into a file of its own that the job runs, and data into input files"
        )
    if not data.strip():
        raise UserError(f"{shown} is empty; write a job into it, such as the one of koala examples show hello")
    return decoded(data, shown), shown


def source_to_send(source: str) -> str:
    """The name for the daemon, which tells the format by its end."""
    return source[-_SOURCE_CHARACTERS_MAX:]


def shown_at_place(error: InvalidError, text: str, source: str) -> str:
    """What is wrong with the text, every problem with its source line, as ``koala place`` shows it."""
    if not error.problems:
        return error.for_user()
    lines = SourceText(text, source)
    told = [_told(problem, lines) for problem in error.problems]
    if len(told) >= ERRORS_MAX:
        told.append(f"these are the first {ERRORS_MAX} problems in {source}; there may be more")
    return "\n".join(told)


def _told(problem: ProblemAt, text: SourceText) -> str:
    if problem.line is None or problem.column is None:
        return "\n  ".join(filter(None, (f"{text.source}: {problem.message}", problem.cure)))
    before = text.text.split("\n")[: problem.line - 1]
    index = sum(len(line) + 1 for line in before) + problem.column - 1
    return text.problem(index, problem.message, problem.cure).for_user(text.source)
