"""Why a waiting job has no places, if the cause is more than a lack of idle processors.

A policy sees only what is idle and what is on the links. The core also has the sites that it keeps out, because they
are drained, silent, lost or not trusted, and the reason why a high-priority job preempts nobody for its places.
Reads; decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from koala.core.life.job import Job
from koala.core.life.waiting import Seen
from koala.core.state.site_belief import SiteBelief, Trust
from koala.core.state.sites import ClosedSites, Sites
from koala.model.api import Refusal, Shortage
from koala.model.request import JobId, SiteName
from koala.policies import PolicyError
from koala.policies.interface import Demand, View, place_on, refuse
from koala.policies.view import SHARED, licenses_in_words

# At most this many excluded sites are tried alone, and named.
SHUT_SITES_TRIED_MAX = 16

# Where the licences are that all sites share.
EVERYWHERE = "all sites together"
# At most this many pools with too few licences are named, and for each at most this many jobs that hold some.
POOLS_NAMED_MAX = 3
HOLDERS_NAMED_MAX = 5

# At most this many jobs whose plans hold another back are named.
PLANS_NAMED_MAX = 3

NOWHERE_AVOIDED: Mapping[SiteName, bool] = MappingProxyType({})
# Why a job avoids a site while it can go elsewhere.
_FEW_NODES = "has too few nodes left for its program, which failed on others there; it goes elsewhere while it can"
_FAILED_THERE = "is avoided, since a run of it failed there; it goes elsewhere while it can"
_NO_CURE = "none:"
# What keeps jobs out of sites from the beginning: the words for a grid where that holds everywhere, and the cure.
_NOWHERE = {
    "without_images": "no site runs containers",
    "without_program": "no site provides {0}, which it requires",
    "without_license": "no site has {0}",
    "closed_to_guests": "every site would run it under the account of the daemon, and it is a guest's",
}
_CLOSED_CURES = {
    "without_program": "take {0} out of what the job requires (requires: []), or name it in provides "
    "of a site in the grid file",
    "without_license": "ask for licences that there are, or write under licenses in the grid file how many there are",
    "without_images": "take the image out of the job, or name the site's containers in the grid file",
    "closed_to_guests": "ask the daemon's owner for shared_account: true in the grid file",
}


def refusal_of(
    demand: Demand,
    seen: Seen,
    sites: Sites,
    preempting: str = "",
    avoided: Mapping[SiteName, bool] = NOWHERE_AVOIDED,
    *,
    submitter: str = "",
) -> Refusal:
    """Return what the demand lacked on what its try saw, and what would help, also at sites that are kept out.

    ``preempting`` explains why a high-priority job preempts nobody for its places. ``avoided`` are the sites that it
    avoids, each with True if too few nodes are left for it there. Jobs that hold licences are named if they belong to
    the ``submitter``. Like every cure, the opening of a site is verified: with what the site would have idle then,
    the demand is placed.
    """
    idle, link_demand_bit_s = demand.allowed(seen[0]), seen[1]
    view = _as_seen(sites.view, link_demand_bit_s, list(demand.allowed(sites.view.limit)))
    try:
        refusal = refuse(demand, idle, view)
        if demand.barred:
            barred = {sites.sites[index].name: "will never run it; its story tells why" for index in demand.barred}
            why = {site: _FEW_NODES if few_nodes else _FAILED_THERE for site, few_nodes in avoided.items()}
            refusal = _with_barred_sites(refusal, {**barred, **why})
        shut = {index: site for index, site in enumerate(sites) if site.is_shut and index not in demand.barred}
        if shut and refusal.shortages:
            refusal = _with_shut_sites(refusal, demand, idle, shut, view)
        if demand.licenses and not refusal.permanent:
            refusal = _with_licenses(refusal, demand, idle, view, submitter, sites.pools.jobs)
    except PolicyError as error:  # a policy from outside, on numbers that it was not tried with before
        return Refusal(policy=demand.policy.name, reason=error.for_user(), cure="repair the policy")
    except Exception as error:  # ours: its next try raises too, and sets the job aside
        return Refusal(
            policy=demand.policy.name, reason=f"an error inside Koala ({error!r})", cure=f"{_NO_CURE} report it"
        )
    if preempting and not refusal.permanent and refusal.shortages and _low_jobs_hold_some(sites):
        refusal = msgspec.structs.replace(refusal, cure=f"{refusal.cure}; {preempting}")
    return refusal


def closed_refusal(refusal: Refusal, closed: Sequence[ClosedSites], sites: Sites, *, fits_elsewhere: bool) -> Refusal:
    """Return the refusal of a job to which sites are closed, with the reasons.

    They are the cause if the job has no open place (not ``fits_elsewhere``).
    """
    why = {sites.sites[index].name: each.reason for each in closed for index in each.sites}
    shortages = tuple(
        msgspec.structs.replace(each, cure=f"{_NO_CURE} {each.site} {why[each.site]}") if each.site in why else each
        for each in refusal.shortages
    )
    refusal = msgspec.structs.replace(refusal, shortages=shortages)
    if fits_elsewhere:
        return refusal
    words = []
    for each in closed:
        named = ", ".join(sites.sites[index].name for index in each.sites[:SHUT_SITES_TRIED_MAX])
        more = len(each.sites) - SHUT_SITES_TRIED_MAX
        everywhere = len(each.sites) == len(sites.sites)
        nowhere = _NOWHERE[each.word].format(each.program)
        words.append(nowhere if everywhere else f"{named}{_and_more(more)} {each.reason}")
    cure = "; ".join(dict.fromkeys(_CLOSED_CURES[each.word].format(each.program) for each in closed))
    return msgspec.structs.replace(refusal, reason="; ".join(words), cure=cure, permanent=True)


def _and_more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def is_held_back(demand: Demand, seen: Seen, sites: Sites) -> bool:
    """Return True if the idle processors that its try saw were enough, so that the plans of others hold it back."""
    idle, link_demand_bit_s = demand.allowed(seen[0]), seen[1]
    try:
        view = _as_seen(sites.view, link_demand_bit_s, list(demand.allowed(sites.view.limit)))
        return place_on(demand, view.licenses.open_to(demand.licenses, idle), view) is not None
    except Exception:  # any error of the policy is reported with the refusal
        return False


def held_back(demand: Demand, planned: Sequence[JobId]) -> Refusal:
    """Refuse a job because idle processors are kept for earlier-ranking jobs; these may be others', and
    are not named."""
    whose, that = (
        ("the plan of a job that comes", "that")
        if len(planned) == 1
        else (
            f"the plans of {len(planned)} jobs that come",
            "one of them",
        )
    )
    return Refusal(
        policy=demand.policy.name,
        reason=f"what is idle is kept for {whose} before it: started now it would put {that} off",
        cure="a shorter walltime may fit in before; else it starts when what comes before has, or when more is idle",
    )


def _as_seen(view: View, link_demand_bit_s: Sequence[int], limit: list[int] | None = None) -> View:
    """Return the view with these links and limits, as they were or would be."""
    seen = view.with_link_demand(list(link_demand_bit_s) or [0] * len(view.link_demand_bit_s))
    seen.limit = view.limit if limit is None else limit
    return seen


def _with_licenses(
    refusal: Refusal, demand: Demand, idle: Sequence[int], view: View, submitter: str, jobs: Mapping[JobId, Job]
) -> Refusal:
    """Add the pools with too few licences left, if they are the cause, alone or with others."""
    short = [each for each in view.licenses.short(demand.licenses) if each.pool not in demand.barred]
    alone = place_on(demand, idle, view) is not None
    if not short or place_on(demand, view.licenses.open_to(demand.licenses, idle), view) is not None:
        return refusal
    names, told, cures = view.names, list[str](), list[str]()
    for each in short[:POOLS_NAMED_MAX]:
        where = f"for {EVERYWHERE}" if each.pool == SHARED else f"at {names[each.pool]}"
        told.append(
            f"{each.name}: {each.wanted} wanted, {max(0, each.left)} of {each.size} left {where}; "
            f"{_who_holds(each.holders, submitter, jobs)}"
        )
        cures.append(f"{licenses_in_words(each.wanted - each.left, each.name)} given back {where}")
    more = len(short) - POOLS_NAMED_MAX
    told += [f"and so at {more} more"] if more > 0 else []
    everywhere = any(each.pool == SHARED for each in short)
    cure = (" and " if everywhere else " or ").join(dict.fromkeys(cures))
    if not alone:
        return msgspec.structs.replace(
            refusal, reason="; ".join([refusal.reason, *told]), cure=f"{refusal.cure}, and {cure}"
        )
    at_sites = {
        each.pool: Shortage(
            site=EVERYWHERE if each.pool == SHARED else names[each.pool],
            wanted=each.wanted,
            idle=max(0, each.left),
            missing=each.wanted - each.left,
            cure=f"{licenses_in_words(each.wanted - each.left, each.name)} given back",
            resource=f"licences of {each.name}",
        )
        for each in short
    }
    shortages = tuple(at_sites.values())
    return msgspec.structs.replace(refusal, reason="; ".join(told), cure=cure, shortages=shortages)


def _who_holds(holders: Sequence[JobId], submitter: str, jobs: Mapping[JobId, Job]) -> str:
    """Return the same user's jobs by number, and those of others by count."""
    own = [job for job in holders if job in jobs and jobs[job].submitter == submitter]
    unnamed, others = max(0, len(own) - HOLDERS_NAMED_MAX), len(holders) - len(own)
    parts = [str(job) for job in own[:HOLDERS_NAMED_MAX]]
    if parts:
        parts[0] = f"job {parts[0]}" if len(own) == 1 else f"jobs {parts[0]}"
    parts += [f"{unnamed} more"] if unnamed else []
    parts += [f"{others} {'job' if others == 1 else 'jobs'} of others"] if others else []
    if not parts:
        return "nobody holds it"
    *most, last = parts
    return (
        f"{', '.join(most)} and {last} hold it" if most else f"{last} {'holds' if len(holders) == 1 else 'hold'} it"
    )


def _with_barred_sites(refusal: Refusal, barred: Mapping[SiteName, str]) -> Refusal:
    """Replace the cures at barred sites: more processors there would be no help."""
    shortages = tuple(
        msgspec.structs.replace(each, cure=f"{_NO_CURE} {each.site} {barred[each.site]}")
        if each.site in barred
        else each
        for each in refusal.shortages
    )
    return msgspec.structs.replace(refusal, shortages=shortages)


def _with_shut_sites(
    refusal: Refusal, demand: Demand, idle: Sequence[int], shut: dict[int, SiteBelief], view: View
) -> Refusal:
    names = {site.name: site for site in shut.values()}
    shortages = tuple(_shortage(each, names.get(each.site)) for each in refusal.shortages)
    cure = refusal.cure
    if not refusal.permanent:
        cures = [*_opening_cure(demand, idle, shut, view), *_cure_without(demand, idle, shut, view)]
        # Where neither is enough, the sites must be open and then have more idle.
        cure = ", or ".join(cures) or f"{_opening_words(list(shut.values()))}, and then {cure}"
    return msgspec.structs.replace(refusal, shortages=shortages, cure=cure)


def _shortage(short: Shortage, site: SiteBelief | None) -> Shortage:
    """Return what would help at an excluded site; if nothing ever could, the refusal shows that already."""
    if site is None or short.cure.startswith(_NO_CURE):
        return short
    return msgspec.structs.replace(short, cure=_why_shut(site))


def _why_shut(site: SiteBelief) -> str:
    if site.lost:
        return f"{site.name} is lost; it is used again by itself when it answers and has ended what it had of us"
    if site.drained:
        return f"{site.name} is drained{site.drained_by}; resume it"
    if site.silent_since is not None:
        return f"{site.name} does not answer; nothing is placed there until it does"
    if site.unfit:
        return f"{site.name} cannot be used: {site.unfit}"
    if site.trust is Trust.PROBING:
        return f"{site.name} is tried out with one job; it is used again when that ends well, or resume it"
    why = site.record.distrusted or "errors"
    return f"{site.name} is not trusted after {why}; it is tried again after its cool-down, or resume it"


def _opening_cure(demand: Demand, idle: Sequence[int], shut: dict[int, SiteBelief], view: View) -> list[str]:
    """Return the one site whose opening is enough, or all of them; nothing if that is not enough."""
    for index, site in list(shut.items())[:SHUT_SITES_TRIED_MAX]:
        if place_on(demand, _opened(idle, {index: site}), view) is not None:
            return [_opening_words([site])]
    if place_on(demand, _opened(idle, shut), view) is not None:
        return [_opening_words(list(shut.values()))]
    return []


def _opened(idle: Sequence[int], shut: dict[int, SiteBelief]) -> list[int]:
    return [
        max(now, shut[index].free - shut[index].earmarked) if index in shut else now for index, now in enumerate(idle)
    ]


def _opening_words(sites: Sequence[SiteBelief]) -> str:
    if len(sites) == 1:
        if sites[0].lost:
            return f"an answer of {sites[0].name}, which is lost"
        if sites[0].silent_since is not None and not sites[0].drained:
            return f"an answer of {sites[0].name}, which is silent"
        if sites[0].unfit and not sites[0].drained:
            return f"mending {sites[0].name}, which cannot be used"
        return f"resuming {sites[0].name}, which is {'drained' if sites[0].drained else 'not trusted after errors'}"
    more = len(sites) - SHUT_SITES_TRIED_MAX
    names = ", ".join(site.name for site in sites[:SHUT_SITES_TRIED_MAX]) + _and_more(more)
    if all(site.silent_since is not None and not site.drained for site in sites):
        return f"an answer of {names}, which are silent"
    if any(site.lost or site.does_not_report for site in sites):
        return f"to have {names} back, which are drained, silent, unfit, lost or not trusted"
    return f"resuming {names}, which are drained or not trusted"


def _cure_without(demand: Demand, idle: Sequence[int], shut: dict[int, SiteBelief], view: View) -> list[str]:
    """Return what would help without the excluded sites, if anything would."""
    limit = [0 if index in shut else limit for index, limit in enumerate(view.limit)]
    open_only = _as_seen(view, view.link_demand_bit_s, limit)
    without = refuse(demand, [0 if index in shut else now for index, now in enumerate(idle)], open_only)
    return [] if without.permanent or not without.shortages else [without.cure]


def _low_jobs_hold_some(sites: Sites) -> bool:
    return any(not claim.job.high and not claim.aborting for site in sites for claim in site.claims.values())
