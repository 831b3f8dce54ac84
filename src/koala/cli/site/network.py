"""``koala network``: what is known of the links between sites, its origin, and the measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from koala.cli.connection import complete_site, with_client
from koala.cli.errors import FailedError, UserError
from koala.cli.terminal.output import console, counted, print_json
from koala.cli.terminal.words import clean, clock, size, span
from koala.model.network import bandwidth_text, latency_text

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from koala.client import Client
    from koala.model.api import LinkHistory, LinkMeasurement, LinkQuantity, LinkState, NetworkInfo

# With more sites than this there is no matrix: links are listed.
MATRIX_SITES_MAX = 8
NAME_WIDTH_MAX = 16
# At most this many links of a large grid are listed.
LINKS_LISTED_MAX = 200
# At most this many jobs that send over the links are listed.
JOBS_LISTED_MAX = 20
# At most this many reasons why links are not probed are listed.
REASONS_TOLD_MAX = 4
_SPARKS = "▁▂▃▄▅▆▇█"


@click.command()
@click.argument("sites", metavar="[FROM TO]", nargs=-1, shell_complete=complete_site)
@click.option("--probe", is_flag=True, help="Measure the link first; exits with 1 when that cannot be done.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def network(client: Client, /, sites: tuple[str, ...], probe: bool, as_json: bool) -> None:
    """Show what is believed of the links between sites, or what was measured from one to another.

    Bandwidths and latencies are those of the grid file until something was measured. From then on the predictor that
    was nearest to the measurements so far says what comes next. Below is the traffic of running jobs between their
    sites.
    """
    if probe and len(sites) != 2:
        raise UserError("--probe measures one link: name two sites, from where and to where")
    if not sites:
        found = client.network()
        if as_json:
            print_json(found)
        else:
            _print_network(found)
        return
    if len(sites) != 2:
        raise UserError("koala network takes two sites, from where and to where, or none for all links")
    history = client.probe_link(*sites) if probe else client.link(*sites)
    if as_json:
        print_json(history)
    else:
        _print_history(history)
    if probe and history.link.probe_failure:
        raise FailedError(f"{_between(history.link)} could not be probed: {clean(history.link.probe_failure)}")


def _print_network(found: NetworkInfo) -> None:
    out = console()
    if len(found.sites) < 2:
        out.print("The grid has one site: there are no links.")
        return
    if len(found.sites) <= MATRIX_SITES_MAX:
        out.print(_matrix(found))
    else:
        default = f"{bandwidth_text(found.default_bandwidth_mbit_s)}, {latency_text(found.default_latency_s)}"
        out.print(f"Links that are not named here are as declared: {default}.", markup=False)
        out.print(_listed(found.links[:LINKS_LISTED_MAX]))
        if len(found.links) > LINKS_LISTED_MAX:
            out.print(f"{len(found.links) - LINKS_LISTED_MAX} more; --json has all of them.", style="dim")
    measured = [link for link in found.links if _measured(link)]
    if measured:
        out.print()
        out.print(_measured_table(measured[:LINKS_LISTED_MAX], found.now))
    else:
        out.print("Nothing was measured yet: all values are from the grid file.", style="dim")
    for link in [link for link in found.links if link.probe_failure][:LINKS_LISTED_MAX]:
        failed = f"{_between(link)} could not be probed: {clean(link.probe_failure)}"
        out.print(failed, style="red", markup=False, soft_wrap=True)
    reasons = sorted({link.not_probed for link in found.links if link.not_probed})
    for reason in reasons[:REASONS_TOLD_MAX]:
        out.print(f"Not probed: {clean(reason)}.", style="dim", markup=False)
    if found.jobs:
        out.print()
    for each in found.jobs[:JOBS_LISTED_MAX]:
        where = ", ".join(map(clean, each.sites))
        line = f"Job {each.job}, {clean(each.name)}, at {where}: {clean(each.traffic.in_words)}"
        out.print(line, markup=False, soft_wrap=True)
    if len(found.jobs) > JOBS_LISTED_MAX:
        out.print(f"{len(found.jobs) - JOBS_LISTED_MAX} more jobs at several sites; --json has them.", style="dim")


def _between(link: LinkState) -> str:
    return f"{clean(link.source)} to {clean(link.target)}"


def _matrix(found: NetworkInfo) -> Table:
    """Make a table of links from row to column; declared values are dim."""
    from rich.table import Table
    from rich.text import Text

    links = {(link.source, link.target): link for link in found.links}
    table = Table(box=None, pad_edge=False)
    table.add_column("from \\ to", no_wrap=True, max_width=NAME_WIDTH_MAX)
    for name in found.sites:
        table.add_column(Text(clean(name)), no_wrap=True, justify="right")
    for source in found.sites:
        cells = [Text(clean(source))]
        for target in found.sites:
            link = links.get((source, target))
            cells.append(Text("-", style="dim") if link is None else _cell(link))
        table.add_row(*cells)
    return table


def _cell(link: LinkState) -> Text:
    from rich.text import Text

    cell = Text()
    for words, quantity in ((bandwidth_text, link.bandwidth_mbit_s), (latency_text, link.latency_s)):
        cell.append("\n" if cell else "")
        cell.append(words(quantity.believed), "dim" if quantity.origin == "declared" else "bold")
    return cell


def _listed(links: Sequence[LinkState]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table("from", "to", "bandwidth", "latency", box=None, pad_edge=False)
    for link in links:
        words = (bandwidth_text(link.bandwidth_mbit_s.believed), latency_text(link.latency_s.believed))
        table.add_row(Text(clean(link.source)), Text(clean(link.target)), *words)
    return table


def _measured(link: LinkState) -> bool:
    return bool(link.bandwidth_mbit_s.measurements or link.latency_s.measurements)


def _measured_table(links: Sequence[LinkState], now: float) -> Table:
    """Make a table of the measurements, with a row for each direction and quantity: predictor, number, and the last
    one."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("measured", overflow="fold")
    for name in ("forecast", "by", "of", "last", "by", "ago"):
        table.add_column(name, no_wrap=True, justify="right" if name in ("forecast", "of", "last") else "left")
    for link in links:
        between = _between(link)
        for words, quantity in ((bandwidth_text, link.bandwidth_mbit_s), (latency_text, link.latency_s)):
            if quantity.measured is not None and quantity.measured_at is not None:
                cells = (words(quantity.believed), quantity.predictor, str(quantity.measurements))
                last = (words(quantity.measured), quantity.measured_by, span(now - quantity.measured_at))
                table.add_row(Text(between), *cells, *last)
    return table


def _origin(quantity: LinkQuantity, error: str) -> str:
    if quantity.origin == "declared":
        return "as the grid file says"
    if quantity.origin == "way back":
        return f"as measured on the way back ({quantity.predictor})"
    count = counted(quantity.measurements, "measurement")
    wrong = f" (wrong by {error} on average)" if quantity.measurements > 1 else ""
    return f"forecast by {quantity.predictor} of {count}{wrong}"


def _by(how: str) -> str:
    return {"overdue": "a transfer that was overdue", "transfer": "a transfer", "probe": "a probe"}.get(how, how)


def _print_history(history: LinkHistory) -> None:
    out, link = console(), history.link
    out.print(f"From {_between(link)}", style="bold", markup=False)
    if link.not_probed:
        out.print(f"not probed: {clean(link.not_probed)}", style="dim", markup=False, soft_wrap=True)
    for name, words, quantity, measured in (
        ("bandwidth", bandwidth_text, link.bandwidth_mbit_s, history.bandwidth_mbit_s),
        ("latency", latency_text, link.latency_s, history.latency_s),
    ):
        origin = _origin(quantity, words(quantity.error))
        believed, declared = words(quantity.believed), words(quantity.declared)
        out.print(f"{name}: {believed}, {origin}; declared {declared}", markup=False, soft_wrap=True)
        if not measured:
            continue
        low, high = min(each.value for each in measured), max(each.value for each in measured)
        out.print(f"  {sparks([each.value for each in measured])}  {words(low)} to {words(high)}", markup=False)
        for each in measured:
            out.print(f"  {_measurement(each, words(each.value), history.now)}", markup=False, soft_wrap=True)


def _measurement(each: LinkMeasurement, value: str, now: float) -> str:
    sent = f", {size(each.size_bytes)}" if each.size_bytes else ""
    weight = f", weight {each.weight:.2g}" if each.weight < 1.0 else ""
    return f"{clock(each.at, now)}  {value} by {_by(each.by)}{sent}{weight}"


def sparks(values: Sequence[float]) -> str:
    """Draw values as a row of bars between nothing and the highest."""
    highest = max(values, default=0.0)
    if highest <= 0.0:
        return _SPARKS[0] * len(values)
    most = len(_SPARKS) - 1
    return "".join(_SPARKS[min(most, int(value / highest * most + 0.5))] for value in values)
