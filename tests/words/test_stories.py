"""The story of a job from the lines of the journal that are about it."""

from __future__ import annotations

from typing import Any

from koala.model.facts import JobPlaced, JobRequeued, JobRests, TasksSpawned
from koala.model.messages import AbortComponent, ComponentEnded, Outcome, ReleaseBarrier, StartComponent, UnholdAsked
from koala.model.request import Component, Request
from koala.words.stories import STORY_HEAD_LINES, STORY_LINES_MAX, Line, story

REQUEST = Request(components=(Component(processors=3), Component(processors=1)))


def told(*bodies: Any, **fields: Any) -> list[str]:
    return [line.text for line in story(REQUEST, 0.0, lines(*bodies), **fields)][1:]


def lines(*bodies: Any) -> list[Line]:
    return [(float(number), body) for number, body in enumerate(bodies)]


def start(part: int, number: int) -> StartComponent:
    where: dict[str, Any] = {"site": "ab"[part], "component": part, "part": part, "parts": 2}
    return StartComponent(job=7, token=f"7.{number}", processors=1, **where)


def ended(number: int, outcome: Outcome, reason: str = "") -> ComponentEnded:
    return ComponentEnded(at=1.0, token=f"7.{number}", outcome=outcome, reason=reason)


SECOND = "7.2"
PLACED = JobPlaced(job=7, places=(("a", 3), ("b", 1)))
OPENS = ReleaseBarrier(job=7, tokens=("7.1", "7.2"))
CLAIMED = "all components are claimed; it starts when all have come to the barrier"
OPENED = "the barrier opened: all components started together"


def test_a_story_begins_with_what_was_asked_for() -> None:
    assert [(line.at, line.text) for line in story(REQUEST, 3.0, [])] == [
        (3.0, "submitted: non-fixed request for 4 processors")
    ]


def test_the_last_claim_says_that_all_are_claimed_and_an_order_that_is_repeated_says_nothing() -> None:
    assert told(PLACED, start(0, 1), start(1, 2), OPENS, OPENS) == ["placed: 3 on a, 1 on b", CLAIMED, OPENED]


def test_an_end_that_was_ordered_or_is_told_twice_says_nothing() -> None:
    broke = ended(1, Outcome.SITE_FAILED, "a node died")
    aborted = ended(2, Outcome.FAILED, "killed")
    back = JobRequeued(job=7, reason="it broke")
    said = told(start(0, 1), start(1, 2), OPENS, broke, broke, AbortComponent(site="b", token=SECOND), back, aborted)
    assert said == [CLAIMED, OPENED, "component 0 failed on a: a node died", "back to its placement queue: it broke"]


def test_a_component_that_is_not_taken_is_claimed_again() -> None:
    said = told(start(0, 1), start(1, 2), ended(2, Outcome.REFUSED, "queue closed"), start(1, 3))
    assert said == [CLAIMED, "b did not take component 1: queue closed", CLAIMED]


def test_tasks_that_were_spawned_are_withdrawn_and_others_are_refused() -> None:
    here = TasksSpawned(job=7, tasks=("e",), places=(("a", 1),))
    gone, refused = (TasksSpawned(job=7, tasks=(name,), reason="no room") for name in "ef")
    assert told(here, gone, refused) == [
        "spawned task e; placed: 1 on a",
        "the spawned task e were withdrawn before they began: no room",
        "did not spawn task f: no room",
    ]


def test_what_its_owner_did_goes_without_a_name() -> None:
    assert told(UnholdAsked(at=1.0, job=7, by="anna"), owner="anna") == ["hold ended by its owner"]
    assert told(UnholdAsked(at=1.0, job=7, by="anna"), owner="bert") == ["hold ended by anna"]


def test_a_very_long_story_keeps_its_beginning_and_its_end() -> None:
    many = [JobRests(job=7, rest_s=float(number)) for number in range(STORY_LINES_MAX * 2)]
    said = story(REQUEST, 0.0, lines(*many))
    assert len(said) == STORY_LINES_MAX + 1
    assert said[0].text.startswith("submitted")
    assert said[STORY_HEAD_LINES].text == f"... {STORY_LINES_MAX + 1} lines of a long story are left out ..."
    assert said[-1].text == f"it rests for {STORY_LINES_MAX * 2 - 1} s before it is placed again"


def test_a_journal_that_does_not_go_back_to_the_beginning_says_so() -> None:
    assert told(JobRests(job=7, rest_s=5.0), goes_back=False) == [
        "... what came next is no longer in the journal ...",
        "it rests for 5 s before it is placed again",
    ]


def test_what_is_left_out_of_the_record_is_told() -> None:
    first, last = lines(PLACED), lines(JobRests(job=7, rest_s=5.0))
    said = [line.text for line in story(REQUEST, 0.0, first, 9, last)]
    assert said[1:] == [
        "placed: 3 on a, 1 on b",
        "... 9 lines of a long story are left out ...",
        "it rests for 5 s before it is placed again",
    ]
