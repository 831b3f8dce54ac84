"""Remarks for the reader of a run's numbers: where its policy did not fit the requests of the jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from koala.model.request import Request
from koala.policies import Catalogue, UnknownPolicyError


def notes(requests: Iterable[Request], policy: str, catalogue: Catalogue) -> tuple[str, ...]:
    """Return one sentence for each way in which jobs were not placed as the name of the run's policy suggests."""
    counts: Counter[str] = Counter()
    jobs: dict[int, tuple[Request, int]] = {}  # many have an identical request
    for request in requests:
        known = jobs.get(id(request))
        jobs[id(request)] = (request, 1) if known is None else (request, known[1] + 1)
    for request, count in jobs.values():
        try:
            used = catalogue.choose(request, policy)
        except UnknownPolicyError:
            continue
        if request.policy is None and request.tasks is not None and used.name.casefold() != policy.casefold():
            counts[f"of tasks, mapped by {used.name}: {policy} does not map tasks"] += count
        elif request.policy is None and used.name.casefold() != policy.casefold():
            counts[f"with a flexible total, divided by {used.name}: {policy} does not divide"] += count
        elif used.name.casefold() != policy.casefold():
            counts[f"placed by {used.name}, a policy given in the request"] += count
        if used.form.divides and used.components_policy is not None:
            if request.flexible is None or request.flexible.splits:
                counts[f"with given sizes: {used.name} placed them by {used.components_policy.name}"] += count
        elif request.flexible is not None and not request.flexible.splits:
            counts[f"with a flexible total, placed as one component: {used.name} does not divide"] += count
    return tuple(f"{count} {'job' if count == 1 else 'jobs'} {remark}" for remark, count in counts.items())
