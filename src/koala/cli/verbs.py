"""What a verb of another distribution is made of.

A distribution adds a verb to ``koala`` by an entry point of the group ``koala.commands``, which has the name of the
verb and points at a click command. That command prints and refuses as those of Koala do, with what is here.
"""

from __future__ import annotations

from koala.cli.errors import UserError
from koala.cli.libraries import refuse_without
from koala.cli.study.running import cluster, report_folder, run_shown, summary
from koala.cli.terminal.output import console, counted, print_json

__all__ = [
    "UserError",
    "cluster",
    "console",
    "counted",
    "print_json",
    "refuse_without",
    "report_folder",
    "run_shown",
    "summary",
]
