"""``koala demo``: shows Koala in half a minute: live on three sites of this machine, or simulated.

The live demo is in ``live``. The simulated one is here: one co-allocation on three simulated sites, drawn from the
log of its run. Its scheduler is the real one; only the grid and the jobs, the examples named demo, are made for it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from koala.cli.demo.picture import TITLE, GridPicture, job_name, jobs_table, what_happened, whole_picture
from koala.cli.errors import UserError
from koala.cli.examples import read_named
from koala.cli.terminal.output import console, counted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from koala.simulator import Result

SHOW_S = 3.0
FRAMES = 40
_PROCESSORS_PER_ROW = 3


@click.command()
@click.option("--keep", is_flag=True, help="Leave the daemon running, with its dashboard.")
@click.option(
    "--end",
    "to_end",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="End a demo that was kept; --keep names the directory.",
)
@click.option("--still", is_flag=True, help="Show the end only, without the animation.")
@click.option("--simulated", is_flag=True, help="Run a simulation instead: nothing is started, three seconds.")
@click.option(
    "--seed", type=int, default=1, show_default=True, help="The seed of the simulation, or of the input files' bytes."
)
@click.option("--json", "as_json", is_flag=True, help="Print what happened as JSON.")
def demo(keep: bool, to_end: Path | None, still: bool, simulated: bool, seed: int, as_json: bool) -> None:
    """Run four real jobs on three small sites of this machine and show it.

    An MPI job that no site is large enough for is split over two and waits for its input file; one of high priority
    preempts another; a component fails and its job is started again as a whole. The demo has a daemon of its own,
    which is gone at the end.
    """
    if to_end is not None:
        from koala.cli.demo.live import end_kept

        end_kept(to_end)
        return
    if not simulated:
        from koala.cli.demo.live import show_live

        show_live(seed=seed, still=still, keep=keep, as_json=as_json)
        return
    if keep or as_json:
        raise UserError("--keep and --json are about the live demo; leave out --simulated")
    _show_simulated(seed, still=still)


def _show_simulated(seed: int, *, still: bool) -> None:
    """Run the simulation and show it, animated on a terminal."""
    from koala.descriptions import read_grid
    from koala.descriptions.workload.form import read_workload
    from koala.simulator import simulate
    from koala.simulator.report.timeline import Timeline
    from koala.simulator.workloads.generators import workload_from_file

    grid = read_grid(*read_named("grid", "demo"))
    workload = workload_from_file(read_workload(*read_named("workload", "demo")))
    log: list[bytes] = []
    result = simulate(grid, workload, seed=seed, log=log.append)
    timeline = Timeline.from_log(b"".join(log).splitlines())
    screen = console()
    sites = {site.name: site.processors for site in grid.sites}
    picture = whole_picture(sites, timeline, timeline.end_s, screen.width, _PROCESSORS_PER_ROW)
    screen.print(f"{TITLE}\n", style="bold")
    if screen.is_terminal and not still:
        _animate(screen, picture, timeline.end_s)
    else:
        screen.print(_at(picture, timeline.end_s))
    screen.print("", _table(result))
    ran = f"{counted(result.jobs, 'job')}, {counted(result.events, 'event')}, {result.end_s:.0f} s of virtual time"
    screen.print(f"\n{ran}\nnext: koala simulate --grid das2 --workload koala2006-w1 --policy CM")


def _at(picture: GridPicture, until_s: float, height: int | None = None) -> RenderableType:
    """Draw the picture and the remarks; within a given height only the newest remarks."""
    from rich.console import Group

    rows, remarks = picture.rows(until_s), picture.remarks(until_s)
    if height is None:
        return Group(*rows, "", *remarks)
    return Group(*rows, *remarks[-max(1, height - len(rows) - 1) :])


def _animate(screen: Console, picture: GridPicture, end_s: float) -> None:
    from rich.live import Live

    with Live(console=screen, auto_refresh=False) as live:
        for frame in range(1, FRAMES):
            live.update(_at(picture, end_s * frame / FRAMES, screen.height), refresh=True)
            time.sleep(SHOW_S / FRAMES)
        live.update(_at(picture, end_s), refresh=True)


def _table(result: Result) -> Table:
    rows = []
    for row in result.rows():
        times = (row.queue_s, row.overhead_s, row.execution_s)
        cells = ["-" if value is None else f"{value:.0f}" for value in times]
        happened = what_happened(row.preemptions, row.failures, row.outcome)
        rows.append((job_name(row.job, row.name), row.sites.replace("+", " + "), cells, happened))
    return jobs_table(("queue", "overhead", "execution"), rows)
