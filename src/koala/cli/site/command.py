"""``koala sites``: the holders of each site's processors. ``koala site``: take one out or back, or ask for its
state."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import click

from koala.cli.connection import complete_site, reason_option, with_client
from koala.cli.errors import FailedError, UserError
from koala.cli.site.check import check
from koala.cli.terminal.output import console, counted, print_json
from koala.cli.terminal.words import clean, site_bar, site_legend, site_state, span

if TYPE_CHECKING:
    from rich.table import Table

    from koala.client import Client
    from koala.model.api import SiteInfo

BAR_WIDTH_MIN, BAR_WIDTH_MAX = 4, 16
NAME_WIDTH_MAX = 16
JOBS_SHOWN_MAX = 4
# At most this many jobs that would start again elsewhere are named.
JOBS_NAMED_MAX = 20
# At most this many excluded nodes of a site are named.
EXCLUDED_SHOWN_MAX = 8
_NO_NODE = "; no node is left there, so that it goes elsewhere while it can"
# A report older than this is shown with its age.
OLD_S = 10.0


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def sites(client: Client, /, as_json: bool) -> None:
    """List the sites: who holds their processors, and whether they can be used."""
    found = client.sites()
    if as_json:
        print_json(found)
        return
    out, now = console(), time.time()
    out.print(sites_table(found, now, out.width))
    out.print(f"{site_legend()}{_age(found, now)}", style="dim")
    for each in found:
        if each.problem:
            out.print(clean(each.problem), style="red", markup=False)
        elif each.ours + each.others > each.processors:
            out.print(f"{clean(each.name)}: others were there first; some of ours wait in its queue", markup=False)
        if each.drained_by:
            out.print(f"{clean(each.name)} is drained by {clean(each.drained_by)}", style="yellow", markup=False)
        if each.distrusted and each.distrusted not in each.problem:
            out.print(f"{clean(each.name)} is not trusted: {clean(each.distrusted)}", style="red", markup=False)
        for line in excluded_lines(each, now):
            out.print(line, style="yellow", markup=False)
        for line in license_lines(each):
            out.print(line, markup=False)
        for aside in each.set_aside:
            out.print(f"{clean(each.name)}: {clean(aside)}", style="red", markup=False)


def excluded_lines(site: SiteInfo, now: float) -> list[str]:
    """Return the nodes that programs are kept off, the first of them."""
    lines = [
        f"{clean(site.name)}: {clean(each.program)} of {clean(each.owner)} is kept off {clean(each.node)} for "
        f"{span(max(0.0, each.until - now))}: {clean(each.reason)}{_NO_NODE if each.closes else ''}"
        for each in site.excluded[:EXCLUDED_SHOWN_MAX]
    ]
    more = len(site.excluded) - len(lines)
    return [*lines, f"{clean(site.name)}: and {more} more (--json)"] if more > 0 else lines


def license_lines(site: SiteInfo) -> list[str]:
    """What is left of each pool of licences, and who holds the rest."""
    return [
        f"{clean(site.name)}: {pool.left} of {counted(pool.total, 'licence')} of {clean(pool.name)} left"
        f"{' for all sites together' if pool.shared else ''}"
        f"{', held by ' + job_numbers(pool.jobs) if pool.jobs else ''}"
        for pool in site.licenses
    ]


def job_numbers(jobs: Sequence[int]) -> str:
    """The first of them."""
    return ", ".join(map(str, jobs[:JOBS_SHOWN_MAX])) + (", ..." if len(jobs) > JOBS_SHOWN_MAX else "")


def _age(found: Sequence[SiteInfo], now: float) -> str:
    """Format the age of the oldest report, if it is large: batch systems are left in peace while no job waits."""
    times = [each.reported_at for each in found if each.reported_at is not None and each.silent_since is None]
    old_s = now - min(times, default=now)
    return f"  asked {span(old_s)} ago" if old_s > OLD_S else ""


def sites_table(found: Sequence[SiteInfo], now: float, width: int) -> Table:
    """Make a table of the sites that fits a terminal: the bar gives way first, then the list of jobs and the kinds of
    the sites; numbers never."""
    from rich.table import Table
    from rich.text import Text

    states = [site_state(each, now) for each in found]
    gpus = [_gpus(each) for each in found]
    columns = {
        "site": min(NAME_WIDTH_MAX, max((len(clean(each.name)) for each in found), default=0)),
        "kind": max((len(each.kind) for each in found), default=0),
        "use": 0,
        "procs": 5,
        "ours": 4,
        "others": 6,
        "idle": 4,
        **({"gpus": max(map(len, gpus))} if any(gpus) else {}),
        "state": max((len(state) for state, _ in states), default=0),
        "jobs": 4,
    }
    columns = {name: max(len(name), wanted) for name, wanted in columns.items()}
    columns["use"] = BAR_WIDTH_MIN
    for name in ("use", "jobs", "kind"):
        if sum(columns.values()) + 2 * (len(columns) - 1) > width:
            del columns[name]
    if "use" in columns:
        beside = sum(columns.values()) - columns["use"] + 2 * (len(columns) - 1)
        columns["use"] = min(BAR_WIDTH_MAX, width - beside)
    table = Table(box=None, pad_edge=False)
    for name, least in columns.items():
        justify: Literal["left", "right"] = "right" if name in ("procs", "ours", "others", "idle") else "left"
        most = NAME_WIDTH_MAX if name == "site" else None
        table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis", min_width=least, max_width=most)
    for each, (state, colour), own_gpus in zip(found, states, gpus, strict=True):
        counts = (each.processors, each.ours, each.others, each.idle)
        jobs = job_numbers(each.jobs)
        cells: dict[str, str | Text] = {
            "site": Text(clean(each.name)),
            "kind": each.kind,
            "use": site_bar(each, columns.get("use", 0)),
            **dict(zip(("procs", "ours", "others", "idle"), map(str, counts), strict=True)),
            "gpus": Text(own_gpus),
            "state": Text(state, style=colour),
            "jobs": jobs,
        }
        table.add_row(*(cells[name] for name in columns))
    return table


def _gpus(site: SiteInfo) -> str:
    """Format GPUs such as ``1/2 a100``: the idle ones, of all."""
    return ", ".join(f"{each.idle}/{each.total} {clean(each.kind)}".rstrip() for each in site.gpus)


@click.group()
def site() -> None:
    """Check a site, take it out, put it back, give it up, or ask how it is."""


site.add_command(check)


@site.command()
@click.argument("name", metavar="SITE", shell_complete=complete_site)
@reason_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def drain(client: Client, /, name: str, reason: str, as_json: bool) -> None:
    """Send nothing new to a site; what runs there goes on."""
    found = client.drain(name, reason=reason)
    held = f"; {found.ours} of its processors are still ours" if found.ours else ""
    _tell(found, as_json, f"{clean(found.name)} is drained: nothing new goes there{held}.")


@site.command()
@click.argument("name", metavar="SITE", shell_complete=complete_site)
@reason_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def resume(client: Client, /, name: str, reason: str, as_json: bool) -> None:
    """Use a site again, and forget its errors."""
    found = client.resume(name, reason=reason)
    idle = f"{clean(found.name)} is used again; {found.idle} of {found.processors} processors are idle."
    _tell(found, as_json, f"Its errors are forgotten; {clean(found.problem)}." if found.lost else idle)


@site.command()
@click.argument("name", metavar="SITE", shell_complete=complete_site)
@click.option("--yes", is_flag=True, help="Do it without being asked.")
@click.option("--force", is_flag=True, help="Also if the site answers.")
@reason_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def lost(client: Client, /, name: str, yes: bool, force: bool, reason: str, as_json: bool) -> None:
    """Stop waiting for a site that does not answer: its jobs start again elsewhere.

    The site may still run them. What it has counts for nothing from now on, and is ended when the site comes back;
    then the site is used again. To take out a site that answers, drain it.
    """
    before = client.site(name)
    if not yes and not before.lost:
        if before.silent_since is None and not force:  # reported here: it may fall silent before it is declared lost
            drain = f"drain it (koala site drain {clean(name)})"
            raise FailedError(f"{clean(name)} answers: {drain}, or give up what it runs all the same (--force)")
        _confirm_loss(before)
    found = client.declare_lost(name, force=force, reason=reason)
    words = clean(found.problem) or f"{clean(found.name)} answers, and had nothing to give up"
    _tell(found, as_json, f"{words}.")


def _confirm_loss(found: SiteInfo) -> None:
    """Show what would happen, and ask."""
    jobs = ", ".join(map(str, found.jobs_to_restart[:JOBS_NAMED_MAX]))
    more = len(found.jobs_to_restart) - JOBS_NAMED_MAX
    named = f"{counted(len(found.jobs_to_restart), 'job')} ({jobs}{f' and {more} more' if more > 0 else ''})"
    what = f"{named} will start again elsewhere" if jobs else "no job waits for it"
    runs = "What it still runs counts for nothing, and is ended when it comes back."
    words = f"{clean(found.name)}, once lost: {what}. {runs}"
    if not sys.stdin.isatty():
        raise UserError(f"{words} Give --yes to declare it lost")
    if not click.confirm(f"{words} Declare it lost?", err=True):
        raise UserError("nothing was changed")


@site.command()
@click.argument("name", metavar="SITE", shell_complete=complete_site)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def probe(client: Client, /, name: str, as_json: bool) -> None:
    """Ask a site for its state now. Exits with 1 when it does not answer."""
    found = client.probe(name)
    if found.misconfigured:
        if as_json:
            print_json(found)
        raise FailedError(clean(found.problem))
    if found.silent_since is not None:
        if as_json:
            print_json(found)
        silent = f"for {span(time.time() - found.silent_since)}: {clean(found.silent_reason)}"
        raise FailedError(f"{clean(found.name)} has not answered {silent}; it is asked again automatically")
    state, _ = site_state(found)
    held = f"{found.ours} ours, {found.others} others', {found.idle} idle"
    _tell(found, as_json, f"{clean(found.name)} answers: {counted(found.processors, 'processor')}, {held}; {state}.")


def _tell(found: SiteInfo, as_json: bool, words: str) -> None:
    if as_json:
        print_json(found)
    else:
        click.echo(words)
