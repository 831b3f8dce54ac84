"""How the command line reports what went wrong: one message that names the thing, never a stack trace."""

from __future__ import annotations

from typing import Any

import click

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3


class UserError(click.ClickException):
    """Bad input: says which thing, what is wrong with it, and what to write instead."""

    exit_code = EXIT_USAGE

    def format_message(self) -> str:
        return self.message


class ReportedGroup(click.Group):
    """Turns the errors that the lower floors raise about user input into messages of one form."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (OSError, ValueError) as error:
            report = getattr(error, "for_user", None)
            if report is not None:
                raise UserError(report()) from None
            if isinstance(error, OSError) and error.filename is not None:
                raise UserError(f"{error.filename}: {error.strerror}") from None
            raise
