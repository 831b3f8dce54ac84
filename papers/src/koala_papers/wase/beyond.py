"""Extensions of the paper: another suitability, far LANs, links, spawned tasks, and the optimum.

The aim is a LAN hit ratio above WASE's at a failure rate no worse than greedy's. Methods are compared trial by trial
where both found a mapping, so that no method gains by giving up on hard trials.
"""

from __future__ import annotations

from typing import Any

from koala.study import Comparison, Interval, PaperClaim, above, below, judge, mean_interval, measured
from koala_papers.wase.bound import BOUND_TASKS
from koala_papers.wase.claims import POINTS, change_by_grid
from koala_papers.wase.data import WaseData
from koala_papers.wase.spawning import ANYWHERE, NEAR
from koala_papers.wase.trials import ALL, BY_LAN, FAR, GREEDY, SOFT, WASE, WHOLE

# "No worse" means an increase of less than this many points.
NO_WORSE_POINTS = 0.1
# "Close to the best" means within this many points of the upper bound of all mappings.
CLOSE_POINTS = 2.0


def claims(data: WaseData) -> list[PaperClaim]:
    """Return the claims that each method reaches its aim."""
    found = [_whole(data), _far(data), _soft(data), _all(data), _spawned(data)]
    return [*found, _bound(data)] if data.bounds else found


def _aim(data: WaseData, method: str) -> list[Comparison]:
    """Return that a method hits LANs more often than WASE, and fails no more often than greedy."""
    comparisons = []
    hits = more(data, method, WASE, "lan_hit")
    if hits is not None:
        comparisons.append(above(f"LAN hit ratio, {method} - {WASE}", hits, unit=POINTS))
    failures = data.more_failures(method, GREEDY)
    if failures is not None:
        what = f"failures, {method} - {GREEDY}"
        comparisons.append(below(what, failures, NO_WORSE_POINTS, unit=POINTS))
    return comparisons


def more(data: WaseData, first: str, second: str, measure: str) -> Interval | None:
    """Return the difference of two shares in points, the first minus the second, on trials that both mapped."""
    return data.interval(100.0 * (data.column(first, measure) - data.column(second, measure)))


def _shown(label: str, interval: Interval | None, unit: str = POINTS) -> str:
    return f"{label} {'not known' if interval is None else measured(interval, unit)}"


def _whole(data: WaseData) -> PaperClaim:
    note = "; ".join(
        (
            _shown("Clusters in one LAN, wase-whole - wase", more(data, WHOLE, WASE, "whole")),
            _shown("tasks in their cluster's LAN", more(data, WHOLE, WASE, "tasks_at_home")),
            _shown("traffic between LANs", more(data, WHOLE, WASE, "inter_lan")),
            _shown("the other reading of the paper's third algorithm - wase", more(data, BY_LAN, WASE, "lan_hit")),
        )
    )
    text = "Packing as suitability: a LAN hit ratio above WASE's at a failure rate no worse than greedy's."
    return judge("T1", text, _aim(data, WHOLE), note=f"{note}.")


def _far(data: WaseData) -> PaperClaim:
    comparisons = _aim(data, FAR)
    gain = data.difference(FAR, WASE, "affinity_min")
    if gain is not None:
        comparisons.append(above(f"minimum affinity, {FAR} - {WASE}", gain, unit=""))
    tasks = max(data.parameters.tasks)
    note = "; ".join(
        _shown(f"{method}, change of it with the grid at {tasks} tasks", change_by_grid(data, method, tasks), "%")
        for method in (WASE, FAR)
    )
    traffic = _shown("traffic between LANs, wase-far - wase-whole", more(data, FAR, WHOLE, "inter_lan"))
    text = "Looking at far LANs: a higher minimum affinity than WASE's, and the aim of T1."
    return judge("T2", text, comparisons, note=f"{note}; {traffic}.")


def _soft(data: WaseData) -> PaperClaim:
    comparisons = _aim(data, SOFT)
    carried = more(data, SOFT, WHOLE, "carried")
    if carried is not None:
        comparisons.append(above(f"communication that the links carry, {SOFT} - {WHOLE}", carried, unit=POINTS))
    note = _shown("The same, wase-soft - wase:", more(data, SOFT, WASE, "carried"))
    text = "A soft quality of service for links: they carry more of the communication, and the aim of T1."
    return judge("T3", text, comparisons, note=f"{note}.")


def _all(data: WaseData) -> PaperClaim:
    comparisons = _aim(data, ALL)
    affinity = data.difference(ALL, WASE, "affinity_min")
    carried = more(data, ALL, WASE, "carried")
    if affinity is not None and carried is not None:
        comparisons.append(above(f"minimum affinity, {ALL} - {WASE}", affinity, unit=""))
        comparisons.append(above(f"communication that the links carry, {ALL} - {WASE}", carried, unit=POINTS))
    text = "Both at once: a higher minimum affinity than WASE's, more carried by the links, and the aim of T1."
    return judge("T4", text, comparisons)


def _spawned(data: WaseData) -> PaperClaim:
    comparisons = []
    traffic = more(data, NEAR, ANYWHERE, "inter_lan")
    if traffic is not None:
        comparisons.append(below("traffic between LANs, near partners - anywhere", traffic, unit=POINTS))
    failures = data.more_failures(NEAR, ANYWHERE)
    if failures is not None:
        comparisons.append(below("failures, near partners - anywhere", failures, NO_WORSE_POINTS, unit=POINTS))
    note = (
        f"{100 * data.parameters.spawned_share:g} % of the tasks come while the application runs, and nothing moves. "
        + _shown(
            "Beside mapping all at once by wase-whole, traffic between LANs", more(data, NEAR, WHOLE, "inter_lan")
        )
        + "; "
        + _shown("failures", data.more_failures(NEAR, WHOLE))
        + "."
    )
    text = "Spawned tasks near their partners: less traffic between LANs than wherever they fit, no more failures."
    return judge("T5", text, comparisons, note=note)


# ------------------------------------------------------------------------------------------ the best there is


def bound_gaps(data: WaseData, method: str, measure: str, tasks: int | None = None) -> Interval | None:
    """Return by how many points a method misses the bound of all mappings, on average, where it found a mapping."""
    by_seed: dict[int, list[float]] = {}
    for row in data.bounds:
        found = row[measure]
        if found["bound"] is not None and method in found["methods"] and tasks in (None, row["tasks"]):
            by_seed.setdefault(row["seed"], []).append(100.0 * abs(found["bound"] - found["methods"][method]))
    means = [sum(values) / len(values) for values in by_seed.values()]
    return mean_interval(means) if means else None


def solved(data: WaseData, measure: str) -> tuple[int, int]:
    """Return how many instances have a mapping or may have one, and for how many of those the best is known."""
    statuses = [row[measure]["status"] for row in data.bounds if row[measure]["status"] != "infeasible"]
    return len(statuses), statuses.count("optimal")


def _bound(data: WaseData) -> PaperClaim:
    gap = bound_gaps(data, WHOLE, "lan_hit")
    comparisons = []
    if gap is not None:
        what = "LAN hit ratio, the bound - wase-whole"
        comparisons.append(below(what, gap, CLOSE_POINTS, unit=POINTS))
    count, optimal = solved(data, "lan_hit")
    known = solved(data, "inter_lan")[1]
    note = (
        f"{count} instances with up to {BOUND_TASKS} tasks on {min(data.parameters.machines)} machines; the best LAN "
        f"hit ratio is proven for {optimal} and the least traffic for {known} of them, within "
        f"{data.parameters.bound_s:g} s each. "
        + "; ".join(
            (
                _shown("WASE misses the bound of the ratio by", bound_gaps(data, WASE, "lan_hit")),
                _shown("greedy by", bound_gaps(data, GREEDY, "lan_hit")),
                _shown("and that of the traffic WASE by", bound_gaps(data, WASE, "inter_lan")),
                _shown("wase-whole by", bound_gaps(data, WHOLE, "inter_lan")),
                _shown("greedy by", bound_gaps(data, GREEDY, "inter_lan")),
            )
        )
        + "."
    )
    text = f"wase-whole is within {CLOSE_POINTS:g} points of the best LAN hit ratio that any mapping can have."
    return judge("T6", text, comparisons, note=note)


def as_json(data: WaseData) -> dict[str, Any]:
    """Return the differences behind the claims, by method."""

    def shown(interval: Interval | None) -> dict[str, Any] | None:
        return None if interval is None else interval.as_json()

    return {
        method: {
            "lan_hit_more_than_wase_points": shown(more(data, method, WASE, "lan_hit")),
            "failures_more_than_greedy_points": shown(data.more_failures(method, GREEDY)),
            "failures_more_than_wase_points": shown(data.more_failures(method, WASE)),
            "affinity_min_more_than_wase": shown(data.difference(method, WASE, "affinity_min")),
            "carried_more_than_wase_points": shown(more(data, method, WASE, "carried")),
            "inter_lan_more_than_wase_points": shown(more(data, method, WASE, "inter_lan")),
        }
        for method in (WHOLE, FAR, SOFT, ALL)
    }
