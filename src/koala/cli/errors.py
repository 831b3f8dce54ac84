"""The command line's errors: one message that names the thing, never a stack trace."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import textwrap
from typing import IO, Any

import click

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_UNAVAILABLE = 4
EXIT_INTERRUPTED = 130

# A narrower terminal breaks the lines itself.
WIDTH_MIN = 20

_ADVICE = {
    errno.ENOENT: "check the name; the folder must be there already",
    errno.ENOTDIR: "check the name; a part of it is not a folder",
    errno.EISDIR: "it is a folder; name a file in it",
    errno.EACCES: "choose a place that you have the right to use",
    errno.EPERM: "choose a place that you have the right to use",
    errno.EROFS: "choose a place that can be written",
    errno.ENOSPC: "make room, or choose another place",
    errno.EDQUOT: "make room, or choose another place",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def advice(error: OSError) -> str:
    """Return the advice for a file or folder that could not be used."""
    return _ADVICE.get(error.errno or 0, "check the name, or choose another place")


class UserError(click.ClickException):
    """Bad input: the message names the thing, what is wrong with it, and what to write instead."""

    exit_code = EXIT_USAGE

    def format_message(self) -> str:
        return self.message

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it; on a terminal lines are broken between words."""
        say(f"Error: {self.format_message()}", sys.stderr if file is None else file)


def say(message: str, stream: IO[Any] | None = None, *, err: bool = False) -> None:
    """Print sentences; on a terminal lines are broken between words."""
    to: IO[Any] = stream if stream is not None else sys.stderr if err else sys.stdout
    click.echo(wrapped(message, shutil.get_terminal_size().columns) if to.isatty() else message, file=to)


def wrapped(message: str, width: int) -> str:
    """Wrap a message for people to this width, with continuation lines indented as the first. A line of a user's
    text, and the mark below that points at a place in it, stay as they are."""
    lines = message.split("\n")
    shown = [
        line if _is_mark(line) or _is_mark(after) else _filled(line, max(width, WIDTH_MIN))
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
    ]
    return "\n".join(shown)


def _is_mark(line: str) -> bool:
    """Return True if the line points at a place in the line above."""
    return line.strip() == "^"


def _filled(line: str, width: int) -> str:
    indent = " " * (len(line) - len(line.lstrip(" ")))
    if len(line) <= width:
        return line
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


class FailedError(UserError):
    """The requested action was tried and failed."""

    exit_code = EXIT_FAILED


class RefusedError(UserError):
    """The caller may not do this, or there is no place for it."""

    exit_code = EXIT_REFUSED


class DaemonError(UserError):
    """The daemon cannot be reached or is not able to work."""

    exit_code = EXIT_UNAVAILABLE


# Codes of errors about the daemon (``koala.model.errors``, ``koala.client.errors``) that are not wrong use.
_KINDS: dict[str, type[UserError]] = {
    "unreachable": DaemonError,
    "bad_answer": DaemonError,
    "unavailable": DaemonError,
    "too_many": DaemonError,
    "internal": DaemonError,
    "forbidden": RefusedError,
    "not_signed_in": RefusedError,
    "no_place": RefusedError,
    "conflict": FailedError,
}


def for_user(error: Exception, message: str) -> UserError:
    """Return the error to show for a lower floor's error for the user."""
    return _KINDS.get(getattr(error, "code", ""), UserError)(message)


class ReportedGroup(click.Group):
    """Turns the errors that the lower floors raise about user input into messages of one form."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; an error of standard output is reported like any other file's."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            _drop_output()
            click.echo(f"Error: standard output: {error.strerror}; {advice(error)}", err=True)
            sys.exit(EXIT_USAGE)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("\nInterrupted.", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            # The reader has all it wants, as ``head`` does: that is an end and no failure.
            _drop_output()
            ctx.exit(0)
        except (OSError, ValueError) as error:
            report = getattr(error, "for_user", None)
            if report is not None:
                raise for_user(error, report()) from None
            if isinstance(error, OSError) and error.filename is not None:
                raise UserError(f"{error.filename}: {error.strerror}; {advice(error)}") from None
            raise


def _drop_output() -> None:
    """Discard what could not be written, so that Python does not try again when it ends."""
    try:
        descriptor = sys.stdout.fileno()
    except OSError:  # not a real file
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
