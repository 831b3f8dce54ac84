"""Calls of a function for the order of waiting jobs, with verified answers.

An error in a user's code becomes a PolicyError that names the order, and never loses a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from koala.policies.errors import PolicyError
from koala.policies.orders.order import JobOrder, UserJobs, WaitingJob
from koala.policies.policy_file import last_line_in


def ask_order(order: JobOrder, waiting: Sequence[WaitingJob], users: Mapping[str, UserJobs], now: float) -> list[int]:
    """Return the numbers of the waiting jobs, in the order that a function gives.

    Raises PolicyError for any error of the function: all jobs must be in its answer, each once.
    """
    try:
        answer = list(order.function(waiting, users, now))
        numbers = [each if type(each) is int else each.number for each in answer]  # type: ignore[union-attr]
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # The code is a user's, and it may raise anything; sys.exit() in it must not end the scheduler.
        line = last_line_in(order.origin, error.__traceback__)
        where = "" if line is None else f" at line {line}"
        raise _wrong(order, f"raised {type(error).__name__}{where}: {error}") from error
    known, given = {job.number for job in waiting}, set(numbers)
    if given - known:
        raise _wrong(order, f"returned job {min(given - known, key=repr)!r}, which does not wait here")
    if len(given) < len(numbers):
        twice = next(number for number, count in Counter(numbers).items() if count > 1)
        raise _wrong(order, f"returned job {twice} twice")
    if known - given:
        raise _wrong(order, f"left out job {min(known - given)}")
    return numbers


def _wrong(order: JobOrder, problem: str) -> PolicyError:
    return PolicyError(order.name, order.origin, problem, kind="order")
