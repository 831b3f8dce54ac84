"""Outputs whose time is over in a simulation: they are gone from then on, and a run is no longer for it."""

from __future__ import annotations

import pytest

from koala.model.outputs import JobOutput
from koala.model.request import Component, InputFile, Request
from koala.simulator import Arrival, Workload, simulate
from tests.support.hand_driven import at_once, grid, site


@pytest.mark.parametrize(("kept_s", "state"), [(None, "done"), (500.0, "done"), (50.0, "cancelled")])
def test_a_job_that_comes_after_the_time_of_its_input_does_not_find_it(kept_s: float | None, state: str) -> None:
    makes = Request(components=(Component(processors=1, outputs=(JobOutput(path="out", size_bytes=7),)),))
    reads = Request(components=(Component(processors=1, input_files=(InputFile(name="jobs/1/out"),)),))
    here = at_once(grid(site("a", 4)), keep_outputs_for_s=kept_s)
    arrivals = [Arrival(0.0, makes, 10.0, 0.0), Arrival(100.0, reads, 10.0, 0.0)]
    result = simulate(here, Workload.from_arrivals(arrivals))
    assert [row.outcome for row in result.rows()] == ["done", state]
    assert result.end_s < 200.0
