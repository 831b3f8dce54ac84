"""The figures of the paper of 2006, drawn from the new results: its figures 5, 7 (a to f) and 8."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from koala.study import NEUTRAL, ReportFigure, Series, bars, grouped_bars, lines, mean_interval, style_of
from koala_papers.koala2006.data import Koala2006Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {"W1": "W1: a job every 80 s", "W2": "W2: a job every 40 s"}
SITES = 5


def figures(data: Koala2006Data) -> list[ReportFigure]:
    """Return all figures, in the order of the paper's figure 7, then 8 and 5."""
    seeds = f"Means over {len(data.seeds)} seeds with 95 % confidence intervals."
    return [
        _bars(data, "response_s", "response", "Mean response time", "mean response time (s)", seeds),
        _bars(data, "wait_s", "wait", "Mean wait time", "mean wait time (s)", seeds),
        _bars(data, "execution_s", "execution", "Mean execution time", "mean execution time (s)", seeds),
        _bars(data, "clusters", "clusters-mean", "Clusters combined", "mean clusters combined", seeds),
        ReportFigure(
            "clusters-distribution",
            "Clusters combined, distribution",
            f"Which share of the jobs runs on how many clusters. {seeds}",
            partial(_distribution, data),
        ),
        _bars(data, "queue_s", "queue", "Mean queue time", "mean queue time (s)", seeds),
        ReportFigure(
            "overhead-by-components",
            "Start-up overhead by components",
            f"From placement to start, all three policies together. {seeds} Without a bar: seen in one seed only.",
            partial(_overhead, data),
        ),
        ReportFigure(
            "execution-by-clusters",
            "Execution time by clusters combined",
            "By application and processors, over both workloads and all policies. "
            f"The model of execution times is an input. {seeds}",
            partial(_execution, data),
        ),
    ]


def _bars(data: Koala2006Data, metric: str, name: str, title: str, label: str, seeds: str) -> ReportFigure:
    panels = {
        TITLES[workload]: {policy: data.interval(workload, policy, metric) for policy in data.policies}
        for workload in data.workloads
    }
    return ReportFigure(name, title, seeds, partial(bars, panels, label))


def _distribution(data: Koala2006Data) -> Figure:
    panels = {
        TITLES[workload]: [
            Series(policy, style_of(policy), data.cluster_shares(workload, policy)) for policy in data.policies
        ]
        for workload in data.workloads
    }
    return grouped_bars(panels, "clusters combined", "jobs (%)", places=range(1, SITES + 1))


def _overhead(data: Koala2006Data) -> Figure:
    series = [
        Series(
            TITLES[workload],
            style,
            {
                components: mean_interval(list(by_seed.values()))
                for components, by_seed in data.overhead_by_components(workload).items()
            },
        )
        for workload, style in zip(data.workloads, NEUTRAL, strict=False)
    ]
    return lines({"": series}, "components of the job", "mean start-up overhead (s)")


def _execution(data: Koala2006Data) -> Figure:
    measured = data.execution_by_clusters()
    sizes = sorted({processors for _, processors in measured})
    panels = {
        application.capitalize(): [
            Series(
                f"{processors} processors",
                NEUTRAL[sizes.index(processors)],
                {
                    clusters: mean_interval(list(by_seed.values()))
                    for clusters, by_seed in measured[application, processors].items()
                },
            )
            for processors in sizes
            if (application, processors) in measured
        ]
        for application in sorted({application for application, _ in measured}, reverse=True)
    }
    return lines(panels, "clusters combined", "mean execution time (s)")
