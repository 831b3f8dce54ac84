"""What all questions and answers of the API share, and the limits of one call."""

from __future__ import annotations

import enum
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

# Limits on what one call may ask for.
DESCRIPTION_BYTES_MAX = 1_048_576
CLIENT_TOKEN_CHARACTERS_MAX = 128
PAGE_ITEMS_MAX = 1_000
PAGE_ITEMS_DEFAULT = 100
WAIT_S_MAX = 60.0
WALLTIME_S_MAX = 1e9
OUTPUT_BYTES_MAX = 1_048_576
WHY_CHARACTERS_MAX = 200

Item = TypeVar("Item")


class Answer(BaseModel):
    """What the daemon answers."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Question(BaseModel):
    """The body of a client's request."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Scope(enum.StrEnum):
    """What a token allows. Each is granted by itself."""

    READ = "read"  # see the grid, and one's own jobs
    SUBMIT = "submit"  # submit jobs, cancel one's own
    PRIORITY = "priority"  # give one's own jobs high priority
    OPERATE = "operate"  # see and cancel everybody's jobs; drain, resume and probe sites; change files


class Page(Answer, Generic[Item]):
    """Some of a long list; ``next`` is the cursor to ask for the following ones with, None at the end."""

    items: list[Item]
    next: str | None = None


class ProblemAt(Answer):
    """One thing that is wrong with a description."""

    line: int | None = None
    column: int | None = None
    message: str
    cure: str = ""


class ErrorBody(Answer):
    """Why a call failed. ``code`` is for programs, ``message`` names the thing, what is wrong with it
    and what to do."""

    code: str
    message: str
    problems: list[ProblemAt] = []


class ErrorAnswer(Answer):
    """The body of every answer that is not a success."""

    error: ErrorBody
