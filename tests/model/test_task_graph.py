"""Task graphs: valid once built."""

from __future__ import annotations

import pytest

from koala.model.task_graph import EDGES_MAX, TASKS_MAX, Edge, InvalidTaskGraphError, TaskGraph


def built(
    names: tuple[str, ...] = ("a", "b", "c"),
    rcr: tuple[float, ...] = (1.0, 2.0, 3.0),
    edges: tuple[Edge, ...] = ((0, 1, 3.0),),
    mcr: float = 50.0,
) -> TaskGraph:
    return TaskGraph(names=names, rcr=rcr, edges=edges, mcr=mcr)


def test_edges_by_name_may_name_their_ends_in_either_order() -> None:
    graph = TaskGraph.of({"a": 1.0, "b": 2.0, "c": 3.0}, [("c", "a", 4.0), ("a", "b", 3.0)], mcr=50.0)
    assert graph == built(edges=((0, 2, 4.0), (0, 1, 3.0)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": (), "rcr": (), "edges": ()}, "at least one task"),
        ({"names": ("a", "b", "")}, "empty name"),
        ({"names": ("a", "b", "a")}, "task a: 2 tasks have this name"),
        ({"rcr": (1.0, 2.0)}, "2 numbers for 3 tasks"),
        ({"rcr": (1.0, 2.0, 0.0)}, "task c: its rcr is 0.0"),
        ({"rcr": (1.0, float("nan"), 1.0)}, "task b: its rcr is nan"),
        ({"mcr": -1.0}, "mcr: -1.0"),
        ({"mcr": float("inf")}, "mcr: inf"),
        ({"edges": ((0, 3, 1.0),)}, "edge 0 - 3: tasks are numbered from 0 to 2"),
        ({"edges": ((-1, 2, 1.0),)}, "edge -1 - 2"),
        ({"edges": ((1, 1, 1.0),)}, "edge b - b: joins a task with itself"),
        ({"edges": ((1, 0, 1.0),)}, "edge b - a: its first end comes after its second"),
        ({"edges": ((0, 1, 1.0), (0, 1, 2.0))}, "edge a - b: is listed twice"),
        ({"edges": ((0, 1, 0.0),)}, "edge a - b: its rqoc is 0.0; write a number above 0"),
        ({"edges": ((0, 1, 1e300),)}, "edge a - b: its rqoc is 1e+300; write a number from 1e-09 to 1e+15"),
        ({"rcr": (1.0, 1e-300, 1.0)}, "task b: its rcr is 1e-300; write a number from 1e-09"),
        ({"mcr": 1e16}, "mcr: 1e+16 is not a power; write a number from"),
    ],
)
def test_a_graph_that_contradicts_itself_is_refused_by_name(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidTaskGraphError) as caught:
        built(**change)  # type: ignore[arg-type]
    assert message in caught.value.for_user()


def test_an_edge_to_a_task_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(InvalidTaskGraphError, match="edge a - z: there is no task 'z'"):
        TaskGraph.of({"a": 1.0}, [("a", "z", 1.0)], mcr=1.0)


def test_more_tasks_or_edges_than_the_limits_are_refused() -> None:
    names = tuple(map(str, range(TASKS_MAX + 1)))
    with pytest.raises(InvalidTaskGraphError, match="TASKS_MAX"):
        built(names=names, rcr=(1.0,) * len(names))
    with pytest.raises(InvalidTaskGraphError, match="EDGES_MAX"):
        built(edges=((0, 1, 1.0),) * (EDGES_MAX + 1))
