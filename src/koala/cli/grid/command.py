"""``koala grid init``: a grid file from the clusters found on this machine and at the hosts of ~/.ssh/config.

Every host is asked at once which batch systems it has. What the file says is put together in ``grid_text``.
Of the ssh configuration only names are taken; how a host is reached is left to the ssh program.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koala.cli.errors import FailedError, UserError, advice
from koala.cli.terminal.output import OutputFile, counted, print_json
from koala.cli.terminal.words import clean

if TYPE_CHECKING:
    from koala.cli.grid.text import Known, SurveyedHost
    from koala.model.grid import Site
    from koala.sites.remote_shell import ShellResult

# The longest wait for one host, and how many are asked at a time.
HOST_TIMEOUT_S = 25.0
HOSTS_AT_A_TIME_MAX = 16
_SSH_CONFIG = Path("~/.ssh/config")

# Limits on what is read. ssh itself follows includes to this depth.
SSH_FILES_MAX = 100
SSH_FILE_BYTES_MAX = 1_048_576
SSH_INCLUDES_DEEP_MAX = 16
SSH_HOSTS_MAX = 200

_WILD = frozenset("*?!")
# A keyword, blanks or an equals sign, and words.
_LINE = re.compile(r"\s*([A-Za-z]+)(?:\s*=\s*|\s+)(.*)")


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
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def init(out: Path, ssh_config: Path | None, no_ssh: bool, force: bool, as_json: bool) -> None:
    """Write a grid file from what is found: batch systems on this machine, and at the hosts of ~/.ssh/config.

    Each host is asked over ssh whether it has Slurm or Grid Engine; nothing is changed there, and no password is
    asked for. Hosts that do not answer are in the file as comments, with the reason.
    """
    from koala.cli.grid.text import grid_text
    from koala.descriptions import read_grid
    from koala.sites.remote_shell import SSH_CONFIG_VARIABLE

    if no_ssh and ssh_config is not None:
        raise UserError("--no-ssh and --ssh-config contradict each other; give one of them")
    if out.is_file() and not force:
        raise UserError(f"--out {out}: the file is there already; choose another name, or --force to replace it")
    config = _config(ssh_config)
    hosts = [] if no_ssh else _hosts(config)
    besides = f" and at {counted(len(hosts), 'host')} of {config}" if hosts else ""
    _tell(f"Looking on this machine{besides}")
    surveyed = asyncio.run(_survey(hosts, ssh_config))
    if not any(host.found.clusters for host in surveyed):
        raise FailedError(_nothing(surveyed))
    given = "" if ssh_config is None else f" --ssh-config {shlex.quote(str(ssh_config))}"
    check = f"koala site check SITE --run --grid {shlex.quote(str(out))}{given}"
    text, left_out = grid_text(surveyed, check, asyncio.run(_known(surveyed, ssh_config)))
    # The file is parsed at once: a name from a cluster that the parser refuses is found out here, not later.
    sites = read_grid(text, str(out)).sites
    with OutputFile("--out", out) as file:
        file.write(text.encode())
    if as_json:
        print_json(
            {
                "file": str(out),
                "sites": [_as_json(site) for site in sites],
                "left_out": [each._asdict() for each in left_out],
            }
        )
    else:
        click.echo(f"{out}: {counted(len(sites), 'site')}: {', '.join(site.name for site in sites)}")
    named = "" if ssh_config is None else f"{SSH_CONFIG_VARIABLE}={shlex.quote(str(ssh_config))} "
    _tell(f"next: {check}")
    _tell(f"then: {named}koala up --grid {shlex.quote(str(out))}")


def _config(given: Path | None) -> Path:
    """Return the ssh configuration whose hosts are asked; as everywhere, KOALA_SSH_CONFIG may name it."""
    from koala.sites.remote_shell import named_ssh_config

    return given or named_ssh_config() or _SSH_CONFIG


def _hosts(config: Path) -> list[str]:
    path = config.expanduser()
    return ssh_hosts(path) if path.is_file() else []


async def _survey(hosts: Sequence[str], ssh_config: Path | None) -> list[SurveyedHost]:
    """Return this machine and the hosts, in this order, each with its answer; each is printed as soon as it
    answers."""
    turns = asyncio.Semaphore(HOSTS_AT_A_TIME_MAX)

    async def asked(host: str | None) -> SurveyedHost:
        async with turns:
            surveyed = await _survey_host(host, ssh_config)
        _tell(f"  {surveyed.words()}")
        return surveyed

    return list(await asyncio.gather(*(asked(host) for host in (None, *hosts))))


async def _survey_host(host: str | None, ssh_config: Path | None) -> SurveyedHost:
    from koala.cli.grid.text import SurveyedHost
    from koala.sites.batch.discovery import (
        DiscoveryError,
        FoundClusters,
        discovery_script,
        login_variables,
        parse_discovery,
    )
    from koala.sites.batch.systems import SYSTEMS
    from koala.sites.remote_shell import ShellError, last_words

    systems = {name: each.parts().discovery for name, each in SYSTEMS.items()}
    # On this machine the programs go by the environment of this process.
    needed = login_variables(systems) if host is None else ()
    own = {name: os.environ[name] for name in needed if name in os.environ}
    try:
        answer = await _answer(host, ssh_config, discovery_script(systems), own)
        found = parse_discovery(answer.stdout.decode(errors="replace"), systems)
    except DiscoveryError as error:
        found = FoundClusters(silent=(f"no answer: {last_words(answer.stderr) or error}",))
    except ShellError as error:
        found = FoundClusters(silent=(f"no answer: {error.what}",))
    except ValueError as error:  # a name that ssh itself could mistake
        found = FoundClusters(silent=(str(error),))
    return SurveyedHost(host, found, environment=tuple(own.items()))


async def _known(surveyed: Sequence[SurveyedHost], ssh_config: Path | None) -> Known | None:
    """What the hosts of all clusters take the names of nodes for; nothing where one of them does not say."""
    from koala.sites.batch.discovery import DiscoveryError, parse_resolved, resolving
    from koala.sites.remote_shell import ShellError

    hosts = [host for host in surveyed if host.found.clusters]
    names = list({cluster.nodes[0].name: None for host in hosts for cluster in host.found.clusters if cluster.nodes})
    script = resolving(names)
    try:
        answers = await asyncio.gather(*(_answer(host.address, ssh_config, script) for host in hosts))
        found = [parse_resolved(each.stdout.decode(errors="replace"), names) for each in answers]
    except (DiscoveryError, ShellError):
        return None
    return {name: [each[name] for each in found] for name in names}


async def _answer(
    host: str | None, ssh_config: Path | None, script: str, environment: Mapping[str, str] | None = None
) -> ShellResult:
    """Run a script at a host. Raises ``ShellError``, or ``ValueError`` for an invalid host name."""
    from koala.sites.remote_shell import RemoteShell

    shell = RemoteShell(ssh=host, environment=environment, ssh_config=ssh_config)
    try:
        return await shell.run(script, timeout_s=HOST_TIMEOUT_S)
    finally:
        await shell.close()


def _as_json(site: Site) -> dict[str, Any]:
    settings = site.batch
    assert settings is not None, "only batch systems are looked for"
    return {
        "name": site.name,
        "kind": str(site.kind),
        "ssh": settings.ssh,
        "processors": site.processors,
        "queue": settings.queue,
        "work_directory": settings.work_directory,
        "host": settings.host,
        "network": settings.network,
    }


def _nothing(surveyed: Sequence[SurveyedHost]) -> str:
    names = ", ".join(clean(host.name) for host in surveyed)
    return (
        f"no batch system answers, so there is nothing to write (asked: {names}).\n"
        "Add the login hosts of your clusters to ~/.ssh/config so that 'ssh HOST true' works without a password,\n"
        "or write a grid file by hand: koala schema grid shows its form. koala lab up runs clusters on this machine."
    )


def _tell(words: str) -> None:
    """Print progress to standard error: a program may read standard output."""
    click.echo(clean(words), err=True)


# ------------------------------------------------------------------- the hosts of an ssh configuration


def ssh_hosts(config: Path) -> list[str]:
    """Return the names of ``Host`` lines without wildcards, in the order of the file, each once; ``Include`` is
    followed. Raises ``UserError`` if the file is unreadable."""
    reader = _Reader(config.parent)
    reader.read(config, 0)
    return list(reader.hosts)


class _Reader:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.hosts: dict[str, None] = {}
        self._files = 0

    def read(self, path: Path, depth: int) -> None:
        self._files += 1
        if depth > SSH_INCLUDES_DEEP_MAX or self._files > SSH_FILES_MAX:
            raise UserError(
                f"{path}: more than {SSH_FILES_MAX} files (SSH_FILES_MAX), or {SSH_INCLUDES_DEEP_MAX} inside each "
                "other (SSH_INCLUDES_DEEP_MAX); check the Include lines"
            )
        for line in _text(path).splitlines():
            keyword, words = _parsed(line)
            if keyword == "host":
                for word in words:
                    if not _WILD & set(word) and not word.startswith("-"):
                        self.hosts[word] = None
                if len(self.hosts) > SSH_HOSTS_MAX:
                    raise UserError(
                        f"{path}: more than {SSH_HOSTS_MAX} hosts (SSH_HOSTS_MAX); "
                        "write those of clusters into a file of their own, for --ssh-config"
                    )
            elif keyword == "include":
                for word in words:
                    for found in self._included(word):
                        self.read(found, depth + 1)

    def _included(self, pattern: str) -> list[Path]:
        """Return the files of an Include; like ssh, it ignores missing ones."""
        path = Path(pattern).expanduser()
        whole = path if path.is_absolute() else self.directory / path
        return sorted(
            found for found in Path(whole.anchor).glob(str(whole.relative_to(whole.anchor))) if found.is_file()
        )


def _parsed(line: str) -> tuple[str, list[str]]:
    """Return the keyword in lower case and its words; nothing for comments and nonsense."""
    found = _LINE.fullmatch(line)
    if found is None:
        return "", []
    try:
        return found[1].lower(), shlex.split(found[2], comments=True)
    except ValueError:  # unclosed quotes
        return "", []


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(SSH_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {advice(error)}") from None
    if len(content) > SSH_FILE_BYTES_MAX:
        raise UserError(f"{path}: larger than {SSH_FILE_BYTES_MAX} bytes (SSH_FILE_BYTES_MAX); name another file")
    return content.decode(errors="replace")
