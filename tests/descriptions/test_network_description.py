"""Homes, communication and networks in every file that may hold them, and what is said of those that cannot be."""

from __future__ import annotations

import pytest

from koala.descriptions import DescriptionError, read_grid, read_job
from koala.descriptions.workload.form import read_workload
from koala.model.grid import LinkGroup, Network, Route
from koala.model.request import Communication, InvalidRequestError, Pattern

SITES = "sites: {vu: {processors: 8}, delft: {processors: 8}, leiden: {processors: 8}}\n"


def problems(text: str, source: str = "grid.yaml") -> list[tuple[int | None, int | None, str, str]]:
    """Where, what is wrong and what to do, of everything in a text that is refused."""
    read = {"grid.yaml": read_grid, "job.yaml": read_job, "job.rsl": read_job, "w.yaml": read_workload}[source]
    with pytest.raises(DescriptionError) as caught:
        read(text, source)  # type: ignore[operator]
    return [(each.line, each.column, each.message, each.advice) for each in caught.value.problems]


# -------------------------------------------------------------------------------------------- jobs


def test_a_job_says_where_it_arrives_and_how_it_communicates() -> None:
    text = "flexible: {processors: 24}\nhome: vu\ncommunication: {bisection_mbit_s: 300}\npolicy: B3(chunk=0.9)"
    job = read_job(text, "job.yaml")
    assert (job.home, job.policy) == ("vu", "B3(chunk=0.9)")
    assert job.communication == Communication(pattern=Pattern.ALL_TO_ALL, bisection_mbit_s=300.0, share=0.3)


def test_rsl_says_the_same_in_its_own_words() -> None:
    text = """&(count=24)(koalaFlexible=yes)(koalaHome=vu)(koalaPattern=cube)(koalaDimensions=3)
        (koalaPerProcessorMbit=12.5)(koalaCommunicationShare=0.25)(koalaPolicy="B3(chunk=0.9)")"""
    job = read_job(text, "job.rsl")
    assert (job.home, job.policy) == ("vu", "B3(chunk=0.9)")
    assert job.communication == Communication(
        pattern=Pattern.CUBE, per_processor_mbit_s=12.5, share=0.25, dimensions=3
    )


def test_a_job_that_talks_to_nobody_needs_no_bandwidth() -> None:
    job = read_job("processors: 8\ncommunication: {pattern: none}", "job.yaml")
    assert job.communication == Communication(pattern=Pattern.NONE)


@pytest.mark.parametrize(
    ("communication", "column", "message", "advice"),
    [
        ("{}", 16, "the bandwidth is missing", "that of each processor"),
        ("{bisection_mbit_s: 1, per_processor_mbit_s: 2}", 60, "given together", "write one of the two"),
        ("{bisection_mbit_s: -1}", 35, "too small", "0 or more"),
        ("{bisection_mbit_s: 1, share: 1.5}", 45, "too large", "1 or less"),
        ("{bisection_mbit_s: 1, pattern: star}", 47, "'star'", "all-to-all"),
        ("{bisection_mbit_s: 1, speed: 2}", 38, "'speed'", "share"),
    ],
)
def test_communication_that_cannot_be_is_refused_where_it_stands(
    communication: str, column: int, message: str, advice: str
) -> None:
    ((line, found, what, cure),) = problems(f"processors: 8\ncommunication: {communication}", "job.yaml")
    assert (line, found) == (2, column)
    assert message in what
    assert advice in cure


@pytest.mark.parametrize(
    ("relations", "column", "message"),
    [
        ("(koalaPattern=ring)", 1, "the bandwidth is missing"),
        ("(koalaBisectionMbit=1)(koalaPerProcessorMbit=2)", 35, "given together"),
        ("(koalaBisectionMbit=much)", 32, "'much' is not a number"),
        ("(koalaBisectionMbit=1)(koalaCommunicationShare=2)", 35, "2 is not a fraction"),
        ("(koalaPattern=star)", 26, "'star' is not one of the choices"),
    ],
)
def test_rsl_that_cannot_be_is_refused_where_it_stands(relations: str, column: int, message: str) -> None:
    ((line, found, what, _),) = problems(f"&(count=8) {relations}", "job.rsl")
    assert (line, found) == (1, column)
    assert message in what


def test_a_home_that_is_not_known_is_refused_with_the_nearest_name() -> None:
    for text, source, place in (
        ("processors: 8\nhome: delfd\n", "job.yaml", (2, 7)),
        ("&(count=8)(koalaHome=delfd)", "job.rsl", (1, 22)),
    ):
        with pytest.raises(DescriptionError) as caught:
            read_job(text, source, known_sites=["vu", "delft"])
        assert (caught.value.line, caught.value.column) == place
        assert "did you mean 'delft'?" in caught.value.advice


def test_a_policy_with_parameters_is_known_by_its_name() -> None:
    known = {"known_policies": ["WF", "B3"]}
    assert read_job("processors: 8\npolicy: b3(0.9)", "job.yaml", **known).policy == "b3(0.9)"
    with pytest.raises(DescriptionError, match="there is no policy 'B33'"):
        read_job("processors: 8\npolicy: B33(0.9)", "job.yaml", **known)
    with pytest.raises(DescriptionError):
        read_job("processors: 8\npolicy: B3(0.9", "job.yaml", **known)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "bisection_mbit_s"),
        ({"bisection_mbit_s": 1.0, "per_processor_mbit_s": 1.0}, "per_processor_mbit_s"),
        ({"bisection_mbit_s": float("nan")}, "bisection_mbit_s"),
        ({"bisection_mbit_s": 1.0, "share": -0.1}, "share"),
        ({"bisection_mbit_s": 1.0, "dimensions": 0}, "dimensions"),
    ],
)
def test_the_model_refuses_communication_that_contradicts_itself(fields: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Communication(**fields)  # type: ignore[arg-type]
    assert caught.value.field == field


# -------------------------------------------------------------------------------------------- grids


def test_a_grid_without_a_network_has_none_and_an_uplink_alone_makes_one() -> None:
    assert read_grid(SITES, "grid.yaml").network is None
    grid = read_grid("sites: {vu: {processors: 8, uplink_mbit_s: 155}, delft: {processors: 8}}", "grid.yaml")
    assert grid.network == Network()
    assert [site.uplink_mbit_s for site in grid.sites] == [155.0, None]


def test_groups_nest_and_routes_go_over_named_links() -> None:
    text = """network:
  groups:
    - {name: holland, members: [delft, leiden], uplink_mbit_s: 300}
    - {name: all, members: [holland, vu]}
  links: {sea: 45}
  routes: [{between: [vu, delft], over: [sea]}]
"""
    assert read_grid(SITES + text, "grid.yaml").network == Network(
        groups=(
            LinkGroup(name="holland", members=("delft", "leiden"), uplink_mbit_s=300.0),
            LinkGroup(name="all", members=("holland", "vu")),
        ),
        links=(("sea", 45.0),),
        routes=(Route(between=("vu", "delft"), over=("sea",)),),
    )


@pytest.mark.parametrize(
    ("network", "column", "message", "advice"),
    [
        ("uplink_mbit_s: 0", 26, "too small", "more than 0"),
        ("groups: [{name: g, members: [delfd]}]", 40, "no site or group 'delfd'", "did you mean 'delft'?"),
        ("groups: [{name: vu, members: [delft]}]", 27, "also the name of a site", "another name"),
        ("groups: [{name: g, members: [vu]}, {name: g, members: [delft]}]", 53, "two groups 'g'", "another name"),
        ("groups: [{name: g, members: [vu, vu]}]", 44, "'vu' is a member of g already", "one group"),
        (
            "groups: [{name: g, members: [vu]}, {name: h, members: [vu]}]",
            66,
            "'vu' is a member of g already",
            "one group",
        ),
        ("groups: [{name: g, members: [g]}]", 20, "'g' is inside itself", "out of one"),
        ("routes: [{between: [vu, delft], over: [sea]}]", 50, "no link 'sea'", "none"),
        ("links: {sea: 1}, routes: [{between: [vu, x], over: [sea]}]", 52, "no site 'x'", "vu, delft, leiden"),
        ("links: {sea: 1}, routes: [{between: [vu, vu], over: [sea]}]", 47, "with itself", "two different"),
        (
            "links: {sea: 1}, routes: [{between: [vu, delft], over: [sea, sea]}]",
            72,
            "'sea' is named twice",
            "each link once",
        ),
        (
            "links: {s: 1}, routes: [{between: [vu, delft], over: [s]}, {between: [delft, vu], over: [s]}]",
            80,
            "given twice; first as entry 1",
            "keep one",
        ),
        ("links: {sea: -1}", 24, "too small", "more than 0"),
    ],
)
def test_a_network_that_cannot_be_is_refused_where_it_stands(
    network: str, column: int, message: str, advice: str
) -> None:
    ((line, found, what, cure),) = problems(f"{SITES}network: {{{network}}}")
    assert (line, found) == (2, column)
    assert message in what
    assert advice in cure


def test_groups_in_a_circle_are_all_told() -> None:
    text = "network: {groups: [{name: g, members: [h]}, {name: h, members: [g]}]}"
    assert [what for _, _, what, _ in problems(SITES + text)] == [
        "the group 'g' is inside itself",
        "the group 'h' is inside itself",
    ]


# -------------------------------------------------------------------------------------------- workloads


def workload(fields: str) -> str:
    return f"""generate:
  - jobs: 10
    interarrival_s: 1
    execution_s: 1
    mix: [{{application: x, sizes: [{{processors: 4}}]}}]
    {fields}
"""


@pytest.mark.parametrize(
    ("fields", "message", "advice"),
    [
        ("home: somewhere", "'somewhere' says nothing here", "drawn, none"),
        ("home: {}", "there are no sites in it", "drawn"),
        ("home: {vu: 0}", "too small", "more than 0"),
        ("communication: {}", "it says nothing", "exactly one of bisection_mbit_s, per_processor_mbit_s"),
        ("communication: {bisection_mbit_s: {uniform: [3, 2]}}", "the least is above the most", "[least, most]"),
        ("communication: {bisection_mbit_s: {choices: []}}", "too few", "more"),
        ("communication: {bisection_mbit_s: 1, pattern: {star: 1}}", "star", "all-to-all"),
        ("communication: {bisection_mbit_s: 1, per_processor_mbit_s: 1}", "are given together", "exactly one"),
    ],
)
def test_a_generator_that_cannot_draw_is_refused(fields: str, message: str, advice: str) -> None:
    ((line, _, what, cure),) = problems(workload(fields), "w.yaml")
    assert line == 6
    assert message in what
    assert advice in cure
