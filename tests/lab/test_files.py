"""The texts that a lab writes: the batch systems' configurations, and the grid file that Koala reads."""

from __future__ import annotations

from pathlib import Path

from koala.descriptions.grid.form import read_grid_yaml
from koala.lab import LabOptions, WideAreaLink
from koala.lab.grid_engine import cell_files
from koala.lab.grid_file import grid_text
from koala.lab.network.namespaces import emulator_settings, hosts_text
from koala.lab.options import LabSystem, parse_pair
from koala.lab.plan import LabPlan, plan_lab
from koala.lab.slurm import cluster_files

LINK = WideAreaLink(rate_mbit_s=100.0, delay_s=0.005, loss=0.01)


def plan_of(options: LabOptions, address: str | None = "127.0.0.1") -> LabPlan:
    return plan_lab(options, "me", "here", address)


def values(text: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in text.splitlines())


def test_a_slurm_cluster_has_its_own_ports_state_and_nodes() -> None:
    plan = plan_of(LabOptions(directory=Path("/lab"), nodes=3, processors_per_node=5, first_port=30_000))
    lines = cluster_files.slurm_conf(plan.site("beta"), plan).splitlines()
    assert "ClusterName=beta" in lines
    assert "SlurmctldHost=here(127.0.0.1)" in lines
    assert "SlurmctldPort=30065" in lines
    assert "AuthInfo=socket=/lab/munge/socket,cred_expire=5" in lines
    assert "StateSaveLocation=/lab/beta/slurm/state" in lines
    nodes = [line for line in lines if line.startswith("NodeName=")]
    assert [node.split()[0] for node in nodes] == ["NodeName=beta1", "NodeName=beta2", "NodeName=beta3"]
    assert all(" CPUs=5 " in node for node in nodes)
    assert [node.split("Port=")[1].split()[0] for node in nodes] == ["30066", "30067", "30068"]


def test_slurm_listens_on_loopback_alone_where_this_machines_name_is_there() -> None:
    def listens_narrowly(plan: LabPlan) -> bool:
        return "NoInAddrAny" in cluster_files.slurm_conf(plan.site("alpha"), plan)

    assert listens_narrowly(plan_of(LabOptions(directory=Path("/lab"))))
    assert not listens_narrowly(plan_of(LabOptions(directory=Path("/lab")), "192.0.2.7"))
    assert not listens_narrowly(plan_of(LabOptions(directory=Path("/lab"), wan=LINK)))


def test_a_cell_knows_its_host_whatever_the_machine_is_called() -> None:
    plan = plan_of(LabOptions(directory=Path("/lab"), slots=7))
    site = plan.site("gamma")
    files = cell_files.cell_files(site, plan)
    assert files["host_aliases"] == "localhost here\n"
    assert files["act_qmaster"] == "localhost\n"
    assert values(files["bootstrap"])["admin_user"] == "me"
    assert values(cell_files.queue(site))["slots"] == "7"
    assert values(cell_files.execution_host(site))["complex_values"] == "slots=7"
    assert values(cell_files.queue(site))["tmpdir"] == "/lab/gamma/tmp"


def test_the_grid_file_of_a_lab_on_loopback_is_read_as_a_grid() -> None:
    plan = plan_of(LabOptions(directory=Path("/lab"), nodes=2, processors_per_node=4, slots=6, gridftp=True))
    grid = read_grid_yaml(grid_text(plan), "grid.yaml")
    assert [(site.name, site.kind, site.processors) for site in grid.sites] == [
        ("alpha", LabSystem.SLURM, 8),
        ("beta", LabSystem.SLURM, 8),
        ("gamma", LabSystem.GRID_ENGINE, 6),
    ]
    alpha, _, gamma = grid.sites
    assert alpha.batch is not None
    assert gamma.batch is not None
    assert alpha.batch.work_directory == "/lab/alpha/work"
    assert dict(alpha.batch.environment) == {"SLURM_CONF": "/lab/alpha/slurm/slurm.conf"}
    assert (alpha.batch.queue, alpha.batch.host, alpha.batch.through) == ("main", "127.0.0.1", ())
    assert dict(gamma.batch.environment)["SGE_ROOT"] == "/lab/gamma/grid_engine"
    assert (gamma.batch.queue, gamma.batch.own) == ("all.q", (("parallel_environment", "mpi"),))
    assert gamma.file_server == "ftp://127.0.0.1:26897/lab/gamma/work/gridftp"


def test_the_grid_file_of_a_lab_behind_a_wide_area_tells_its_links_and_namespaces() -> None:
    options = LabOptions(directory=Path("/lab"), wan=LINK, links=(parse_pair("gamma,alpha,20mbit,25ms"),))
    grid = read_grid_yaml(grid_text(plan_of(options)), "grid.yaml")
    assert (grid.links.default.bandwidth_mbit_s, grid.links.default.latency_s) == (100.0, 0.005)
    [pair] = grid.links.pairs
    assert (set(pair.between), pair.bandwidth_mbit_s, pair.latency_s) == ({"alpha", "gamma"}, 20.0, 0.025)
    beta = grid.sites[1].batch
    assert beta is not None
    assert beta.through == ("ip", "netns", "exec", "koala-26700-beta")
    assert beta.host == "10.77.2.1"
    assert dict(beta.job_environment) == {"UCX_TLS": "tcp,self"}


def test_the_emulator_is_told_every_pair_once() -> None:
    options = LabOptions(directory=Path("/lab"), wan=LINK, links=(parse_pair("gamma,alpha,20mbit,25ms"),))
    links = {tuple(link["between"]): link for link in emulator_settings(plan_of(options))["links"]}
    assert set(links) == {(1, 2), (1, 3), (2, 3)}
    assert links[1, 3] == {"between": [1, 3], "rate_mbit_s": 20.0, "delay_s": 0.025, "loss": 0.0}
    assert links[2, 3]["loss"] == 0.01


def test_every_address_of_the_wide_area_has_a_name() -> None:
    text = hosts_text(plan_of(LabOptions(directory=Path("/lab"), wan=LINK, nodes=1)))
    assert text.splitlines() == [
        "# of the lab in /lab",
        "127.0.0.1 localhost here",
        "10.77.1.1 alpha",
        "10.77.1.2 alpha1",
        "10.77.2.1 beta",
        "10.77.2.2 beta1",
        "10.77.3.1 gamma",
    ]
