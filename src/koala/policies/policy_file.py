"""Running a Python file that a user wrote to register policies; what goes wrong in it is told with file and line."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from koala.policies.errors import PolicyFileError


def run_policy_file(text: str, filename: str) -> dict[str, Any]:
    """Execute the text as a module of its own and give its names. Raises PolicyFileError with file and line."""
    try:
        code = compile(text, filename, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise PolicyFileError(
            filename, error.lineno, f"this is not Python: {error.msg}", "correct the line"
        ) from error
    except ValueError as error:
        raise PolicyFileError(filename, None, f"this is not Python: {error}", "give a text file") from error
    namespace: dict[str, Any] = {"__name__": "koala_policy_file", "__file__": filename}
    try:
        exec(code, namespace)  # noqa: S102 - running the user's own file is what was asked for
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # The file is its author's: whatever it raises is for that author to read, with the line that raised it.
        line = last_line_in(filename, error.__traceback__)
        raise PolicyFileError(filename, line, f"{type(error).__name__}: {error}", "correct the file") from error
    return namespace


def last_line_in(filename: str, trace: TracebackType | None) -> int | None:
    """The line of the file that was running when the error came, the innermost one."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
