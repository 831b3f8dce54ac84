"""``koala demo``: a daemon of its own, four real jobs on three sites of this machine, shown as the journal tells it.

Here the parts come together; whatever happens, the daemon is removed at the end unless it is to be kept.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from koala.cli.demo.chronicle import Chronicle
from koala.cli.demo.daemon import DemoDaemon
from koala.cli.demo.interrupts import Interrupts
from koala.cli.demo.screen import Lines, Moving, NoScreen, Screen
from koala.cli.demo.story import DemoStory, mpi_is_installed
from koala.cli.demo.summary import DemoOutcome, gather, print_summary
from koala.cli.errors import FailedError
from koala.cli.terminal.output import console, print_json

if TYPE_CHECKING:
    from rich.console import Console

# How often the journal is read and the picture drawn, and how long the whole story may take on a slow machine.
TICK_S = 0.15
STORY_S_MAX = 240.0
WITHOUT_MPI = (
    "MPI is not installed here, so job A is a plain one of two components;\n"
    "with koala-scheduler[mpi] it is a parallel solver of the Laplace equation.\n"
)


def show_live(*, seed: int, still: bool, keep: bool, as_json: bool) -> None:
    """Run the demo and show it. Raises FailedError where it cannot be done, KeyboardInterrupt after Ctrl-C; then, and
    without ``keep``, nothing of it is left."""
    screen = console()
    mpi = mpi_is_installed()
    moving = screen.is_terminal and not still and not as_json
    shown: Screen = Moving(screen) if moving else NoScreen() if still or as_json else Lines(screen)
    if not mpi and not as_json:
        click.echo(WITHOUT_MPI)
    with Interrupts() as interrupts:
        daemon = DemoDaemon()
        kept = False
        try:
            with shown:
                outcome = _perform(daemon, shown, interrupts, seed=seed, mpi=mpi)
            _tell(screen, outcome, daemon, keep=keep, as_json=as_json, told=isinstance(shown, Lines))
            if outcome.failed:
                raise daemon.failed(f"these jobs of the demo did not come to a good end: {', '.join(outcome.failed)}")
            kept = keep
        finally:
            if not kept:
                interrupts.ignore()
                daemon.remove()


def end_kept(directory: Path) -> None:
    """End a demo that was kept, and remove everything of it."""
    with Interrupts() as interrupts:
        daemon = DemoDaemon(directory)
        interrupts.ignore()
        daemon.remove()
    click.echo(f"The demo in {daemon.directory} is gone.")


def _perform(daemon: DemoDaemon, shown: Screen, interrupts: Interrupts, *, seed: int, mpi: bool) -> DemoOutcome:
    """Start the daemon, go through the story, and gather what came of it."""
    from koala.client import ClientError

    daemon.start(interrupts.check)
    chronicle = Chronicle()
    with daemon.client() as client:
        story = DemoStory(client, chronicle, daemon.directory, seed=seed, mpi=mpi)
        end = time.monotonic() + STORY_S_MAX
        try:
            for _ in story.steps():
                chronicle.read(client)
                shown.show(client, chronicle)
                interrupts.check()
                if time.monotonic() > end:
                    raise daemon.failed(f"the demo's jobs did not end within {STORY_S_MAX:.0f} s (STORY_S_MAX)")
                time.sleep(TICK_S)
                daemon.check()
            chronicle.read(client)
            shown.show(client, chronicle)
            interrupts.check()
            assert story.first is not None, "the story has been told"
            return gather(client, chronicle, story.first, mpi=mpi)
        except ClientError as error:
            interrupts.check()
            daemon.check()
            raise daemon.failed(f"the demo's daemon did not do as asked: {error.for_user()}") from None


def _tell(
    screen: Console, outcome: DemoOutcome, daemon: DemoDaemon, *, keep: bool, as_json: bool, told: bool
) -> None:
    """The summary, and how to go on."""
    server = daemon.server
    link = _dashboard_link(daemon) if keep else None
    if as_json:
        where = {"server": server, "pid": daemon.pid, "directory": str(daemon.directory), "dashboard": link}
        print_json({**outcome.document(), "kept": where if keep else None})
        return
    if told:
        screen.print()
    print_summary(screen, outcome, with_story=not told)
    option = shlex.quote(server)
    if not keep:
        lines = ["next: koala demo --keep    the daemon stays, and its dashboard in your browser"]
    else:
        lines = [
            "the daemon runs on:",
            f"  dashboard  {link}  (this link works once)",
            f"  look       koala top -s {option}",
            f"  submit     koala submit hello --wait -s {option}",
            f"  end it     koala demo --end {shlex.quote(str(daemon.directory))}",
        ]
    click.echo("\n" + "\n".join(lines))


def _dashboard_link(daemon: DemoDaemon) -> str | None:
    from koala.client import ClientError

    try:
        with daemon.client() as client:
            return client.login().url
    except ClientError as error:
        raise FailedError(f"no link to the dashboard could be made: {error.for_user()}") from None
