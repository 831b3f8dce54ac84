"""Sites under a batch system in grid files: every key reaches the settings, and what cannot be used is refused."""

from __future__ import annotations

import pytest

from koala.descriptions import DescriptionError, grid_schema, read_grid
from koala.descriptions.grid.batch import BATCH_ENTRIES_MAX, BatchKeysText, CommonKeysText
from koala.model.grid import BatchSettings, Claims, SiteKind
from koala.sites.batch.systems import SYSTEMS

FULL = """\
sites:
  gamma:
    kind: grid_engine
    processors: 64
    work_directory: /scratch/me/koala
    ssh: me@gamma
    through: [ip, netns, exec, "a b"]
    environment: {SGE_ROOT: /opt/sge, SGE_CELL: 7}
    queue: all.q
    account: physics
    parallel_environment: mpi
    memory_complex: h_vmem
    gpu_complex: gpu
    gpu_kind_complex: gpu_type
    submit_options: [-l, mem_free=1G]
    job_environment: {OMP_NUM_THREADS: 4}
    search_path: [/opt/mpich/bin, ~/bin]
    claims: reservation
    network: 10.0.0.0/8
"""


def sites_of(text: str) -> dict[str, BatchSettings | None]:
    return {site.name: site.batch for site in read_grid(text, "grid.yaml").sites}


def test_every_key_reaches_the_settings() -> None:
    assert sites_of(FULL)["gamma"] == BatchSettings(
        work_directory="/scratch/me/koala",
        ssh="me@gamma",
        through=("ip", "netns", "exec", "a b"),
        environment=(("SGE_ROOT", "/opt/sge"), ("SGE_CELL", "7")),
        queue="all.q",
        account="physics",
        own=(
            ("parallel_environment", "mpi"),
            ("memory_complex", "h_vmem"),
            ("gpu_complex", "gpu"),
            ("gpu_kind_complex", "gpu_type"),
        ),
        submit_options=("-l", "mem_free=1G"),
        job_environment=(("OMP_NUM_THREADS", "4"),),
        search_path=("/opt/mpich/bin", "~/bin"),
        claims=Claims.RESERVATION,
        network="10.0.0.0/8",
    )


def test_the_keys_are_the_fields_of_the_settings() -> None:
    assert {*CommonKeysText.model_fields, "own"} == set(BatchSettings.__struct_fields__)
    own = {key.name for system in SYSTEMS.values() for key in system.keys}
    assert set(BatchKeysText.model_fields) == {*CommonKeysText.model_fields, *own}


def test_exactly_the_kinds_with_a_batch_system_have_settings() -> None:
    sites = "".join(f"  {kind}: {{kind: {kind}, processors: 2}}\n" for kind in (*SiteKind, *SYSTEMS))
    found = sites_of(f"sites:\n{sites}")
    assert {name for name, batch in found.items() if batch is not None} == set(SYSTEMS)
    assert found["slurm"] == BatchSettings(work_directory="~/koala/slurm")


# the site's keys besides processors, the column of the problem in line 1, a part of the message, of the advice
BAD = [
    ("kind: slurm, work_directory: koala", "koala}", "'koala' is not an absolute path", "begins with '/'"),
    ("kind: slurm, work_directory: '~'", "'~'", "not an absolute path", "'~/' for your home"),
    ('kind: slurm, work_directory: "/a\\nb"', '"/a', "the path holds the control character U+000A", "take it out"),
    ("kind: slurm, work_directory: /a$B", "/a$B", "'/a$B' holds the sign $", "without it"),
    ("kind: slurm, ssh: -oProxyCommand=x", "-o", "would be taken for an option", "write a name"),
    ("kind: slurm, ssh: a b", "a b", "'a b' holds a blank", "one word"),
    ("kind: slurm, ssh: ''", "''", "too few", "1 or more"),
    ("kind: slurm, ssh: 'a;b'", "'a;b'", "'a;b' is not the name of a host", "USER@HOST"),
    ("kind: slurm, queue: --wrap=x", "--wrap", "would be taken for an option", "write a name"),
    ("kind: slurm, environment: {1A: x}", "1A", "'1A' is not the name of a variable", "the first no digit"),
    ("kind: slurm, job_environment: {'A;B': x}", "'A;B'", "not the name of a variable", "letters, digits"),
    ("kind: slurm, search_path: [bin]", "bin", "'bin' is not an absolute path", "begins with '/'"),
    ("kind: slurm, search_path: ['/a:/b']", "'/a", "holds a colon", "one directory for each entry"),
    ("kind: slurm, claims: hope", "hope", "'hope' is not one of the choices", "'barrier' or 'reservation'"),
    ("kind: slurm, network: everywhere", "every", "'everywhere' is not a network", "10.0.0.0/8"),
    ("kind: slurm, network: 10.1.2.3/8", "10.1", "'10.1.2.3/8' is not a network", "write 10.0.0.0/8"),
    ("kind: slurm, host: a, network: 10.0.0.0/8", "network", "host and network are given", "one address"),
    ("kind: slurm, parallel_environment: mpi", "parallel", "for sites under Grid Engine", "submit_options"),
    ("kind: slurm, gpu_complex: gpu", "gpu_c", "for sites under Grid Engine", "submit_options"),
    ("kind: grid_engine, memory_complex: 'a=b'", "'a=b'", "'a=b' is not the name of a resource", "qconf -sc"),
    ("kind: grid_engine, gpu_kind_complex: gt", "gpu_k", "and gpu_complex is missing", "'gpu_complex: gpu'"),
    ("kind: local, ssh: alpha", "ssh", "this one is of the kind local", "'kind: slurm'"),
    ("work_directory: /x", "work", "this one is of the kind simulated", "take it out"),
    ("kind: slurm, through: ip", "ip}", "list is wanted", "[a, b]"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "place", "message", "advice"), BAD, ids=[keys for keys, *_ in BAD])
def test_what_cannot_be_used_is_refused_at_its_place(keys: str, place: str, message: str, advice: str) -> None:
    text = f"sites: {{a: {{processors: 8, {keys}}}}}"
    with pytest.raises(DescriptionError) as caught:
        read_grid(text, "grid.yaml")
    assert (caught.value.line, caught.value.column) == (1, text.index(place) + 1), caught.value.for_user()
    assert message in caught.value.message
    assert advice in caught.value.advice
    assert len(caught.value.problems) == 1


def test_null_is_as_left_out() -> None:
    assert sites_of("sites: {a: {processors: 1, kind: local, ssh: null}}") == {"a": None}


def test_lists_and_mappings_have_a_limit() -> None:
    words = ", ".join(["x"] * BATCH_ENTRIES_MAX)
    text = "sites: {a: {processors: 1, kind: slurm, submit_options: [%s]}}"
    settings = sites_of(text % words)["a"]
    assert settings is not None
    assert len(settings.submit_options) == BATCH_ENTRIES_MAX
    with pytest.raises(DescriptionError, match="too many entries"):
        read_grid(text % f"{words}, x", "grid.yaml")


def test_the_schema_tells_every_key_and_its_default() -> None:
    site = grid_schema()["$defs"]["SiteText"]["properties"]
    assert "by default ~/koala/SITE" in site["work_directory"]["description"]
    assert site["claims"]["default"] == "barrier"
    assert next(iter(site)) == "processors"
    assert set(BatchKeysText.model_fields) <= set(site)
