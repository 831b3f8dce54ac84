"""``koala place``: where a job would go on given idle processors, without a running scheduler.

The answer comes from the scheduler's own placing. ``koala.cli.place.options`` parses the options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from koala.cli.connection import complete_example
from koala.cli.errors import EXIT_REFUSED, UserError
from koala.cli.examples import read_named
from koala.cli.place.options import parse_idle, parse_load, request_from_options, with_communication
from koala.cli.policies import full_catalogue
from koala.cli.simulate.options import named_grid
from koala.cli.terminal.output import console, counted, print_json
from koala.cli.terminal.refusals import print_refusal
from koala.model.api import Refusal
from koala.model.grid import Grid, Network, SchedulerParameters, Site
from koala.model.network import BIT_S_PER_MBIT_S
from koala.model.request import BANDWIDTH_MBIT_S_MAX, PROCESSORS_MAX, Pattern, Placement, Request
from koala.policies.errors import suggest
from koala.policies.interface import View, compile_demand, refuse, to_placement, try_place

# So many sites that lack licences are named.
SITES_NAMED_MAX = 8


@click.command()
@click.argument("job", required=False, shell_complete=complete_example("job"))
@click.option(
    "--grid", "grid_name", metavar="GRID", help="A grid file, an example's name, or 4x100; all sites are idle."
)
@click.option("--idle", metavar="C1=18,C2=15", help="Idle processors by site; with --grid, of those sites only.")
@click.option("--components", metavar="8,8@C1", help="Component sizes; @SITE fixes where one goes.")
@click.option("--flexible", type=int, metavar="TOTAL", help="A total that the policy may divide.")
@click.option("--component-min", type=int, metavar="N", help="The least processors in a part of --flexible.")
@click.option("--components-max", type=int, metavar="N", help="The most parts of --flexible.")
@click.option("--splits", metavar="18+6,12+12", help="The divisions allowed for --flexible, preferred first.")
@click.option("--home", metavar="SITE", help="The site where the job arrives.")
@click.option("--bisection", type=float, metavar="MBIT_S", help="The job's bisection bandwidth.")
@click.option(
    "--pattern",
    type=click.Choice([each.value for each in Pattern]),
    help="Who talks to whom in the job; by default all to all.",
)
@click.option("--uplink", type=float, metavar="MBIT_S", help="The capacity of each site's link, if no grid has it.")
@click.option("--load", metavar="C1=900,C2=450", help="Mbit/s in use by link; 0 on the others.")
@click.option(
    "--observed", type=float, metavar="MBIT_S", help="The mean bisection bandwidth of earlier jobs, which B5 uses."
)
@click.option("--policy", "policy_name", metavar="NAME", help="By default the job's, else the grid's, else WF.")
@click.option(
    "--policy-file", "policy_files", multiple=True, metavar="FILE.py", help="A Python file that registers policies."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def place(
    ctx: click.Context,
    /,
    job: str | None,
    grid_name: str | None,
    idle: str | None,
    home: str | None,
    bisection: float | None,
    pattern: str | None,
    uplink: float | None,
    load: str | None,
    observed: float | None,
    policy_name: str | None,
    policy_files: tuple[str, ...],
    as_json: bool,
    **described: Any,
) -> None:
    """Ask where a job would go, without any grid running.

    \b
    koala place --idle C1=18,C2=15,C3=12 --components 8,8,8 --policy CM
    koala place --idle C1=18,C2=15,C3=12 --flexible 24 --policy FCM
    koala place job.yaml --grid das2
    koala place --grid minigrid --flexible 150 --bisection 300 --load C1=900 --policy B1

    JOB is a file (YAML, RSL or a batch script) or the name of an example, see koala examples.
    Exits with 3 when the policy refuses, and says what is missing where.
    """
    if policy_name == "":
        raise UserError("--policy: it names no policy; see koala policies")
    grid = None if grid_name is None else named_grid(grid_name)
    view = _view(grid, idle, uplink)
    if load is not None:
        _put_on_links(view, parse_load(load))
    if observed is not None:
        view.observed_bisection_bit_s = _mbit_s(observed, "--observed") * BIT_S_PER_MBIT_S
    catalogue = full_catalogue(policy_files, grid)
    request = _request(job, described, known_sites=view.names, known_policies=catalogue.names())
    request = with_communication(request, home=home, bisection=bisection, pattern=pattern)
    scheduler = SchedulerParameters() if grid is None else grid.scheduler
    policy = catalogue.choose(request, scheduler.policy) if policy_name is None else catalogue.find(policy_name)
    demand = compile_demand(request, policy, view.index)
    for sites, lacks in () if grid is None else view.licenses.never(request.licenses):
        named = ", ".join(view.names[site] for site in sites[:SITES_NAMED_MAX])
        click.echo(f"{named}{', ...' if len(sites) > SITES_NAMED_MAX else ''} cannot give it {lacks}", err=True)
        demand = demand.barring(sites)
        view.idle, view.limit = [*demand.allowed(view.idle)], [*demand.allowed(view.limit)]
    spots = try_place(demand, view)
    if spots is None:
        _print_refusal(refuse(demand, view.idle, view), as_json)
        ctx.exit(EXIT_REFUSED)
    _print_placement(to_placement(demand, spots, view), as_json)


def _request(
    job: str | None, described: dict[str, Any], *, known_sites: Sequence[str], known_policies: Sequence[str]
) -> Request:
    if job is None:
        return request_from_options(**described)
    if any(value is not None for value in described.values()):
        given = ", ".join(f"--{name.replace('_', '-')}" for name, value in described.items() if value is not None)
        raise UserError(f"{job} already describes the job; leave out {given}")
    from koala.descriptions import is_graph, read_job

    text, source = read_named("job", job)
    if is_graph(text, source):
        raise UserError(f"{source} has several jobs, and koala place is for one; write koala submit --dry-run {job}")
    return read_job(text, source, known_sites=known_sites, known_policies=known_policies)


def _view(grid: Grid | None, idle: str | None, uplink_mbit_s: float | None) -> View:
    """Return the grid with the given idle processors; without a grid, sites with only those."""
    network = None if uplink_mbit_s is None else Network(uplink_mbit_s=_mbit_s(uplink_mbit_s, "--uplink"))
    if grid is None:
        if idle is None:
            raise UserError("say what is idle: --grid GRID, or --idle C1=18,C2=15, or both")
        given = parse_idle(idle)
        sites = tuple(Site(name=name, processors=count) for name, count in given.items())
        view = View.from_grid(Grid(sites=sites, network=network))
        # The size of the sites is unknown, so no shortage is known to be permanent.
        view.limit = [PROCESSORS_MAX] * len(given)
        return view
    if network is not None:
        if grid.network is not None:
            raise UserError("--uplink: the grid file says what the links can carry; leave the option out")
        grid = msgspec.structs.replace(grid, network=network)
    view = View.from_grid(grid)
    for name, count in ({} if idle is None else parse_idle(idle)).items():
        if name not in view.index:
            raise UserError(f"--idle: the grid has no site {name!r}; {suggest(name, view.names)}")
        site = view.index[name]
        if count > view.limit[site]:
            raise UserError(f"--idle: {name} offers at most {counted(view.limit[site], 'processor')}, not {count}")
        view.idle[site] = count
    return view


def _mbit_s(mbit_s: float, option: str) -> float:
    if not 0 < mbit_s <= BANDWIDTH_MBIT_S_MAX:
        raise UserError(f"{option}: {mbit_s:g} is not a bandwidth; write a number above 0, in Mbit/s")
    return mbit_s


def _put_on_links(view: View, load_mbit_s: dict[str, float]) -> None:
    if not view.wiring.has_limits:
        raise UserError(
            "--load: the capacity of the links is unknown; give --uplink 1000, or a network in the grid file"
        )
    links = {name: link for link, name in enumerate(view.wiring.names)}
    for name, mbit_s in load_mbit_s.items():
        if name not in links:
            raise UserError(f"--load: the grid has no link {name!r}; {suggest(name, links)}")
        view.link_demand_bit_s[links[name]] = int(mbit_s * BIT_S_PER_MBIT_S + 0.5)


def _print_placement(placement: Placement, as_json: bool) -> None:
    if as_json:
        components = []
        for component in placement.components:
            shown: dict[str, Any] = {"site": component.site, "processors": component.processors}
            if component.tasks:
                shown["tasks"] = component.tasks
            if component.sources:
                shown["sources"] = [msgspec.to_builtins(source) for source in component.sources]
            components.append(shown)
        print_json({"policy": placement.policy, "placed": True, "components": components})
        return
    from rich.table import Table
    from rich.text import Text

    with_files = any(component.sources for component in placement.components)
    with_tasks = any(component.tasks for component in placement.components)
    table = Table(box=None, pad_edge=False)
    table.add_column("component", justify="right")
    table.add_column("processors", justify="right")
    table.add_column("site")
    if with_tasks:
        table.add_column("tasks")
    if with_files:
        table.add_column("files from")
    for component in placement.components:
        sources = ", ".join(
            f"{source.name} from {source.site} ({source.transfer_s:.3g} s)" for source in component.sources
        )
        cells = [str(component.index), str(component.processors), component.site]
        cells += [" ".join(component.tasks)] if with_tasks else []
        cells += [sources] if with_files else []
        table.add_row(*map(Text, cells))
    total = sum(component.processors for component in placement.components)
    out = console()
    out.print(table)
    out.print(Text(f"{placement.policy}: {counted(total, 'processor')} on {counted(len(placement.sites), 'site')}"))


def _print_refusal(refusal: Refusal, as_json: bool) -> None:
    if as_json:
        print_json({"policy": refusal.policy, "placed": False, "refusal": msgspec.to_builtins(refusal)})
        return
    print_refusal(refusal)
