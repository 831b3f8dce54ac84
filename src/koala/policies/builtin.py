"""Koala's own policies, each with a name, a function and a summary.

The functions are in files of their own, those of the form LINKS behind ``koala.policies.minigrid.meta_scheduling``.
"""

from __future__ import annotations

import dataclasses

from koala.policies.forms import Form, ModuleChoice, Parameter, Policy
from koala.policies.koala.close_to_files import close_to_files, closest_site
from koala.policies.koala.cluster_minimization import (
    cluster_minimization,
    cluster_minimization_beside,
    sites_added,
)
from koala.policies.koala.flexible_close_to_files import (
    fewest_parts,
    flexible_close_to_files,
    last_before,
    least_time_s,
    room_within,
)
from koala.policies.koala.flexible_cluster_minimization import filled_before, flexible_cluster_minimization
from koala.policies.koala.frozen_order import next_most_idle
from koala.policies.koala.near_sites import combination_cost, near_sites
from koala.policies.koala.network_cluster_minimization import network_cluster_minimization
from koala.policies.koala.network_flexible_cluster_minimization import network_flexible_cluster_minimization
from koala.policies.koala.worst_fit import worst_fit
from koala.policies.minigrid.meta_scheduling import (
    A1_FEWEST,
    A1_INDEX,
    A1_LEAST,
    A1_MOST_FREE,
    A2,
    B1,
    B2,
    B3,
    B4,
    B5,
    INITIAL,
    MIGRATION_ONLY,
    metaschedule,
)
from koala.policies.minigrid.reserve import RESERVING_THRESHOLD

# Ten times what a link can carry: a larger value is a percentage by mistake.
LSLT_MAX = 10.0

CM = Policy(
    name="CM",
    form=Form.COMPONENTS,
    function=cluster_minimization,
    summary="Cluster minimization: components together, on the fewest sites, most idle first.",
    beside=cluster_minimization_beside,
    most_idle_takes_whole=True,
)
WF = Policy(
    name="WF",
    form=Form.COMPONENTS,
    function=worst_fit,
    summary="Worst fit: each component on the site with the most idle processors left.",
    most_idle_takes_whole=True,
)
CF = Policy(
    name="CF",
    form=Form.FILES,
    function=close_to_files,
    summary="Close to files: each component where its input files arrive soonest.",
    helpers=(closest_site,),
    most_idle_takes_whole=True,
)
FCM = Policy(
    name="FCM",
    form=Form.FLEXIBLE,
    function=flexible_cluster_minimization,
    summary="Flexible cluster minimization: divides a total over the fewest sites; given sizes go by CM.",
    components_policy=CM,
    helpers=(next_most_idle, filled_before),
    most_idle_takes_whole=True,
)

NCM = Policy(
    name="NCM",
    form=Form.NETWORK,
    function=network_cluster_minimization,
    summary="Network-aware CM: combines near sites where unequal links make that the faster way.",
    helpers=(
        next_most_idle,
        near_sites,
        combination_cost,
        cluster_minimization,
        sites_added,
        cluster_minimization_beside,
    ),
    most_idle_takes_whole=True,
)
NFCM = Policy(
    name="NFCM",
    form=Form.FLEXIBLE_NETWORK,
    function=network_flexible_cluster_minimization,
    summary="Network-aware FCM: divides a total over near sites; given sizes go by NCM.",
    components_policy=NCM,
    helpers=(next_most_idle, near_sites, combination_cost, filled_before, flexible_cluster_minimization),
    most_idle_takes_whole=True,
)
FCF = Policy(
    name="FCF",
    form=Form.FLEXIBLE_FILES,
    function=flexible_close_to_files,
    summary="Flexible close to files: divides a total so that its input arrives soonest; given sizes go by CF.",
    components_policy=CF,
    helpers=(
        next_most_idle,
        room_within,
        fewest_parts,
        last_before,
        least_time_s,
        filled_before,
        flexible_cluster_minimization,
    ),
    most_idle_takes_whole=True,
)


# ------------------------------------------------------------- the meta-scheduler, by its module for co-allocation


def _number(text: str, most: float) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 < number <= most else None


def _said(number: float) -> str:
    """Return different text for different numbers: names distinguish policies."""
    return repr(number).removesuffix(".0")


def _read_lslt(choice: ModuleChoice, text: str) -> tuple[ModuleChoice, str] | None:
    number = _number(text, LSLT_MAX)
    return None if number is None else (choice._replace(threshold=number), _said(number))


def _read_chunk(choice: ModuleChoice, text: str) -> tuple[ModuleChoice, str] | None:
    number = _number(text, 1.0)
    return None if number is None else (choice._replace(chunk=number), _said(number))


# An objective finds the best of all solutions, so that it leaves no choice to an order.
_CHOICES = {
    "index": A1_INDEX,
    "most-free": A1_MOST_FREE,
    "fewest-clusters": A1_FEWEST,
    "least-bandwidth": A1_LEAST,
}


def _read_choice(choice: ModuleChoice, text: str) -> tuple[ModuleChoice, str] | None:
    module = _CHOICES.get(text.casefold())
    return None if module is None else (choice._replace(module=module), text.casefold())


def _read_order(choice: ModuleChoice, text: str) -> tuple[ModuleChoice, str] | None:
    return _read_choice(choice, text) if text.casefold() in ("index", "most-free") else None


def _read_objective(choice: ModuleChoice, text: str) -> tuple[ModuleChoice, str] | None:
    return _read_choice(choice, text) if text.casefold() in ("fewest-clusters", "least-bandwidth") else None


LSLT = Parameter(
    name="lslt",
    default="1",
    values=f"how far links may be used, a number above 0 and up to {LSLT_MAX:g}; 1 is their capacity",
    read=_read_lslt,
)
RESERVING_LSLT = dataclasses.replace(LSLT, default=_said(RESERVING_THRESHOLD))
CHUNK = Parameter(
    name="chunk", default="0.85", values="a share of the job, a number above 0 and up to 1", read=_read_chunk
)
ORDER = Parameter(name="order", default="index", values="index or most-free", read=_read_order)
OBJECTIVE = Parameter(
    name="objective",
    default="none",
    values="fewest-clusters or least-bandwidth, without an order",
    read=_read_objective,
)


def _meta(name: str, module: int, summary: str, *parameters: Parameter, threshold: float = 1.0) -> Policy:
    return Policy(
        name=name,
        form=Form.LINKS,
        function=metaschedule,
        summary=summary,
        components_policy=CM,
        module=ModuleChoice(module, threshold),
        parameters=parameters,
    )


META_POLICIES = (
    _meta("Migration-Only", MIGRATION_ONLY, "A job runs whole: at home if it fits, else on the tightest site."),
    _meta("Initial", INITIAL, "As Migration-Only, else divided, most idle sites first, whatever is on the links."),
    _meta("Ideal", INITIAL, "Places as Initial; the bound to compare with, on a grid with unlimited links."),
    _meta(
        "A1",
        A1_INDEX,
        "Divided so that no link gets beyond the threshold; knows what the job sends.",
        ORDER,
        OBJECTIVE,
        LSLT,
    ),
    _meta(
        "A2",
        A2,
        "Divided where links keep a reserve that grows with what the job sends; knows what that is.",
        RESERVING_LSLT,
        threshold=RESERVING_THRESHOLD,
    ),
    _meta("B1", B1, "Divided over sites with links below the threshold, most idle first.", LSLT),
    _meta("B2", B2, "Divided over sites with links below the threshold, least saturated first.", LSLT),
    _meta("B3", B3, "As B1, where one such site takes a large chunk of the job.", CHUNK, LSLT),
    _meta("B4", B4, "Dealt out over sites with links below the threshold, one processor at a time.", LSLT),
    _meta(
        "B5",
        B5,
        "As A2 with a larger reserve, by what earlier jobs were seen to send.",
        RESERVING_LSLT,
        threshold=RESERVING_THRESHOLD,
    ),
)


# ------------------------------------------------------------------------------------- jobs of communicating tasks


def _mapping(name: str, method: str, summary: str) -> Policy:
    return Policy(
        name=name,
        form=Form.TASKS,
        function=flexible_cluster_minimization,
        summary=summary,
        components_policy=CM,
        helpers=(next_most_idle, filled_before),
        mapping=method,
    )


WASE = _mapping("WASE", "wase", "Maps a job of tasks, cluster by cluster, each to a near site with the power for it.")
WASE_WHOLE = _mapping("WASE-whole", "wase-whole", "As WASE, each cluster to the nearest site that takes it whole.")

OWN_POLICIES = (WF, CM, FCM, CF, NCM, NFCM, FCF, *META_POLICIES, WASE, WASE_WHOLE)
