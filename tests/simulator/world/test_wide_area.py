"""What links do to an execution over several clusters: nothing at the reference, and more the worse they are."""

from __future__ import annotations

import msgspec
import pytest

from koala.descriptions import DescriptionError
from koala.descriptions.workload.form import read_workload
from koala.model.grid import Grid, Link, Links, PairLink
from koala.model.messages import ComponentEnded
from koala.simulator import Arrival
from koala.simulator.workloads.generators import workload_from_file
from koala.simulator.world.wide_area import WideArea
from tests.support.hand_driven import HandDriven, grid, job, site

REFERENCE = Links().default
# a and b are joined by the reference link; c is far from both, and farther from b.
LINKS = Links(
    default=REFERENCE,
    pairs=(
        PairLink(between=("c", "a"), bandwidth_mbit_s=50.0, latency_s=0.02),
        PairLink(between=("b", "c"), bandwidth_mbit_s=25.0, latency_s=0.02),
    ),
)


def three_sites(links: Links) -> Grid:
    return msgspec.structs.replace(grid(site("a", 50), site("b", 50), site("c", 50)), links=links)


def ends_at(links: Links, arrival: Arrival, *places: str) -> list[float]:
    hands = HandDriven(three_sites(links), arrival)
    hands.until(0)
    tokens = [f"t{index}" for index in range(len(places))]
    for token, place in zip(tokens, places, strict=True):
        hands.start(token, place, 2, parts=len(places))
    hands.release(*tokens)
    return [event.at for event in hands.until(10_000) if isinstance(event, ComponentEnded)]


def feeling(bandwidth_share: float, latency_share: float) -> Arrival:
    return job(0.0, 2, 2, 2, slowdown=0.3)._replace(bandwidth_share=bandwidth_share, latency_share=latency_share)


@pytest.mark.parametrize("arrival", [feeling(0.0, 0.0), feeling(0.3, 0.6), feeling(1.0, 0.0)])
def test_over_reference_links_the_shares_change_nothing_to_the_last_bit(arrival: Arrival) -> None:
    plain = ends_at(Links(), job(0.0, 2, 2, 2, slowdown=0.3), "a", "b", "c")
    assert ends_at(Links(), arrival, "a", "b", "c") == plain


def test_an_application_without_shares_does_not_feel_its_links() -> None:
    assert ends_at(LINKS, feeling(0.0, 0.0), "a", "b", "c") == ends_at(Links(), feeling(0.0, 0.0), "a", "b", "c")


@pytest.mark.parametrize(
    ("shares", "places", "slowness"),
    [
        ((1.0, 0.0), ("a", "b", "b"), 1.0),
        ((1.0, 0.0), ("a", "c", "c"), 2.0),
        ((1.0, 0.0), ("c", "b", "b"), 4.0),
        ((0.0, 1.0), ("a", "c", "a"), 4.0),
        ((0.5, 0.25), ("b", "c", "c"), 0.25 + 0.5 * 4.0 + 0.25 * 4.0),
    ],
)
def test_the_worst_link_between_two_clusters_scales_what_the_second_costs(
    shares: tuple[float, float], places: tuple[str, ...], slowness: float
) -> None:
    assert ends_at(LINKS, feeling(*shares), *places) == pytest.approx([100.0 * (1 + 0.3 * slowness)] * 3)


def test_of_three_clusters_the_worst_link_counts_for_every_further_one() -> None:
    assert ends_at(LINKS, feeling(1.0, 0.0), "a", "b", "c") == pytest.approx([100.0 * (1 + 0.3 * 4.0 * 2)] * 3)


def test_one_cluster_feels_no_link() -> None:
    assert ends_at(LINKS, feeling(1.0, 0.0), "c", "c", "c") == [100.0] * 3


def test_faster_links_than_the_reference_shorten_only_what_goes_with_them() -> None:
    fast = WideArea(Links(default=Link(bandwidth_mbit_s=1e9, latency_s=0.0)))
    assert fast.slowness(("a", "b"), 0.5, 0.25) == pytest.approx(0.25)


WORKLOAD = """
applications:
  laplace: {execution_s: 100, per_extra_cluster: 0.3, bandwidth_share: 0.25, latency_share: SHARE}
jobs:
  - {at_s: 0, job: {name: one, application: {executable: laplace}, processors: 1}}
  - {at_s: 1, per_extra_cluster: 0.5, job: {name: two, application: {executable: laplace}, processors: 1}}
generate:
  - {jobs: 1, interarrival_s: 10, mix: [{application: laplace, sizes: [{processors: 4}]}]}
"""


def test_the_shares_of_an_application_come_with_every_job_that_runs_it() -> None:
    workload = workload_from_file(read_workload(WORKLOAD.replace("SHARE", "0.5"), "w.yaml"))
    arrivals = list(workload.arrivals(three_sites(LINKS), 1))
    assert [each.per_extra_cluster for each in arrivals] == [0.3, 0.5, 0.3]
    assert {(each.bandwidth_share, each.latency_share) for each in arrivals} == {(0.25, 0.5)}


def test_shares_that_make_more_than_a_whole_are_refused_with_what_to_write() -> None:
    with pytest.raises(DescriptionError) as caught:
        read_workload(WORKLOAD.replace("SHARE", "0.8"), "w.yaml")
    assert "1.05 together" in caught.value.for_user()
    assert "add up to 1" in caught.value.for_user()
