"""Why a try failed, as a value: which component, what each site lacked, and the least that would help.

A refusal is computed on request from the idle processors that the failed try saw, never during a scan. Every cure is
verified: the same try is made again on the processors that it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from koala.mapping.result import NoPlace
from koala.model.api import Refusal
from koala.policies.attempt import PartialDivision, PartialFill, divide, fill, map_on, place_on
from koala.policies.demand import Bounds, ComponentSizes, Demand
from koala.policies.forms import Form
from koala.policies.refusals.cure import (
    Attempt,
    Failure,
    Growth,
    Wanted,
    find_growth,
    growth_cost,
    growth_text,
    list_shortages,
    refuse_now_fitting,
)
from koala.policies.refusals.links import refuse_links
from koala.policies.refusals.shapes import refuse_groups
from koala.policies.tasks.wase import ClusteredTasks
from koala.policies.transfer_estimates import division_times_s, missing_file, transfer_row_s
from koala.policies.view import View

# The nearest split is sought among at most this many, the preferred ones first.
SPLITS_EXPLAINED_MAX = 16

# The cure of a foreign policy that places nothing although the sizes alone would allow it.
_UNWILLING = "; the policy refuses this even on an idle grid"


def refuse(demand: Demand, idle: Sequence[int], view: View) -> Refusal:
    """Explain why the demand does not fit on ``idle``; the view gives names, limits and files.

    ``permanent`` is set if the same policy would not place it on a wholly idle grid either; for a foreign policy,
    which may refuse what would fit, only if no policy could. Raises PolicyError if a foreign policy answers wrongly
    on one of the grids that are tried for a cure.
    """
    name = missing_file(demand, view)
    if name is not None:
        return _refuse_file(demand, name)
    if demand.groups:
        return refuse_groups(demand, idle, view, refuse)
    if demand.bounds is not None and demand.policy.module is not None:
        return refuse_links(demand, demand.policy.module, demand.bounds, idle, view)
    if demand.tasks is not None and demand.policy.form is Form.TASKS and sum(idle) >= demand.total:
        return _refuse_tasks(demand, demand.tasks, idle, view)
    if demand.bounds is not None:
        return _refuse_total(demand, demand.bounds, idle, view)
    return _refuse_components(demand, idle, view)


def _refuse_file(demand: Demand, name: str) -> Refusal:
    reader = next((part for part, reads in enumerate(demand.reads) if any(read.file == name for read in reads)), None)
    return Refusal(
        policy=demand.policy.name,
        reason=f"no site holds a replica of the input file {name!r}",
        cure=f"register a replica of {name!r}, or take the file out of the job",
        component=None if demand.flexible else reader,
    )


# ------------------------------------------------------------------------------- components of given sizes


def _refuse_components(demand: Demand, idle: Sequence[int], view: View) -> Refusal:
    nearest: tuple[ComponentSizes, Failure, Growth | None] | None = None
    for shape in demand.shapes[:SPLITS_EXPLAINED_MAX]:
        attempt = _shape_attempt(demand, shape, view)
        failure = attempt(idle)
        if failure is None:
            return refuse_now_fitting(demand)
        growth = find_growth(attempt, idle, view)
        if nearest is None or growth_cost(growth) < growth_cost(nearest[2]):
            nearest = (shape, failure, growth)
    assert nearest is not None, "a demand without bounds has a shape"
    shape, failure, growth = nearest
    refused_idle = place_on(demand, view.limit, view) is None
    permanent = refused_idle and not (demand.rule.checked and _may_hold_shapes(demand, view))
    unwilling = refused_idle and not permanent
    assert failure.component is not None
    if unwilling and growth is None:
        cure = _other_policy(demand)
    else:
        cure = _component_cure(shape, failure.component, growth, permanent, view)
    if demand.divided is not None:
        cure = _dividing_cure(demand.divided, cure, idle, permanent, view)
    return Refusal(
        policy=demand.policy.name,
        reason=_component_reason(demand, shape, failure, idle, view) + (_UNWILLING if unwilling else ""),
        cure=cure,
        component=failure.component,
        shortages=list_shortages(failure, idle, view),
        permanent=permanent,
    )


def _may_hold_shapes(demand: Demand, view: View) -> bool:
    """Return True if by the sizes alone some policy might place one of the shapes on wholly idle sites."""
    if demand.total > sum(view.limit):
        return False
    for shape in demand.shapes:
        pinned = [0] * len(view.limit)
        for component in shape.pinned:
            pinned[shape.sites[component]] += shape.sizes[component]
        left = [limit - taken for limit, taken in zip(view.limit, pinned, strict=True)]
        if min(left) >= 0 and max(shape.ordered, default=0) <= max(left):
            return True
    return False


def _other_policy(demand: Demand) -> str:
    return f"another policy, or a change to {demand.policy.name} (from {demand.policy.origin})"


def _dividing_cure(divided: Demand, cure: str, idle: Sequence[int], permanent: bool, view: View) -> str:
    """Return what helps a total that was taken for one component: first of all a policy that divides it,
    if one could."""
    name = divided.policy.name
    if place_on(divided, idle, view) is not None:
        better = f"let the policy {name} divide the total: that would place it now"
    elif place_on(divided, view.limit, view) is not None:
        better = f"let the policy {name} divide the total over several sites"
    else:
        return cure
    return better if permanent else f"{better}; or {cure}"


def _shape_attempt(demand: Demand, shape: ComponentSizes, view: View) -> Attempt:
    def attempt(idle: Sequence[int]) -> Failure | None:
        filled = fill(demand, shape, idle, view)
        if filled.failed is None:
            return None
        return _component_failure(demand, shape, filled, filled.failed, view)

    return attempt


def _component_failure(
    demand: Demand, shape: ComponentSizes, filled: PartialFill, component: int, view: View
) -> Failure:
    """Return what every possible site would need for the component: what the job took there, and its size."""
    size = shape.sizes[component]
    pinned_to = shape.sites[component]
    if pinned_to >= 0:
        together = sum(shape.sizes[other] for other in shape.pinned if shape.sites[other] == pinned_to)
        return Failure(component, (Wanted(pinned_to, together),), size)
    taken = [0] * len(view.names)
    for other, site in enumerate(filled.sites):
        if site >= 0:
            taken[site] += shape.sizes[other]
    by_files = demand.rule.form is Form.FILES and demand.has_files
    row_s = transfer_row_s(demand, shape.sizes, component, view) if by_files else [0.0] * len(taken)
    return Failure(
        component,
        tuple(Wanted(site, taken[site] + size, row_s[site] != inf) for site in range(len(taken))),
        size,
    )


def _component_reason(
    demand: Demand, shape: ComponentSizes, failure: Failure, idle: Sequence[int], view: View
) -> str:
    component = failure.component or 0
    size = shape.sizes[component]
    who = (
        f"component {component} ({view.units.text(size)})"
        if len(shape.sizes) > 1
        else f"a component of {view.units.text(size)}"
    )
    if len(demand.shapes) > 1:
        splits = f"none of the {len(demand.shapes)} splits fits; nearest is {'+'.join(map(str, shape.sizes))}, where "
        who = splits + who
    if shape.sites[component] >= 0:
        site, wanted, _ = failure.wanted[0]
        others = "" if wanted == size else f", where the job's components want {wanted} together and"
        return f"{who} must run on {view.names[site]}{others or ', where'} {idle[site]} are idle"
    left = [(idle[want.site] - want.processors + size, -want.site) for want in failure.wanted if want.reachable]
    if not left:
        return f"{who} found no site to which its input files can be brought"
    most, negative_site = max(left)
    site_name = view.names[-negative_site]
    if most >= size:
        return f"{who} was given no place by {demand.policy.name}, though {site_name} has {most} left"
    return f"{who} found no site with {view.units.room(size)} left; the most is {most}, on {site_name}"


def _component_cure(shape: ComponentSizes, component: int, growth: Growth | None, permanent: bool, view: View) -> str:
    size = shape.sizes[component]
    site = shape.sites[component]
    if permanent and site >= 0:
        offered = view.units.text(view.limit[site])
        return f"ask for no more than the {offered} that {view.names[site]} offers, or another site"
    if permanent and not any(view.limit):
        return view.units.nowhere()
    if permanent and size > max(view.limit):
        return f"ask for smaller components, since no site ever offers more than {view.units.text(max(view.limit))}"
    if permanent:
        return "ask for smaller or fewer components, since the sites cannot hold these together"
    cure = growth_text(growth, view)
    return cure if site >= 0 or size == 1 else f"{cure}, or a request with smaller components"


# ------------------------------------------------------------------------------------------ a job of tasks


def _refuse_tasks(demand: Demand, tasks: ClusteredTasks, idle: Sequence[int], view: View) -> Refusal:
    """Return the refusal of a job of tasks: there are enough processors, but they lack power."""
    answer = map_on(demand, tasks, idle, view)
    if not isinstance(answer, NoPlace):
        return refuse_now_fitting(demand)
    whole = map_on(demand, tasks, view.limit, view)
    permanent = isinstance(whole, NoPlace)
    cure = "a lower mcr, more powerful nodes, or smaller clusters"
    return Refusal(
        policy=demand.policy.name,
        reason=answer.for_user().rpartition("; ")[0],
        cure=cure if permanent else f"idle processors with more power; or {cure}",
        permanent=permanent,
    )


# ---------------------------------------------------------------------------------- a total to be divided


def _refuse_total(demand: Demand, bounds: Bounds, idle: Sequence[int], view: View) -> Refusal:
    def attempt(now: Sequence[int]) -> Failure | None:
        divided = divide(demand, bounds, now, view)
        if not divided.unplaced:
            return None
        return _total_failure(demand, bounds, divided, now, view)

    failure = attempt(idle)
    if failure is None:
        return refuse_now_fitting(demand)
    refused_idle = place_on(demand, view.limit, view.unloaded()) is None
    permanent = refused_idle and not (demand.policy.checked and _may_hold_total(demand, bounds, view))
    unwilling = refused_idle and not permanent
    unbounded = bounds.component_min == 1 and bounds.components_max >= len(idle)
    rules = "" if unbounded else f" in {_bounds_text(bounds, len(idle))}"
    reason = (
        f"{failure.unplaced} of {demand.total} {view.units.many} found no place{rules}; {sum(idle)} are idle in all"
    )
    if permanent:
        cure = _never_cure(demand, bounds, idle, view)
    elif (
        unbounded
        and all(want.reachable for want in failure.wanted)
        and attempt([idle[0] + failure.unplaced, *idle[1:]]) is None
    ):
        cure = f"{view.units.more(failure.unplaced, None)} anywhere"
    else:
        growth = find_growth(attempt, idle, view)
        more = _other_policy(demand) if unwilling and growth is None else growth_text(growth, view)
        relaxed = _relaxed(demand, bounds, idle, view)
        cure = more if relaxed is None else f"{_relaxed_text(bounds, relaxed, view)}, or {more}"
    return Refusal(
        policy=demand.policy.name,
        reason=reason + (_UNWILLING if unwilling else ""),
        cure=cure,
        shortages=list_shortages(failure, idle, view),
        permanent=permanent,
    )


def _total_failure(
    demand: Demand, bounds: Bounds, divided: PartialDivision, idle: Sequence[int], view: View
) -> Failure:
    """Return what each site would need to take the unplaced rest too; the whole, if room alone is not the problem."""
    by_files = demand.policy.form is Form.FLEXIBLE_FILES and demand.has_files
    fixed_s = division_times_s(demand, bounds.component_min, view)[0] if by_files else [0.0] * len(idle)
    unplaced = divided.unplaced
    wanted = []
    for site, part in enumerate(divided.parts):
        processors = part + unplaced if part else max(unplaced, bounds.component_min)
        wanted.append(Wanted(site, processors if processors > idle[site] else demand.total, fixed_s[site] != inf))
    return Failure(None, tuple(wanted), unplaced)


def _may_hold_total(demand: Demand, bounds: Bounds, view: View) -> bool:
    """Return True if by the sizes alone some policy might divide the total over wholly idle sites."""
    usable = sorted((limit for limit in view.limit if limit >= bounds.component_min), reverse=True)
    return sum(usable[: bounds.components_max]) >= demand.total


def _never_cure(demand: Demand, bounds: Bounds, idle: Sequence[int], view: View) -> str:
    """Return what to ask for instead of a total that does not fit into these bounds even on idle sites."""
    relaxed = _relaxed(demand, bounds, idle, view) or _relaxed(demand, bounds, view.limit, view)
    if relaxed is not None:
        wider = _relaxed_text(bounds, relaxed, view)
        return f"ask for {wider}, since within the present bounds the sites cannot hold it"
    if not any(view.limit):
        return view.units.nowhere()
    if demand.total > sum(view.limit):
        return f"ask for no more than the {view.units.text(sum(view.limit))} that the sites offer"
    return f"ask for fewer {view.units.many}, or allow smaller or more parts"


def _relaxed(demand: Demand, bounds: Bounds, idle: Sequence[int], view: View) -> Bounds | None:
    """Return wider bounds with which the total is placed on ``idle``, changing only one of the two if
    that is enough."""
    if sum(idle) < demand.total:
        return None
    if bounds.components_max < len(idle):
        enough = _least_max(demand, bounds.component_min, idle, view)
        if enough is not None and enough > bounds.components_max:
            return Bounds(bounds.component_min, enough)
    if bounds.component_min == 1:
        return None
    lower = _greatest_min(demand, bounds, bounds.components_max, idle, view)
    enough = None if lower is not None else _least_max(demand, 1, idle, view)
    return lower if enough is None else _greatest_min(demand, bounds, enough, idle, view)


def _least_max(demand: Demand, component_min: int, idle: Sequence[int], view: View) -> int | None:
    """Return the least ``components_max`` that halving finds to work with this minimum; it was tried.

    The search begins with the number of parts without a bound: a policy that considers files or links may make more
    than it must.
    """
    divided = divide(demand, Bounds(component_min, len(idle)), idle, view)
    if divided.unplaced:
        return None
    made = sum(part > 0 for part in divided.parts)
    # Ours takes this many; a foreign policy is called.
    if divide(demand, Bounds(component_min, made), idle, view).unplaced:
        return len(idle)
    works, fails = made, 0
    while works - fails > 1:
        middle = (works + fails) // 2
        if divide(demand, Bounds(component_min, middle), idle, view).unplaced:
            fails = middle
        else:
            works = middle
    return works


def _greatest_min(
    demand: Demand, bounds: Bounds, components_max: int, idle: Sequence[int], view: View
) -> Bounds | None:
    """Return the bounds with the greatest smaller ``component_min`` that halving finds to work; each was tried."""
    if divide(demand, Bounds(1, components_max), idle, view).unplaced:
        return None
    works, fails = 1, bounds.component_min
    while fails - works > 1:
        middle = (works + fails) // 2
        if divide(demand, Bounds(middle, components_max), idle, view).unplaced:
            fails = middle
        else:
            works = middle
    return Bounds(works, components_max)


def _relaxed_text(bounds: Bounds, relaxed: Bounds, view: View) -> str:
    changes = []
    if relaxed.component_min != bounds.component_min:
        changes.append(f"a component_min of {relaxed.component_min * view.units.processors_each}")
    if relaxed.components_max != bounds.components_max:
        changes.append(f"a components_max of {relaxed.components_max}")
    return " and ".join(changes)


def _bounds_text(bounds: Bounds, sites: int) -> str:
    most = f"at most {bounds.components_max} " if bounds.components_max < sites else ""
    least = f" of {bounds.component_min} or more" if bounds.component_min > 1 else ""
    return f"{most}{'part' if bounds.components_max == 1 else 'parts'}{least}"
