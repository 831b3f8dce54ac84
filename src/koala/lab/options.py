"""The options of a lab, as its user gives them, and the form of links. Nothing here depends on the machine."""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from koala.lab.errors import LabError


class LabSystem(enum.StrEnum):
    """The batch systems of which a lab builds clusters, as a grid file names them."""

    SLURM = "slurm"
    GRID_ENGINE = "grid_engine"


# The sites that a lab can have. The place in this table gives a site its ports and its addresses.
KINDS = {"alpha": LabSystem.SLURM, "beta": LabSystem.SLURM, "gamma": LabSystem.GRID_ENGINE}
SITE_NAMES = tuple(KINDS)

NODES_PER_CLUSTER_MAX = 64
PROCESSORS_PER_NODE_MAX = 1_024
SLOTS_MAX = 1_024
FIRST_PORT_MIN = 1_024
RATE_MBIT_S_MAX = 100_000.0
DELAY_S_MAX = 60.0

# Ports from the first one on: this many for each site, and then one for each site's file server.
PORTS_PER_SITE = NODES_PER_CLUSTER_MAX + 1
PORTS = PORTS_PER_SITE * len(KINDS) + len(KINDS)
FIRST_PORT_LAST = 65_535 - PORTS + 1

_LINK_FORM = "RATE,DELAY[,LOSS] such as 100mbit,5ms or 100mbit,5ms,0.1%"
_RATES = {"kbit": 1e-3, "mbit": 1.0, "gbit": 1e3}
_DELAYS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class WideAreaLink(msgspec.Struct, frozen=True, kw_only=True):
    """The link between two sites, the same in both directions: the rate and the delay of one direction, and the
    fraction of packets that are lost."""

    rate_mbit_s: float
    delay_s: float
    loss: float = 0.0


class PairOfSites(msgspec.Struct, frozen=True, kw_only=True):
    """Two sites whose link differs from the others."""

    between: tuple[str, str]
    link: WideAreaLink


class LabOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a lab: ``nodes`` and ``processors_per_node`` are for each Slurm cluster, ``slots`` for the Grid
    Engine cell.

    With ``wan`` each site has a network namespace of its own, behind that link to every other site; ``links`` are the
    pairs that differ. ``gridftp`` adds a file server at each site.
    """

    directory: Path
    sites: tuple[str, ...] = SITE_NAMES
    nodes: int = 2
    processors_per_node: int = 4
    slots: int = 8
    first_port: int = 26_700
    gridftp: bool = False
    wan: WideAreaLink | None = None
    links: tuple[PairOfSites, ...] = ()

    def processors(self, site: str) -> int:
        """How many processors a site has."""
        return self.nodes * self.processors_per_node if KINDS[site] is LabSystem.SLURM else self.slots

    def link(self, one: str, other: str) -> WideAreaLink | None:
        """Return the emulated link between two sites; None without a wide area."""
        for pair in self.links:
            if set(pair.between) == {one, other}:
                return pair.link
        return self.wan


def default_directory() -> Path:
    """Return the default directory of a lab."""
    return Path.home() / ".koala" / "lab"


def differing(one: LabOptions, other: LabOptions) -> list[str]:
    """Return the command line's names of the options in which two labs differ."""
    names = [name for name in LabOptions.__struct_fields__ if getattr(one, name) != getattr(other, name)]
    return ["--" + {"links": "link"}.get(name, name).replace("_", "-") for name in names]


def check(options: LabOptions) -> None:
    """Raise LabError for options that make no lab."""
    _check_sites(options.sites)
    _check_number("--nodes", options.nodes, 1, NODES_PER_CLUSTER_MAX)
    _check_number("--processors-per-node", options.processors_per_node, 1, PROCESSORS_PER_NODE_MAX)
    _check_number("--slots", options.slots, 1, SLOTS_MAX)
    _check_number("--first-port", options.first_port, FIRST_PORT_MIN, FIRST_PORT_LAST)
    if options.links and options.wan is None:
        raise LabError("--link is for an emulated wide area: add --wan with the link of the other pairs")
    named: set[frozenset[str]] = set()
    for pair in options.links:
        _check_pair(pair, options.sites)
        if frozenset(pair.between) in named:
            raise LabError(f"--link {','.join(pair.between)}: this pair is named twice; name it once")
        named.add(frozenset(pair.between))


def parse_sites(text: str) -> tuple[str, ...]:
    """Parse names of sites, separated by commas; return them in the order of the table."""
    named = [word.strip() for word in text.split(",")]
    _check_sites(named)
    return tuple(name for name in SITE_NAMES if name in named)


def parse_link(text: str, option: str) -> WideAreaLink:
    """Parse a link as ``--wan`` writes it."""
    words = [word.strip() for word in text.split(",")]
    if len(words) not in (2, 3):
        raise LabError(f"{option} {text}: a link is written as {_LINK_FORM}")
    rate_mbit_s = _quantity(words[0], _RATES, f"{option} {text}: the rate", "100mbit")
    delay_s = _quantity(words[1], _DELAYS, f"{option} {text}: the delay", "5ms")
    loss = _quantity(words[2], {"%": 0.01}, f"{option} {text}: the loss", "0.1%") if len(words) == 3 else 0.0
    if not 0 < rate_mbit_s <= RATE_MBIT_S_MAX:
        raise LabError(f"{option} {text}: the rate must be above 0 and at most {RATE_MBIT_S_MAX:g} mbit")
    if delay_s > DELAY_S_MAX:
        raise LabError(f"{option} {text}: the delay must be at most {DELAY_S_MAX:g}s")
    if loss >= 1:
        raise LabError(f"{option} {text}: the loss must be below 100%")
    return WideAreaLink(rate_mbit_s=rate_mbit_s, delay_s=delay_s, loss=loss)


def parse_pair(text: str, option: str = "--link") -> PairOfSites:
    """Parse a pair of sites and its link as ``--link`` writes them."""
    one, other, rest = (*text.split(",", 2), "", "")[:3]
    if not rest:
        raise LabError(f"{option} {text}: write SITE,SITE,{_LINK_FORM}")
    return PairOfSites(between=(one.strip(), other.strip()), link=parse_link(rest, option))


def pairs(options: LabOptions) -> list[tuple[str, str]]:
    """Return every pair of sites of the lab."""
    return list(itertools.combinations(options.sites, 2))


def _check_sites(named: Iterable[str]) -> None:
    named = list(named)
    for name in named:
        if name not in KINDS:
            raise LabError(f"--sites: there is no site {name!r}; choose among {', '.join(SITE_NAMES)}")
    if not named or len(set(named)) != len(named):
        raise LabError(f"--sites {','.join(named)}: name one or more of {', '.join(SITE_NAMES)}, each once")


def _check_number(option: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise LabError(f"{option} {value}: choose a number from {least} to {most}")


def _check_pair(pair: PairOfSites, sites: tuple[str, ...]) -> None:
    named = ",".join(pair.between)
    for name in pair.between:
        if name not in sites:
            raise LabError(f"--link {named}: there is no site {name!r} in this lab; it has {', '.join(sites)}")
    if pair.between[0] == pair.between[1]:
        raise LabError(f"--link {named}: name two different sites")


def _quantity(text: str, units: dict[str, float], what: str, example: str) -> float:
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([a-z%]+)", text.lower())
    if found is None or found[2] not in units:
        raise LabError(f"{what} {text!r} is not understood; write it like {example} (units: {', '.join(units)})")
    return float(found[1]) * units[found[2]]
