"""Task graphs and machines in YAML: what they become, and where each mistake is reported."""

from __future__ import annotations

import math

import pytest

from koala.descriptions import DescriptionError, read_application, read_job, read_machines, write_job_yaml, write_rsl
from koala.descriptions.errors import TEXT_BYTES_MAX, Limit
from koala.descriptions.mapping import application as mapping_application
from koala.descriptions.mapping import grid as mapping_grid
from koala.descriptions.mapping.spawned import read_spawned
from koala.descriptions.yaml.nodes import LARGE, NODES_MAX
from koala.model.dendrogram import MACHINES_MAX, Dendrogram, Lan, Machine, Man, Wan
from koala.model.request import JOB_EDGES_MAX, JOB_TASKS_MAX, Component, Flexibility, InvalidRequestError, Request
from koala.model.task_graph import SpawnedTasks, TaskGraph

APP = "mcr: 50\ntasks: {a: 1.0, b: 2.5, 3: 4}\nedges: [[a, b, 3.0], [3, a, 1]]\n"
GRID = """\
user_lan: isti
wans:
  italy:
    uplink_mbit_s: 622
    mans:
      pisa:
        uplink_mbit_s: 155
        lans:
          isti: {uplink_mbit_s: 1000, machines: {m1: {power: 1000, load: 0.3}, m2: {power: 800}}}
          cnit: {}
"""


def problems(text: str, *, grid: bool = False) -> list[tuple[int | None, int | None, str]]:
    """The places and messages of what is wrong with a text."""
    with pytest.raises(DescriptionError) as caught:
        (read_machines if grid else read_application)(text, "x.yaml")
    return [(problem.line, problem.column, problem.message) for problem in caught.value.problems]


def test_a_task_graph_is_read_as_it_is_written() -> None:
    graph, clusters = read_application(APP, "app.yaml")
    assert graph == TaskGraph.of({"a": 1.0, "b": 2.5, "3": 4.0}, [("a", "b", 3.0), ("a", "3", 1.0)], 50.0)
    assert clusters is None


def test_tasks_and_edges_may_name_their_numbers() -> None:
    long = "mcr: 50\ntasks: {a: {rcr: 1}, b: 2.5, 3: {rcr: 4}}\nedges: [{between: [a, b], rqoc: 3}, [3, a, 1]]\n"
    assert read_application(long, "app.yaml") == read_application(APP, "app.yaml")


def test_clusters_by_hand_keep_their_order() -> None:
    assert read_application(APP + "clusters: [[3, a], [b]]\n", "app.yaml").clusters == ((2, 0), (1,))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mcr: 50\ntasks: {a: 0}\n", [(2, 12, "rcr: 0 is too small")]),
        ("mcr: 50\ntasks: {a: {rcr: 0}}\n", [(2, 18, "rcr: 0 is too small")]),
        ("mcr: 50\ntasks: {a: fast}\n", [(2, 12, "rcr: 'fast' is not a number")]),
        ("mcr: 0\ntasks: {a: 1}\n", [(1, 6, "mcr: 0 is too small")]),
        ("tasks: {a: 1}\n", [(1, 1, "'mcr' is missing")]),
        ("mcr: 50\ntasks: {}\n", [(2, 8, "tasks: there are too few entries")]),
        ("mcr: 50\ntasks: {a b: 1}\n", [(2, 9, "'a b' is not a name")]),
        ("mcr: 50\ntasks: {a: 1}\nedges: [[a, z, 1]]\n", [(3, 13, "there is no task 'z'")]),
        ("mcr: 50\ntasks: {a: 1}\nedges: [{between: [a, z], rqoc: 1}]\n", [(3, 23, "there is no task 'z'")]),
        ("mcr: 50\ntasks: {a: 1}\nedges: [[a, a, 1]]\n", [(3, 9, "the edge joins 'a' with itself")]),
        (
            "mcr: 50\ntasks: {a: 1, b: 1}\nedges: [[a, b, 1], [b, a, 2]]\n",
            [(3, 20, "the edge between b and a is given twice; first as entry 1")],
        ),
        ("mcr: 50\ntasks: {a: 1, b: 1}\nedges: [[a, b]]\n", [(3, 9, "an edge has 3 entries, not 2")]),
        ("mcr: 50\ntasks: {a: 1, b: 1}\nedges: [[a, b, 0]]\n", [(3, 16, "rqoc: 0 is not a number above 0")]),
        ("mcr: 50\ntasks: {a: 1, b: 1}\nedges: [[a, b, x]]\n", [(3, 16, "rqoc: 'x' is not a number above 0")]),
        ("mcr: 50\ntasks: {a: 1, b: 1}\nedges: [[a, b, 1e99]]\n", [(3, 16, "rqoc: 1e+99 is out of range")]),
        ("mcr: 1e99\ntasks: {a: 1e-99}\n", [(1, 6, "mcr: 1e+99 is too large"), (2, 12, "rcr: 1e-99 is too small")]),
        (APP + "clusters: [[a, b]]\n", [(4, 1, "the task '3' is in no cluster")]),
        (
            APP + "clusters: [[a], [a, z], [3]]\n",
            [
                (4, 1, "the task 'b' is in no cluster"),
                (4, 18, "the task 'a' is in a cluster already"),
                (4, 21, "there is no task 'z'"),
            ],
        ),
        (APP + "tsk: 1\n", [(4, 1, "'tsk' is not a key that is known here")]),
    ],
)
def test_a_mistake_in_a_task_graph_is_reported_at_its_place(text: str, expected: list[tuple[int, int, str]]) -> None:
    assert problems(text) == expected


def test_machines_are_read_as_they_are_written() -> None:
    isti = Lan(
        name="isti",
        machines=(Machine(name="m1", power=1000, load=0.3), Machine(name="m2", power=800)),
        uplink_mbit_s=1000,
    )
    pisa = Man(name="pisa", lans=(isti, Lan(name="cnit", machines=())), uplink_mbit_s=155)
    assert read_machines(GRID, "grid.yaml") == Dendrogram(
        wans=(Wan(name="italy", mans=(pisa,), uplink_mbit_s=622),), user_lan="isti"
    )


def test_what_is_left_out_is_unlimited_idle_and_the_first() -> None:
    grid = read_machines("wans: {w: {mans: {m: {lans: {one: {machines: {x: {power: 5}}}}}}}}", "grid.yaml")
    assert grid.user_lan == "one"
    assert grid.wans[0].mans[0].lans[0].uplink_mbit_s == math.inf
    assert grid.flat.power == [5.0]


def test_equal_machines_are_written_once_with_their_count() -> None:
    """They stand where they are written, and a count of one is a group, too."""
    machines = "{a: {power: 9}, n: {power: 5, load: 0.5, count: 2}, z: {power: 3, count: 1}}"
    grid = read_machines(f"wans: {{w: {{mans: {{m: {{lans: {{one: {{machines: {machines}}}}}}}}}}}}}", "grid.yaml")
    assert grid.wans[0].mans[0].lans[0].machines == (
        Machine(name="a", power=9),
        Machine(name="n/1", power=5, load=0.5),
        Machine(name="n/2", power=5, load=0.5),
        Machine(name="z/1", power=3),
    )


def test_more_machines_than_the_limit_are_refused_before_they_are_made() -> None:
    group = f"{{power: 1, count: {MACHINES_MAX}}}"
    text = f"wans: {{w: {{mans: {{m: {{lans: {{one: {{machines: {{a: {group}, b: {{power: 1}}}}}}}}}}}}}}}}\n"
    assert problems(text, grid=True) == [(1, 1, "1000001 machines are more than 1000000 (MACHINES_MAX)")]
    assert problems(text.replace(str(MACHINES_MAX), str(MACHINES_MAX + 1)), grid=True) == [
        (1, text.index("1000000") + 1, "count: 1000001 is too large")
    ]


def test_files_of_machines_and_of_tasks_may_be_larger_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_machines(f"{GRID}#{'x' * TEXT_BYTES_MAX}", "grid.yaml") == read_machines(GRID, "grid.yaml")
    tasks = ", ".join(f"t{number}: 1" for number in range(NODES_MAX // 2))
    assert len(read_application(f"mcr: 1\ntasks: {{{tasks}}}", "app.yaml").graph.names) == NODES_MAX // 2
    for module, size, reader, text in (
        (mapping_grid, LARGE._replace(nodes=Limit("LARGE_NODES_MAX", 5)), read_machines, GRID),
        (mapping_application, LARGE._replace(text=Limit("LARGE_TEXT_BYTES_MAX", 5)), read_application, APP),
    ):
        monkeypatch.setattr(module, "LARGE", size)
        with pytest.raises(DescriptionError, match=r"more than 5 .*LARGE_"):
            reader(text, "x.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GRID.replace("power: 800", "power: 0"), [(9, 92, "power: 0 is too small")]),
        (GRID.replace("power: 800", "power: 8, count: 0"), [(9, 102, "count: 0 is too small")]),
        (GRID.replace("load: 0.3", "load: 30"), [(9, 74, "load: 30 is too large")]),
        (GRID.replace("user_lan: isti", "user_lan: iet"), [(1, 11, "there is no LAN 'iet'")]),
        (
            GRID.replace("cnit: {}", "cnit: {machines: {m1: {power: 1}}}"),
            [(10, 29, "there is a machine 'm1' in the LAN isti already")],
        ),
        (
            GRID + "      rome: {lans: {isti: {}}}\n",
            [(11, 21, "there is a LAN 'isti' in the MAN pisa of italy already")],
        ),
        ("user_lan: a\n", [(1, 1, "'wans' is missing")]),
        ("wans: {w: {mans: {}}}\n", [(1, 18, "mans: there are too few entries")]),
        (GRID.replace("uplink_mbit_s: 622", "uplink: 622"), [(4, 5, "'uplink' is not a key that is known here")]),
    ],
)
def test_a_mistake_in_machines_is_reported_at_its_place(text: str, expected: list[tuple[int, int, str]]) -> None:
    assert problems(text, grid=True) == expected


# ---------------------------------------------------------------------- jobs and grid files of the scheduler

JOB = f"name: film\napplication: {{executable: render}}\nhome: delft\n{APP}"


def test_a_job_may_hold_a_task_graph() -> None:
    request = read_job(JOB + "clusters: [[3, a], [b]]\n", "job.yaml")
    assert request.tasks == read_application(APP, "app.yaml").graph
    assert request.task_clusters == ((2, 0), (1,))
    assert (request.processors, request.kind, request.home) == (3, "flexible", "delft")


@pytest.mark.parametrize("clusters", ["", "clusters: [[3, a], [b]]\n"])
def test_a_job_of_tasks_is_written_as_it_is_read(clusters: str) -> None:
    request = read_job(JOB + clusters, "job.yaml")
    assert read_job(write_job_yaml(request), "job.yaml") == request
    with pytest.raises(InvalidRequestError, match="write the job in YAML"):
        write_rsl(request)


def test_the_task_graph_of_a_job_is_read_alone() -> None:
    assert read_application(JOB, "job.yaml") == read_application(APP, "app.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (JOB + "processors: 3\n", [(5, 1, "processors and tasks are given together")]),
        (JOB.replace("mcr: 50\n", ""), [(4, 1, "'mcr' is missing")]),
        (JOB.replace("[a, b, 3.0]", "[a, z, 3.0]"), [(6, 13, "there is no task 'z'")]),
        ("processors: 1\nmcr: 50\n", [(2, 1, "mcr: there are no tasks")]),
        ("processors: 1\nclusters: [[a]]\n", [(2, 1, "clusters: there are no tasks")]),
        (
            f"mcr: 1\ntasks: {{{', '.join(f't{n}: 1' for n in range(JOB_TASKS_MAX + 1))}}}\n",
            [(2, 8, "more than 1000 tasks (JOB_TASKS_MAX)")],
        ),
        (
            f"mcr: 1\ntasks: {{{', '.join(f'{n:0>200}: 1' for n in range(400))}}}\n",
            [(2, 8, "their names have more than 65536 characters in all (TEXT_CHARACTERS_MAX)")],
        ),
    ],
)
def test_a_mistake_in_a_job_of_tasks_is_reported_at_its_place(
    text: str, expected: list[tuple[int, int, str]]
) -> None:
    with pytest.raises(DescriptionError) as caught:
        read_job(text, "job.yaml")
    assert [(each.line, each.column, each.message) for each in caught.value.problems] == expected


def test_too_many_edges_are_refused() -> None:
    tasks = JOB_TASKS_MAX
    pairs = [(one, other, 1.0) for one in range(tasks) for other in range(one + 1, tasks)][: JOB_EDGES_MAX + 1]
    graph = TaskGraph(names=tuple(map(str, range(tasks))), rcr=(1.0,) * tasks, edges=tuple(pairs), mcr=1.0)
    with pytest.raises(InvalidRequestError, match="JOB_EDGES_MAX"):
        Request(components=(Component(processors=tasks),), flexible=Flexibility(), tasks=graph)


SITES = """\
sites:
  delft: {processors: 2, man: holland, wan: europe, nodes: [{name: d1, power: 1200, load: 0.5}]}
  pisa: {processors: 1, wan: europe, node_power: 800, node_load: 0.25, uplink_mbit_s: 100}
"""


def test_a_grid_file_of_the_scheduler_has_machines_too() -> None:
    tree = read_machines(SITES, "grid.yaml")
    assert [(wan.name, [man.name for man in wan.mans]) for wan in tree.wans] == [("europe", ["holland", "pisa"])]
    assert tree.flat.machine_names == ["d1", "delft/1", "pisa/1"]
    assert tree.flat.power == [600.0, 1000.0, 600.0]
    assert tree.user_lan == "delft"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            SITES.replace("processors: 1,", "processors: 1, nodes: [{name: d1, power: 1}],"),
            [(3, 40, "there is a node 'd1' at delft already")],
        ),
        (
            SITES.replace("processors: 1,", "processors: 1, nodes: [{name: a, power: 1}, {name: b, power: 1}],"),
            [(3, 25, "2 nodes are more than the site's processors, 1")],
        ),
        (SITES.replace("load: 0.5", "load: 2"), [(2, 91, "load: 2 is too large")]),
        (SITES.replace("node_power: 800", "node_power: 0"), [(3, 50, "node_power: 0 is too small")]),
    ],
)
def test_a_mistake_in_the_nodes_of_a_site_is_reported_at_its_place(
    text: str, expected: list[tuple[int, int, str]]
) -> None:
    assert problems(text, grid=True) == expected


def test_spawned_tasks_are_read_with_edges_to_tasks_of_the_job() -> None:
    tasks = read_spawned("tasks: {e: 1, f: {rcr: 2}}\nedges: [[e, mix, 5], {between: [f, e], rqoc: 1}]\n", "x.yaml")
    assert tasks == SpawnedTasks.of({"e": 1.0, "f": 2.0}, [("e", "mix", 5.0), ("f", "e", 1.0)])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tasks: {}\n", "tasks: "),
        ("tasks: {e: 0}\n", "rcr"),
        ("tasks: {e: x}\n", "rcr: 'x' is not a number"),
        ("tasks: {e: 1}\nmcr: 5\n", "mcr"),
        ("tasks: {e: 1}\nedges: [[a, b, 1]]\n", "the edge between 'a' and 'b' joins none of the new tasks"),
        ("tasks: {e: 1}\nedges: [[e, e, 1]]\n", "the edge joins 'e' with itself"),
        ("tasks: {e: 1}\nedges: [[e, a, 1], [a, e, 1]]\n", "is given twice"),
    ],
)
def test_a_text_that_names_no_spawned_tasks_is_refused(text: str, problem: str) -> None:
    with pytest.raises(DescriptionError, match=problem):
        read_spawned(text, "x.yaml")


def test_spawned_tasks_are_told_at_their_place_that_the_job_has_them_or_lacks_their_partners() -> None:
    with pytest.raises(DescriptionError) as caught:
        read_spawned("tasks: {e: 1, mix: 1}\nedges: [[e, mux, 5]]\n", "x.yaml", ["mix", "encode"])
    assert [(each.line, each.column, each.message) for each in caught.value.problems] == [
        (1, 15, "the job has a task 'mix' already"),
        (2, 13, "there is no task 'mux'"),
    ]
