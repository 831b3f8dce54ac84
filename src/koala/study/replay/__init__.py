"""The jobs of a workload or a trace on a live grid at their times: what is submitted, and its results.

``plan_replay`` decides what is submitted and when, and a ``Replay`` submits it and returns the results, ``Replayed``.
"""

from __future__ import annotations

from koala.study.replay.plan import (
    SLEEPER,
    OmittedJob,
    PlannedJob,
    Program,
    ReplayError,
    ReplayPlan,
    ReplaySettings,
    plan_replay,
)
from koala.study.replay.replay import Replay, ReplayProgress
from koala.study.replay.result import Replayed

__all__ = [
    "SLEEPER",
    "OmittedJob",
    "PlannedJob",
    "Program",
    "Replay",
    "ReplayError",
    "ReplayPlan",
    "ReplayProgress",
    "ReplaySettings",
    "Replayed",
    "plan_replay",
]
