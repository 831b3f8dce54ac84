"""Jobs that share links: what each is granted, ends that slide both ways, and what happens when one dies.

The common case is easy to count in the head: links of 100 Mbit/s, and jobs of two halves with a bisection bandwidth
of 100 Mbit/s that spend half of their time on communication. Alone such a job runs at full speed; two on one link
get half of what they want and take 1.5 times as long.
"""

from __future__ import annotations

import itertools
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.model.grid import Grid, LinkGroup, Network, Route, Site
from koala.model.messages import AnyEvent
from koala.model.request import Communication, Component, Flexibility, Pattern, Request
from koala.simulator import Arrival, Workload, simulate
from koala.simulator.result import JobRow
from koala.simulator.world.components import SimulatedComponents
from koala.simulator.world.site import SimulatedComponent
from tests.support.hand_driven import HandDriven, at_once, grid, job, site

NETWORK = Network(uplink_mbit_s=100.0)
TALK = Communication(bisection_mbit_s=100.0, share=0.5)


def networked(*sites: Site, network: Network | None = NETWORK, **simulation: Any) -> Grid:
    return msgspec.structs.replace(at_once(grid(*sites, **simulation)), network=network)


def three_sites(network: Network | None = NETWORK) -> Grid:
    return networked(site("a", 50), site("b", 50), site("c", 50), network=network)


def halves(at_s: float, one: str, other: str, execution_s: float = 100.0, **fields: Any) -> Arrival:
    """A job of 4 + 4 processors on two given sites."""
    components = (Component(processors=4, site=one), Component(processors=4, site=other))
    request = Request(components=components, **{"communication": TALK, **fields})
    return Arrival(at_s, request, execution_s)


def run(grid: Grid, *arrivals: Arrival, **options: Any) -> list[JobRow]:
    return list(simulate(grid, Workload.from_arrivals(arrivals), **options).rows())


def finishes(grid: Grid, *arrivals: Arrival) -> list[float | None]:
    return [row.finished for row in run(grid, *arrivals)]


# ------------------------------------------------------------------------------------ slides, by hand


def test_alone_a_job_runs_as_long_as_on_one_site() -> None:
    assert finishes(three_sites(), halves(0.0, "a", "b")) == [100.0]


def test_two_jobs_on_a_link_slow_each_other_down_as_long_as_both_are_on_it() -> None:
    """From 40 s on both get half: the first has 60 s left and takes 90. At 130 s the second has done 60 s and goes
    on at full speed."""
    assert finishes(three_sites(), halves(0.0, "a", "b"), halves(40.0, "b", "c")) == [130.0, 170.0]


def test_jobs_on_different_links_do_not_feel_each_other() -> None:
    grid = networked(*(site(name, 50) for name in "abcd"))
    assert finishes(grid, halves(0.0, "a", "b"), halves(40.0, "c", "d")) == [100.0, 140.0]


def test_those_of_a_narrow_link_leave_the_rest_of_a_wide_one_to_others() -> None:
    """a has 50 Mbit/s, so its job gets a half and takes 1.5 times as long; on b 150 Mbit/s are left for one that
    needs 100."""
    uplinks = {"a": 50.0, "b": 200.0, "c": 200.0}
    sites = [msgspec.structs.replace(site(name, 50), uplink_mbit_s=mbit_s) for name, mbit_s in uplinks.items()]
    assert finishes(networked(*sites), halves(0.0, "a", "b"), halves(0.0, "b", "c")) == [150.0, 100.0]


def test_a_job_on_one_site_and_one_that_says_nothing_are_not_slowed_down() -> None:
    quiet = halves(10.0, "a", "b", communication=None)
    whole = halves(20.0, "a", "a")
    assert finishes(three_sites(), halves(0.0, "a", "b"), quiet, whole) == [100.0, 110.0, 120.0]


def test_a_job_that_says_how_it_communicates_does_not_pay_for_further_clusters_besides() -> None:
    both = halves(0.0, "a", "b")._replace(per_extra_cluster=0.3)
    quiet = halves(0.0, "a", "b", communication=None)._replace(per_extra_cluster=0.3)
    assert finishes(three_sites(), both) == [100.0]
    assert finishes(three_sites(), quiet) == [130.0]
    assert finishes(three_sites(network=None), both, halves(0.0, "a", "b")) == [100.0, 100.0]


def test_sites_behind_one_uplink_share_it_and_talk_among_themselves_for_nothing() -> None:
    group = LinkGroup(name="west", members=("a", "b"), uplink_mbit_s=100.0)
    grid = networked(*(site(name, 50) for name in "abcd"), network=Network(groups=(group,)))
    assert finishes(grid, halves(0.0, "a", "b"), halves(0.0, "a", "c")) == [100.0, 100.0]
    assert finishes(grid, halves(0.0, "a", "c"), halves(0.0, "b", "d")) == [150.0, 150.0]


def test_named_links_are_shared_by_the_routes_over_them() -> None:
    routes = (Route(between=("a", "c"), over=("sea",)), Route(between=("b", "d"), over=("sea",)))
    grid = networked(*(site(name, 50) for name in "abcd"), network=Network(links=(("sea", 100.0),), routes=routes))
    assert finishes(grid, halves(0.0, "a", "c"), halves(0.0, "b", "d")) == [150.0, 150.0]
    assert finishes(grid, halves(0.0, "a", "c"), halves(0.0, "a", "d")) == [100.0, 100.0]


# ------------------------------------------------------------------------------- walltimes and faults


def test_a_walltime_counts_real_time_whatever_the_links_do() -> None:
    rows = run(three_sites(), halves(0.0, "a", "b"), halves(40.0, "b", "c", walltime_s=120.0))
    assert [(row.outcome, row.finished) for row in rows] == [("done", 130.0), ("failed", 160.0)]


def test_a_job_whose_end_slides_back_to_its_walltime_is_done() -> None:
    """While it shares its link it would end at 190 s, 20 s too late."""
    rows = run(three_sites(), halves(0.0, "a", "b"), halves(40.0, "b", "c", walltime_s=130.0))
    assert [(row.outcome, row.finished) for row in rows] == [("done", 130.0), ("done", 170.0)]


def started(grid: Grid, *places: str) -> HandDriven:
    """Jobs of two halves, the first at time 0 and the second at 40 s, as t1, t2 and t3, t4."""
    hands = HandDriven(grid, halves(0.0, places[0], places[1]), halves(40.0, places[2], places[3]))
    for number, at in enumerate((0.0, 40.0)):
        hands.until(at)
        tokens = [f"t{2 * number + 1}", f"t{2 * number + 2}"]
        for token, place in zip(tokens, places[2 * number :], strict=False):
            hands.start(token, place, 4, job=number + 1, parts=2)
        hands.release(*tokens, job=number + 1)
    return hands


def test_both_halves_end_in_the_same_instant_however_often_the_end_has_slid() -> None:
    hands = started(three_sites(), "a", "b", "b", "c")
    assert ended(hands.until(1_000.0)) == [("t1", "130"), ("t2", "130"), ("t3", "170"), ("t4", "170")]


def ended(events: list[AnyEvent]) -> list[tuple[str, str]]:
    """Who ended when, to the microsecond; ended otherwise than well with how."""
    found = []
    for event in events:
        outcome = getattr(event, "outcome", None)
        if outcome is not None:
            when = f"{round(event.at, 6):g}"
            found.append((event.token, when if outcome == "done" else f"{when} {outcome}"))  # type: ignore[union-attr]
    return found


def test_a_job_that_is_aborted_frees_its_bandwidth_at_once() -> None:
    """At 70 s the second has done 20 s; without the first it needs 80 more."""
    hands = started(three_sites(), "a", "b", "b", "c")
    hands.until(70.0)
    hands.abort("t1", "a")
    hands.abort("t2", "b")
    assert ended(hands.until(1_000.0)) == [
        ("t1", "70 aborted"),
        ("t2", "70 aborted"),
        ("t3", "150"),
        ("t4", "150"),
    ]


def test_a_job_that_has_lost_one_half_in_an_outage_is_off_the_links() -> None:
    """The other half does not know yet: it goes on, alone, to the end that it had before."""
    grid = networked(site("a", 50, outages=((70.0, 90.0),)), site("b", 50), site("c", 50))
    hands = started(grid, "a", "b", "b", "c")
    assert ended(hands.until(1_000.0)) == [
        ("t1", "90 site_failed"),
        ("t2", "130"),
        ("t3", "150"),
        ("t4", "150"),
    ]


def test_a_component_breaks_when_the_fraction_of_its_work_is_done() -> None:
    """70 of 100 s: 60 until 130 s, while it shares the link, and 10 more at full speed."""
    hands = started(three_sites(), "a", "b", "b", "c")
    component = hands.world.components.components["t3"]
    component.fails_at = 0.7
    told = hands.until(1_000.0)
    assert ended(told)[:3] == [("t1", "130"), ("t2", "130"), ("t3", "140 site_failed")]


def test_a_half_that_hears_of_its_start_late_has_its_own_end_and_keeps_the_job_on_the_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first half runs 0-100 s, the second from 20 s on. Another job comes at 110 s: the 10 s that are left of
    the second half take 15, in which the other does 10 s of its own work."""
    hands = HandDriven(three_sites(), halves(0.0, "a", "b"), halves(110.0, "b", "c"))
    hands.until(0.0)
    hands.start("t1", "a", 4, parts=2)
    hands.start("t2", "b", 4, parts=2)
    with monkeypatch.context() as deaf:
        deaf.setattr(SimulatedComponents, "_unheard", lambda _, site: site.name == "b")
        hands.release("t1", "t2")
    hands.until(20.0)
    hands.release("t2")
    hands.until(110.0)
    for token, place in (("t3", "b"), ("t4", "c")):
        hands.start(token, place, 4, job=2, parts=2)
    hands.release("t3", "t4", job=2)
    assert ended(hands.until(1_000.0)) == [("t2", "125"), ("t3", "215"), ("t4", "215")]


def test_a_site_that_is_asked_during_contention_says_that_the_component_runs() -> None:
    hands = started(three_sites(), "a", "b", "b", "c")
    hands.until(50.0)
    hands.ask("b", "t2", "t3")
    assert hands.heard(60.0) == ["50 running t2", "50 running t3"]


# ------------------------------------------------------------------------------------- what always holds

PATTERNS = st.builds(
    Communication,
    pattern=st.sampled_from(list(Pattern)),
    bisection_mbit_s=st.sampled_from([0.0, 30.0, 100.0, 170.0, 400.0]),
    share=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
JOBS = st.lists(
    st.builds(
        Arrival,
        at_s=st.integers(0, 300).map(float),
        request=st.builds(
            Request,
            components=st.integers(1, 60).map(lambda size: (Component(processors=size),)),
            flexible=st.just(Flexibility()),
            communication=PATTERNS,
            policy=st.sampled_from(["Initial", "B1", "B4"]),
        ),
        execution_s=st.floats(1.0, 500.0),
        breaks=st.just(0),
        spawns=st.just(()),
    ),
    min_size=1,
    max_size=12,
)
NETWORKS = st.sampled_from(
    [
        NETWORK,
        Network(uplink_mbit_s=37.5, groups=(LinkGroup(name="ab", members=("a", "b"), uplink_mbit_s=60.0),)),
        Network(links=(("sea", 20.0),), routes=(Route(between=("a", "c"), over=("sea",)),)),
    ]
)


@settings(max_examples=60, deadline=None)
@given(JOBS, NETWORKS)
def test_work_is_conserved_and_no_job_is_faster_than_alone(jobs: list[Arrival], network: Network) -> None:
    """Between two plans a component runs at the speed of the first; all together it does all its work, once."""
    plans: dict[str, list[tuple[float, float]]] = {}
    plan_end = SimulatedComponents._plan_end

    def recording(self: SimulatedComponents, component: SimulatedComponent, *numbers: float) -> None:
        *_, stretched, now = numbers
        plans.setdefault(component.token, []).append((now, stretched))
        plan_end(self, component, *numbers)

    with patch.object(SimulatedComponents, "_plan_end", recording):
        rows = run(three_sites(network), *jobs)
    ordered = sorted(jobs, key=lambda arrival: arrival.at_s)
    for row, arrival in zip(rows, ordered, strict=True):
        assert row.outcome == "done"
        assert row.finished is not None
        for token in [token for token in plans if token.startswith(f"{row.job}.")]:
            times = [*plans[token], (row.finished, 1.0)]
            done_s = sum((after - now) / stretched for (now, stretched), (after, _) in itertools.pairwise(times))
            assert done_s == pytest.approx(arrival.execution_s, rel=1e-9)
            assert all(stretched >= 1.0 for _, stretched in times)


@settings(max_examples=30, deadline=None)
@given(JOBS)
def test_over_unlimited_links_nobody_is_slowed_down_to_the_last_bit(jobs: list[Arrival]) -> None:
    rows = run(three_sites(Network()), *jobs)
    for row, arrival in zip(rows, sorted(jobs, key=lambda each: each.at_s), strict=True):
        assert row.started is not None
        assert row.finished == row.started + arrival.execution_s


def test_a_run_with_contention_gives_the_same_log_each_time() -> None:
    arrivals = [job(float(at), 20, 20, communication=TALK) for at in range(0, 200, 20)]
    workload = Workload.from_arrivals(arrivals)
    first, second = (simulate(three_sites(), workload, seed=3) for _ in range(2))
    assert first.log_sha256 == second.log_sha256
    assert max(row.execution_s or 0.0 for row in first.rows()) > 100.0
