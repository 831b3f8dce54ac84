"""Why the meta-scheduler refused a job: too few processors idle, or links that are too full to divide it over.

Every cure is verified by the same try with the processors or links that it names.
"""

from __future__ import annotations

from collections.abc import Sequence

from koala.model.api import Refusal, Shortage
from koala.model.network import BIT_S_PER_MBIT_S
from koala.policies.attempt import divide, place_on
from koala.policies.demand import Bounds, Demand
from koala.policies.forms import ModuleChoice
from koala.policies.link_division import honours
from koala.policies.minigrid.chunking import chunk_processors
from koala.policies.minigrid.meta_scheduling import A2, B3, B5, INITIAL, MIGRATION_ONLY, is_class_a1
from koala.policies.minigrid.open_sites import is_open, link_limit_bit_s
from koala.policies.minigrid.satisfy import link_room_bit_s, low_limit
from koala.policies.refusals.cure import (
    Failure,
    Growth,
    Wanted,
    find_growth,
    growth_text,
    list_shortages,
    refuse_now_fitting,
)
from koala.policies.view import View

# At most this many overfull links are named.
FULL_LINKS_NAMED_MAX = 8


def refuse_links(demand: Demand, choice: ModuleChoice, bounds: Bounds, idle: Sequence[int], view: View) -> Refusal:
    """Explain why a module did not place the demand on ``idle``, with the links as the view has them.

    ``permanent`` is set if it would not on wholly idle sites and links either, with nothing learned from other jobs.
    """
    if not honours(choice.module, bounds, demand.total, len(idle)):
        return _refuse_bounds(demand)

    def attempt(now: Sequence[int]) -> Failure | None:
        divided = divide(demand, bounds, now, view)
        if not divided.unplaced:
            return None
        return _failure(demand, choice, bounds, divided.parts, divided.unplaced, now, view)

    failure = attempt(idle)
    if failure is None:
        return refuse_now_fitting(demand)
    permanent = place_on(demand, view.limit, view.unloaded()) is None
    if permanent:
        cure = _never_cure(demand, choice, bounds, view)
    elif place_on(demand, view.limit, view.with_link_demand([0] * len(view.link_demand_bit_s))) is None:
        believed = _mbit_s(int(view.believed_bisection_bit_s(demand.application)))
        cure = (
            f"jobs that are seen to send less than the {believed} Mbit/s across "
            "their middle that is believed of this one: with so much it does not fit even on idle links"
        )
    else:
        cure = _cure(demand, choice, idle, find_growth(attempt, idle, view), view)
    return Refusal(
        policy=demand.policy.name,
        reason=_reason(demand, choice, bounds, failure, idle, view),
        cure=cure,
        component=None if demand.flexible else 0,
        shortages=_shortages(demand, choice, bounds, failure, idle, view),
        permanent=permanent,
    )


def _refuse_bounds(demand: Demand) -> Refusal:
    return Refusal(
        policy=demand.policy.name,
        reason=f"{demand.policy.name} does not keep bounds on the parts of a job, and this one sets some",
        cure="leave out component_min and components_max, or take Initial, B1, B2 or B3, which keep them",
        permanent=True,
    )


def _stays_whole(demand: Demand, choice: ModuleChoice, bounds: Bounds) -> bool:
    return choice.module == MIGRATION_ONLY or bounds == Bounds(demand.total, 1)


def _looks_at_links(choice: ModuleChoice) -> bool:
    return choice.module not in (MIGRATION_ONLY, INITIAL)


def _weighs_traffic(choice: ModuleChoice) -> bool:
    """Return True if the module checks for each link if the job's traffic fits, and not only how full the link is."""
    return is_class_a1(choice.module) or choice.module in (A2, B5)


def _full_links(choice: ModuleChoice, view: View) -> list[int]:
    """Return the links that have reached the threshold, if the module considers it."""
    if not _looks_at_links(choice):
        return []
    return [
        link
        for link, (load, capacity) in enumerate(zip(view.link_demand_bit_s, view.link_capacity_bit_s, strict=True))
        if not is_open(load, capacity, choice.threshold)
    ]


def _failure(
    demand: Demand,
    choice: ModuleChoice,
    bounds: Bounds,
    parts: Sequence[int],
    unplaced: int,
    idle: Sequence[int],
    view: View,
) -> Failure:
    """Return what each site would need so that more is placed: the whole job, or the rest besides its part."""
    total = demand.total
    full = set(_full_links(choice, view))
    unlike_filling = _stays_whole(demand, choice, bounds) or _weighs_traffic(choice)
    in_chunks = choice.module == B3 and unplaced == total
    lacking = max(0, total - sum(idle))
    wanted = []
    for site, part in enumerate(parts):
        processors = total
        if _weighs_traffic(choice) and not _stays_whole(demand, choice, bounds) and lacking:
            processors = idle[site] + lacking
        if not unlike_filling and site not in full:
            # With shared links the parts are those of the last group, and show nothing about others.
            has = part if view.wiring.is_star else idle[site]
            processors = chunk_processors(choice.chunk, total) if in_chunks else has + unplaced
            processors = max(processors, bounds.component_min)
        wanted.append(Wanted(site, processors if processors > idle[site] else total))
    return Failure(None, tuple(wanted), unplaced)


# --------------------------------------------------------------------------------------------------- in words


def _reason(
    demand: Demand, choice: ModuleChoice, bounds: Bounds, failure: Failure, idle: Sequence[int], view: View
) -> str:
    total = demand.total
    most = max(range(len(idle)), key=lambda site: idle[site])
    if _stays_whole(demand, choice, bounds):
        return (
            f"{view.units.text(total)} must stay on one site, and the most that is idle on one is "
            f"{idle[most]}, on {view.names[most]}"
        )
    full = _full_links(choice, view)
    said = _full_text(full, view)
    if _weighs_traffic(choice) and sum(idle) >= total:
        reserve = "" if is_class_a1(choice.module) else ", with a reserve"
        return (
            f"no division of {view.units.text(total)} over the {sum(idle)} that are idle keeps every link within "
            f"{_percent(choice.threshold)} of its capacity{reserve}{said}"
        )
    open_sites = [site for site in range(len(idle)) if site not in full]
    idle_open = sum(idle[site] for site in open_sites)
    where = "in all" if len(open_sites) == len(idle) else "on the sites with open links"
    if choice.module == B3 and sum(idle) >= total and failure.unplaced == total:
        chunk = chunk_processors(choice.chunk, total)
        most_open = max((idle[site] for site in open_sites), default=0)
        if most_open < chunk:
            return (
                f"no site with an open link has {chunk} idle processors, {_percent(choice.chunk)} of {total}; "
                f"the most is {most_open}{said}"
            )
    return f"{failure.unplaced} of {view.units.text(total)} found no place; {idle_open} are idle {where}{said}"


def _full_text(full: Sequence[int], view: View) -> str:
    if not full:
        return ""
    named = ", ".join(_link_text(link, view) for link in full[:FULL_LINKS_NAMED_MAX])
    more = len(full) - FULL_LINKS_NAMED_MAX
    return f"; too full: {named}" + (f" and {more} more" if more > 0 else "")


def _link_text(link: int, view: View) -> str:
    used, capacity = view.link_demand_bit_s[link], view.link_capacity_bit_s[link]
    return f"{_link_name(link, view)} ({_mbit_s(used)} of {_mbit_s(capacity)} Mbit/s in use)"


def _link_name(link: int, view: View) -> str:
    return f"the link of {view.names[link]}" if link < len(view.names) else f"the link {view.wiring.names[link]}"


def _mbit_s(bit_s: int) -> str:
    return f"{bit_s / BIT_S_PER_MBIT_S:.6g}"


def _percent(share: float) -> str:
    return f"{share * 100:.6g} %"


def _cure(demand: Demand, choice: ModuleChoice, idle: Sequence[int], growth: Growth | None, view: View) -> str:
    """Return the cure, more idle processors or less on the links, whichever would work."""
    calmer = _calmer(demand, choice, idle, view) if _looks_at_links(choice) else None
    if calmer is None:
        return growth_text(growth, view)
    return calmer if growth is None else f"{calmer}, or {growth_text(growth, view)}"


def _calmer(demand: Demand, choice: ModuleChoice, idle: Sequence[int], view: View) -> str | None:
    """Return the links that must be free for a place to be found now: one, or all full ones, or all in use."""
    used = [link for link, load in enumerate(view.link_demand_bit_s) if load]
    for links in (*([link] for link in used[:FULL_LINKS_NAMED_MAX]), _full_links(choice, view), used):
        load = [0 if link in links else now for link, now in enumerate(view.link_demand_bit_s)]
        if links and place_on(demand, idle, view.with_link_demand(load)) is not None:
            names = [_link_name(link, view) for link in links[:FULL_LINKS_NAMED_MAX]]
            more = len(links) - len(names)
            return f"less traffic on {' and '.join(names)}" + (f" and {more} more" if more else "")
    return None


def _never_cure(demand: Demand, choice: ModuleChoice, bounds: Bounds, view: View) -> str:
    if _stays_whole(demand, choice, bounds):
        whole = f"ask for no more than the {view.units.text(max(view.limit))} of the largest site"
        return whole if demand.total > sum(view.limit) else f"{whole}, or {_dividing_cure(demand, choice)}"
    if demand.total > sum(view.limit):
        return f"ask for no more than the {view.units.text(sum(view.limit))} that the sites offer"
    if _weighs_traffic(choice):
        return "ask for fewer processors or less bandwidth, since the links cannot carry this even when idle"
    if choice.module == B3:
        return "ask for fewer processors, or a smaller chunk, since no site holds this one even when idle"
    return "ask for fewer processors, or allow smaller or more parts"


def _dividing_cure(demand: Demand, choice: ModuleChoice) -> str:
    """Return how a job that stays whole would be divided: the job must allow it, and the policy must do it."""
    if choice.module != MIGRATION_ONLY:
        return "allow a division"
    policy = f"take a policy that divides, such as Initial, since {demand.policy.name} never does"
    return policy if demand.flexible else f"allow a division and {policy}"


def _shortages(
    demand: Demand, choice: ModuleChoice, bounds: Bounds, failure: Failure, idle: Sequence[int], view: View
) -> tuple[Shortage, ...]:
    """Return what each site lacks, and its link if that is the obstacle."""
    shortages = list_shortages(failure, idle, view)
    if not _looks_at_links(choice) or _stays_whole(demand, choice, bounds):
        return shortages
    full = set(_full_links(choice, view))
    told = []
    for site, short in enumerate(shortages):
        link = ""
        if site in full:
            link = f"less traffic on its link, {_limit_text(site, choice, view)}"
        elif is_class_a1(choice.module):
            link = _room_text(demand, choice, site, view)
        told.append(
            Shortage(
                site=short.site,
                wanted=short.wanted,
                idle=short.idle,
                missing=short.missing,
                cure=_together(link, short.cure, "; or " if site in full else "; "),
            )
        )
    return tuple(told)


def _together(link: str, processors: str, joint: str) -> str:
    if not link or processors.startswith("none"):
        return link or processors
    return f"{link}{joint}{processors}"


def _limit_text(link: int, choice: ModuleChoice, view: View) -> str:
    limit = link_limit_bit_s(view.link_capacity_bit_s[link], choice.threshold)
    return f"where {_mbit_s(view.link_demand_bit_s[link])} Mbit/s are in use and {_mbit_s(limit)} allowed"


def _room_text(demand: Demand, choice: ModuleChoice, site: int, view: View) -> str:
    """Return which parts the link of a site has room for."""
    room = link_room_bit_s(view.link_demand_bit_s[site], view.link_capacity_bit_s[site], choice.threshold)
    total = demand.total
    low = low_limit(demand.traffic.pattern, total, demand.traffic.per_processor_bit_s, room)
    if low == total:
        return ""
    return f"its link has room for parts of up to {low} or from {total - low} processors"
