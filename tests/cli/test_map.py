"""``koala map``: the answer for people and for programs, the clusters it goes by, its pictures and its exit codes."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from koala.cli import koala

APP = """
mcr: 50
tasks: {a: 4, b: 4, c: 4, d: 4}
edges: [[a, b, 9], [c, d, 9], [b, c, 1]]
"""
GRID = """
user_lan: near
wans:
  italy:
    uplink_mbit_s: 622
    mans:
      pisa:
        uplink_mbit_s: 155
        lans:
          near: {uplink_mbit_s: 1000, machines: {n1: {power: 500, load: 0.5}, n2: {power: 200}}}
          beside: {uplink_mbit_s: 100, machines: {b1: {power: 300}, b2: {power: 300}}}
      rome:
        lans: {far: {machines: {f1: {power: 900}}}}
"""


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(koala, ["map", *arguments])


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 - it is our own


def answer(*arguments: str, exit_code: int = 0) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "app.yaml"
    path.write_text(APP, encoding="utf-8")
    return path


@pytest.fixture
def files(app: Path, tmp_path: Path) -> list[str]:
    grid = tmp_path / "grid.yaml"
    grid.write_text(GRID, encoding="utf-8")
    return [str(app), "--grid", str(grid)]


def test_each_cluster_gets_the_closest_lan_that_is_suitable(files: list[str]) -> None:
    told = answer(*files)
    # Each task needs 200, which is what n1 and n2 have left each; after the first cluster the LAN is full.
    assert told["failed"] is False
    assert told["clusters"] == [["a", "b"], ["c", "d"]]
    assert told["mapping"] == {"a": "n1", "b": "n2", "c": "b1", "d": "b2"}
    assert told["lan_hit_ratio"] == 1.0
    assert told["min_affinity"] == 1.0
    assert told["mean_affinity"] == pytest.approx((250 / 200 + 1 + 1.5 + 1.5) / 4)
    assert told["inter_lan_share"] == pytest.approx(1 / 19)
    assert told["distances"] == {"lan": 4, "man": 0, "wan": 0, "beyond": 0}


def test_the_keys_come_in_the_order_that_is_documented(files: list[str]) -> None:
    first = ["failed", "clusters", "mapping", "lan_hit_ratio", "mean_affinity", "min_affinity", "inter_lan_share"]
    assert list(answer(*files))[:8] == [*first, "distances"]


def test_the_table_shows_every_task_with_its_machine(files: list[str]) -> None:
    result = run(*files)
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["1", "a", "200", "n1", "near", "1.25", "at", "home"] in rows
    assert "wase: 4 tasks in 2 clusters on 4 machines of 2 LANs" in result.stdout


def test_greedy_takes_the_tightest_machines(files: list[str]) -> None:
    assert answer(*files, "--method", "greedy")["mapping"] == {"a": "n2", "b": "n1", "c": "b1", "d": "b2"}


def test_the_search_begins_where_the_user_sits(files: list[str]) -> None:
    told = answer(*files, "--user-lan", "beside")
    assert told["mapping"] == {"a": "b1", "b": "b2", "c": "n1", "d": "n2"}


def test_clusters_by_hand_are_not_looked_for(files: list[str], app: Path) -> None:
    app.write_text(APP + "clusters: [[b, c], [a], [d]]\n", encoding="utf-8")
    told = answer(*files)
    assert told["clusters"] == [["b", "c"], ["a"], ["d"]]
    assert told["clustering"] is None
    result = run(*files, "--theta", "0")
    assert result.exit_code == 2
    assert "has its clusters already; leave out" in result.stderr


@pytest.mark.parametrize("clustering", ["local-search", "lp", "region-growing", "lp-search", "exact"])
def test_every_way_of_clustering_finds_the_two_pairs(files: list[str], clustering: str) -> None:
    told = answer(*files, "--clustering", clustering)
    assert told["clusters"] == [["a", "b"], ["c", "d"]]
    assert told["clustering"]["theta"] == 0


def test_theta_makes_clusters_larger_and_a_size_finds_its_theta(files: list[str]) -> None:
    assert len(answer(*files, "--theta", "-9")["clusters"]) == 4
    assert len(answer(*files, "--theta", "9", "--method", "wase-whole")["clusters"]) == 1
    told = answer(*files, "--cluster-size", "2")
    assert [len(cluster) for cluster in told["clusters"]] == [2, 2]


def test_a_size_that_cannot_be_had_says_what_comes_nearest(files: list[str]) -> None:
    result = run(*files, "--cluster-size", "2.5-3")
    assert result.exit_code == 2
    assert "clusters of 2.5 to 3 tasks on average" in result.stderr
    assert "comes nearest" in result.stderr


def test_without_the_solver_local_search_works_and_the_lp_says_what_to_install(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    assert answer(*files, "--cluster-size", "1-3")["clusters"] == [["a", "b"], ["c", "d"]]
    result = run(*files, "--clustering", "lp")
    assert result.exit_code == 2
    assert "highspy is not installed" in result.stderr
    assert "koala-scheduler[mapping]" in result.stderr


def test_a_mapping_that_fails_says_who_found_no_place_and_what_was_missing(files: list[str], app: Path) -> None:
    app.write_text(APP.replace("mcr: 50", "mcr: 500"), encoding="utf-8")
    told = answer(*files, exit_code=3)
    assert told["failed"] is True
    assert told["cluster"] == ["a", "b"]
    assert (told["wanted"], told["offered"], told["where"], told["missing"]) == (2000, 900, "far", 1100)
    assert "found no suitable LAN" in told["reason"]
    result = run(*files, "--method", "greedy")
    assert result.exit_code == 3
    assert "Not mapped by greedy: task a found no machine: it needs 2000 MFlop/s" in result.stdout


def test_a_mapping_that_fails_draws_nothing(files: list[str], app: Path, tmp_path: Path) -> None:
    app.write_text(APP.replace("mcr: 50", "mcr: 500"), encoding="utf-8")
    assert run(*files, "--svg", str(tmp_path / "map.svg")).exit_code == 3
    assert not (tmp_path / "map.svg").exists()


def test_the_svg_has_every_task_in_the_colour_of_its_cluster(files: list[str], tmp_path: Path) -> None:
    picture = tmp_path / "map.svg"
    assert run(*files, "--svg", str(picture)).exit_code == 0
    root = parsed(picture.read_text(encoding="utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    colours = {
        (group.findtext(f"{space}text") or "?"): group.find(f"{space}rect").attrib["fill"]  # type: ignore[union-attr]
        for group in root.findall(f"{space}g")
    }
    assert colours["a"] == colours["b"] != colours["c"] == colours["d"]
    boxes = [each for each in root.findall(f"{space}rect") if "stroke" in each.attrib]
    assert len({each.attrib["stroke"] for each in boxes}) == 2
    broken = [
        each.findtext(f"{space}title") for each in root.iter(f"{space}line") if "stroke-dasharray" in each.attrib
    ]
    assert broken == ["b - c: rqoc 1"]


def test_a_picture_on_standard_output_comes_alone(files: list[str]) -> None:
    drawn = run(*files, "--dot", "-").stdout
    assert drawn.startswith("graph mapping {")
    assert drawn.endswith("}\n")
    assert 'label="near (pisa, italy)"' in drawn
    assert '"b" -- "c" [penwidth=1.56, tooltip="rqoc 1", style=dashed];' in drawn
    assert parsed(run(*files, "--svg", "-").stdout).tag.endswith("svg")


def test_names_are_quoted_in_pictures() -> None:
    from koala.mapping.drawing import dot, svg
    from koala.mapping.placing.catalogue import map_tasks
    from koala.mapping.result import TaskMapping
    from koala.model.dendrogram import Dendrogram, Lan, Machine, Man, Wan
    from koala.model.task_graph import TaskGraph

    graph = TaskGraph.of({'<a & "b">': 1.0}, [], 1.0)
    lan = Lan(name="<lan>", machines=(Machine(name='"m"', power=2.0),))
    grid = Dendrogram(wans=(Wan(name="w", mans=(Man(name="m", lans=(lan,)),)),), user_lan="<lan>")
    mapping = map_tasks(graph, [[0]], grid)
    assert isinstance(mapping, TaskMapping)
    assert "<a & " in "".join(parsed(svg(mapping, graph, grid)).itertext())
    assert r'"<a & \"b\">" [label="<a & \"b\">\n\"m\""' in dot(mapping, graph, grid)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "magic"], "there is no mapping method 'magic'; there are: wase, greedy"),
        (["--theta", "1", "--cluster-size", "2"], "--theta and --cluster-size are given together"),
        (["--theta", "nan"], "write a finite number"),
        (["--cluster-size", "6-4"], "the smaller one first"),
        (["--cluster-size", "many"], "write two numbers, like 4-6"),
        (["--user-lan", "nowhere"], "there is no LAN 'nowhere'"),
        (["--method", "wase-far", "--affinity-wanted", "0"], "affinity_wanted is 0.0; write a number above 0"),
        (["--method", "wase-far", "--affinity-wanted", "nan"], "affinity_wanted is nan; write a number above 0"),
        (["--affinity-wanted", "3"], "--affinity-wanted is for wase-far and wase-all; leave it out with wase"),
        (["--method", "greedy", "--lan-by-lan"], "--lan-by-lan is for wase; leave it out with greedy"),
        (["--time-limit", "3"], "--time-limit is for optimal; leave it out with wase"),
        (["--dot", "-", "--svg", "-"], "would both write to standard output"),
        (["--json", "--svg", "-"], "would both write to standard output"),
    ],
)
def test_bad_options_are_told_what_to_write(files: list[str], arguments: list[str], message: str) -> None:
    result = run(*files, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_best_mapping_comes_with_its_proof(files: list[str]) -> None:
    told = answer(*files, "--method", "optimal", "--objective", "inter-lan")
    assert told["method"] == "optimal"
    # f1 alone has room for all four.
    assert set(told["mapping"].values()) == {"f1"}
    assert told["optimum"] == {"status": "optimal", "value": 0.0, "bound": 0.0}
    assert "no mapping is better" in run(*files, "--method", "optimal").stdout


def test_where_no_mapping_exists_optimisation_says_so(files: list[str], app: Path) -> None:
    app.write_text(APP.replace("mcr: 50", "mcr: 500"), encoding="utf-8")
    assert answer(*files, "--method", "optimal", exit_code=3)["optimum"]["status"] == "infeasible"
    assert "It is certain that no mapping exists." in run(*files, "--method", "optimal").stdout


# --------------------------------------------------------------------------------- while the application runs

GROWN = """
mcr: 50
tasks: {late: 2, a: 4, b: 4, c: 4, d: 4}
edges: [[a, b, 9], [c, d, 9], [b, c, 1], [late, d, 5]]
"""


@pytest.fixture
def running(files: list[str], tmp_path: Path) -> Path:
    path = tmp_path / "running.json"
    path.write_text(run(*files, "--json").stdout, encoding="utf-8")
    return path


def test_tasks_that_come_later_join_those_that_run(files: list[str], app: Path, running: Path) -> None:
    before = json.loads(running.read_text(encoding="utf-8"))
    app.write_text(GROWN, encoding="utf-8")
    told = answer(*files, "--running", str(running))
    assert told["clusters"] == [["a", "b"], ["c", "d", "late"]]
    # What runs stays; b1 and b2 have 100 left each, and late needs just that.
    assert told["mapping"] == {**before["mapping"], "late": "b1"}
    assert told["lans"]["late"] == "beside"


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (APP.replace("d: 4", "e: 4").replace("d, 9", "e, 9"), [], "the task d is not in APP"),
        (GROWN, ["--grid", "tuscany"], "the task a is on the machine n1, which is not in the grid"),
        (GROWN, ["--method", "greedy"], "leave out clusters and --method"),
        (GROWN + "clusters: [[a, b, c, d, late]]\n", [], "leave out clusters and --method"),
    ],
)
def test_what_runs_must_fit_to_the_application_and_the_grid(
    files: list[str], app: Path, running: Path, text: str, arguments: list[str], message: str
) -> None:
    app.write_text(text, encoding="utf-8")
    result = run(*files, "--running", str(running), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mapping": {}}, "are not of the same tasks"),
        ({"homes": ["near"]}, "are not of the same tasks"),
        ({"homes": ["near", "nowhere"]}, "at home in the LAN nowhere, which is not in the grid"),
        ({"mapping": 3}, "this is not a mapping as koala map --json prints it"),
    ],
)
def test_an_answer_that_somebody_spoilt_is_refused(
    files: list[str], running: Path, change: dict[str, Any], message: str
) -> None:
    spoilt = {**json.loads(running.read_text(encoding="utf-8")), **change}
    running.write_text(json.dumps(spoilt), encoding="utf-8")
    result = run(*files, "--running", str(running))
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_picture_does_not_replace_the_application(files: list[str]) -> None:
    result = run(*files, "--svg", files[0])
    assert result.exit_code == 2
    assert "APP is the same file" in result.stderr
    assert Path(files[0]).read_text(encoding="utf-8") == APP


def test_the_shipped_pipeline_goes_onto_the_shipped_machines() -> None:
    told = answer("pipeline", "--grid", "tuscany", "--cluster-size", "4-6")
    assert told["failed"] is False
    assert len(told["mapping"]) == 14
    assert told["min_affinity"] >= 1


def test_an_example_that_is_not_there_names_those_of_both_kinds() -> None:
    result = run("pipelime", "--grid", "tuscany")
    assert result.exit_code == 2
    assert "did you mean pipeline?" in result.stderr
