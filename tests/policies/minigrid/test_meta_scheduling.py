"""The meta-scheduler and its modules: home, the tightest site, and each way to divide, beside naive twins."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.model.grid import Grid, LinkGroup, Network, Route, Site
from koala.model.network import ALL_TO_ALL, CUBE, MASTER_WORKER, RING, SILENT, UNLIMITED_BIT_S
from koala.policies.minigrid.case import PlacementCase, SharedRoutes
from koala.policies.minigrid.chunking import chunk_processors
from koala.policies.minigrid.meta_scheduling import (
    A1_FEWEST,
    A1_INDEX,
    A1_LEAST,
    A1_MOST_FREE,
    A2,
    B1,
    B2,
    B3,
    B4,
    B5,
    INITIAL,
    MIGRATION_ONLY,
    is_class_a1,
    is_monotone,
    metaschedule,
    placeable_most,
    whole_site,
)
from koala.policies.minigrid.open_sites import is_open, link_limit_bit_s
from koala.policies.minigrid.routed_scheduling import metaschedule_routed
from koala.policies.minigrid.satisfy import FEWEST_CLUSTERS, INDEX_ORDER, LEAST_BANDWIDTH, MOST_FREE_ORDER, satisfying
from koala.policies.wiring import SHARED_LINK_SITES_MAX, Wiring, WiringError, compile_wiring, star

MODULES = (MIGRATION_ONLY, INITIAL, A1_INDEX, A1_MOST_FREE, A1_FEWEST, A1_LEAST, B1, B2, B3, B4, A2, B5)
EXACTLY_BOUNDED = (MIGRATION_ONLY, INITIAL, B1, B2, B3, B4)
GBIT = 1_000_000_000


class State(NamedTuple):
    """What a module is asked about."""

    idle: list[int]
    total: int
    home: int
    demand: list[int]
    capacity: list[int]
    own_bit_s: float
    threshold: float
    chunk: float
    pattern: int


def state(
    idle: list[int], total: int, home: int = -1, demand: list[int] | None = None, own_mbit_s: float = 10.0
) -> State:
    """Links of 1 Gbit/s, a threshold of 1, a chunk of 0.85."""
    demands = [0] * len(idle) if demand is None else [mbit_s * 1_000_000 for mbit_s in demand]
    return State(idle, total, home, demands, [GBIT] * len(idle), own_mbit_s * 1e6, 1.0, 0.85, ALL_TO_ALL)


@st.composite
def states(draw: st.DrawFn, sites: int | None = None) -> State:
    sites = draw(st.integers(1, 5)) if sites is None else sites

    def by_site(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=sites, max_size=sites))

    return State(
        by_site(st.integers(0, 30)),
        draw(st.integers(1, 70)),
        draw(st.integers(-1, sites - 1)),
        by_site(st.one_of(st.just(0), st.integers(0, 13 * 10**8))),
        by_site(st.sampled_from([GBIT // 2, GBIT, UNLIMITED_BIT_S])),
        draw(st.one_of(st.just(0.0), st.floats(1e4, 1e8))),
        draw(st.sampled_from([0.4, 0.8, 1.0, 1.2])),
        draw(st.sampled_from([0.5, 0.7, 0.85, 0.9, 1.0])),
        draw(st.sampled_from([ALL_TO_ALL, ALL_TO_ALL, RING, CUBE, MASTER_WORKER, SILENT])),
    )


def case_of(asked: State) -> PlacementCase:
    return PlacementCase(
        total=asked.total,
        demand=asked.demand,
        capacity=asked.capacity,
        per_processor_bit_s=asked.own_bit_s,
        threshold=asked.threshold,
        spare=[9] * len(asked.idle),
        home=asked.home,
        chunk=asked.chunk,
        pattern=asked.pattern,
    )


def ask(module: int, asked: State) -> list[int] | None:
    parts = [9] * len(asked.idle)
    left = metaschedule(module, case_of(asked), asked.idle, parts)
    assert 0 <= left <= asked.total
    if left:
        return None
    assert sum(parts) == asked.total
    assert all(0 <= part <= idle for part, idle in zip(parts, asked.idle, strict=True))
    return parts


def open_sites(asked: State) -> list[int]:
    """By the letter: a cluster is dropped whose link has a demand of the threshold times its capacity or more."""
    return [
        site
        for site in range(len(asked.idle))
        if asked.capacity[site] == UNLIMITED_BIT_S
        or asked.demand[site] < round(asked.threshold * asked.capacity[site])
    ]


def fill(asked: State, order: list[int]) -> list[int] | None:
    parts = [0] * len(asked.idle)
    unplaced = asked.total
    for site in order:
        parts[site] = min(asked.idle[site], unplaced)
        unplaced -= parts[site]
    return None if unplaced else parts


def naive(module: int, asked: State) -> list[int] | None:
    """What the modules do, in as few words as possible, for a job that no site holds whole."""
    around = open_sites(asked)
    if module == INITIAL:
        around = list(range(len(asked.idle)))
    if module == B2:
        load = dict.fromkeys(around, 0.0)
        for site in around:
            if asked.capacity[site] != UNLIMITED_BIT_S:
                load[site] = asked.demand[site] / asked.capacity[site]
        return fill(asked, sorted(around, key=lambda site: load[site]))
    if module == B4:
        parts = [0] * len(asked.idle)
        while sum(parts) < asked.total:
            rest = [site for site in around if parts[site] < asked.idle[site]]
            if not rest:
                return None
            for site in rest[: asked.total - sum(parts)]:
                parts[site] += 1
        return parts
    if module == B3:
        most = max((asked.idle[site] for site in around), default=0)
        if most < ceil(asked.chunk * asked.total - 1e-9):
            return None
    return fill(asked, sorted(around, key=lambda site: -asked.idle[site]))


# ------------------------------------------------------------------------------------------- the sequence


@pytest.mark.parametrize("module", MODULES)
def test_a_job_stays_at_home_where_it_fits_though_another_site_is_tighter(module: int) -> None:
    assert ask(module, state([50, 20, 20], 20, home=0)) == [20, 0, 0]


@pytest.mark.parametrize("module", MODULES)
def test_a_job_that_does_not_fit_at_home_goes_whole_to_the_tightest_site(module: int) -> None:
    full = state([10, 90, 30, 30], 25, home=0, demand=[2000, 2000, 2000, 2000])
    assert ask(module, full) == [0, 0, 25, 0], "full links do not matter to a job on one site; ties by index"
    assert ask(module, full._replace(home=-1)) == [0, 0, 25, 0]


def test_migration_only_never_divides() -> None:
    assert ask(MIGRATION_ONLY, state([30, 30], 31)) is None


# -------------------------------------------------------------------------------------------- the modules


@settings(max_examples=80)
@given(states())
def test_a_module_divides_as_its_naive_twin_does(asked: State) -> None:
    if max(asked.idle) >= asked.total:
        return
    for module in (INITIAL, B1, B2, B3, B4):
        assert ask(module, asked) == naive(module, asked), module


def test_dropped_are_links_at_the_threshold_and_beyond() -> None:
    capacity = [GBIT, GBIT, GBIT, UNLIMITED_BIT_S]
    demand = [799_999_999, 800_000_000, 900_000_000, UNLIMITED_BIT_S - 1]
    opened = [is_open(used, most, 0.8) for used, most in zip(demand, capacity, strict=True)]
    assert opened == [True, False, False, True]


def test_the_limit_of_a_link_is_not_lost_in_rounding() -> None:
    percents = range(1, 201)
    limits = [link_limit_bit_s(GBIT, percent / 100) for percent in percents]
    assert limits == [percent * 10_000_000 for percent in percents]


def test_initial_divides_over_saturated_links_and_b1_does_not() -> None:
    asked = state([30, 20, 10], 45, demand=[1500, 0, 0])
    assert ask(INITIAL, asked) == [30, 15, 0]
    assert ask(B1, asked) is None
    assert ask(B1, asked._replace(total=25)) == [25, 0, 0], "whole, by migration"
    assert ask(B1, state([24, 20, 10], 25, demand=[1500, 0, 0])) == [0, 20, 5]


def test_b2_begins_with_the_least_used_link_and_breaks_ties_by_index() -> None:
    assert ask(B2, state([30, 20, 10, 10], 45, demand=[300, 100, 100, 50])) == [5, 20, 10, 10]


def test_b3_needs_one_site_for_the_chunk() -> None:
    assert ask(B3, state([34, 10], 40)) == [34, 6]
    assert ask(B3, state([33, 10], 40)) is None


@pytest.mark.parametrize(
    ("chunk", "total", "processors"), [(0.85, 20, 17), (0.85, 21, 18), (0.55, 100, 55), (1, 7, 7)]
)
def test_a_chunk_is_rounded_up_but_not_by_the_rounding_of_numbers(chunk: float, total: int, processors: int) -> None:
    assert chunk_processors(chunk, total) == processors


def test_b4_deals_one_processor_at_a_time_from_the_lowest_index() -> None:
    assert ask(B4, state([2, 40, 40], 45, demand=[0, 0, 0])) == [2, 22, 21]


def test_a1_uses_what_the_links_have_left() -> None:
    """A part of 2 of 20 processors of 10 Mbit/s sends 2 * 18 / 19 * 10 = 18.9 Mbit/s, and so does one of 18."""
    full = state([18, 12, 12], 20, demand=[981, 990, 981])
    assert ask(A1_INDEX, full) == [18, 1, 1]
    assert ask(A1_LEAST, full) == [18, 0, 2]
    assert ask(A1_INDEX, full._replace(demand=[990_000_000] * 3)) is None
    assert ask(B1, full) == [18, 2, 0]


@settings(max_examples=40)
@given(states(), st.data())
def test_a_refused_job_stays_refused_while_less_is_idle_and_more_is_on_the_links(
    asked: State, data: st.DataObject
) -> None:
    worse = asked._replace(
        idle=[data.draw(st.integers(0, idle)) for idle in asked.idle],
        demand=[used + data.draw(st.integers(0, GBIT)) for used in asked.demand],
    )
    for module in MODULES:
        if is_monotone(module, asked.pattern, False) and ask(module, asked) is None:
            assert ask(module, worse) is None, module


@settings(max_examples=60)
@given(states())
def test_nothing_larger_than_the_bound_is_placed_and_by_most_modules_all_else(asked: State) -> None:
    for module in MODULES:
        most = placeable_most(module, asked.idle, asked.demand, asked.capacity, asked.threshold, asked.chunk)
        placed = ask(module, asked) is not None
        if module in EXACTLY_BOUNDED:
            assert placed == (asked.total <= most), module
        elif placed:
            assert asked.total <= most, module


# ----------------------------------------------------------------------------------------------- wiring


def sites(*processors: int, uplink: float | None = None) -> tuple[Site, ...]:
    return tuple(
        Site(name=f"C{number}", processors=count, uplink_mbit_s=uplink if number == 1 else None)
        for number, count in enumerate(processors, 1)
    )


def test_a_grid_without_a_network_has_unlimited_links() -> None:
    wiring = compile_wiring(Grid(sites=sites(4, 4)))
    assert wiring == star(["C1", "C2"])
    assert wiring.is_star
    assert not wiring.has_limits


def test_a_star_has_the_capacities_of_its_sites_in_bits() -> None:
    wiring = compile_wiring(Grid(sites=sites(4, 4, 4, uplink=0.5), network=Network(uplink_mbit_s=1000)))
    assert wiring.capacity_bit_s == (500_000, GBIT, GBIT)
    assert wiring.has_limits


NESTED = Network(
    uplink_mbit_s=1000,
    groups=(
        LinkGroup(name="west", members=("C1", "C2"), uplink_mbit_s=500),
        LinkGroup(name="east", members=("C3",)),
        LinkGroup(name="continent", members=("west", "C4"), uplink_mbit_s=300),
    ),
    links=(("sea", 100.0), ("land", 50.0)),
    routes=(Route(between=("C5", "C3"), over=("sea",)), Route(between=("C4", "C5"), over=("land", "sea"))),
)


def shared_between(wiring: Wiring, one: int, other: int) -> set[str]:
    pair = min(one, other) * wiring.sites + max(one, other)
    links = wiring.route_links[wiring.route_first[pair] : wiring.route_first[pair + 1]]
    return {wiring.names[link] for link in links}


def test_traffic_crosses_the_uplink_of_every_group_that_holds_one_end_and_the_links_of_its_route() -> None:
    wiring = compile_wiring(Grid(sites=sites(1, 1, 1, 1, 1), network=NESTED))
    assert wiring.names == ("C1", "C2", "C3", "C4", "C5", "west", "east", "continent", "sea", "land")
    assert wiring.capacity_bit_s[5:] == (500_000_000, UNLIMITED_BIT_S, 300_000_000, 100_000_000, 50_000_000)
    assert shared_between(wiring, 0, 1) == set()
    assert shared_between(wiring, 0, 3) == {"west"}
    assert shared_between(wiring, 0, 2) == {"west", "continent", "east"}
    assert shared_between(wiring, 2, 4) == {"east", "sea"}
    assert shared_between(wiring, 3, 4) == {"continent", "land", "sea"}


def test_a_jobs_demands_are_listed_by_link_without_those_that_it_does_not_load() -> None:
    wiring = compile_wiring(Grid(sites=sites(9, 9, 9, 9, 9), network=NESTED))
    # All to all on C1, C3 and C4 with 2 processors each: 2 * 4 / 5 leave each site.
    demands = dict(wiring.demands_bit_s(ALL_TO_ALL, 2, [2, 0, 2, 2, 0], 5.0e6))
    named = {wiring.names[link]: bit_s for link, bit_s in demands.items()}
    assert named == {
        "C1": 8_000_000,
        "C3": 8_000_000,
        "C4": 8_000_000,
        "west": 8_000_000,
        "east": 8_000_000,
        "continent": 8_000_000,
    }
    assert wiring.demands_bit_s(ALL_TO_ALL, 2, [0, 6, 0, 0, 0], 5.0e6) == []


def test_links_are_shared_among_no_more_sites_than_the_limit() -> None:
    network = Network(groups=(LinkGroup(name="all", members=("C1",), uplink_mbit_s=1.0),))
    at_limit = Grid(sites=sites(*[1] * SHARED_LINK_SITES_MAX), network=network)
    assert not compile_wiring(at_limit).is_star
    with pytest.raises(WiringError, match="SHARED_LINK_SITES_MAX"):
        compile_wiring(Grid(sites=sites(*[1] * (SHARED_LINK_SITES_MAX + 1)), network=network))


# --------------------------------------------------------------------------------------- behind shared links


def ask_routed(module: int, asked: State, wiring: Wiring, demand: list[int]) -> list[int] | None:
    count, links = len(asked.idle), len(wiring.names)
    parts = [9] * count
    routes = SharedRoutes(
        wiring.route_first, wiring.route_links, [9.0] * links, [9] * links, [9] * count, [9] * count
    )
    case = case_of(asked)._replace(demand=demand, capacity=wiring.capacity_bit_s)
    left = metaschedule_routed(module, case, routes, asked.idle, parts)
    return None if left else parts


TWO_ISLANDS = compile_wiring(
    Grid(
        sites=sites(100, 100, 100, 100),
        network=Network(
            uplink_mbit_s=1000,
            groups=(
                LinkGroup(name="west", members=("C1", "C2"), uplink_mbit_s=500),
                LinkGroup(name="east", members=("C3", "C4"), uplink_mbit_s=500),
            ),
        ),
    )
)
WEST_FULL = [0, 0, 0, 0, 500_000_000, 0]


@pytest.mark.parametrize("module", [B1, B2, B4])
def test_a_job_is_not_divided_across_a_shared_link_that_is_full(module: int) -> None:
    asked = state([10, 30, 20, 30], 45)
    across = ask_routed(module, asked, TWO_ISLANDS, [0] * 6)
    assert across is not None
    assert sum(across[:2]) > 0 < sum(across[2:])
    inside = ask_routed(module, asked, TWO_ISLANDS, WEST_FULL)
    assert inside is not None
    assert inside[:2] == [0, 0]
    assert ask_routed(module, asked._replace(total=51), TWO_ISLANDS, WEST_FULL) is None


def test_the_group_of_the_first_site_is_asked_first() -> None:
    assert ask_routed(B1, state([30, 30, 40, 40], 45), TWO_ISLANDS, WEST_FULL) == [30, 15, 0, 0]


def test_initial_divides_across_full_shared_links() -> None:
    assert ask_routed(INITIAL, state([10, 30, 20, 30], 45), TWO_ISLANDS, WEST_FULL) == [0, 30, 0, 15]


@pytest.mark.parametrize("module", [A1_INDEX, A1_MOST_FREE, A1_FEWEST, A1_LEAST])
def test_a1_avoids_a_shared_link_that_its_first_division_would_overload(module: int) -> None:
    # Over both islands, 20 and 25 of 45 processors of 50 Mbit/s would send 568 Mbit/s over links of 500.
    asked = state([20, 0, 25, 20], 45, own_mbit_s=50)
    unshared = TWO_ISLANDS.capacity_bit_s[:4]
    assert ask(module, asked._replace(capacity=list(unshared))) is not None
    parts = ask_routed(module, asked, TWO_ISLANDS, [0] * 6)
    assert parts == [0, 0, 25, 20]
    assert ask_routed(module, asked._replace(idle=[20, 0, 25, 0]), TWO_ISLANDS, [0] * 6) is None


@pytest.mark.parametrize("module", [A2, B5])
def test_a2_and_b5_divide_inside_an_island_first_and_then_over_shared_links(module: int) -> None:
    asked = state([20, 0, 25, 20], 45, own_mbit_s=1)
    assert ask_routed(module, asked, TWO_ISLANDS, [0] * 6) == [0, 0, 25, 20]
    across = asked._replace(idle=[20, 0, 25, 0])
    assert ask_routed(module, across, TWO_ISLANDS, [0] * 6) == [20, 0, 25, 0]
    # 20 and 25 processors of 50 Mbit/s would send 568 Mbit/s over links of 500.
    assert ask_routed(module, across._replace(own_bit_s=50e6), TWO_ISLANDS, [0] * 6) is None


CHOICES_OF_A1 = {
    A1_INDEX: INDEX_ORDER,
    A1_MOST_FREE: MOST_FREE_ORDER,
    A1_FEWEST: FEWEST_CLUSTERS,
    A1_LEAST: LEAST_BANDWIDTH,
}


@given(states())
def test_each_a1_takes_the_solution_of_its_own_choice(asked: State) -> None:
    if whole_site(asked.idle, asked.total, asked.home) >= 0:
        return
    for module, choice in CHOICES_OF_A1.items():
        parts = [9] * len(asked.idle)
        left = satisfying(case_of(asked), choice, asked.idle, parts)
        assert ask(module, asked) == (None if left else parts), module


# Of three sites the first two are joined by a link of their own.
CABLE = compile_wiring(
    Grid(
        sites=sites(9, 9, 9),
        network=Network(
            uplink_mbit_s=1000,
            links=(("cable", 100.0),),
            routes=(Route(between=("C1", "C2"), over=("cable",)),),
        ),
    )
)


@pytest.mark.parametrize("module", [B1, B2, B3, B4])
def test_where_links_are_shared_a_refused_job_may_find_a_place_when_less_is_idle(module: int) -> None:
    """The first site draws the third into its group, away from the second; once it is taken, those two are one."""
    asked = state([1, 9, 9], 11)._replace(chunk=0.5)
    full = [0, 0, 0, 100_000_000]
    assert ask_routed(module, asked, CABLE, full) is None
    assert ask_routed(module, asked._replace(idle=[0, 9, 9]), CABLE, full) is not None
    assert not is_monotone(module, ALL_TO_ALL, True)


@pytest.mark.parametrize("chunk", [5e-324, 1e-300, 1e-18, 1e-9, 1e-3])
def test_a_tiny_chunk_is_as_none(chunk: float) -> None:
    assert placeable_most(B3, [9, 20], [0, 0], [GBIT] * 2, 1.0, chunk) == 29


@st.composite
def routed_worlds(draw: st.DrawFn) -> tuple[Wiring, list[int]]:
    """Five sites, groups drawn and perhaps nested, named links between some of them, and what is on all of these."""
    names = [f"C{number}" for number in range(1, 6)]
    cut = draw(st.integers(1, 4))
    mbit_s = st.sampled_from([10.0, 200.0, 500.0, None])
    groups = [LinkGroup(name="G1", members=tuple(names[:cut]), uplink_mbit_s=draw(mbit_s))]
    if cut < 4 and draw(st.booleans()):
        groups.append(LinkGroup(name="G2", members=("G1", names[cut]), uplink_mbit_s=draw(mbit_s)))
    pairs = [(one, other) for one in range(5) for other in range(one + 1, 5)]
    routes = tuple(
        Route(between=(names[one], names[other]), over=tuple(draw(st.sets(st.sampled_from(["sea", "land"])))))
        for one, other in draw(st.sets(st.sampled_from(pairs), max_size=4))
    )
    network = Network(
        uplink_mbit_s=1000, groups=tuple(groups), links=(("sea", 100.0), ("land", 400.0)), routes=routes
    )
    wiring = compile_wiring(Grid(sites=sites(30, 30, 30, 30, 30), network=network))
    load = draw(
        st.lists(st.one_of(st.just(0), st.integers(0, GBIT)), min_size=len(wiring.names), max_size=len(wiring.names))
    )
    return wiring, load


@settings(max_examples=40)
@given(routed_worlds(), states(), st.lists(st.integers(0, 30), min_size=5, max_size=5))
def test_shared_links_are_kept_as_the_sites_own_are(
    world: tuple[Wiring, list[int]], asked: State, idle: list[int]
) -> None:
    """A1 brings no link beyond the threshold; the others send nothing over one that has reached it."""
    if not world[0].route_links:
        return
    asked = asked._replace(idle=idle, home=-1)
    for module in (A1_INDEX, A1_FEWEST, B1, B2, B3, B4, A2, B5):
        keeps_shared_links(module, asked, *world)


def keeps_shared_links(module: int, asked: State, wiring: Wiring, load: list[int]) -> None:
    parts = ask_routed(module, asked, wiring, load)
    if parts is None:
        return
    assert sum(parts) == asked.total
    assert all(part <= most for part, most in zip(parts, asked.idle, strict=True))
    for link, added in wiring.demands_bit_s(asked.pattern, 2, parts, asked.own_bit_s):
        limit = link_limit_bit_s(wiring.capacity_bit_s[link], asked.threshold)
        if is_class_a1(module):
            assert load[link] + added <= limit
        elif link >= wiring.sites:
            assert load[link] < limit


@settings(max_examples=25)
@given(states(sites=4))
def test_with_unlimited_shared_links_the_answer_is_that_of_the_star(asked: State) -> None:
    wiring = Wiring(
        sites=4,
        names=(*TWO_ISLANDS.names,),
        capacity_bit_s=(*asked.capacity, UNLIMITED_BIT_S, UNLIMITED_BIT_S),
        route_first=TWO_ISLANDS.route_first,
        route_links=TWO_ISLANDS.route_links,
    )
    for module in MODULES:
        assert ask_routed(module, asked, wiring, [*asked.demand, 0, 0]) == ask(module, asked), module
