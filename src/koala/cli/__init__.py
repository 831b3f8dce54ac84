"""The ``koala`` command. Each verb lives in a module of this folder and is imported when it is used.

Exit codes, for every verb: 0 done; 1 the thing asked for was tried and failed; 2 wrong use or bad input;
3 refused, by a policy or for lack of rights; 4 the daemon cannot be reached or is not able to work; 130 interrupted.
Waiting for a job that failed with an exit code of its own gives that one.
"""

from __future__ import annotations

import gc
import importlib
from typing import TYPE_CHECKING, Any

import click

from koala.cli.errors import ReportedGroup, UserError
from koala.version import __version__

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# After so many new objects Python looks for garbage, from the start of a command or a daemon to its end. What is
# imported makes a few hundred thousand objects that stay: with the 700 of Python 3.11, a twelfth of the start of a
# daemon was looking at them again and again.
OBJECTS_BETWEEN_COLLECTIONS = 20_000

# verb -> (module, attribute, one line for the overview)
VERBS: dict[str, tuple[str, str, str]] = {
    "admin": ("koala.cli.daemon.admin", "admin", "Look into the store of a stopped daemon, and repair it."),
    "completion": ("koala.cli.completion", "completion", "Print the completion script for a shell."),
    "dashboard": ("koala.cli.daemon.dashboard", "dashboard", "Print a link that opens the dashboard."),
    "demo": (
        "koala.cli.demo.command",
        "demo",
        "Run four real jobs on three small sites of this machine and show it.",
    ),
    "down": ("koala.cli.daemon.down", "down", "Stop the daemon; what runs at sites keeps running."),
    "examples": (
        "koala.cli.examples",
        "examples",
        "List, show and copy the files that ship with Koala: grids, workloads, jobs.",
    ),
    "events": ("koala.cli.events", "events", "Print the journal: every event and every command, in order."),
    "file": ("koala.cli.files", "file", "Register a file, bring it to another site, or forget it."),
    "files": ("koala.cli.files", "files", "List the files that jobs can read."),
    "grid": ("koala.cli.grid.command", "grid", "Write a grid file from the clusters that are found."),
    "job": ("koala.cli.job.command", "job", "Look at one job, wait for it or cancel it."),
    "jobs": ("koala.cli.job.list", "jobs", "List jobs, the newest first."),
    "lab": ("koala.cli.lab", "lab", "Run Slurm and Grid Engine on this machine, as sites to try Koala on."),
    "map": (
        "koala.cli.map.command",
        "map_application",
        "Map communicating tasks onto the machines of a wide-area grid.",
    ),
    "network": (
        "koala.cli.site.network",
        "network",
        "Show what is known of the links between sites, and what was measured.",
    ),
    "place": ("koala.cli.place.command", "place", "Ask where a job would go, without any grid running."),
    "policies": ("koala.cli.policies", "policies", "List the placement policies."),
    "replay": (
        "koala.cli.replay.command",
        "replay",
        "Submit a workload or a trace to the live grid at its arrival times.",
    ),
    "run": ("koala.cli.job.run", "run", "Run a command as a job, with its output and its exit code here."),
    "schema": ("koala.cli.schema", "schema", "Print the JSON schema of a file that Koala reads."),
    "simulate": ("koala.cli.simulate.command", "simulate", "Run a workload on a simulated grid."),
    "site": ("koala.cli.site.command", "site", "Check a site, take it out, put it back, or ask how it is."),
    "sites": ("koala.cli.site.command", "sites", "List the sites."),
    "study": (
        "koala.cli.study.command",
        "study",
        "Compare policies on grids and workloads of your own, with verdicts.",
    ),
    "submit": ("koala.cli.job.submit", "submit", "Submit a job to the daemon."),
    "token": (
        "koala.cli.daemon.token",
        "token",
        "Create, list and revoke the tokens with which others call the daemon.",
    ),
    "top": ("koala.cli.top", "top", "Show the whole grid in the terminal, as things happen."),
    "torture": (
        "koala.cli.torture",
        "torture",
        "Run the scheduler under storms of faults and check that it keeps its promises.",
    ),
    "trace": ("koala.cli.trace", "trace", "Look at a workload trace, or draw a new one."),
    "up": ("koala.cli.daemon.up", "up", "Run the daemon: a live grid, its queue, its API and its dashboard."),
}

# The verbs that need no daemon; all others except ``up`` and ``down`` talk to one.
WITHOUT_DAEMON = frozenset(
    {
        "completion",
        "demo",
        "examples",
        "grid",
        "lab",
        "map",
        "place",
        "policies",
        "schema",
        "simulate",
        "study",
        "torture",
        "trace",
    }
)


# Other distributions add verbs by entry points of this group.
GROUP = "koala.commands"
# Verbs that are known to come with another distribution -> that distribution, and its folder in a clone of Koala.
ELSEWHERE = {"experiment": ("koala-papers", "./papers")}


def added_verbs() -> dict[str, EntryPoint]:
    """The verbs of other distributions that are installed. None of them replaces one of Koala's own."""
    from importlib.metadata import entry_points

    return {each.name: each for each in entry_points(group=GROUP) if each.name not in VERBS}


def _loaded(added: EntryPoint) -> click.Command:
    try:
        command: click.Command = added.load()
    except (ImportError, AttributeError) as error:
        raise UserError(f"koala {added.name}: {added.value} cannot be loaded: {error}; install it again") from None
    return command


def _in_one_line(added: EntryPoint) -> str:
    """What the distribution says of itself, so that --help imports nothing of it."""
    return "" if added.dist is None else added.dist.metadata["Summary"]


class LazyGroup(ReportedGroup):
    """A group that has its verbs by name and imports one only when it is called, so that --help is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*VERBS, *added_verbs()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in VERBS:
            module, attribute, _ = VERBS[cmd_name]
            command: click.Command = getattr(importlib.import_module(module), attribute)
            return command
        if added := added_verbs().get(cmd_name):
            return _loaded(added)
        if cmd_name in ELSEWHERE:
            distribution, folder = ELSEWHERE[cmd_name]
            raise UserError(
                f"koala {cmd_name} comes with {distribution}, which is not installed; "
                f"install it in a clone of Koala with: pip install {folder}"
            )
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        lines = {verb: line for verb, (_, _, line) in VERBS.items()}
        added = {verb: _in_one_line(each) for verb, each in added_verbs().items()}
        with formatter.section("A live grid"):
            formatter.write_dl([(verb, lines[verb]) for verb in sorted(lines) if verb not in WITHOUT_DAEMON])
        tools = {verb: lines[verb] for verb in WITHOUT_DAEMON} | added
        with formatter.section("Study, and tools"):
            formatter.write_dl(sorted(tools.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="koala")
def koala() -> None:
    """One queue over many clusters: places the pieces of a parallel job on several of them at once."""


def main(*args: Any, **kwargs: Any) -> None:
    """Run the ``koala`` script."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    try:
        koala(*args, **kwargs)
    finally:
        gc.freeze()  # otherwise Python collects garbage in all imports twice more before it ends
