"""The claims C22 to C26 of the paper on WASE and that of its Figure 8, as comparisons over seeds.

C27 is in ``pipeline``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

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
from koala_papers.wase.data import WaseData
from koala_papers.wase.parameters import EACH, MEAN
from koala_papers.wase.pipeline import shape_claim
from koala_papers.wase.trials import GREEDY, GREEDY_SCAN, WASE

if TYPE_CHECKING:
    from koala_papers.wase.data import Column

POINTS = "points"
BANDS_IN_WORDS = {EACH: "limits of each cluster", MEAN: "limits of the mean size"}
# The paper says "always"; a figure resolves a per cent at best.
ALWAYS_PERCENT = 99.0
# Shares are stored with six digits.
WHOLE_PERCENT = 99.999
# The paper says "around 90 %" and "from 20 to 60 %".
HIT_WASE = (85.0, 95.0)
HIT_GREEDY = (20.0, 60.0)
# The paper says that the minimum affinity "does not change".
SAME_AFFINITY_PERCENT = 10.0


def claims(data: WaseData) -> list[PaperClaim]:
    """Return all claims, judged."""
    return [*_on_trials(data), shape_claim(data.pipeline)]


def claims_read_otherwise(data: WaseData) -> list[PaperClaim]:
    """Return the claims on trials with the other readings of cluster sizes, under names that say so."""
    return [
        msgspec.structs.replace(
            claim, id=f"{claim.id}-{data.bands}", text=f"With ranges as {BANDS_IN_WORDS[data.bands]}: {claim.text}"
        )
        for claim in _on_trials(data)
    ]


def _on_trials(data: WaseData) -> list[PaperClaim]:
    return [
        _failures_grow(data),
        _greedy_fails_less(data),
        _faster(data),
        _near(data),
        _lan_hit(data),
        _lan_hit_over_tasks(data),
        _affinity_stays(data),
    ]


def band_in_words(data: WaseData, place: int) -> str:
    """Return a range of cluster sizes for people."""
    low, high = data.parameters.cluster_sizes[place]
    return f"{low:g}-{high:g}"


def _rise(data: WaseData, axis: str, low: float, high: float) -> Interval | None:
    """Return WASE's share of failures at one place of an axis minus that at another, in points."""
    failed = 100.0 * data.failed(WASE)
    return paired_difference(
        data.by_seed(failed, data.where(**{axis: high})), data.by_seed(failed, data.where(**{axis: low}))
    )


def _failures_grow(data: WaseData) -> PaperClaim:
    comparisons: list[Comparison] = []
    for low, high in pairwise(data.parameters.tasks):
        interval = _rise(data, "tasks", low, high)
        if interval is not None:
            comparisons.append(above(f"failures, {high} tasks - {low} tasks", interval, unit=POINTS))
    for place, following in pairwise(range(len(data.parameters.cluster_sizes))):
        interval = _rise(data, "cluster_size", place, following)
        if interval is not None:
            what = f"failures, clusters of {band_in_words(data, following)} - {band_in_words(data, place)}"
            comparisons.append(above(what, interval, unit=POINTS))
    share = data.interval(100.0 * data.impossible)
    of_wase = data.interval(100.0 * data.failed(WASE))
    note = ""
    if share is not None and of_wase is not None:
        note = (
            f"WASE fails in {measured(of_wase, '%')} of all trials; in {measured(share, '%')} no mapping exists, "
            "since the tasks ask for more than the machines have."
        )
    return judge("C22", "Failures grow with the tasks and with the size of clusters.", comparisons, note=note)


def _greedy_fails_less(data: WaseData) -> PaperClaim:
    comparisons = []
    for tasks in data.parameters.tasks:
        interval = data.more_failures(GREEDY, WASE, data.where(tasks=tasks))
        if interval is not None:
            comparisons.append(below(f"{tasks} tasks: failures, greedy - WASE", interval, unit=POINTS))
    both = data.failed(GREEDY) * (~data.impossible)
    note = (
        f"Of {data.count:,} trials greedy fails in {int(data.failed(GREEDY).sum()):,}, of which "
        f"{int(both.sum()):,} are not certain to have no mapping."
    )
    return judge("C23", "Greedy fails less often than WASE.", comparisons, note=note)


def _faster(data: WaseData) -> PaperClaim:
    comparisons = []
    for tasks in data.parameters.tasks:
        interval = _more_ms(data, GREEDY_SCAN, tasks=tasks)
        if interval is not None:
            comparisons.append(below(f"{tasks} tasks: time, WASE - greedy", interval, unit="ms"))
    halving = _in_ms({f"{tasks} tasks": _more_ms(data, GREEDY, tasks=tasks) for tasks in data.parameters.tasks})
    machines = (min(data.parameters.machines), max(data.parameters.machines))
    by_grid = _in_ms({f"{size} machines": _more_ms(data, GREEDY_SCAN, machines=size) for size in machines})
    note = (
        "Greedy is timed here as the paper has it, going through the queue of machines for each task; times are of "
        "the processor, without clustering, over trials that both mapped. What that costs depends on the grid: on "
        f"{by_grid}. Finding the same greedy answer by halving in a sorted queue makes WASE - greedy: {halving}."
    )
    return judge("C24", "WASE schedules faster than greedy.", comparisons, note=note)


def _more_ms(data: WaseData, than: str, **places: float) -> Interval | None:
    longer_ms = 1000.0 * (data.column(WASE, "cpu_s") - data.column(than, "cpu_s"))
    return data.interval(longer_ms, data.where(**places))


def _in_ms(intervals: dict[str, Interval | None]) -> str:
    return ", ".join(f"{name} {measured(each, 'ms')}" for name, each in intervals.items() if each is not None)


def near_home(data: WaseData, method: str) -> Column:
    """Return the share of an application's tasks, in per cent, in the suitable LAN of their cluster or in its MAN."""
    return 100.0 * (data.column(method, "tasks_at_home") + data.column(method, "tasks_in_man"))


def _near(data: WaseData) -> PaperClaim:
    least = min(data.parameters.machines_per_lan)
    shares = near_home(data, WASE)
    comparisons = []
    for tasks in data.parameters.tasks:
        interval = data.interval(shares, data.where(tasks=tasks, machines_per_lan=least))
        if interval is not None:
            what = f"{tasks} tasks: in the suitable LAN or its MAN"
            comparisons.append(above(what, interval, ALWAYS_PERCENT, unit="%"))
    of_lans = shares[data.where(machines_per_lan=least) & (data.failed(WASE) == 0)]
    whole = int((of_lans > WHOLE_PERCENT).sum())
    by_greedy = _shown(data.interval(near_home(data, GREEDY), data.where(machines_per_lan=least)), "%")
    note = (
        f"As the figure has it, for LANs of {least}. Always is read as above {ALWAYS_PERCENT:g} % of the tasks. "
        f"Every single task is there in {whole:,} of {of_lans.size:,} mappings; greedy has {by_greedy} "
        "of the tasks there."
    )
    text = "Figure 8: WASE always puts the tasks of a cluster into its suitable LAN or LANs of the same MAN."
    return judge("F8", text, comparisons, note=note)


def _shown(interval: Interval | None, unit: str) -> str:
    return "nothing" if interval is None else measured(interval, unit)


def _lan_hit(data: WaseData) -> PaperClaim:
    comparisons: list[Comparison] = []
    over_tasks = []
    for method, (least, most), name in ((WASE, HIT_WASE, "WASE"), (GREEDY, HIT_GREEDY, "greedy")):
        interval = data.interval(100.0 * data.column(method, "lan_hit"))
        if interval is not None:
            comparisons.append(within(f"LAN hit ratio, {name}", interval, least, most, unit="%"))
        of_tasks = data.interval(100.0 * data.column(method, "tasks_at_home"))
        if of_tasks is not None:
            over_tasks.append(f"{name} {measured(of_tasks, '%')}")
    note = (
        "The ratio is a mean over clusters, and a cluster of one task is always a hit. Over tasks instead of "
        f"clusters it is {' and '.join(over_tasks)}."
    )
    text = "The LAN hit ratio is about 90 % with WASE, and 20 to 60 % with greedy."
    return judge("C25", text, comparisons, note=note)


def _lan_hit_over_tasks(data: WaseData) -> PaperClaim:
    """Return the claim on the paper's version of the same ratio: the share of all tasks that are in the LAN of their
    cluster."""
    comparisons: list[Comparison] = []
    for method, (least, most), name in ((WASE, HIT_WASE, "WASE"), (GREEDY, HIT_GREEDY, "greedy")):
        interval = data.interval(100.0 * data.column(method, "tasks_at_home"))
        if interval is not None:
            comparisons.append(within(f"LAN hit ratio over tasks, {name}", interval, least, most, unit="%"))
    text = "Over tasks, as the paper counts, the LAN hit ratio is about 90 % with WASE, and 20 to 60 % with greedy."
    return judge("C25-tasks", text, comparisons, note="About 90 % is read as 85 to 95 %.")


def change_by_grid(data: WaseData, method: str, tasks: int) -> Interval | None:
    """Return the increase of the minimum affinity from the smallest to the largest grids in per cent.

    The same applications count on both, with LANs of the same size: a small grid maps only those with small
    requirements, which would bias a comparison of all.
    """
    ends = [
        data.where(tasks=tasks, machines=machines)
        for machines in (min(data.parameters.machines), max(data.parameters.machines))
    ]
    # Trials that differ in the grid alone are in the same order.
    small, large = (data.column(method, "affinity_min")[chosen] for chosen in ends)
    there = (small > 0) & (large > 0)
    changes = []
    for seed in data.seeds:
        of_seed = there & (data.seed[ends[0]] == seed)
        if of_seed.any():
            changes.append(float(100.0 * (large[of_seed].mean() / small[of_seed].mean() - 1.0)))
    return mean_interval(changes) if changes else None


def _affinity_stays(data: WaseData) -> PaperClaim:
    least, most = min(data.parameters.machines), max(data.parameters.machines)
    comparisons = []
    for tasks in data.parameters.tasks:
        many = list(data.affinity_changes.get(tasks, {}).values())
        interval = mean_interval(many) if many else change_by_grid(data, WASE, tasks)
        if interval is not None:
            what = f"{tasks} tasks: minimum affinity, change from {least} to {most} machines"
            comparisons.append(within(what, interval, -SAME_AFFINITY_PERCENT, SAME_AFFINITY_PERCENT, unit="%"))
    note = (
        f"A change of less than {SAME_AFFINITY_PERCENT:g} % counts as none. Only applications that were mapped on "
        "both grids are compared. With few tasks it is that of the user's LAN, and spreads: there it has more seeds."
    )
    return judge("C26", "The minimum affinity does not depend on the size of the grid.", comparisons, note=note)
