"""``koala site check``: checks step by step whether sites of a grid file can be used, and says what to fix."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koala.cli.connection import complete_site
from koala.cli.errors import EXIT_FAILED, UserError
from koala.cli.examples import read_named
from koala.cli.terminal.output import console, counted, print_json
from koala.cli.terminal.words import clean

if TYPE_CHECKING:
    from rich.table import Table

    from koala.model.grid import BatchSettings, Site
    from koala.sites.batch.check.between import Reach
    from koala.sites.batch.check.check import CheckContext, Finding

# Signs in front of a step, and their colours.
_SIGNS = {
    "passed": ("\N{CHECK MARK}", "green"),
    "warned": ("!", "yellow"),
    "failed": ("\N{BALLOT X}", "red"),
    "skipped": ("\N{EN DASH}", "dim"),
}
# As wide as the name of the longest step.
_STEP_WIDTH = 20
# The longest wait for the check's tiny job to start and run, and the limit of that option.
PATIENCE_S = 120.0
PATIENCE_S_MAX = 86_400.0


@click.command()
@click.argument("names", metavar="[SITE]...", nargs=-1, shell_complete=complete_site)
@click.option("--grid", "grid_name", metavar="GRID", help="The grid file; by default the grid of the last koala up.")
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The state directory of the daemon that will use it; by default koala in $XDG_STATE_HOME or ~/.local/state.",
)
@click.option(
    "--run", is_flag=True, help="Also run a tiny job there, and try a reservation where claims ask for them."
)
@click.option(
    "--patience",
    "patience_s",
    type=click.FloatRange(min=1.0, max=PATIENCE_S_MAX),
    default=PATIENCE_S,
    show_default=True,
    metavar="SECONDS",
    help="How long the tiny job may wait and run.",
)
@click.option(
    "--ssh-config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Use this file in place of ~/.ssh/config.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def check(
    ctx: click.Context,
    names: tuple[str, ...],
    grid_name: str | None,
    state: Path | None,
    run: bool,
    patience_s: float,
    ssh_config: Path | None,
    as_json: bool,
) -> None:
    """Check step by step whether sites can be used, and say what to fix. No daemon is needed.

    Without a name all sites of the grid are checked, one after the other. A site is asked, and its work directory
    made; only with --run does a job go there. With several sites --run also checks that a node of each reaches a node
    of each other one. Exits with 1 when something must be fixed. --json prints an object for one named site,
    otherwise a list.
    """
    from koala.client import default_state

    directory = default_state() if state is None else state
    sites, source = _sites(names, grid_name, directory)
    shown = None if as_json else _printer()
    answers: list[dict[str, Any]] = []
    usable: list[CheckContext] = []
    for site in sites:
        if shown is not None and answers:
            click.echo()
        first = _named(site, source)
        if shown is not None:
            shown(first)
        context = None if site.batch is None else _context(site, site.batch, directory, patience_s, ssh_config)
        found = [first, *asyncio.run(_findings(_looked(site, context, run=run), shown))]
        if shown is not None:
            click.echo(_verdict(site, found))
        answers.append(_answer(site, found))
        if context is not None and answers[-1]["usable"]:
            usable.append(context)
    if run and len(usable) > 1:
        if shown is not None:
            click.echo()
        reaches = asyncio.run(_between(usable, shown))
        for answer in answers:
            answer["reaches"] = [
                {"site": each.target, **_step(each.finding)} for each in reaches if each.source == answer["site"]
            ]
    if as_json:
        print_json(answers[0] if len(names) == 1 else answers)
    if not all(each["usable"] for each in answers):
        ctx.exit(EXIT_FAILED)


def _answer(site: Site, found: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings for a program."""
    return {
        "site": site.name,
        "kind": site.kind,
        "usable": not any(each.sign == "failed" for each in found),
        "steps": [{"step": each.step, **_step(each)} for each in found],
    }


def _step(finding: Finding) -> dict[str, Any]:
    return {"result": finding.sign, "found": finding.words, "advice": finding.advice or None}


def _sites(names: Sequence[str], grid_name: str | None, state: Path) -> tuple[list[Site], str]:
    """Return the sites of these names, or all of them, and the grid file that names them."""
    from koala.cli.daemon.up import GRID_FILE
    from koala.descriptions import read_grid
    from koala.descriptions.yaml.problems import nearest

    if grid_name is None:
        kept = state / GRID_FILE
        if not kept.is_file():
            raise UserError(
                f"there is no grid of an earlier koala up in {clean(str(state))}; give --state DIR, the state "
                "directory of the daemon, or name a grid file with --grid; koala grid init writes one"
            )
        grid_name = str(kept)
    text, source = read_named("grid", grid_name)
    known = {site.name: site for site in read_grid(text, source).sites}
    for name in names:
        if name not in known:
            raise UserError(f"{source} names no site {clean(name)!r}; {nearest(name, list(known))}")
    return [known[name] for name in dict.fromkeys(names or known)], source


def _named(site: Site, source: str) -> Finding:
    from koala.sites.batch.check.check import Finding, StepStatus

    words = f"{source} names {site.name}: {site.kind}, {counted(site.processors, 'processor')}"
    return Finding(step="grid file", sign=StepStatus.PASSED, words=words)


async def _findings(looking: AsyncIterator[Finding], shown: Callable[[Finding], None] | None) -> list[Finding]:
    """Return the findings of a check, each shown as soon as it is known."""
    found = []
    async for each in looking:
        found.append(each)
        if shown is not None:
            shown(each)
    return found


def _context(
    site: Site, settings: BatchSettings, state: Path, patience_s: float, ssh_config: Path | None
) -> CheckContext:
    from koala.daemon.grid_sites import owner_of
    from koala.sites.batch.check.check import CheckContext
    from koala.sites.batch.systems import SYSTEMS
    from koala.sites.remote_shell import RemoteShell

    parts = SYSTEMS[site.kind].parts()
    return CheckContext(
        site,
        RemoteShell(
            ssh=settings.ssh, through=settings.through, environment=dict(settings.environment), ssh_config=ssh_config
        ),
        parts.system,
        parts.checks,
        owner=owner_of(state, site.name),
        clock=time.time,
        nonce=secrets.token_hex(4),
        programs_here=_programs_here(),
        patience_s=patience_s,
    )


async def _looked(site: Site, context: CheckContext | None, *, run: bool) -> AsyncIterator[Finding]:
    from koala.sites.batch.check import check as checking
    from koala.sites.batch.systems import kind_lines

    if context is None:
        for each in checking.check_own_site(site, kind_lines()):
            yield each
        return
    try:
        async for each in checking.check_batch_site(context, checking.steps_for(site, context.checks, run=run)):
            yield each
    finally:
        await context.runner.close()


async def _between(contexts: Sequence[CheckContext], shown: Callable[[Finding], None] | None) -> list[Reach]:
    """Return what the nodes of these sites find about each other."""
    from koala.sites.batch.check.between import check_between

    found = []
    for context in contexts:
        context.nonce = secrets.token_hex(4)
    try:
        async for each in check_between(contexts):
            found.append(each)
            if shown is not None:
                shown(each.finding)
    finally:
        await asyncio.gather(*(context.runner.close() for context in contexts))
    return found


def _programs_here() -> tuple[str, ...]:
    from koala.daemon.launches import search_path

    return search_path()


def _printer() -> Callable[[Finding], None]:
    out = console()
    return lambda finding: out.print(finding_row(finding, out.width))


def finding_row(finding: Finding, width: int) -> Table:
    """Format a finding as lines that fit the terminal: its sign, the step, the words, and the advice below."""
    from rich.table import Table
    from rich.text import Text

    sign, colour = _SIGNS[finding.sign]
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(width=_STEP_WIDTH, no_wrap=True)
    table.add_column(width=max(10, width - _STEP_WIDTH - 4), overflow="fold")
    dim = "dim" if finding.sign == "skipped" else ""
    table.add_row(Text(sign, style=colour), Text(finding.step, style=dim), Text(clean(finding.words), style=dim))
    if finding.advice:
        table.add_row("", "", Text(f"to do: {clean(finding.advice)}", style=colour))
    return table


def _verdict(site: Site, found: Sequence[Finding]) -> str:
    failures = sum(each.sign == "failed" for each in found)
    warnings = sum(each.sign == "warned" for each in found)
    if failures:
        return f"{site.name} cannot be used yet: {counted(failures, 'thing')} to fix."
    besides = f", with {counted(warnings, 'warning')}" if warnings else ""
    return f"{site.name} can be used{besides}."
