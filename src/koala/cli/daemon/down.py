"""``koala down``: stop the daemon of a state directory of this machine."""

from __future__ import annotations

from pathlib import Path

import click

from koala.cli.daemon.background import stop
from koala.cli.errors import say


@click.command()
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The daemon's state directory; by default koala in $XDG_STATE_HOME or ~/.local/state.",
)
def down(state: Path | None) -> None:
    """Stop the daemon, and return when it has stopped.

    What runs at sites keeps running, and what is on record stays: koala up continues from there. If no daemon runs,
    this says so and exits with 0.
    """
    from koala.client import default_state

    directory = default_state() if state is None else state
    pid = stop(directory)
    if pid is None:
        say(f"No daemon runs on {directory}.")
    else:
        say(f"The daemon on {directory} (process {pid}) has stopped; what runs at sites keeps running.")
