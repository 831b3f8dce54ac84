"""The claims C1 to C8 of the paper of 2006, each as comparisons over paired seeds."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from koala.study import (
    Comparison,
    Interval,
    PaperClaim,
    above,
    below,
    judge,
    mean_interval,
    measured,
    paired_difference,
    within,
)
from koala_papers.koala2006.data import BySeed, Koala2006Data

_STARTUP_IS_INPUT = "The model of start-up is an input of the simulation."
_EXECUTION_IS_INPUT = "The model of execution times is an input of the simulation."


def claims(data: Koala2006Data, shares: Mapping[str, float]) -> list[PaperClaim]:
    """Return all eight claims, judged. ``shares`` defines low, similar and much lower."""
    return [
        _best_and_worst(data),
        _execution_rises(data),
        _fewer_clusters(data),
        _fcm_combines_more(data),
        _queue_times(data, shares),
        _dominant_part(data),
        _overhead_rises(data),
        _execution_by_clusters(data),
    ]


def _difference(first: BySeed, second: BySeed) -> Interval:
    interval = paired_difference(first, second)
    assert interval is not None, "every policy has run under every seed"
    return interval


def _policies(data: Koala2006Data, workload: str, name: str, first: str, second: str) -> Interval:
    return _difference(data.metric(workload, first, name), data.metric(workload, second, name))


def _scaled(values: BySeed, factor: float) -> BySeed:
    return {seed: factor * value for seed, value in values.items()}


def _best_and_worst(data: Koala2006Data) -> PaperClaim:
    comparisons = [
        below(f"{workload} mean {words}, {first} - {second}", _policies(data, workload, name, first, second))
        for workload in data.workloads
        for name, words in (("response_s", "response"), ("wait_s", "wait"))
        for first, second in (("FCM", "CM"), ("CM", "WF"))
    ]
    return judge("C1", "FCM is best and WF worst in mean response and mean wait, in W1 and W2.", comparisons)


def _execution_rises(data: Koala2006Data) -> PaperClaim:
    comparisons = [
        above(
            f"{policy} mean execution, W2 - W1",
            _difference(data.metric("W2", policy, "execution_s"), data.metric("W1", policy, "execution_s")),
        )
        for policy in data.policies
    ]
    changes = {
        policy: _difference(data.metric("W2", policy, "clusters"), data.metric("W1", policy, "clusters")).mean
        for policy in data.policies
    }
    listed = ", ".join(f"{policy} {change:+.2f}" for policy, change in changes.items())
    note = f"Execution follows the clusters combined, which change from W1 to W2 by {listed}."
    return judge("C2", "The execution time rises from W1 to W2 for every policy.", comparisons, note=note)


def _fewer_clusters(data: Koala2006Data) -> PaperClaim:
    comparisons = [
        below(
            f"{workload} clusters combined, {policy} - WF",
            _policies(data, workload, "clusters", policy, "WF"),
            unit="",
        )
        for workload in data.workloads
        for policy in ("CM", "FCM")
    ]
    return judge("C3", "CM and FCM combine fewer clusters than WF.", comparisons)


def _fcm_combines_more(data: Koala2006Data) -> PaperClaim:
    difference = _policies(data, "W2", "clusters", "FCM", "CM")
    queue_s = _policies(data, "W2", "queue_s", "CM", "FCM").mean
    note = (
        "With the same idle processors FCM never combines more clusters than CM. It can only do so with jobs for "
        "which CM finds no place, and which it leaves to wait: "
        f"CM's jobs wait {queue_s:.0f} s longer than FCM's in the queue. {_by_size(data)}"
    )
    return judge(
        "C4",
        "When jobs come often (W2), FCM combines more clusters than CM.",
        [above("W2 clusters combined, FCM - CM", difference, unit="")],
        note=note,
    )


def _by_size(data: Koala2006Data) -> str:
    """Return the differences between FCM's and CM's clusters in W2, for jobs of each size, in words."""
    flexible, fixed = data.clusters_by_size("W2", "FCM"), data.clusters_by_size("W2", "CM")
    differences = {
        processors: paired_difference(flexible[processors], fixed[processors])
        for processors in sorted(flexible.keys() & fixed.keys())
    }
    listed = ", ".join(
        f"{measured(difference, '')} for {processors} processors"
        for processors, difference in differences.items()
        if difference is not None
    )
    return f"By size FCM - CM is {listed}."


def _queue_times(data: Koala2006Data, shares: Mapping[str, float]) -> PaperClaim:
    comparisons = [*_low_in_w1(data, shares["low"]), *_similar_in_w1(data, shares["similar"])]
    share = shares["much_lower"]
    for other in ("CM", "WF"):
        bound = _scaled(data.metric("W2", other, "queue_s"), share)
        comparisons.append(
            below(f"W2 queue, FCM - {share:g} * {other}", _difference(data.metric("W2", "FCM", "queue_s"), bound))
        )
    text = "Queue times are similar and low in W1; FCM's is much lower than the others' in W2."
    return judge("C5", text, comparisons, note=_load(data), shares=dict(shares))


def _load(data: Koala2006Data) -> str:
    """Return the load of the grid in W1, as the background of its queue times."""
    shares = (
        f"{policy} {data.use('W1', policy, 'ours').mean + data.use('W1', policy, 'others').mean:.0%}"
        for policy in data.policies
    )
    return f"Of all processors W1 and the background keep busy: {', '.join(shares)}."


def _low_in_w1(data: Koala2006Data, share: float) -> list[Comparison]:
    return [
        below(
            f"W1 queue - {share:g} * response, {policy}",
            _difference(
                data.metric("W1", policy, "queue_s"), _scaled(data.metric("W1", policy, "response_s"), share)
            ),
        )
        for policy in data.policies
    ]


def _similar_in_w1(data: Koala2006Data, share: float) -> list[Comparison]:
    responses = [data.interval("W1", policy, "response_s").mean for policy in data.policies]
    margin_s = share * sum(responses) / len(responses)
    return [
        within(
            f"W1 queue, {first} - {second}",
            _policies(data, "W1", "queue_s", first, second),
            -margin_s,
            margin_s,
        )
        for first, second in (("FCM", "CM"), ("CM", "WF"), ("FCM", "WF"))
    ]


def _dominant_part(data: Koala2006Data) -> PaperClaim:
    comparisons = []
    for workload, larger, smaller in (("W1", "overhead", "queue"), ("W2", "queue", "overhead")):
        for policy in data.policies:
            difference = _difference(
                data.metric(workload, policy, f"{larger}_s"), data.metric(workload, policy, f"{smaller}_s")
            )
            comparisons.append(above(f"{workload} {larger} - {smaller}, {policy}", difference))
    text = "The wait is mostly start-up overhead in W1 and mostly queue time in W2."
    return judge("C6", text, comparisons, note=_load(data))


def _overhead_rises(data: Koala2006Data) -> PaperClaim:
    by_workload = {workload: data.overhead_by_components(workload) for workload in data.workloads}
    seeds = len(data.seeds)
    comparisons = []
    for workload, by_components in by_workload.items():
        # Numbers of components that only some seeds have would be compared over few of them.
        seen = [components for components, by_seed in by_components.items() if len(by_seed) == seeds]
        for fewer, more in pairwise(seen):
            difference = _difference(by_components[more], by_components[fewer])
            comparisons.append(above(f"{workload} overhead, {more} - {fewer} components", difference))
    low, high = by_workload["W1"], by_workload["W2"]
    for components in sorted(low.keys() & high.keys()):
        if len(low[components]) == len(high[components]) == seeds:
            difference = _difference(high[components], low[components])
            comparisons.append(above(f"overhead with components = {components}, W2 - W1", difference))
    text = "The start-up overhead rises with the number of components and with the load."
    return judge("C7", text, comparisons, note=_STARTUP_IS_INPUT)


def _execution_by_clusters(data: Koala2006Data) -> PaperClaim:
    comparisons = []
    for (application, processors), by_clusters in data.execution_by_clusters().items():
        for fewer, more in pairwise(sorted(by_clusters)):
            rises = paired_difference(by_clusters[more], by_clusters[fewer])
            if rises is not None and rises.n == len(data.seeds):
                what = f"{application} {processors}: execution on {more} - on {fewer} clusters"
                comparisons.append(above(what, rises))
    relative = _relative_rise(data)
    if relative is not None:
        comparisons.append(above("all jobs: execution by each further cluster", relative, unit="%"))
    text = "The execution time of an application rises with the number of clusters combined."
    return judge("C8", text, comparisons, note=_EXECUTION_IS_INPUT)


def _relative_rise(data: Koala2006Data) -> Interval | None:
    """Return the increase of a job's time for each further cluster, in percent of the time on one, over everything
    that ran."""
    by_seed: dict[int, list[float]] = {}
    for by_clusters in data.execution_by_clusters().values():
        for clusters, values in by_clusters.items():
            for seed in values.keys() & by_clusters.get(1, {}).keys() if clusters > 1 else ():
                rise = values[seed] / by_clusters[1][seed] - 1.0
                by_seed.setdefault(seed, []).append(100.0 * rise / (clusters - 1))
    means = [sum(values) / len(values) for _, values in sorted(by_seed.items())]
    return mean_interval(means) if means else None
