"""Several jobs in one text: names become positions, order and errors are clear."""

from __future__ import annotations

import pytest

from koala.descriptions import DescriptionError, is_graph, read_graph, read_job
from koala.model.dependency import DEPENDENCIES_MAX, Condition, Dependency
from koala.model.request import GRAPH_JOBS_MAX, Request, numbered_from

RUN = "processors: 1, application: {executable: 'true'}"
CIRCLE = f"""a: {{{RUN}, after: {{done: [b]}}}}
  b: {{{RUN}, after: {{ended: [c]}}}}
  c: {{{RUN}, after: {{started: [a]}}}}"""
GRAPH = f"""
jobs:
  collect: {{{RUN}, after: {{done: [sweep, make], ended: [17, sweep_4]}}}}
  sweep: {{{RUN}, array: "0-8:2", after: {{done: [make]}}, name: parameters}}
  make: {{{RUN}}}
"""


def test_those_that_others_wait_for_come_first() -> None:
    assert is_graph(GRAPH, "graph.yaml")
    make, sweep, collect = read_graph(GRAPH, "graph.yaml")
    assert [each.name for each in (make, sweep, collect)] == ["make", "sweep", "collect"]
    assert [each.request.name for each in (make, sweep, collect)] == ["make", "parameters", "collect"]
    assert make.within == ()
    assert sweep.within == (Dependency(job=0),)
    assert collect.request.after == (Dependency(job=17, condition=Condition.ENDED),)
    assert collect.within == (
        Dependency(job=1),
        Dependency(job=0),
        Dependency(job=1, condition=Condition.ENDED, index=4),
    )
    requests: dict[int, Request] = {0: make.request, 1: sweep.request}
    assert collect.numbered({0: 40, 1: 41}, requests).after == (
        Dependency(job=17, condition=Condition.ENDED),
        Dependency(job=41),
        Dependency(job=40),
        Dependency(job=44, condition=Condition.ENDED),
    )


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        (f"a: {{{RUN}, after: {{done: [a]}}}}", "a waits for itself"),
        (f"a: {{{RUN}, after: {{done: [b]}}}}", "there is no job 'b' in this graph"),
        (
            CIRCLE,
            "a circle: a, which waits for b, which waits for c, which waits for a",
        ),
        (f"a: {{{RUN}}}\n  b: {{{RUN}, after: {{done: [a_1]}}}}", "a has no element 1"),
        (f"a: {{{RUN}, array: 0-3}}\n  b: {{{RUN}, after: {{done: [a_9]}}}}", "its indices are 0-3"),
        (f"a: {{{RUN}, after: {{done: [[]]}}}}", "this is no job"),
        (f"a: {{{RUN}}}\n  b: {{{RUN}, input_files: [jobs/a/x]}}", "a does not make 'x': it names no outputs"),
        (f"a: {{{RUN}, outputs: [y]}}\n  b: {{{RUN}, input_files: [jobs/a/x]}}", "graph.yaml:3"),
        (
            f"a: {{{RUN}, outputs: [x], array: 2-3}}\n  b: {{components: [{{{RUN}, input_files: [u, jobs/a/x]}}]}}",
            "name one of them, as jobs/a_2/x",
        ),
        (f"a: {{{RUN}, array: 0-3}}\n  b: {{{RUN}, input_files: [jobs/a_9/x]}}", "its indices are 0-3"),
        (f"a: {{{RUN}, outputs: [x], input_files: [jobs/a/x]}}", "a waits for itself"),
        (f"a: {{{RUN}, input_files: [jobs/b/x]}}", "there is no job 'b' in this graph"),
        ("a: {processors: 1, colour: red}", "'colour' is not a key"),
        ("{}", "jobs"),
    ],
)
def test_a_wrong_graph_says_what_is_wrong(jobs: str, told: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        read_graph(f"jobs:\n  {jobs}\n", "graph.yaml")
    assert told in caught.value.for_user()


def test_a_job_reads_what_others_of_the_graph_make() -> None:
    text = f"""
jobs:
  reads:
    processors: 1
    application: {{executable: 'true'}}
    input_files: [jobs/17/y, jobs/makes/x, {{name: jobs/makes.1/logs.tar, path: logs}}, jobs/sweep_4/x]
  makes: {{application: {{executable: a}}, outputs: [x, logs/], components: [{{processors: 1, count: 2}}]}}
  sweep: {{{RUN}, outputs: [x], array: 2-4}}
"""
    makes, sweep, reads = read_graph(text, "graph.yaml")
    assert (makes.name, sweep.name, reads.name) == ("makes", "sweep", "reads")
    assert reads.within == (Dependency(job=0), Dependency(job=1, index=4))
    request = [*numbered_from(40, (makes, sweep, reads))][2]
    assert request.after == (Dependency(job=40), Dependency(job=44))
    assert [(file.name, file.path) for file in request.components[0].input_files] == [
        ("jobs/17/y", None),
        ("jobs/40/x", "jobs/makes/x"),
        ("jobs/40.1/logs.tar", "logs"),
        ("jobs/44/x", "jobs/sweep_4/x"),
    ]
    assert [file.name for file in reads.alone().components[0].input_files] == ["jobs/17/y"]


def test_a_long_chain_is_read_and_more_than_the_limit_refused() -> None:
    lines = [f"  j{number}: {{{RUN}, after: {{done: [j{number + 1}]}}}}" for number in range(GRAPH_JOBS_MAX - 1)]
    chain = "\n".join(["jobs:", *lines, f"  j{GRAPH_JOBS_MAX - 1}: {{{RUN}}}"])
    assert read_graph(chain, "graph.yaml")[0].name == f"j{GRAPH_JOBS_MAX - 1}"
    with pytest.raises(DescriptionError, match=str(GRAPH_JOBS_MAX)):
        read_graph(f"{chain}\n  more: {{{RUN}}}", "graph.yaml")


def test_all_that_a_job_waits_for_is_limited_and_not_only_each_list() -> None:
    elements = ", ".join(f"a_{index}" for index in range(DEPENDENCIES_MAX))
    graph = f"jobs:\n  a: {{{RUN}, array: 0-{DEPENDENCIES_MAX}}}\n  b: {{{RUN}, after: {{done: [{elements}]%s}}}}\n"
    assert len(read_graph(graph % "", "graph.yaml")[1].within) == DEPENDENCIES_MAX
    for more in (", ended: [a]", ", ended: [17]"):
        with pytest.raises(DescriptionError) as caught:
            read_graph(graph % more, "graph.yaml")
        told = caught.value.for_user()
        assert "graph.yaml:3" in told
        assert f"b waits for {DEPENDENCIES_MAX + 1} jobs, more than {DEPENDENCIES_MAX} (DEPENDENCIES_MAX)" in told


def test_a_job_is_no_graph() -> None:
    assert not is_graph(f"{{{RUN}}}", "job.yaml")
    assert not is_graph("#!/bin/sh\njobs: 4\n", "job.sh")


def test_a_job_cannot_wait_for_both_ends_of_another() -> None:
    text = f"jobs:\n  a: {{{RUN}}}\n  b: {{{RUN}, after: {{done: [a], failed: [a]}}}}\n"
    with pytest.raises(DescriptionError, match=r"graph\.yaml:3:.*: job b: it waits for a to be done and to fail"):
        read_graph(text, "graph.yaml")
    numbers = f"jobs:\n  a: {{{RUN}}}\n  b: {{{RUN}, after: {{done: [7, 8_1], failed: [9, 8_1]}}}}\n"
    with pytest.raises(
        DescriptionError, match=r"graph\.yaml:3:.*: job b: it waits for job 8_1 to be done and to fail"
    ):
        read_graph(numbers, "graph.yaml")
    assert len(read_graph(numbers.replace("9, 8_1", "9, 8_2"), "graph.yaml")[1].request.after) == 4
    with pytest.raises(DescriptionError, match="it waits for job 7_3 to be done and to fail"):
        read_job(f"{{{RUN}, after: {{done: [7_3], failed: [7_3]}}}}", "job.yaml")
    assert len(read_job(f"{{{RUN}, after: {{done: [7_3], failed: [7_4]}}}}", "job.yaml").after) == 2
    script = "#!/bin/sh\n#SBATCH -n 1 --dependency=afterok:7:8,afternotok:8\ntrue\n"
    with pytest.raises(DescriptionError, match="it waits for job 8 to be done and to fail"):
        read_job(script, "job.sbatch")
