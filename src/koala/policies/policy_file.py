"""A user's Python file that registers policies: its allowed contents, and its execution.

Its errors are reported with file and line. The caller opens the file.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from koala.model.grid import PolicyFile
from koala.policies.errors import PolicyFileError

POLICY_FILE_BYTES_MAX = 1024 * 1024
# The module name that the functions of a policy file see.
MODULE_NAME = "koala_policy_file"


def read_policy_file(path: str, read: Callable[[int], bytes]) -> PolicyFile:
    """Return the file with its text, from ``read``, which returns at most the given number of bytes."""
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
    """Execute the text as a module of its own and return its names. Raises PolicyFileError with file and line."""
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
        # The file belongs to its author: whatever it raises is for that author to read, with the line that raised it.
        line = last_line_in(filename, error.__traceback__)
        raise PolicyFileError(filename, line, f"{type(error).__name__}: {error}", "correct the file") from error
    return namespace


def last_line_in(filename: str, trace: TracebackType | None) -> int | None:
    """Return the innermost line of the file that was running when the error was raised."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
