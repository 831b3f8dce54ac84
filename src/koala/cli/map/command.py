"""``koala map``: maps the tasks of an application onto the machines of a wide-area grid, and draws it.

First the tasks that communicate most are clustered, unless the file has the clusters; then each gets a machine.
``koala.mapping`` does the work; ``koala.cli.map.report`` prints the answer.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from koala.cli.connection import complete_example, server_option
from koala.cli.errors import EXIT_REFUSED, UserError, advice
from koala.cli.examples import read_named
from koala.cli.map.live import LIVE, live_machines
from koala.cli.terminal.output import OutputFile, refuse_clashes

if TYPE_CHECKING:
    from koala.descriptions.job.task_graph import Clusters
    from koala.mapping.clustering.catalogue import Clustering
    from koala.mapping.placing.optimal import Optimised
    from koala.mapping.result import NoPlace, TaskMapping
    from koala.model.dendrogram import Dendrogram
    from koala.model.task_graph import TaskGraph

METHOD = "wase"
OPTIMAL = "optimal"
OBJECTIVES = ("lan-hit", "inter-lan")
# The methods that have each option.
_OF_METHODS = {
    "lan_by_lan": ("wase",),
    "affinity_wanted": ("wase-far", "wase-all"),
    "mbit_s_per_rqoc": ("wase-soft", "wase-all"),
    "objective": (OPTIMAL,),
    "time_limit_s": (OPTIMAL,),
}
CLUSTERINGS = ("local-search", "lp", "region-growing", "lp-search", "exact")
# The paper's method also has a short name.
_SHORT = {"lp": "region-growing"}
_SIZE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)(?:-([0-9]{1,6}(?:\.[0-9]{1,6})?))?")
_STDOUT = Path("-")
_PICTURE = click.Path(path_type=Path)


class _Answer(msgspec.Struct, kw_only=True):
    """The part of the output of ``koala map --json`` that ``--running`` needs."""

    mapping: dict[str, str]
    clusters: list[list[str]]
    homes: list[str]
    affinities: dict[str, float]
    method: str
    scarce: bool = False


class RunningTasks(NamedTuple):
    """A graph whose first tasks run already, and their mapping."""

    graph: TaskGraph
    mapping: TaskMapping


class _Size(click.ParamType[tuple[float, float]]):
    """A mean number of tasks in a cluster, or a range of it: 4-6."""

    name = "LOW-HIGH"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        found = _SIZE.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is not a range of cluster sizes; write two numbers, like 4-6", param, ctx)
        low = float(found[1])
        high = low if found[2] is None else float(found[2])
        if not 1 <= low <= high:
            self.fail(f"{value!r}: write two numbers from 1 on, the smaller one first, like 4-6", param, ctx)
        return low, high


@click.command(name="map")
@click.argument("app", shell_complete=complete_example("graph"))
@click.option(
    "--grid",
    "grid_name",
    required=True,
    metavar="GRID",
    help="The machines: a file, the name of an example, or live for the idle ones of the daemon's grid.",
)
@server_option
@click.option(
    "--method", default=METHOD, show_default=True, metavar="NAME", help="How clusters are mapped, see above."
)
@click.option(
    "--clustering",
    type=click.Choice(CLUSTERINGS),
    help="How clusters are found. [default: local-search, which needs no extra library]",
)
@click.option("--theta", type=float, metavar="X", help="Added to every correlation: more gives larger clusters.")
@click.option("--cluster-size", type=_Size(), help="The mean number of tasks in a cluster, instead of --theta.")
@click.option("--seed", type=int, default=0, show_default=True, help="For the draws of the clustering.")
@click.option("--user-lan", metavar="NAME", help="The LAN of the user, instead of the grid file's.")
@click.option(
    "--running",
    "running_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="An earlier answer in JSON: its tasks stay, and the new ones of APP get machines.",
)
@click.option(
    "--lan-by-lan", is_flag=True, help="For wase: the rest of a cluster goes to one far LAN after the other."
)
@click.option("--affinity-wanted", type=float, metavar="X", help="For wase-far and wase-all. [default: 2]")
@click.option("--mbit-s-per-rqoc", type=float, metavar="X", help="For wase-soft and wase-all. [default: 1]")
@click.option("--objective", type=click.Choice(OBJECTIVES), help="For optimal: what is optimised. [default: lan-hit]")
@click.option(
    "--time-limit",
    "time_limit_s",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="For optimal: when to take the best mapping so far. [default: 10]",
)
@click.option("--dot", "dot_file", type=_PICTURE, metavar="FILE", help="Draw it for Graphviz; - is standard output.")
@click.option("--svg", "svg_file", type=_PICTURE, metavar="FILE", help="Draw it as SVG; - is standard output.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def map_application(
    ctx: click.Context,
    /,
    app: str,
    grid_name: str,
    method: str,
    clustering: str | None,
    theta: float | None,
    cluster_size: tuple[float, float] | None,
    seed: int,
    user_lan: str | None,
    running_file: Path | None,
    dot_file: Path | None,
    svg_file: Path | None,
    as_json: bool,
    server: str | None,
    **described: Any,
) -> None:
    """Map an application of communicating tasks onto the machines of a wide-area grid.

    \b
    koala map app.yaml --grid grid.yaml
    koala map app.yaml --grid grid.yaml --cluster-size 4-6 --method wase-whole --json
    koala map pipeline --grid tuscany --svg mapping.svg
    koala map app.yaml --grid live

    APP and GRID are files or the names of examples. APP has the tasks, or is a job that holds a task graph. GRID has
    machines in LANs, MANs and WANs, or is a grid file of the scheduler, whose sites are LANs. With live it is the
    grid of the daemon: its idle processors, with the power and load that were measured.

    The methods are wase and greedy, as in the paper; greedy-scan, which is greedy at the paper's speed; wase-whole,
    which keeps clusters whole; wase-far, which goes farther for power; wase-soft, which goes farther for bandwidth;
    wase-all, for both; and optimal, which finds the best mapping of small applications.

    Exits with 3 if a cluster or task finds no place, and says what was missing.
    """
    from koala.cli.map.report import print_failure, print_mapping
    from koala.descriptions import read_application, read_machines
    from koala.mapping.result import NoPlace

    _check_outputs(app, grid_name, running_file, dot_file, svg_file, as_json)
    chosen = {key: value for key, value in described.items() if value is not None and value is not False}
    _check_method(method, chosen)
    graph, given = read_application(*read_named("graph", app, "job"))
    if grid_name == LIVE:
        dendrogram = live_machines(server)
    elif server is not None:
        raise UserError("--server is for --grid live; leave it out with a file or an example")
    else:
        dendrogram = read_machines(*read_named("dendrogram", grid_name, "grid"))
    found: Clustering | None = None
    clustered = [theta, cluster_size, clustering] != [None, None, None]
    if given is not None and clustered:
        raise UserError(f"{app} has its clusters already; leave out --clustering, --theta and --cluster-size")
    optimum: Optimised | None = None
    if running_file is not None:
        if given is not None or clustered or method != METHOD:
            raise UserError("--running: new tasks join the running clusters; leave out clusters and --method")
        graph, clusters, answer = _spawned(running_file, graph, dendrogram, user_lan)
    else:
        if given is None:
            found = _clustered(graph, clustering, theta, cluster_size, seed)
        clusters = found.clusters if found is not None else given or ()
        answer, optimum = _mapped(graph, clusters, dendrogram, method, user_lan, chosen)
    if isinstance(answer, NoPlace):
        print_failure(answer, graph, clusters, optimum, as_json=as_json)
        ctx.exit(EXIT_REFUSED)
    drawn_here = _draw(answer, graph, dendrogram, dot_file, svg_file)
    if not drawn_here:
        print_mapping(answer, graph, dendrogram, found, optimum, as_json=as_json)


def _check_method(method: str, chosen: dict[str, Any]) -> None:
    """Refuse options that the method does not have: they would be ignored silently."""
    for key in chosen:
        methods = _OF_METHODS[key]
        if method not in methods:
            option = "--" + key.removesuffix("_s").replace("_", "-")
            raise UserError(
                f"{option} is for {' and '.join(methods)}; leave it out with {method}, or choose --method"
            )


def _mapped(
    graph: TaskGraph,
    clusters: Clusters,
    dendrogram: Dendrogram,
    method: str,
    user_lan: str | None,
    chosen: dict[str, Any],
) -> tuple[TaskMapping | NoPlace, Optimised | None]:
    """Return the answer of a method and, for optimisation, its bounds."""
    if method == OPTIMAL:
        from koala.mapping.placing.optimal_mapping import map_optimally

        return map_optimally(graph, clusters, dendrogram, user_lan=user_lan, **chosen)
    from koala.mapping.placing.catalogue import METHODS, MappingOptions, map_tasks

    if method not in METHODS:
        raise UserError(f"there is no mapping method {method!r}; there are: {', '.join([*METHODS, OPTIMAL])}")
    return map_tasks(graph, clusters, dendrogram, method, options=MappingOptions(**chosen), user_lan=user_lan), None


def _spawned(
    path: Path, graph: TaskGraph, dendrogram: Dendrogram, user_lan: str | None
) -> tuple[TaskGraph, Clusters, TaskMapping | NoPlace]:
    """Return the graph with the running tasks first, the clusters that run, and the answer for all."""
    from koala.mapping.placing.spawning import map_spawned

    running = _read_running(path, graph, dendrogram)
    answer = map_spawned(running.graph, running.mapping, dendrogram, user_lan=user_lan)
    return running.graph, running.mapping.clusters, answer


def _check_outputs(
    app: str, grid: str, running: Path | None, dot_file: Path | None, svg_file: Path | None, as_json: bool
) -> None:
    here = [
        option
        for option, asked in (("--json", as_json), ("--dot -", dot_file == _STDOUT), ("--svg -", svg_file == _STDOUT))
        if asked
    ]
    if len(here) > 1:
        raise UserError(f"{' and '.join(here)} would both write to standard output; name a file for one of them")
    files = [
        (option, None if path == _STDOUT else path) for option, path in (("--dot", dot_file), ("--svg", svg_file))
    ]
    refuse_clashes(files, [("APP", app), ("--grid", grid), *([("--running", str(running))] if running else [])])


def _clustered(
    graph: TaskGraph, method: str | None, theta: float | None, cluster_size: tuple[float, float] | None, seed: int
) -> Clustering:
    from koala.mapping.clustering.catalogue import cluster

    if theta is not None and cluster_size is not None:
        raise UserError("--theta and --cluster-size are given together; a size is reached by trying values of theta")
    if theta is not None and not math.isfinite(theta):
        raise UserError(f"--theta {theta}: write a finite number")
    chosen = method or CLUSTERINGS[0]
    return cluster(graph, _SHORT.get(chosen, chosen), theta=theta, cluster_size=cluster_size, seed=seed)


def _draw(
    mapping: TaskMapping, graph: TaskGraph, dendrogram: Dendrogram, dot_file: Path | None, svg_file: Path | None
) -> bool:
    """Write the requested pictures. Returns True if one went to standard output."""
    from koala.mapping.drawing import dot, svg

    for option, path, draw in (("--dot", dot_file, dot), ("--svg", svg_file, svg)):
        if path is None:
            continue
        picture = draw(mapping, graph, dendrogram)
        if path == _STDOUT:
            sys.stdout.write(picture)
        else:
            with OutputFile(option, path) as file:
                file.write(picture.encode())
    return _STDOUT in (dot_file, svg_file)


# --------------------------------------------------------------------------- --running: an earlier answer


def _read_running(path: Path, graph: TaskGraph, dendrogram: Dendrogram) -> RunningTasks:
    """Return the answer in a file, for a graph that has its tasks and more. Raises ``UserError`` if it does not
    fit."""
    from koala.mapping.result import TaskMapping

    answer = _read(path)
    where = f"--running {path}"
    machine_index = {name: machine for machine, name in enumerate(dendrogram.flat.machine_names)}
    known = set(graph.names)
    for task, machine in answer.mapping.items():
        if task not in known:
            raise UserError(f"{where}: the task {task} is not in APP; keep the tasks that run in it")
        if machine not in machine_index:
            raise UserError(f"{where}: the task {task} is on the machine {machine}, which is not in the grid")
    unknown = [lan for lan in answer.homes if lan not in dendrogram.flat.lan_index]
    if unknown:
        raise UserError(f"{where}: a cluster is at home in the LAN {unknown[0]}, which is not in the grid")
    clustered = sorted(task for tasks in answer.clusters for task in tasks)
    if (
        clustered != sorted(answer.mapping)
        or answer.affinities.keys() != answer.mapping.keys()
        or len(answer.homes) != len(answer.clusters)
        or not all(answer.clusters)
    ):
        raise UserError(f"{where}: its mapping, clusters, homes and affinities are not of the same tasks; map again")
    index = {task: place for place, task in enumerate(answer.mapping)}
    mapping = TaskMapping(
        method=answer.method,
        clusters=tuple(tuple(index[task] for task in tasks) for tasks in answer.clusters),
        machines=tuple(machine_index[machine] for machine in answer.mapping.values()),
        affinities=tuple(answer.affinities[task] for task in answer.mapping),
        homes=tuple(dendrogram.flat.lan_index[lan] for lan in answer.homes),
        scarce=answer.scarce,
    )
    return RunningTasks(_running_first(graph, list(answer.mapping)), mapping)


def _read(path: Path) -> _Answer:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Answer)
    except OSError as error:
        raise UserError(f"--running {path}: {error.strerror}; {advice(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"--running {path}: this is not a mapping as koala map --json prints it: {error}") from None


def _running_first(graph: TaskGraph, running: list[str]) -> TaskGraph:
    from koala.model.task_graph import TaskGraph

    rcr = dict(zip(graph.names, graph.rcr, strict=True))
    ordered = {name: rcr[name] for name in [*running, *(name for name in graph.names if name not in set(running))]}
    edges = [(graph.names[one], graph.names[other], rqoc) for one, other, rqoc in graph.edges]
    return TaskGraph.of(ordered, edges, graph.mcr)
