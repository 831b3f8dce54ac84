"""What a lab may consist of, and how links are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from koala.lab import LabError, LabOptions, WideAreaLink
from koala.lab.options import (
    DELAY_S_MAX,
    FIRST_PORT_LAST,
    FIRST_PORT_MIN,
    NODES_PER_CLUSTER_MAX,
    PROCESSORS_PER_NODE_MAX,
    RATE_MBIT_S_MAX,
    SLOTS_MAX,
    PairOfSites,
    check,
    parse_link,
    parse_pair,
    parse_sites,
)
from koala.lab.plan import DIRECTORY_BYTES_MAX, plan_lab

HERE = Path("/lab")
LINK = WideAreaLink(rate_mbit_s=100.0, delay_s=0.005)


@pytest.mark.parametrize(
    ("text", "rate_mbit_s", "delay_s", "loss"),
    [
        ("100mbit,5ms", 100.0, 0.005, 0.0),
        ("1gbit,500us", 1000.0, 0.0005, 0.0),
        ("64 kbit, 1.5s, 10%", 0.064, 1.5, 0.1),
        ("100Mbit,0ms,0%", 100.0, 0.0, 0.0),
    ],
)
def test_a_link_is_a_rate_a_delay_and_a_loss(text: str, rate_mbit_s: float, delay_s: float, loss: float) -> None:
    link = parse_link(text, "--wan")
    assert (link.rate_mbit_s, link.delay_s, link.loss) == pytest.approx((rate_mbit_s, delay_s, loss))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "RATE,DELAY"),
        ("100mbit", "RATE,DELAY"),
        ("100mbit,5ms,1%,7", "RATE,DELAY"),
        ("fast,5ms", "the rate 'fast' is not understood"),
        ("100,5ms", "write it like 100mbit"),
        ("100mbit,5", "write it like 5ms"),
        ("100mbit,5ms,1", "write it like 0.1%"),
        ("-1mbit,5ms", "is not understood"),
        ("0mbit,5ms", "above 0"),
        (f"{RATE_MBIT_S_MAX + 1}mbit,5ms", "at most"),
        (f"1mbit,{DELAY_S_MAX + 1}s", "at most 60s"),
        ("1mbit,5ms,100%", "below 100%"),
        ("9" * 400 + "mbit,5ms", "is not understood"),
    ],
)
def test_a_link_that_is_none_is_told_what_to_write(text: str, words: str) -> None:
    with pytest.raises(LabError) as refused:
        parse_link(text, "--wan")
    assert words in refused.value.for_user()
    assert "--wan" in refused.value.for_user()


def test_a_pair_names_two_sites_and_their_link() -> None:
    pair = parse_pair("alpha,gamma,20mbit,25ms")
    assert pair.between == ("alpha", "gamma")
    assert pair.link == WideAreaLink(rate_mbit_s=20.0, delay_s=0.025)


@pytest.mark.parametrize("text", ["", "alpha", "alpha,gamma", "alpha,gamma,20mbit"])
def test_a_pair_without_a_link_is_refused(text: str) -> None:
    with pytest.raises(LabError, match=r"--link .*RATE,DELAY"):
        parse_pair(text)


def test_sites_are_in_the_order_of_the_table() -> None:
    assert parse_sites("gamma, alpha") == ("alpha", "gamma")


@pytest.mark.parametrize("text", ["", "delta", "alpha,alpha", "alpha,"])
def test_sites_that_there_are_not_are_refused(text: str) -> None:
    with pytest.raises(LabError, match=r"--sites.*alpha, beta, gamma"):
        parse_sites(text)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (LabOptions(directory=HERE, nodes=0), "--nodes 0"),
        (LabOptions(directory=HERE, nodes=NODES_PER_CLUSTER_MAX + 1), f"from 1 to {NODES_PER_CLUSTER_MAX}"),
        (LabOptions(directory=HERE, processors_per_node=PROCESSORS_PER_NODE_MAX + 1), "--processors-per-node"),
        (LabOptions(directory=HERE, slots=SLOTS_MAX + 1), "--slots"),
        (LabOptions(directory=HERE, first_port=FIRST_PORT_MIN - 1), "--first-port"),
        (LabOptions(directory=HERE, first_port=FIRST_PORT_LAST + 1), "--first-port"),
        (LabOptions(directory=HERE, links=(parse_pair("alpha,beta,1mbit,1ms"),)), "add --wan"),
        (LabOptions(directory=HERE, wan=LINK, links=(parse_pair("alpha,delta,1mbit,1ms"),)), "no site 'delta'"),
        (LabOptions(directory=HERE, wan=LINK, links=(parse_pair("beta,beta,1mbit,1ms"),)), "two different sites"),
        (
            LabOptions(
                directory=HERE,
                wan=LINK,
                links=(parse_pair("alpha,beta,1mbit,1ms"), parse_pair("beta,alpha,2mbit,1ms")),
            ),
            "named twice",
        ),
        (LabOptions(directory=HERE, sites=()), "--sites"),
    ],
)
def test_options_that_make_no_lab_are_refused(options: LabOptions, words: str) -> None:
    with pytest.raises(LabError) as refused:
        check(options)
    assert words in refused.value.for_user()


def test_the_limits_themselves_are_allowed() -> None:
    check(LabOptions(directory=HERE, first_port=FIRST_PORT_LAST, nodes=NODES_PER_CLUSTER_MAX, slots=SLOTS_MAX))
    check(LabOptions(directory=HERE, first_port=FIRST_PORT_MIN, processors_per_node=PROCESSORS_PER_NODE_MAX))
    parse_link(f"{RATE_MBIT_S_MAX:.0f}mbit,{DELAY_S_MAX:.0f}s", "--wan")


def test_the_link_of_a_pair_is_its_own_or_that_of_all() -> None:
    slow = WideAreaLink(rate_mbit_s=1.0, delay_s=1.0)
    options = LabOptions(directory=HERE, wan=LINK, links=(PairOfSites(between=("alpha", "gamma"), link=slow),))
    assert options.link("gamma", "alpha") == slow
    assert options.link("alpha", "beta") == LINK


def test_no_two_sites_share_a_port_or_an_address() -> None:
    options = LabOptions(directory=HERE, nodes=NODES_PER_CLUSTER_MAX, wan=LINK, gridftp=True)
    plan = plan_lab(options, "me", "here", "127.0.0.1")
    ports = [port for site in plan.sites for port in range(site.port, site.port + NODES_PER_CLUSTER_MAX + 1)]
    ports += [site.file_server_port for site in plan.sites]
    assert len(set(ports)) == len(ports)
    assert max(ports) < options.first_port + 65_536 - FIRST_PORT_LAST
    addresses = [address for site in plan.sites for address in (site.address, *site.node_addresses)]
    assert len(set(addresses)) == len(addresses) == 2 * (NODES_PER_CLUSTER_MAX + 1) + 1


def test_on_loopback_the_sites_are_at_the_address_of_this_machines_name_if_that_is_one() -> None:
    options = LabOptions(directory=HERE)
    assert plan_lab(options, "me", "here", "127.0.1.1").site("alpha").address == "127.0.1.1"
    assert plan_lab(options, "me", "here", "192.0.2.7").site("alpha").address == "127.0.0.1"
    assert plan_lab(options, "me", "here", None).site("gamma").address == "127.0.0.1"


def test_a_directory_with_too_long_a_path_is_refused() -> None:
    fits = Path("/" + "x" * (DIRECTORY_BYTES_MAX - 1))
    plan_lab(LabOptions(directory=fits), "me", "here", None)
    with pytest.raises(LabError, match="too long for the sockets in it, by 1 bytes"):
        plan_lab(LabOptions(directory=Path(f"{fits}x")), "me", "here", None)


@pytest.mark.parametrize("name", ["my lab", "a;b", "100%", "a,b"])
def test_a_directory_that_batch_systems_cannot_name_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="choose another"):
        plan_lab(LabOptions(directory=Path("/tmp") / name), "me", "here", None)  # noqa: S108 - a name only
