"""Networks in three tiers: in one piece, of the sizes and the redundancy asked for, the same for one seed."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.mapping.tiers.topology import (
    WAN_SIDE_KM,
    InvalidTiersError,
    TierNetwork,
    TiersParameters,
    Topology,
    distance_km,
    tiers_topology,
)

SIZES = st.integers(1, 6)
REDUNDANCIES = st.integers(1, 4)
PARAMETERS = st.builds(
    TiersParameters,
    wan_nodes=SIZES,
    mans=SIZES,
    man_nodes=SIZES,
    lans_per_man=SIZES,
    lan_hosts=SIZES,
    wan_redundancy=REDUNDANCIES,
    man_redundancy=REDUNDANCIES,
    lan_redundancy=REDUNDANCIES,
    man_to_wan=REDUNDANCIES,
    lan_to_man=REDUNDANCIES,
)
SEEDS = st.integers(0, 1000)


def in_one_piece(nodes: Iterable[int], links: Iterable[tuple[int, int]]) -> bool:
    """Whether links join all nodes."""
    parent = {node: node for node in nodes}

    def root(node: int) -> int:
        while parent[node] != node:
            node = parent[node]
        return node

    for one, other in links:
        parent[root(one)] = root(other)
    return len({root(node) for node in parent}) <= 1


def degrees(network: TierNetwork) -> dict[int, int]:
    counts = dict.fromkeys(network.nodes, 0)
    for link in network.links:
        for node in link:
            counts[node] += 1
    return counts


def drawn(parameters: TiersParameters, seed: int) -> Topology:
    return tiers_topology(parameters, Random(seed))


@given(PARAMETERS, SEEDS)
def test_a_network_is_in_one_piece_and_so_is_each_of_its_parts(parameters: TiersParameters, seed: int) -> None:
    topology = drawn(parameters, seed)
    assert in_one_piece(range(len(topology.places)), topology.links)
    for network in (topology.wan, *topology.mans, *topology.lans):
        assert in_one_piece(network.nodes, network.links)


@given(PARAMETERS, SEEDS)
def test_it_has_the_sizes_asked_for_and_every_node_is_in_one_network(parameters: TiersParameters, seed: int) -> None:
    topology = drawn(parameters, seed)
    assert len(topology.wan.nodes) == parameters.wan_nodes
    assert [len(man.nodes) for man in topology.mans] == [parameters.man_nodes] * parameters.mans
    lans = parameters.mans * parameters.lans_per_man
    assert [len(lan.nodes) - 1 for lan in topology.lans] == [parameters.lan_hosts] * lans
    assert sum(len(lan.nodes) - 1 for lan in topology.lans) == parameters.hosts
    everyone = [node for each in (topology.wan, *topology.mans, *topology.lans) for node in each.nodes]
    assert sorted(everyone) == list(range(len(topology.places)))
    assert len(set(map(frozenset, topology.links))) == len(topology.links)


@given(PARAMETERS, SEEDS)
def test_each_node_has_as_many_links_as_its_redundancy_wants_where_there_are_others(
    parameters: TiersParameters, seed: int
) -> None:
    topology = drawn(parameters, seed)
    for network, wanted in (
        (topology.wan, parameters.wan_redundancy),
        *((man, parameters.man_redundancy) for man in topology.mans),
    ):
        assert min(degrees(network).values()) >= min(wanted, len(network.nodes) - 1)
    for lan in topology.lans:
        hosts = [count for node, count in degrees(lan).items() if node != lan.nodes[0]]
        assert min(hosts) >= min(parameters.lan_redundancy, len(lan.nodes) - 1)


@given(PARAMETERS, SEEDS)
def test_a_network_is_linked_with_as_many_nodes_above_as_asked_for(parameters: TiersParameters, seed: int) -> None:
    topology = drawn(parameters, seed)
    for number, man in enumerate(topology.mans):
        assert len(man.uplinks) == min(parameters.man_to_wan, parameters.wan_nodes)
        assert all(node in man.nodes and above in topology.wan.nodes for node, above in man.uplinks)
        for lan in topology.lans_of(number):
            assert len(lan.uplinks) == min(parameters.lan_to_man, parameters.man_nodes)
            assert all(node == lan.nodes[0] and above in man.nodes for node, above in lan.uplinks)


def test_without_redundancy_a_wan_is_the_shortest_tree() -> None:
    topology = drawn(TiersParameters(wan_nodes=30, mans=1, wan_redundancy=1), 4)
    assert len(topology.wan.links) == 29
    # No link of the tree is longer than one that could stand in for it.
    for link in topology.wan.links:
        rest = [other for other in topology.wan.links if other != link]
        pairs = [(one, two) for one in topology.wan.nodes for two in topology.wan.nodes if one < two]
        length = distance_km(*(topology.places[node] for node in link))
        for pair in pairs:
            if in_one_piece(topology.wan.nodes, [*rest, pair]):
                assert length <= distance_km(*(topology.places[node] for node in pair)) + 1e-9


def test_more_redundancy_adds_links_and_takes_none_away() -> None:
    plain, more = (
        drawn(TiersParameters(wan_nodes=12, mans=2, wan_redundancy=wanted), 5).wan.links for wanted in (1, 3)
    )
    assert set(plain) < set(more)


def test_all_of_it_lies_in_the_plane() -> None:
    topology = drawn(TiersParameters(), 6)
    assert all(-30 <= place.x_km <= WAN_SIDE_KM + 30 for place in topology.places)
    assert all(-30 <= place.y_km <= WAN_SIDE_KM + 30 for place in topology.places)


def test_the_same_seed_gives_the_same_network_and_another_seed_another() -> None:
    assert drawn(TiersParameters(), 7) == drawn(TiersParameters(), 7)
    assert drawn(TiersParameters(), 7) != drawn(TiersParameters(), 8)


def test_a_parameter_below_1_is_refused_by_name() -> None:
    with pytest.raises(InvalidTiersError, match="mans is 0; write a number from 1 on"):
        TiersParameters(mans=0)
