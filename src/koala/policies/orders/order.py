"""What an order of the queue is: the ranking of waiting jobs of one priority.

An order is a plain function ``(waiting, users, now)`` that returns the waiting jobs in the order in which they are
tried. Koala's own orders are such functions, too; the core keeps their queues sorted instead of calling them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from koala.policies.forms import ORIGIN_KOALA

ORDER_PARAMETERS = ("waiting", "users", "now")

AnyOrder = TypeVar("AnyOrder", bound=Callable[..., Any])


class WaitingJob(msgspec.Struct, frozen=True):
    """What an order sees of a waiting job.

    - ``number``, ``user``, ``name``, ``priority`` ("high" or "low");
    - ``submitted_at`` and ``waiting_since``, the time at which it joined its queue, in seconds like ``now``;
    - ``processors`` in all, and the number of ``components``;
    - ``walltime_s``, None without one; ``estimate_s``, the run time that plans assume;
    - ``array``, the number of its array, its ``index`` there, and ``to_come``, how many elements of the array come
      after it that are no jobs yet; None, None and 0 for other jobs;
    - ``tries``, how often it was tried in vain;
    - ``planned``: it has a plan, and comes before all jobs without one wherever the order puts it.

    >>> from koala.policies import WaitingJob
    >>> one = WaitingJob(7, "ann", "mesh", "low", 0.0, 5.0, 16, 2, None, 3600.0, None, None, 0, 3, False)
    >>> one.user, one.processors, one.estimate_s
    ('ann', 16, 3600.0)
    """

    number: int
    user: str
    name: str
    priority: str
    submitted_at: float
    waiting_since: float
    processors: int
    components: int
    walltime_s: float | None
    estimate_s: float
    array: int | None
    index: int | None
    to_come: int
    tries: int
    planned: bool


class UserJobs(msgspec.Struct, frozen=True):
    """What an order sees of a user: the jobs with places, their processors, and the jobs that wait in this queue.

    >>> from koala.policies import UserJobs
    >>> UserJobs(running=2, processors=24, waiting=1).processors
    24
    """

    running: int = 0
    processors: int = 0
    waiting: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """A named order. ``checked``: the function is not ours, so every answer of it is verified.

    >>> from koala.policies import Catalogue
    >>> Catalogue.builtin().find_order("sjf").origin
    'koala'
    """

    name: str
    function: Callable[[Sequence[WaitingJob], Mapping[str, UserJobs], float], Iterable[WaitingJob | int]]
    summary: str
    origin: str = ORIGIN_KOALA
    checked: bool = False


class OrderMark(NamedTuple):
    """The mark of the decorator on a function, for the catalogue to collect."""

    name: str
    summary: str


ORDER_MARK = "__koala_order__"
