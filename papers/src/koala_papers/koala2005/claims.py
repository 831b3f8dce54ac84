"""The claims C9 to C13 of the paper of 2005, each as comparisons over seeds."""

from __future__ import annotations

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
from koala_papers.koala2005.data import (
    COMPONENTS,
    FAILURE_SHARE,
    PLACEMENT_S,
    STABLE,
    START_DELAY_S,
    UNSTABLE,
    BySeed,
    JobFilter,
    Koala2005Data,
    Measure,
)

# The paper's figures for utilisation, and for failures while the system was stable.
UTILISATION_LEAST, UTILISATION_MOST = 0.80, 0.90
STABLE_FAILURES_MOST = 0.15

_TIMES: tuple[tuple[str, Measure], ...] = (("placement time", PLACEMENT_S), ("start delay", START_DELAY_S))
_LARGE, _SMALL = max(COMPONENTS), min(COMPONENTS)


def claims(data: Koala2005Data) -> list[PaperClaim]:
    """Return all five claims, judged."""
    return [all_complete(data), _utilisation(data), _failures(data), priority_claim(data), _components(data)]


def all_complete(data: Koala2005Data) -> PaperClaim:
    """Return C9."""
    left = [run["not_completed"] for run in data.runs(UNSTABLE).values()]
    comparisons = []
    if left:
        # Not a mean: one job left behind in one run is one too many.
        worst = float(max(left))
        comparisons.append(
            below("jobs not completed in the worst run", Interval(worst, worst, worst, len(left)), 1.0, unit="jobs")
        )
    return judge("C9", "All jobs complete, whatever fails.", comparisons)


def _utilisation(data: Koala2005Data) -> PaperClaim:
    hour = _mean(data.use("busiest_hour"))
    comparisons = []
    if hour is not None:
        what = "share of the available processors in use, busiest hour"
        comparisons.append(within(what, hour, UTILISATION_LEAST, UTILISATION_MOST, unit=""))
    others = {
        name: interval.as_json()
        for name in ("busiest_window", "while_submitting", "mean", "mean_others")
        if (interval := _mean(data.use(name))) is not None
    }
    note = ""
    whole, submitting, users = (_mean(data.use(name)) for name in ("mean", "while_submitting", "mean_others"))
    if whole is not None and submitting is not None and users is not None:
        note = (
            f"The mean is {submitting.mean:.0%} while jobs are submitted and {whole.mean:.0%} over whole runs, with "
            f"their beginning and end; {users.mean:.0%} are the clusters' own users."
        )
    return judge("C10", "Up to 80-90 % of the system is used.", comparisons, note=note, utilisation=others)


def _failures(data: Koala2005Data) -> PaperClaim:
    comparisons: list[Comparison] = []
    for size in COMPONENTS:
        slope = _mean(data.slopes(UNSTABLE, FAILURE_SHARE, JobFilter(size=size)))
        if slope is not None:
            what = f"rise of the failure share with each further component, {size} processors"
            comparisons.append(above(what, slope, unit=""))
    unstable = data.interval(UNSTABLE, FAILURE_SHARE)
    if unstable is not None:
        comparisons.append(above("failure share, unstable system", unstable, STABLE_FAILURES_MOST, unit=""))
    for components in sorted({count for counts in COMPONENTS.values() for count in counts}):
        stable = data.interval(STABLE, FAILURE_SHARE, JobFilter(components=components))
        if stable is not None:
            what = f"failure share, stable system, {components} components"
            comparisons.append(below(what, stable, STABLE_FAILURES_MOST, unit=""))
    more = _difference(data, FAILURE_SHARE, JobFilter(priority="high"), JobFilter(priority="low"))
    note = "The chance that a component fails is an input of the simulation, and so are the bad nodes."
    if more is not None:
        note += (
            f" The paper also saw more failures of high-priority jobs, of which more start at once, so that some are "
            f"given bad nodes; here their share differs by {more.mean:+.3f} ({more.low:+.3f} to {more.high:+.3f})."
        )
    text = "More components mean more failures; below 15 % fail when the system is stable, and more when it is not."
    return judge("C11", text, comparisons, note=note)


def priority_claim(data: Koala2005Data) -> PaperClaim:
    """Return C12."""
    comparisons = []
    for size in (None, *COMPONENTS):
        jobs = "all jobs" if size is None else f"jobs of {size} processors"
        for word, measure in _TIMES:
            gap = _difference(data, measure, JobFilter("low", size), JobFilter("high", size))
            if gap is not None:
                comparisons.append(above(f"{word}, low minus high priority, {jobs}", gap))
    return judge("C12", "High priority beats low priority in placement time and start delay.", comparisons)


def _components(data: Koala2005Data) -> PaperClaim:
    """Return the claim across all jobs, as the paper concludes; a note adds the effect of components on jobs of one
    size."""
    comparisons = []
    for word, measure in _TIMES:
        slope = _mean(data.slopes(UNSTABLE, measure))
        if slope is not None:
            comparisons.append(above(f"rise of the {word} with each further component, all jobs", slope))
    for word, measure in _TIMES:
        gap = _difference(data, measure, JobFilter(size=_LARGE), JobFilter(size=_SMALL))
        if gap is not None:
            comparisons.append(above(f"{word}, {_LARGE} minus {_SMALL} processors", gap))
    text = "Placement time and start delay rise with the number of components, and large jobs starve."
    return judge("C13", text, comparisons, note=_one_size_note(data))


def _one_size_note(data: Koala2005Data) -> str:
    """Return the effect of each further component at equal size: over all jobs many components mean large jobs."""
    told = [
        f"{measured(rise, 's')} for {size} processors on the {system} system"
        for system in (UNSTABLE, STABLE)
        for size in COMPONENTS
        if (rise := _mean(data.slopes(system, PLACEMENT_S, JobFilter(size=size)))) is not None
    ]
    if not told:
        return ""
    return (
        "Many components mean large jobs. At one size they mean small components, which can fit into what others "
        "leave free, while failures work against that: each further one changes the placement time by "
        f"{'; '.join(told)}."
    )


def _mean(values: BySeed) -> Interval | None:
    return mean_interval(list(values.values())) if values else None


def _difference(data: Koala2005Data, measure: Measure, first: JobFilter, second: JobFilter) -> Interval | None:
    """Return the first group minus the second, on the unstable system, seed by seed."""
    return paired_difference(data.values(UNSTABLE, measure, first), data.values(UNSTABLE, measure, second))
