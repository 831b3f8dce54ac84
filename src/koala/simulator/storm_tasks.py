"""Jobs of communicating tasks for storms, drawn from a stream of their own."""

from __future__ import annotations

import random

import msgspec

from koala.mapping.random_graphs import random_task_graph
from koala.model import Flexibility, Request

_POLICIES = (None, "WASE", "WASE-whole", "FCM")
# Tasks need so little of a processor that powers never refuse a job which its processors would not.
_MCR = 1.0


def draw_tasks(rng: random.Random, request: Request) -> Request:
    """The request as it is, or a total of it as a job of as many tasks."""
    if not request.is_total or rng.random() < 0.8:
        return request
    tasks = random_task_graph(request.processors, rng, mcr=_MCR)
    return msgspec.structs.replace(request, tasks=tasks, flexible=Flexibility(), policy=rng.choice(_POLICIES))
