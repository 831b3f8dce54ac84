"""The options that all applications have, and a parser whose complaints are exceptions."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import IO, NoReturn

from koala.examples.applications.clusters import GROUPS_WANTED, group_sizes
from koala.examples.applications.errors import ApplicationError

SIZE_MAX = 16_384
ITERATIONS_MAX = 10_000_000
LATENCY_MS_MAX = 60_000.0
BANDWIDTH_MBIT_S_MIN = 0.001
BANDWIDTH_MBIT_S_MAX = 1e9
WORK_MS_MAX = 60_000.0

# Where launchers tell a process its rank before MPI is loaded.
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")


class Parser(argparse.ArgumentParser):
    """Raises ``ApplicationError`` where argparse would print and exit; of many processes one prints the help."""

    def error(self, message: str) -> NoReturn:
        """A wrong command line."""
        raise ApplicationError(f"{message}; see {self.prog} --help")

    def print_help(self, file: IO[str] | None = None) -> None:  # type: ignore[override]
        """Print the help, in the first process."""
        ranks = [os.environ[name] for name in _RANK_VARIABLES if name in os.environ]
        if not ranks or ranks[0] == "0":
            super().print_help(file)


def common_parser(application: str, description: str, size: int) -> Parser:
    """A parser with what all applications understand."""
    parser = Parser(
        prog=f"python -m koala.examples.applications.{application}", description=description, allow_abbrev=False
    )
    parser.add_argument(
        "--size", type=whole(1, SIZE_MAX), default=size, metavar="N", help=f"N x N points (default {size})"
    )
    parser.add_argument("--verify", action="store_true", help="compare with the serial solution, which takes longer")
    parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    parser.add_argument(
        "--work-ms",
        type=number(0.0, WORK_MS_MAX),
        default=0.0,
        metavar="MS",
        help="rest so long in every iteration or step, in the place of more computing (default 0)",
    )
    wide = parser.add_argument_group("clusters and the distance between them")
    wide.add_argument(
        "--groups",
        type=_groups,
        metavar="N,N,...",
        help="the processes of each cluster, in the order of ranks (default: KOALA_PROCESSORS_ALL, or one cluster)",
    )
    wide.add_argument(
        "--wan-latency-ms",
        type=number(0.0, LATENCY_MS_MAX),
        default=0.0,
        metavar="MS",
        help="hold every message between clusters back for so long (default 0)",
    )
    wide.add_argument(
        "--wan-bandwidth-mbit-s",
        type=number(BANDWIDTH_MBIT_S_MIN, BANDWIDTH_MBIT_S_MAX),
        metavar="MBIT_S",
        help="and for as long as its bytes take at this bandwidth (default: no time)",
    )
    return parser


def add_convergence(parser: Parser, tolerance: float, iterations_max: int, what: str) -> None:
    """The options of an application that goes on until its values hardly change."""
    parser.add_argument(
        "--tolerance",
        type=number(0.0, 1.0),
        default=tolerance,
        metavar="X",
        help=f"stop when {what} is below X (default {tolerance:g}); with 0, do all iterations",
    )
    parser.add_argument(
        "--iterations-max",
        type=whole(1, ITERATIONS_MAX),
        default=iterations_max,
        metavar="N",
        help=f"give up after N iterations (default {iterations_max})",
    )


def add_steps(parser: Parser, steps: int) -> Parser:
    """The option of an application that goes through time steps."""
    parser.add_argument(
        "--steps",
        type=whole(1, ITERATIONS_MAX),
        default=steps,
        metavar="N",
        help=f"follow it for N time steps (default {steps})",
    )
    return parser


def whole(least: int, most: int) -> Callable[[str], int]:
    """Reads a whole number between two bounds."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


def number(least: float, most: float) -> Callable[[str], float]:
    """Reads a number between two bounds."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least:g} to {most:g}")
        return value

    return read


def _groups(text: str) -> tuple[int, ...]:
    sizes = group_sizes(text)
    if sizes is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not {GROUPS_WANTED}")
    return sizes
