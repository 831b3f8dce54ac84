"""Policies that Koala did not write: calling them, and verifying every answer.

An error in a user's code always becomes a PolicyError that names the policy, never a placement on processors that are
not there. ``koala.policies.policy_file`` reads the files.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, MutableSequence, Sequence
from math import inf
from typing import Any

from koala.policies.demand import Bounds
from koala.policies.errors import PolicyError
from koala.policies.forms import Form, Policy
from koala.policies.policy_file import last_line_in


def ask_components(
    policy: Policy,
    idle: Sequence[int],
    sizes: Sequence[int],
    more: tuple[Any, ...],
    chosen: MutableSequence[int],
) -> int:
    """Call a foreign policy that places components; ``chosen`` and the answer are verified, and as from one of ours.

    ``more`` is what its form gets besides the sizes: the rows of transfer times for FILES.
    """
    left = list(idle)
    answers: list[Any] = [-1] * len(sizes)
    failed = _call(policy, (tuple(idle), tuple(sizes), *more, left, answers))
    transfer_s: Sequence[Sequence[float]] | None = more[0] if policy.form is Form.FILES else None
    if not -1 <= failed < len(sizes):
        raise _wrong(policy, f"returned {failed}, which is neither -1 nor the index of a component")
    free = list(idle)
    for component in range(len(sizes) if failed < 0 else failed):
        site = _whole_number(policy, answers, component, f"the site of component {component}")
        if not 0 <= site < len(free):
            raise _wrong(policy, f"gave component {component} the site {site}, of 0 to {len(free) - 1}")
        if sizes[component] > free[site]:
            raise _wrong(
                policy,
                f"put {sizes[component]} processors on site {site}, where {free[site]} of {idle[site]} are left",
            )
        if transfer_s is not None and transfer_s[component][site] == inf:
            raise _wrong(policy, f"put component {component} on site {site}, where its files cannot be brought")
        free[site] -= sizes[component]
        chosen[component] = site
    return failed


def ask_flexible(
    policy: Policy,
    idle: Sequence[int],
    total: int,
    bounds: Bounds,
    more: tuple[Any, ...],
    parts: MutableSequence[int],
) -> int:
    """Call a foreign policy that divides totals; ``parts`` and the answer are verified, and as from one of ours.

    ``more`` is what its form gets besides the bounds: the times to bring its input for FLEXIBLE_FILES.
    """
    answers: list[Any] = [0] * len(idle)
    unplaced = _call(policy, (tuple(idle), total, bounds.component_min, bounds.components_max, *more, answers))
    fixed_s: Sequence[float] | None = more[0] if policy.form is Form.FLEXIBLE_FILES else None
    if not 0 <= unplaced <= total:
        raise _wrong(policy, f"returned {unplaced} as the processors left without a place, of {total}")
    made = 0
    for site in range(len(idle)):
        part = _whole_number(policy, answers, site, f"the part of site {site}")
        if not 0 <= part <= idle[site]:
            raise _wrong(policy, f"put {part} processors on site {site}, where {idle[site]} are idle")
        if 0 < part < bounds.component_min:
            raise _wrong(policy, f"made a part of {part} processors, below the minimum of {bounds.component_min}")
        if part and fixed_s is not None and fixed_s[site] == inf:
            raise _wrong(policy, f"made a part on site {site}, where its files cannot be brought")
        made += part > 0
        parts[site] = part
    if made > bounds.components_max:
        raise _wrong(policy, f"made {made} parts, more than the {bounds.components_max} allowed")
    if unplaced == 0 and sum(parts) != total:
        raise _wrong(policy, f"made parts of {sum(parts)} processors in all, for a total of {total}")
    return unplaced


def _call(policy: Policy, arguments: tuple[Any, ...]) -> int:
    function: Callable[..., Any] = policy.function
    try:
        answer = function(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # The code is a user's, and it may raise anything; sys.exit() in it must not end the scheduler.
        line = last_line_in(policy.origin, error.__traceback__)
        where = "" if line is None else f" at line {line}"
        raise _wrong(policy, f"raised {type(error).__name__}{where}: {error}") from error
    try:
        return operator.index(answer)
    except TypeError:
        raise _wrong(policy, f"returned {answer!r}, which is not a whole number") from None


def _whole_number(policy: Policy, answers: Sequence[Any], position: int, what: str) -> int:
    if position >= len(answers):
        raise _wrong(policy, f"did not fill in {what}")
    try:
        return operator.index(answers[position])
    except TypeError:
        raise _wrong(policy, f"gave {answers[position]!r} as {what}, which is not a whole number") from None


def _wrong(policy: Policy, problem: str) -> PolicyError:
    return PolicyError(policy.name, policy.origin, problem)
