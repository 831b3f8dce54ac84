"""The transition table itself: closed, without dead ends, and told truthfully."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, cast

import pytest

from koala.core.life.job import PHASES, Job
from koala.core.life.phase import Phase
from koala.core.life.places import JobPlaces
from koala.core.life.states import ENDED, IN_CLAIMING_QUEUE, TRANSITIONS, InvalidTransitionError, JobState, diagram
from koala.model.request import Component, Request
from koala.policies.interface import Spots
from koala.words.standing import MEANING

REQUEST = Request(components=(Component(processors=1),))
PLACES = JobPlaces(Spots((0,), (1,)), (("a", 1),), 0.0)


def reachable_from(state: JobState) -> set[JobState]:
    """Every state that a job in this one can still come to."""
    seen: set[JobState] = set()
    ahead = [state]
    while ahead:
        for target in TRANSITIONS[ahead.pop()]:
            if target not in seen:
                seen.add(target)
                ahead.append(target)
    return seen


def test_every_state_has_its_row_and_its_meaning() -> None:
    assert set(TRANSITIONS) == set(JobState) == set(MEANING)


def test_every_state_can_be_reached_from_the_submission() -> None:
    assert {JobState.WAITING} | reachable_from(JobState.WAITING) == set(JobState)


def test_the_ends_have_no_way_out_and_every_other_state_can_come_to_each_of_them() -> None:
    assert {state for state in JobState if not TRANSITIONS[state]} == ENDED
    for state in set(JobState) - ENDED:
        assert reachable_from(state) >= ENDED


def test_every_living_state_can_be_cancelled() -> None:
    for state in set(JobState) - ENDED:
        assert JobState.CANCELLED in TRANSITIONS[state]


def test_an_application_starts_only_from_starting_and_a_second_time_only_after_releasing() -> None:
    assert {state for state in JobState if JobState.RUNNING in TRANSITIONS[state]} == {JobState.STARTING}
    assert JobState.WAITING not in TRANSITIONS[JobState.RUNNING]


def test_the_claiming_queue_holds_living_states_only() -> None:
    assert IN_CLAIMING_QUEUE.isdisjoint(ENDED | {JobState.WAITING, JobState.RUNNING, JobState.UNWINDING})


def phase_of(state: JobState) -> Phase:
    """A phase as it begins."""
    needs = [
        each
        for each in fields(cast(Any, PHASES[state]))
        if each.default is MISSING and each.default_factory is MISSING
    ]
    return PHASES[state](*[PLACES if each.name == "placement" else 0.0 for each in needs])


def test_every_state_has_its_phase() -> None:
    assert {state: phase.state for state, phase in PHASES.items()} == {state: state for state in JobState}


@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("target", JobState)
def test_a_job_moves_by_the_table_and_in_no_other_way(state: JobState, target: JobState) -> None:
    job = Job.submitted(7, REQUEST, 0.0, 0.75)
    job.state = state
    phase = phase_of(target)
    if target in TRANSITIONS[state]:
        job.become(phase)
        assert job.state is target
        return
    with pytest.raises(InvalidTransitionError, match=f"job 7 cannot go from {state} to {target}"):
        job.become(phase)
    assert job.state is state


def test_the_diagram_draws_every_edge_once_and_marks_the_ends() -> None:
    lines = diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert lines[1].strip().startswith("[*] --> waiting")
    for state, ways in TRANSITIONS.items():
        for target in ways:
            assert sum(line.strip().startswith(f"{state} --> {target}: ") for line in lines) == 1
    for state in ENDED:
        assert f"    {state} --> [*]" in lines
    assert len(lines) == 2 + sum(map(len, TRANSITIONS.values())) + len(ENDED)


def test_no_label_of_the_diagram_holds_a_second_colon() -> None:
    for line in diagram().splitlines()[1:]:
        assert line.count(":") <= 1
