"""A Python file that somebody wrote to register policies: what may be in it, and running it.

What goes wrong in it is told with file and line. Opening it is for the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from koala.model.grid import PolicyFile
from koala.policies.errors import PolicyFileError

POLICY_FILE_BYTES_MAX = 1024 * 1024
# The module that the functions of a policy file believe to be in.
MODULE_NAME = "koala_policy_file"


def read_policy_file(path: str, read: Callable[[int], bytes]) -> PolicyFile:
    """The file with its text, which ``read`` gives up to so many bytes."""
    try:
        content = read(POLICY_FILE_BYTES_MAX + 1)
    except OSError as error:
        why = error.strerror or str(error)
        raise PolicyFileError(path, None, f"it cannot be read: {why}", "check the path") from None
    if len(content) > POLICY_FILE_BYTES_MAX:
        raise PolicyFileError(
            path, None, f"it is larger than {POLICY_FILE_BYTES_MAX} bytes (POLICY_FILE_BYTES_MAX)", "shorten it"
        )
    try:
        return PolicyFile(path=path, text=content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise PolicyFileError(path, None, f"it is not UTF-8 text: {error.reason}", "save it as UTF-8") from None


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
    namespace: dict[str, Any] = {"__name__": MODULE_NAME, "__file__": filename}
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
