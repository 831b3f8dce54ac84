"""``koala lab``: real batch systems on this machine, to try Koala on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from koala.cli.errors import FailedError, UserError, say
from koala.cli.terminal.output import console, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from koala.lab import Lab
    from koala.lab.lab import LabStatus, SiteStatus

_directory = click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    metavar="DIR",
    help="Where the lab and its sites' work directories are; by default ~/.koala/lab.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def lab() -> None:
    """Run real batch systems on this machine: two Slurm clusters and a Grid Engine cell, as sites of a grid."""


@lab.command()
@_directory
@click.option(
    "--sites", metavar="NAMES", help="Some of alpha and beta (Slurm) and gamma (Grid Engine); all if left out."
)
@click.option("--nodes", type=int, default=2, show_default=True, help="Nodes of each Slurm cluster.")
@click.option(
    "--processors-per-node",
    type=int,
    default=4,
    show_default=True,
    help="Processors of each node of a Slurm cluster.",
)
@click.option("--slots", type=int, default=8, show_default=True, help="Slots of the Grid Engine cell.")
@click.option(
    "--first-port", type=int, default=26_700, show_default=True, help="The first of the ports that it may use."
)
@click.option("--gridftp", is_flag=True, help="Run a GridFTP server at each site too.")
@click.option(
    "--wan",
    metavar="LINK",
    help="Put each site into a network namespace behind an emulated link, such as 100mbit,5ms or 100mbit,5ms,0.1% "
    "with that loss; needs root.",
)
@click.option(
    "--link",
    "links",
    multiple=True,
    metavar="SITE,SITE,LINK",
    help="A different link between two sites, such as alpha,gamma,20mbit,25ms; repeatable.",
)
@_json
def up(
    directory: Path | None,
    sites: str | None,
    nodes: int,
    processors_per_node: int,
    slots: int,
    first_port: int,
    gridftp: bool,
    wan: str | None,
    links: tuple[str, ...],
    as_json: bool,
) -> None:
    """Bring the lab up, and write the grid file that koala up --grid takes.

    The batch systems run in the background as the user who calls this, until koala lab down. If the lab is up this
    says so; daemons of it that have died are started again.
    """
    from koala.lab import LabIsUpError, LabOptions, default_directory, find
    from koala.lab import up as bring_up
    from koala.lab.lab import status as look
    from koala.lab.options import SITE_NAMES, parse_link, parse_pair, parse_sites

    where = default_directory() if directory is None else directory
    options = LabOptions(
        directory=where,
        sites=SITE_NAMES if sites is None else parse_sites(sites),
        nodes=nodes,
        processors_per_node=processors_per_node,
        slots=slots,
        first_port=first_port,
        gridftp=gridftp,
        wan=None if wan is None else parse_link(wan, "--wan"),
        links=tuple(parse_pair(each) for each in links),
    )
    is_up = "The lab is up."
    try:
        running = bring_up(options, lambda words: click.echo(words, err=as_json))
    except LabIsUpError as error:
        if not error.same:
            raise
        found = find(where)
        assert found is not None, "it is up"
        running = found
        is_up = f"The lab in {where} is up already."
    if as_json:
        _print_json(look(running))
    else:
        click.echo(f"{is_up} Use it with: koala up --grid {running.grid_file}")


@lab.command()
@_directory
@click.option("--keep", is_flag=True, help="Leave its files for a look at them; the next koala lab up removes them.")
@_json
def down(directory: Path | None, keep: bool, as_json: bool) -> None:
    """End everything that belongs to the lab, with the jobs in it, and remove its files.

    This works whatever state the lab is in. If there is none, this says so and exits with 0.
    """
    from koala.lab import default_directory
    from koala.lab import down as take_down
    from koala.lab.record import FILE

    where = default_directory() if directory is None else directory
    there = (where / FILE).exists()
    ended = take_down(where, keep=keep) if there else 0
    if as_json:
        print_json({"directory": str(where), "was_there": there, "processes_ended": ended, "files_kept": keep})
    elif there:
        files = "its files are kept" if keep else "its files are removed"
        say(f"The lab in {where} is down; {ended} of its processes were ended, and {files}.")
    else:
        click.echo(f"There is no lab in {where}.")


@lab.command()
@_directory
@_json
def status(directory: Path | None, as_json: bool) -> None:
    """Show the sites of the lab and how they are. Exits with 1 if there is no lab, or not all of it is up."""
    from koala.lab.lab import status as look

    seen = look(_lab(directory))
    if as_json:
        _print_json(seen)
    else:
        out = console()
        out.print(_table(seen))
        out.print(f"grid file: {seen.grid_file}", markup=False, soft_wrap=True)
        out.print(f"work directories: {seen.directory}/SITE/work", markup=False, soft_wrap=True)
    if not seen.up:
        raise FailedError(_what_is_wrong(seen))


@lab.command(context_settings={"allow_interspersed_args": False})
@_directory
@click.argument("site")
@click.argument("command", nargs=-1, required=True)
def run(directory: Path | None, site: str, command: tuple[str, ...]) -> None:
    """Run a command as a user of one of its sites.

    It has the environment of the site's batch system, and runs in the site's network.

    \b
    koala lab run alpha sbatch -n 6 --wrap 'sleep 600'
    koala lab run gamma qstat
    koala lab run gamma bash

    The exit code is that of the command.
    """
    found = _lab(directory)
    words, environment = found.command(site, *command), found.full_environment(site, os.environ)
    try:
        os.execvpe(words[0], words, environment)  # noqa: S606 - to run what its user names is what it is for
    except OSError as error:
        raise UserError(f"{words[0]}: {error.strerror}; name a program that is installed here") from None


@lab.command()
@_directory
@click.argument("link", metavar="SITE,SITE,LINK")
@_json
def link(directory: Path | None, link: str, as_json: bool) -> None:
    """Change the emulated link between two sites of a lab that is up with --wan, while jobs go on.

    \b
    koala lab link alpha,gamma,20mbit,25ms
    koala lab link alpha,gamma,20mbit,25ms,0.1%

    The grid file keeps the former values: koala network shows what is measured from now on.
    """
    import msgspec

    from koala.lab.options import parse_pair

    found, pair = _lab(directory), parse_pair(link, "LINK")
    found.change_link(pair)
    if as_json:
        print_json(msgspec.to_builtins(pair))
    else:
        changed = pair.link
        loss = f", and loses {changed.loss:.3g} of its packets" if changed.loss else ""
        click.echo(
            f"The link between {' and '.join(pair.between)} has {changed.rate_mbit_s:g} Mbit/s and "
            f"{changed.delay_s * 1_000:g} ms one way now{loss}."
        )


def _lab(directory: Path | None) -> Lab:
    from koala.lab import default_directory, find

    where = default_directory() if directory is None else directory
    found = find(where)
    if found is None:
        raise FailedError(f"there is no lab in {where}; koala lab up makes one")
    return found


def _print_json(seen: LabStatus) -> None:
    import msgspec

    print_json(msgspec.to_builtins(seen))


def _table(seen: LabStatus) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in ("site", "batch system", "state", "procs", "jobs", "address"):
        table.add_column(name, justify="right" if name in ("procs", "jobs") else "left", no_wrap=True)
    for site in seen.sites:
        state, colour = _state(site)
        jobs = "-" if site.jobs is None else str(site.jobs)
        table.add_row(
            site.name,
            site.batch_system,
            Text(state, style=colour),
            str(site.processors),
            jobs,
            site.address,
        )
    return table


def _state(site: SiteStatus) -> tuple[str, str]:
    if not site.up:
        return "down", "red"
    return ("damaged", "yellow") if site.dead else ("up", "green")


def _what_is_wrong(seen: LabStatus) -> str:
    if not seen.complete:
        return (
            f"the lab in {seen.directory} is being started, or its start was interrupted; koala lab down removes it"
        )
    if seen.gone:
        return f"the lab in {seen.directory} is down; koala lab up makes a new one in its place"
    dead = [*seen.dead, *(name for site in seen.sites for name in site.dead)]
    if dead:
        return f"not running: {', '.join(dead)}; koala lab up starts them again"
    silent = ", ".join(site.name for site in seen.sites if not site.up)
    return f"not answering: {silent}; look at their logs in {seen.directory}"
