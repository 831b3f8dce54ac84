"""What a caller may put right before anything is sent: what the forms of the API refuse, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from pydantic import ValidationError

from koala.client.errors import InvalidError, TooLargeError
from koala.model.api import DESCRIPTION_BYTES_MAX

P = ParamSpec("P")
Value = TypeVar("Value")

_NOT_UTF8 = "it holds bytes that are not UTF-8; rename it, or write it in UTF-8"
_WHAT = {
    "user": "write 1 to 64 letters, digits, '.', '_', '@' and '-', beginning with a letter or a digit",
    "scopes": "give at least one of read, submit and operate",
    "description": "write a job into it, in YAML, RSL or as a Slurm script",
}


def checked(describe: Callable[P, Value], *args: P.args, **kwargs: P.kwargs) -> Value:
    """What a function makes of its arguments. ``InvalidError`` or ``TooLargeError`` names the argument that a form
    of the API refuses, and says what to write."""
    try:
        return describe(*args, **kwargs)
    except ValidationError as error:
        raise _in_words(error.errors()[0]) from None
    except UnicodeEncodeError as error:
        shown = error.object.encode("utf-8", errors="replace").decode("utf-8")
        raise InvalidError(f"{shown!r}: {_NOT_UTF8}") from None


def _in_words(problem: Any) -> InvalidError | TooLargeError:
    name = ".".join(map(str, problem["loc"]))
    kind, context = problem["type"], problem.get("ctx", {})
    cure = _WHAT.get(name, "write at least one character")
    if kind == "string_too_long" and name == "description":
        return TooLargeError(
            f"the description has more than {DESCRIPTION_BYTES_MAX} characters (DESCRIPTION_BYTES_MAX); put a large "
            "script into a file of its own that the job runs, and data into input files"
        )
    if kind == "string_too_short":
        return InvalidError(f"{name} is empty; {cure}")
    if kind == "too_short":
        return InvalidError(f"{name}: nothing is named; {cure}")
    if kind == "string_too_long":
        most = context["max_length"]
        return InvalidError(f"{name} has more than {most} characters; write at most {most}")
    if kind == "string_pattern_mismatch":
        return InvalidError(f"{name}: {problem['input']!r} cannot be used; {cure}")
    if kind == "string_unicode":
        return InvalidError(f"{name}: {_NOT_UTF8}")
    return InvalidError(f"{name}: {problem['msg']}")
