"""``koala grid init``: what it writes is read by the reader of grid files, and it never writes over anything."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from koala.cli import koala
from koala.cli.grid.text import SurveyedHost, grid_text
from koala.descriptions import read_grid
from koala.model.grid import BatchSettings, Grid, Link, Links
from koala.sites.batch.discovery import ClusterNode, FoundCluster, FoundClusters, FoundQueue

SINFO = "printf '%s\\n' 'main*|up|2/6/0/8'"


def cluster(name: str = "alpha", kind: str = "slurm", queue: str = "main") -> FoundCluster:
    queues = (FoundQueue(name=queue, processors=8, is_default=True), FoundQueue(name="low", processors=4))
    return FoundCluster(kind=kind, name=name, identity=f"{kind} {name}", queues=queues)


def written(*hosts: SurveyedHost) -> tuple[str, Grid]:
    text, _ = grid_text(hosts, "koala site check SITE")
    return text, read_grid(text, "grid.yaml")


def test_every_cluster_becomes_a_site_with_its_settings() -> None:
    ge = FoundCluster(
        kind="grid_engine",
        name="cell",
        identity="x",
        queues=(FoundQueue(name="all.q", processors=6, own=(("parallel_environment", "mpi"),)),),
        environment=(("PATH", "/opt/sge/bin:/bin"), ("SGE_ROOT", "/opt/sge")),
    )
    own = (("SLURM_CONF", "/x y/slurm.conf"), ("SGE_ROOT", "/other"))
    _, grid = written(
        SurveyedHost(None, FoundClusters((cluster(),)), own), SurveyedHost("me@far.example", FoundClusters((ge,)))
    )
    here, far = grid.sites
    assert (here.name, here.kind, here.processors) == ("alpha", "slurm", 8)
    assert here.batch == BatchSettings(
        work_directory="~/koala/alpha", environment=(("SLURM_CONF", "/x y/slurm.conf"),), queue="main"
    )
    assert (far.name, far.kind, far.processors) == ("far.example", "grid_engine", 6)
    assert far.batch == BatchSettings(
        work_directory="~/koala/far.example",
        ssh="me@far.example",
        environment=(("PATH", "/opt/sge/bin:/bin"), ("SGE_ROOT", "/opt/sge")),
        queue="all.q",
        own=(("parallel_environment", "mpi"),),
    )


def test_one_cluster_seen_from_two_hosts_is_one_site() -> None:
    text, grid = written(
        SurveyedHost("near", FoundClusters((cluster(),))), SurveyedHost("far", FoundClusters((cluster(),)))
    )
    assert [site.name for site in grid.sites] == ["near"]
    assert "#   far: the same slurm cluster as near" in text


def test_clusters_of_one_name_get_names_of_their_own() -> None:
    other = cluster(kind="grid_engine")
    _, grid = written(
        SurveyedHost("near", FoundClusters((cluster(), other))),
        SurveyedHost("a@near", FoundClusters((cluster("beta"),))),
    )
    assert [site.name for site in grid.sites] == ["near", "near-2", "near-3"]


def test_those_that_do_not_answer_are_comments_with_the_reason() -> None:
    silent = FoundClusters(silent=("Permission denied\n(publickey)",))
    text, grid = written(
        SurveyedHost("near", FoundClusters((cluster(),))),
        SurveyedHost("shut", silent),
        SurveyedHost("git", FoundClusters()),
    )
    assert [site.name for site in grid.sites] == ["near"]
    comments = [line for line in text.splitlines() if line.startswith("  #   ")]
    assert [line.partition(":")[0].split()[-1] for line in comments] == ["shut", "git"]
    assert "(publickey)" in comments[0]
    assert "no Slurm and no Grid Engine" in comments[1]


def test_the_links_stand_there_as_a_comment_that_is_only_to_be_opened() -> None:
    text, grid = written(
        SurveyedHost("near", FoundClusters((cluster(),))), SurveyedHost("shut", FoundClusters(silent=("no answer",)))
    )
    assert grid.links == Links()
    opened = text.replace("# links:", "links:")
    assert opened != text
    assert read_grid(opened, "grid.yaml") == grid  # they are what counts without them
    faster = opened.replace("bandwidth_mbit_s: 100,", "bandwidth_mbit_s: 10000,")
    link = Link(bandwidth_mbit_s=10_000.0, latency_s=0.005)
    assert read_grid(faster, "grid.yaml").links == Links(default=link)


NAMED = "such as n1: what jobs over several sites need"


@pytest.mark.parametrize(
    ("addresses", "here", "there", "host", "network"),
    [
        (["10.1.0.5", "10.1.0.9"], "10.1.0.5", "10.1.0.5", None, None),  # every host knows their names
        (["10.1.0.5", "10.1.0.9"], "10.1.0.5", None, None, "10.1.0.0/28"),
        (["10.1.0.5", "10.1.0.9"], "10.1.0.5", "192.168.0.7", None, "10.1.0.0/28"),  # another host of that name
        (["10.1.0.5", "10.1.2.5"], None, None, None, "10.1.0.0/22"),
        (["10.1.0.5", "10.1.0.5"], None, None, "10.1.0.5", None),
        (["10.1.0.5"], "10.1.0.5", None, "10.1.0.5", None),
        (["10.1.0.5", "192.168.1.5"], None, None, None, None),
        (["10.1.0.5", None], "10.1.0.5", None, None, None),
        (["127.0.0.1", "127.0.0.1"], None, None, None, None),
        (["127.0.0.1"], "127.0.0.1", "127.0.0.1", None, None),  # each host means itself
    ],
)
def test_a_site_names_the_host_or_the_network_of_its_nodes_where_their_names_will_not_do(
    addresses: list[str | None], here: str | None, there: str | None, host: str | None, network: str | None
) -> None:
    nodes = tuple(ClusterNode(f"n{number}", address) for number, address in enumerate(addresses, 1))
    found = msgspec.structs.replace(cluster(), nodes=nodes)
    surveyed = (SurveyedHost("near", FoundClusters((found,))), SurveyedHost("far", FoundClusters((cluster("beta"),))))
    text, _ = grid_text(surveyed, "koala site check SITE", {"n1": [here, there]})
    near, far = read_grid(text, "grid.yaml").sites
    assert near.batch is not None
    assert (near.batch.host, near.batch.network) == (host, network)
    assert far.batch is not None
    assert (far.batch.host, far.batch.network) == (None, None)
    names_do = here == there == addresses[0] != "127.0.0.1"
    assert (NAMED in text) is (host is not None or network is not None)
    assert ("# host: ADDRESS, or network" in text) is not (names_do or NAMED in text)


def test_clusters_of_this_machine_alone_reach_each_other_at_its_own_address() -> None:
    found = msgspec.structs.replace(cluster(), nodes=(ClusterNode("n1", "127.0.0.1"), ClusterNode("n2", "127.0.0.1")))
    text, _ = grid_text((SurveyedHost(None, FoundClusters((found,))),), "koala site check SITE", {"n1": [None]})
    (site,) = read_grid(text, "grid.yaml").sites
    assert site.batch is not None
    assert site.batch.host == "127.0.0.1"


words = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"], exclude_characters="\0"), min_size=1, max_size=12)
hosts = st.from_regex(r"[A-Za-z0-9_.@:%\[\]][A-Za-z0-9_.@:%\[\]-]{0,8}", fullmatch=True)


@given(
    hosts,
    words,
    words.filter(lambda word: not word.startswith("-")),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
)
def test_whatever_things_are_called_the_file_is_read_as_it_was_meant(
    host: str, name: str, queue: str, value: str
) -> None:
    found = FoundCluster(
        kind="slurm",
        name=name,
        identity=name,
        queues=(FoundQueue(name=queue, processors=3),),
        environment=(("PATH", value),),
    )
    _, grid = written(
        SurveyedHost(host, FoundClusters((found,), (value,))), SurveyedHost(None, FoundClusters((), (name,)))
    )
    (site,) = grid.sites
    assert site.batch == BatchSettings(
        work_directory=f"~/koala/{site.name}", ssh=host, environment=(("PATH", value),), queue=queue
    )


# ------------------------------------------------------------------------------------------- the command


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner(env={"COLUMNS": "80", **environment}).invoke(koala, ["grid", "init", *arguments])


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No batch system is found here but the one whose programs stand in this directory, and no ssh configuration."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("sh", "sed", "cat", "tr"):
        (directory / name).symlink_to(f"/bin/{name}")
    (tmp_path / ".profile").write_text(f"export PATH={directory}\n")
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("SLURM_CONF", "SGE_ROOT", "SGE_CELL"):
        monkeypatch.delenv(name, raising=False)
    return directory


def put_slurm(directory: Path) -> None:
    for name, text in (("sbatch", ""), ("sinfo", SINFO), ("scontrol", "echo ClusterName = here")):
        (directory / name).write_text(f"#!/bin/sh\n{text}\n")
        (directory / name).chmod(0o755)


def test_a_cluster_of_this_machine_is_written(programs: Path, tmp_path: Path) -> None:
    put_slurm(programs)
    out = tmp_path / "grid.yaml"
    result = run("--out", str(out), SLURM_CONF="/etc/mine.conf")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{out}: 1 site: here\n"
    assert "this machine: slurm here, 8 processors in main" in result.stderr
    (site,) = read_grid(out.read_text(), "grid.yaml").sites
    assert site.name == "here"
    assert site.batch is not None
    assert site.batch.environment == (("SLURM_CONF", "/etc/mine.conf"),)


def test_a_cluster_whose_nodes_share_an_address_is_written_with_it(programs: Path, tmp_path: Path) -> None:
    put_slurm(programs)
    nodes = "case $* in *%o*) printf '%s\\n' 'main|n1|head' 'main|n2|head' 'other|x9|x9' ;; *) " + SINFO + " ;; esac"
    (programs / "sinfo").write_text(f"#!/bin/sh\n{nodes}\n")
    getent = "case $2 in head) printf '10.9.8.7  %s\\n' 'STREAM head' 'DGRAM' ;; *) exit 2 ;; esac"
    (programs / "getent").write_text(f"#!/bin/sh\n{getent}\n")
    (programs / "getent").chmod(0o755)
    out = tmp_path / "grid.yaml"
    result = run("--out", str(out), "--json", "--no-ssh")
    assert result.exit_code == 0, result.output
    (site,) = json.loads(result.stdout)["sites"]
    assert (site["host"], site["network"]) == ("10.9.8.7", None)
    assert NAMED in out.read_text()


def test_a_file_that_is_there_is_kept(programs: Path, tmp_path: Path) -> None:
    put_slurm(programs)
    out = tmp_path / "grid.yaml"
    out.write_text("mine")
    result = run("--out", str(out))
    assert result.exit_code == 2
    assert "--force" in result.stderr
    assert out.read_text() == "mine"
    assert run("--out", str(out), "--force").exit_code == 0
    assert read_grid(out.read_text(), "grid.yaml").sites


def test_where_nothing_is_found_nothing_is_written(programs: Path, tmp_path: Path) -> None:
    out = tmp_path / "grid.yaml"
    result = run("--out", str(out), "--no-ssh")
    assert result.exit_code == 1
    assert "no batch system answers" in result.stderr
    assert "~/.ssh/config" in result.stderr
    assert not out.exists()


def test_the_json_tells_the_sites_and_why_others_are_none(programs: Path, tmp_path: Path) -> None:
    put_slurm(programs)
    for name, text in (("qsub", ""), ("qconf", ""), ("qstat", "echo error: one >&2; echo error: two >&2; exit 1")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    out = tmp_path / "grid.yaml"
    result = run("--out", str(out), "--no-ssh", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["file"] == str(out)
    assert [(site["name"], site["processors"], site["queue"]) for site in found["sites"]] == [("here", 8, "main")]
    assert found["left_out"] == [{"host": "this machine", "reason": "grid_engine is there, but: error: two"}]


def test_the_hosts_are_those_of_the_configuration_that_the_environment_names(programs: Path, tmp_path: Path) -> None:
    (programs / "ssh").write_text("#!/bin/sh\necho nobody is at home >&2\nexit 255\n")
    (programs / "ssh").chmod(0o755)
    put_slurm(programs)
    config = tmp_path / "hosts"
    config.write_text("Host far\n")
    result = run("--out", str(tmp_path / "grid.yaml"), KOALA_SSH_CONFIG=str(config))
    assert result.exit_code == 0, result.output
    assert "far: no answer: nobody is at home" in result.stderr


def test_options_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("")
    result = run("--no-ssh", "--ssh-config", str(config))
    assert result.exit_code == 2
    assert "contradict" in result.stderr


def test_a_check_without_a_grid_names_where_it_looked_and_what_to_give(tmp_path: Path) -> None:
    told = CliRunner().invoke(koala, ["site", "check", "vu", "--state", str(tmp_path)])
    assert told.exit_code == 2
    assert "give --state DIR" in " ".join(told.output.split())
