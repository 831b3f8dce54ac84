"""The render-encode pipeline: as the paper states it, and the claim on its table judged from the rows."""

from __future__ import annotations

from typing import Any

import pytest

from koala_papers.wase.pipeline import (
    ASSUMED,
    CLUSTERS,
    MCRS,
    MEMBERSHIPS,
    PAPER_AFFINITY,
    PAPER_BETWEEN_CLUSTERS,
    PAPER_BETWEEN_LANS,
    PAPER_TASKS,
    RENDER_RCR,
    grid_of_23,
    has_shape,
    pipeline,
    run_pipeline,
    shape_claim,
    table,
    tables_text,
)


def paper_rows() -> list[dict[str, Any]]:
    """Table 2 itself."""
    return [
        {
            "clusters": clusters,
            "wanted": clusters,
            "mcr": mcr,
            "failed": False,
            "tasks": list(PAPER_TASKS[clusters, mcr]),
            "affinity": PAPER_AFFINITY[clusters, mcr],
            "between_clusters": PAPER_BETWEEN_CLUSTERS[clusters] / 100,
            "between_lans": PAPER_BETWEEN_LANS[clusters] / 100 if mcr == 150 else 0.0,
        }
        for clusters in CLUSTERS
        for mcr in MCRS
    ]


def test_the_testbed_has_the_23_machines_of_table_1_however_they_are_divided() -> None:
    for membership in MEMBERSHIPS:
        grid = grid_of_23(membership)
        assert grid.machine_count == 23
        assert sum(grid.flat.power) == pytest.approx(0.7 * 23_250)
        assert len(grid.flat.lan_index) == 3
        assert grid.user_lan == "ISTI"


def test_the_pipeline_has_14_tasks_in_one_piece_and_light_ones_of_rcr_1() -> None:
    graph = pipeline(50.0)
    assert len(graph.names) == 14
    assert min(graph.rcr) == 1.0
    assert min(rqoc for _, _, rqoc in graph.edges) == 1.0
    assert sum(name.startswith("render") for name in graph.names) == 5
    assert sum(name.startswith("encode") for name in graph.names) == 2


def test_the_papers_own_table_has_the_shape_that_is_claimed() -> None:
    assert has_shape(paper_rows())


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (1, {"tasks": [13, 1, 0]}),
        (2, {"tasks": [14, 0, 0]}),
        (2, {"affinity": 6.0}),
        (0, {"failed": True}),
    ],
)
def test_a_table_without_the_shape_is_told(place: int, change: dict[str, Any]) -> None:
    rows = paper_rows()
    rows[place] = {**rows[place], **change}
    assert not has_shape(rows)


def test_the_clusters_are_as_many_as_the_table_has() -> None:
    rows = table("local-search", ASSUMED, RENDER_RCR)
    assert [(row["clusters"], row["mcr"]) for row in rows] == [
        (clusters, mcr) for clusters in CLUSTERS for mcr in MCRS
    ]
    for row in rows:
        assert sum(row["tasks"]) == 14


def test_communication_between_clusters_grows_with_their_number() -> None:
    shares = [row["between_clusters"] for row in table("local-search", ASSUMED, RENDER_RCR)]
    assert shares[0] < shares[3] < shares[6]


def test_the_claim_says_what_other_assumptions_would_have_made_of_it() -> None:
    result = run_pipeline("local-search")
    claim = shape_claim(result)
    assert (claim.verdict == "holds") == has_shape(result["rows"])
    there = sum(each["shape"] for each in result["varied"])
    assert 0 < there < len(result["varied"])
    assert f"{there} of {len(result['varied'])} cases" in claim.why
    assert "assumed" in claim.why


def test_a_mapping_that_was_not_found_has_a_row_in_the_table() -> None:
    rows = [*paper_rows()[:-1], {**paper_rows()[-1], "failed": True}]
    text = tables_text({"rows": rows})
    assert "| 10 | 150 | no mapping | 9, 1, 4 |" in text
    assert text.count("| IET |") == 4
