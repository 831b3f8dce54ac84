"""The report of ``koala simulate`` for people: the jobs' times, how many clusters they used, and the sites' use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from koala.cli.simulate.failures import in_words
from koala.cli.terminal.output import counted
from koala.model.nodes import gpu_time_text

if TYPE_CHECKING:
    from rich.console import RenderableType

_TIMES = (
    ("queue_s", "queue", "submission to placement"),
    ("overhead_s", "overhead", "placement to start"),
    ("wait_s", "wait", "submission to start"),
    ("execution_s", "execution", "start to finish"),
    ("response_s", "response", "submission to finish"),
    ("bounded_slowdown", "slowdown", "response, bounded at 10 s"),
)
_BAR_WIDTH = 30
# Below this width the table of times has no explanations.
_EXPLAINED_WIDTH_MIN = 72
_LISTED_MAX = 10
# With more sites than this the table of utilisation only counts them; JSON lists them all.
_SITES_LISTED_MAX = 40


def report(metrics: dict[str, Any], width: int) -> Iterator[RenderableType]:
    """Yield the report of a run, part by part, without the parts that a kind of run does not have."""
    from rich.text import Text

    yield _head(metrics)
    if "failure_trace" in metrics:
        yield Text(in_words(metrics["failure_trace"]))
    if not metrics["complete"]:
        left = f"; {counted(metrics['not_submitted'], 'job')} not submitted" if metrics["not_submitted"] else ""
        yield Text(f"incomplete: {metrics['stopped']}{left}", style="yellow")
    for note in metrics["notes"]:
        yield Text(f"note: {note}", style="yellow")
    if metrics["response_s"] is not None:
        yield ""
        yield _times_table(metrics, explained=width >= _EXPLAINED_WIDTH_MIN)
        if "clusters_combined" in metrics:
            yield ""
            yield _clusters_table(metrics)
    if metrics.get("told_times", {}).get("measured"):
        yield ""
        yield _told_table(metrics["told_times"])
    yield ""
    yield _use_table(metrics["utilisation"])
    yield ""
    if "events" in metrics:
        yield Text(
            f"component failures {metrics['failures']}, restarts {metrics['restarts']}, "
            f"preemptions {metrics['preemptions']}, events {metrics['events']}"
        )
        yield Text(
            f"processor time before the runs: {metrics['gained_processor_s']:,.0f} s gained by claiming late (PGT), "
            f"{metrics['wasted_processor_s']:,.0f} s wasted until the start (PWT)"
        )
        if spawns := metrics.get("spawns"):
            yield Text(
                f"spawns: {spawns['asked']}, of which {spawns['placed']} placed, {spawns['refused']} refused, "
                f"{spawns['withdrawn']} withdrawn before they began, {spawns['missed']} after the end of their job"
            )
        if metrics["gpu_s"]:
            yield Text(f"used by runs: {gpu_time_text(metrics['gpu_s'])}")
        yield from _what_went_wrong(metrics)
    if "jobs_per_s" in metrics:
        yield _speed(metrics)


def _head(metrics: dict[str, Any]) -> RenderableType:
    from rich.text import Text

    name = metrics.get("workload") or metrics["trace"]
    seed = f", seed {metrics['seed']}" if "seed" in metrics else ""
    head = Text(f"{name} on {metrics['grid']}, policy {metrics['policy']}{seed}\n")
    head.stylize("bold", 0, len(head) - 1)
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in metrics["outcomes"].items())
    jobs = counted(metrics["jobs"], "job") + (f": {outcomes}" if outcomes else "")
    head.append(f"{jobs}; makespan {_duration(metrics['makespan_s'])}")
    return head


def _speed(metrics: dict[str, Any]) -> RenderableType:
    from rich.text import Text

    timings = metrics["timings"]
    taken = (
        f"read in {timings['read_s']:.2f} s, simulated in {timings['simulate_s']:.2f} s by the {metrics['engine']}"
    )
    return Text(f"{taken}: {metrics['jobs_per_s']:,.0f} jobs/s", style="dim")


def _what_went_wrong(metrics: dict[str, Any]) -> Iterator[RenderableType]:
    from rich.text import Text

    if metrics["void"]:
        periods = metrics["void_periods"]
        yield Text(
            f"void: the sites' own users alone exceeded the background bands for too long, "
            f"{counted(len(periods), 'time')}, first at {periods[0]['from_s']:.0f} s; run it with another seed",
            style="yellow",
        )
    yield from _reasons("failed", metrics["failed"])
    yield from _reasons("unfinished", metrics["unfinished_by_reason"])


def _reasons(outcome: str, reasons: list[dict[str, Any]]) -> Iterator[RenderableType]:
    from rich.text import Text

    for each in reasons[:_LISTED_MAX]:
        first = f"job {each['first']['job']} ({each['first']['name']})"
        who = first if each["jobs"] == 1 else f"{counted(each['jobs'], 'job')}, first {first}"
        yield Text(f"{outcome}: {who}: {each['reason']}", style="yellow")
    if len(reasons) > _LISTED_MAX:
        more = counted(len(reasons) - _LISTED_MAX, "more reason")
        yield Text(f"... and {more}; --json and --jobs-csv list them all", style="yellow")


def _times_table(metrics: dict[str, Any], *, explained: bool) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("seconds")
    for column in ("mean", "median", "p95", "max"):
        table.add_column(column, justify="right")
    if explained:
        table.add_column("from - to", style="dim")
    for key, name, meaning in _TIMES:
        values = metrics.get(key)
        if values is not None:
            cells = [name, *(f"{values[column]:.1f}" for column in ("mean", "median", "p95", "max"))]
            table.add_row(*cells, *([meaning] if explained else []))
    return table


def _clusters_table(metrics: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    combined = metrics["clusters_combined"]
    # Not the table's own title, which would be as narrow as the table.
    title = f"clusters combined: mean {combined['mean']:.2f}; {metrics['coallocated_share']:.0%} co-allocated"
    table = Table(box=None, pad_edge=False)
    table.add_column("clusters", justify="right")
    table.add_column("jobs", justify="right")
    table.add_column("")
    most = max(combined["histogram"].values())
    for clusters, jobs in combined["histogram"].items():
        table.add_row(clusters, str(jobs), "\N{FULL BLOCK}" * max(1, round(_BAR_WIDTH * jobs / most)))
    return Group(title, table)


def _told_table(told: dict[str, Any]) -> RenderableType:
    """Return how much the starts of jobs differ from their predicted times."""
    from rich.console import Group
    from rich.table import Table

    planned = counted(told["planned"], "job")
    title = f"predicted starts: {planned} had a plan; the delays of the {told['measured']:,} that started"
    table = Table(box=None, pad_edge=False)
    table.add_column("seconds")
    for column in ("median", "p90", "median off", "p90 off"):
        table.add_column(column, justify="right")
    for which in ("expected", "latest"):
        errors = told[f"{which}_error_s"]
        if errors is None:  # none of them had a latest time
            continue
        columns = ("median", "p90", "absolute_median", "absolute_p90")
        table.add_row(which, *(f"{errors[key]:.1f}" for key in columns))
    return Group(title, table)


def _use_table(use: dict[str, Any]) -> RenderableType:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("utilisation")
    for column in ("ours", "others", "total"):
        table.add_column(column, justify="right")
    sites = list(use["sites"].items())
    for site, shares in sites[:_SITES_LISTED_MAX]:
        table.add_row(escape(site), *_percent(shares["ours"], shares["others"]))
    if len(sites) > _SITES_LISTED_MAX:
        table.add_row(f"... and {counted(len(sites) - _SITES_LISTED_MAX, 'site')}")
    table.add_row("all sites", *_percent(use["ours"], use["others"]), style="bold")
    return table


def _percent(ours: float, others: float) -> tuple[str, str, str]:
    return f"{ours:.1%}", f"{others:.1%}", f"{ours + others:.1%}"


def _duration(seconds: float) -> str:
    """Format a long time in hours and minutes, a short one in seconds."""
    if seconds < 600:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min ({seconds:.0f} s)"


def facts(metrics: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a run in a few numbers: (what, how much)."""
    from koala.simulator.report.page import duration

    wait, slowdown = metrics["wait_s"], metrics.get("bounded_slowdown")
    found = [("jobs", f"{metrics['jobs']:,}")]
    if wait is not None:
        found += [
            ("mean wait", duration(wait["mean"])),
            ("median wait", duration(wait["median"])),
            ("95 % waited under", duration(wait["p95"])),
            ("mean response", duration(metrics["response_s"]["mean"])),
        ]
    if slowdown is not None:
        found.append(("bounded slowdown", f"{slowdown['mean']:,.1f}"))
    use = metrics["utilisation"]
    found.append(("utilisation", f"{use['ours']:.1%}"))
    if use["others"] > 0:
        found.append(("and by other users", f"{use['others']:.1%}"))
    found.append(("makespan", duration(metrics["makespan_s"])))
    return found
