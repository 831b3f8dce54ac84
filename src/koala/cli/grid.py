"""``koala grid init``: a grid file from what is found on this machine and at the hosts of ~/.ssh/config.

Every host is asked at once whether it has Slurm or Grid Engine. What the file says is put together in ``grid_text``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from koala.cli.errors import FailedError, UserError
from koala.cli.output import OutputFile, counted
from koala.cli.words import clean

if TYPE_CHECKING:
    from koala.cli.grid_text import Place

# How long one host may take to answer, and how many are asked at a time.
HOST_TIMEOUT_S = 25.0
HOSTS_AT_A_TIME_MAX = 16
# What the batch systems' programs on this machine need of this process's environment.
_OWN_VARIABLES = ("SLURM_CONF", "SGE_ROOT", "SGE_CELL", "SGE_QMASTER_PORT", "SGE_EXECD_PORT")
_SSH_CONFIG = Path("~/.ssh/config")


@click.group()
def grid() -> None:
    """Write a grid file from the clusters that you can reach."""


@grid.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("grid.yaml"),
    show_default=True,
    metavar="FILE",
    help="The file to write.",
)
@click.option(
    "--ssh-config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Ask the hosts of this file in place of those of ~/.ssh/config.",
)
@click.option("--no-ssh", is_flag=True, help="Look on this machine only.")
@click.option("--force", is_flag=True, help="Replace a file that is there already.")
def init(out: Path, ssh_config: Path | None, no_ssh: bool, force: bool) -> None:
    """Write a grid file from what is found: batch systems on this machine, and at the hosts of ~/.ssh/config.

    Each host is asked over ssh whether it has Slurm or Grid Engine; nothing is changed there, and no password is
    asked for. Hosts that do not answer stand in the file as comments, with the reason.
    """
    from koala.cli.grid_text import grid_text

    if no_ssh and ssh_config is not None:
        raise UserError("--no-ssh and --ssh-config contradict each other; give one of them")
    if out.is_file() and not force:
        raise UserError(f"--out {out}: the file is there already; choose another name, or --force to replace it")
    hosts = [] if no_ssh else _hosts(ssh_config)
    besides = f" and at {counted(len(hosts), 'host')} of {ssh_config or _SSH_CONFIG}" if hosts else ""
    _tell(f"Looking on this machine{besides}")
    places = asyncio.run(_asked(hosts, ssh_config))
    clusters = sum(len(place.found.clusters) for place in places)
    if not clusters:
        raise FailedError(_nothing(places))
    text = grid_text(places, out)
    _check(text, out)
    with OutputFile("--out", out) as file:
        file.write(text.encode())
    click.echo(f"{out}: {counted(clusters, 'cluster')}")
    click.echo(f"next: koala site check NAME --grid {out}, then koala up --grid {out}", err=True)


def _hosts(ssh_config: Path | None) -> list[str]:
    from koala.cli.ssh_hosts import ssh_hosts

    config = _SSH_CONFIG.expanduser() if ssh_config is None else ssh_config
    return ssh_hosts(config) if config.is_file() else []


async def _asked(hosts: Sequence[str], ssh_config: Path | None) -> list[Place]:
    """This machine and the hosts, in this order, each with what it answered; each is told as soon as it answers."""
    turns = asyncio.Semaphore(HOSTS_AT_A_TIME_MAX)

    async def asked(host: str | None) -> Place:
        async with turns:
            place = await _place(host, ssh_config)
        _tell(f"  {place.words()}")
        return place

    return list(await asyncio.gather(*(asked(host) for host in (None, *hosts))))


async def _place(host: str | None, ssh_config: Path | None) -> Place:
    from koala.cli.grid_text import Place
    from koala.sites.commands import CommandError, Commands, last_words
    from koala.sites.finding import FINDING_TEXT, FindingError, Found, read_found

    own = {name: os.environ[name] for name in _OWN_VARIABLES if name in os.environ} if host is None else {}
    try:
        commands = Commands(ssh=host, environment=own, ssh_config=ssh_config)
    except ValueError as error:  # a name that ssh itself could take for something else
        return Place(host, Found(silent=(str(error),)))
    try:
        answer = await commands.run(FINDING_TEXT, timeout_s=HOST_TIMEOUT_S)
        found = read_found(answer.stdout.decode(errors="replace"))
    except FindingError as error:
        found = Found(silent=(last_words(answer.stderr) or str(error),))
    except CommandError as error:
        found = Found(silent=(error.what,))
    finally:
        await commands.close()
    return Place(host, found, environment=tuple(own.items()))


def _check(text: str, out: Path) -> None:
    """What is written can be read: a name from a cluster that the reader refuses is found out here, not later."""
    from koala.descriptions import read_grid

    read_grid(text, str(out))


def _nothing(places: Sequence[Place]) -> str:
    names = ", ".join(clean(place.name) for place in places)
    return (
        f"no batch system answers, so that there is nothing to write (asked: {names}).\n"
        "Add the login hosts of your clusters to ~/.ssh/config so that 'ssh HOST true' works without a password,\n"
        "or write a grid file by hand: koala schema grid tells its form. koala lab up runs clusters on this machine."
    )


def _tell(words: str) -> None:
    """Progress goes to standard error: standard output may be read by a program."""
    click.echo(clean(words), err=True)
