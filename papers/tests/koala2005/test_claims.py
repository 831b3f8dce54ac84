"""The claims C9 to C13 on made-up results: each holds where the paper's pattern is there, and not where it is not."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from koala.study.frame.claims import PaperClaim
from koala.study.frame.experiment import Conclusion, FinishedUnit, Unit
from koala.study.frame.figures import save
from koala_papers.koala2005.claims import claims as claims_on
from koala_papers.koala2005.data import COMPONENTS, PRIORITIES, STABLE, UNSTABLE, Koala2005Data, cell_name
from koala_papers.koala2005.study import Koala2005, Koala2005Parameters

SEEDS = 20
JOBS = 40
PATTERN: dict[str, float] = {
    "not_completed": 0,
    "busiest_hour": 0.85,
    "stable_failures": 0.02,
    "failures_per_component": 0.04,
    "low_penalty_s": 4000.0,
    "per_component_s": 800.0,
    "large_penalty_s": 5000.0,
}


def results(**changes: float) -> list[FinishedUnit]:
    """Results of 20 seeds around the paper's pattern, changed as given."""
    pattern = PATTERN | changes
    rng = Random(2005)
    finished = []
    for seed in range(1, SEEDS + 1):
        for system in (UNSTABLE, STABLE):
            cells = {
                cell_name(priority, size, components): cell(rng, pattern, system, priority, size, components)
                for size, counts in COMPONENTS.items()
                for components in counts
                for priority in PRIORITIES
            }
            hour = pattern["busiest_hour"] * rng.uniform(0.99, 1.01)
            use = {"total": [0.4, hour, 0.6], "others": [0.17, 0.18, 0.17], "busiest_hour": hour}
            use |= {"busiest_window": 0.95, "while_submitting": 0.7, "mean": 0.65, "mean_others": 0.17}
            result = {
                "cells": cells,
                "use": use,
                "taken_out": {"leiden": 600.0 * seed} if system == UNSTABLE else {},
                "not_completed": pattern["not_completed"] if seed == 7 else 0,
                "component_failures": 150,
                "preemptions": 100,
                "makespan_s": 90_000.0,
            }
            work = {"system": system, "seed": seed}
            finished.append(FinishedUnit(Unit(label=f"{system}, seed {seed}", work=work), result))
    return finished


def cell(
    rng: Random, pattern: dict[str, float], system: str, priority: str, size: int, components: int
) -> dict[str, Any]:
    share = pattern["stable_failures"] * components / 4
    if system == UNSTABLE:
        share = max(0.0, 0.2 + pattern["failures_per_component"] * (components - 3))
    time_s = 9000.0 + pattern["per_component_s"] * components
    time_s += pattern["low_penalty_s"] * (priority == "low") + pattern["large_penalty_s"] * (size == 72)
    time_s *= rng.uniform(0.98, 1.02)
    failures = share / (1 - share) * JOBS * rng.uniform(0.95, 1.05)
    sums = {"placement_s": JOBS * time_s, "start_delay_s": JOBS * time_s * 0.8}
    sums |= {"gained_processor_s": JOBS * size * 300.0, "wasted_processor_s": JOBS * size * 60.0}
    return {"jobs": JOBS, "failures": failures, "coallocated": JOBS // 2, **sums}


def conclusion(**changes: float) -> Conclusion:
    return Koala2005().conclude(Koala2005Parameters(), results(**changes))


def claims(**changes: float) -> dict[str, PaperClaim]:
    """Without the numbers of a whole conclusion, which take longer."""
    return {claim.id: claim for claim in claims_on(Koala2005Data(results(**changes)))}


def test_every_claim_holds_where_the_papers_pattern_is_there() -> None:
    found = {claim.id: claim for claim in conclusion().claims}
    assert list(found) == ["C9", "C10", "C11", "C12", "C13"]
    assert {name: claim.why for name, claim in found.items() if claim.verdict != "holds"} == {}
    assert all(claim.evidence["seeds"] == SEEDS for claim in found.values())


@pytest.mark.parametrize(
    ("change", "value", "name"),
    [
        ("not_completed", 1, "C9"),
        ("busiest_hour", 0.6, "C10"),
        ("busiest_hour", 0.97, "C10"),
        ("busiest_hour", 0.8, "C10"),
        ("failures_per_component", 0.0, "C11"),
        ("failures_per_component", -0.02, "C11"),
        ("stable_failures", 0.1, "C11"),
        ("low_penalty_s", 0.0, "C12"),
        ("low_penalty_s", -4000.0, "C12"),
        ("per_component_s", -800.0, "C13"),
        ("large_penalty_s", -5000.0, "C13"),
    ],
)
def test_a_claim_does_not_hold_without_its_pattern_and_says_why(change: str, value: float, name: str) -> None:
    claim = claims(**{change: value})[name]
    assert claim.verdict != "holds"
    assert "contrary" in claim.why or "Undecided" in claim.why


def test_one_job_left_behind_in_one_run_is_one_too_many() -> None:
    assert "jobs not completed in the worst run: 1" in claims(not_completed=1)["C9"].why


def test_what_components_do_to_jobs_of_one_size_is_told_for_both_systems() -> None:
    why = claims()["C13"].why
    told = [f"for {size} processors on the {system} system" for size in COMPONENTS for system in (UNSTABLE, STABLE)]
    assert all(each in why for each in told)


def test_gained_and_wasted_processor_time_is_the_mean_of_the_jobs() -> None:
    group = conclusion().results[UNSTABLE]["groups"]["high/72/6"]
    assert group["gained_processor_s"]["mean"] == pytest.approx(72 * 300.0)
    assert group["wasted_processor_s"]["mean"] == pytest.approx(72 * 60.0)


def test_every_figure_of_the_paper_is_drawn_and_the_removal_is_told(tmp_path: Path) -> None:
    made = conclusion()
    names = [picture.name for picture in made.figures]
    assert names == [
        "utilisation",
        "failures",
        "stability",
        "coallocation",
        "placement",
        "start-delay",
        "gained",
        "wasted",
    ]
    for picture in made.figures:
        png, svg = save(picture, tmp_path)
        assert png.read_bytes().startswith(b"\x89PNG")
        assert "</svg>" in svg.read_text()
    (note,) = made.notes
    assert note == (
        "In 20 of 20 runs on the unstable system a cluster was taken out (leiden in 20), "
        "the first after 10 to 200 minutes (median 110)."
    )


def test_a_single_seed_with_few_jobs_gives_a_report_and_no_verdict() -> None:
    few = [each for each in results() if each.unit.work["seed"] == 1]
    for each in few:
        each.result["cells"] = {name: each.result["cells"][name] for name in list(each.result["cells"])[:1]}
    made = Koala2005().conclude(Koala2005Parameters(), few)
    assert {claim.id for claim in made.claims if (claim.verdict == "holds")} == {"C9"}
    assert made.results[UNSTABLE]["groups"]["low/72/8"]["placement_s"] is None
