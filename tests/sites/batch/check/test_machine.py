"""What a check finds of GPUs and memory: of this machine, of nodes that a listing tells, and of consumables."""

from __future__ import annotations

import msgspec
import pytest

from koala.model.grid import Site, SiteKind
from koala.model.nodes import NodeClass, NodeSize
from koala.sites.batch.check.check import Finding, StepStatus, check_own_site
from koala.sites.batch.check.machine import OwnMachine, gpu_model, this_machine
from koala.sites.batch.system import BatchListing
from tests.support.played_site import played

PASSED, WARNED, FAILED = StepStatus.PASSED, StepStatus.WARNED, StepStatus.FAILED
GIB = 2**30
H200 = "NVIDIA H200"


def embedded(size: NodeSize | None, machine: OwnMachine) -> dict[str, Finding]:
    classes = () if size is None else (NodeClass(1, size, size),)
    site = Site(name="here", kind=SiteKind.LOCAL, processors=4, node_classes=classes)
    return {each.step: each for each in check_own_site(site, "", machine)}


@pytest.mark.parametrize(
    ("size", "gpus", "step", "sign", "words"),
    [
        (None, 0, "processors", PASSED, "4 described; this machine has 8"),
        (None, 0, "memory", PASSED, "do not go there; this machine has 16 GiB"),
        (NodeSize(4, 8 * GIB), 0, "memory", PASSED, "8 GiB described; this machine has 16 GiB"),
        (NodeSize(4, 32 * GIB), 0, "memory", WARNED, "32 GiB are described, this machine has 16 GiB"),
        (None, 2, "gpus", WARNED, "none described, and this machine has 2 GPUs (NVIDIA H200)"),
        (NodeSize(4, GIB, (("h200", 1),)), 1, "gpus", PASSED, "1 described; this machine has 1 GPU (NVIDIA H200)"),
        (NodeSize(4, GIB, (("", 1),)), 2, "gpus", WARNED, "1 described, and this machine has 2 GPUs"),
        (NodeSize(4, GIB, (("", 3),)), 2, "gpus", FAILED, "3 described, and this machine has 2 GPUs"),
        (NodeSize(4, GIB, (("", 1),)), 0, "gpus", FAILED, "1 described, and this machine has none"),
    ],
)
def test_what_is_described_is_held_against_the_machine(
    size: NodeSize | None, gpus: int, step: str, sign: StepStatus, words: str
) -> None:
    found = embedded(size, OwnMachine(processors=8, memory_bytes=16 * GIB, gpus=(H200,) * gpus))[step]
    assert (found.sign, words in found.words) == (sign, True), found
    assert bool(found.advice) == (sign is not PASSED)


def test_a_machine_without_gpus_has_nothing_to_say_of_them() -> None:
    assert "gpus" not in embedded(None, OwnMachine(processors=8, memory_bytes=GIB))


def test_this_machine_tells_what_it_has() -> None:
    machine = this_machine()
    assert machine.processors >= 1
    assert machine.memory_bytes > 64 * 2**20


def test_the_model_of_a_gpu_is_read_from_what_its_driver_tells() -> None:
    assert gpu_model("Model: \t\t NVIDIA H200\nIRQ:   \t\t 230\n") == H200
    assert gpu_model("something else\n") == ""


# ------------------------------------------------------------------------------------------ under a batch system


def told(*nodes: NodeClass) -> str:
    return msgspec.json.encode(BatchListing(jobs=(), processors=16, others=0, nodes=nodes)).decode()


def test_nodes_are_counted() -> None:
    full, some = NodeSize(8, 4 * GIB, (("a100", 2),)), NodeSize(2, GIB, (("a100", 1),))
    found, _ = played({"LISTING": told(NodeClass(2, full, full), NodeClass(1, full, some))})
    assert found["nodes"].words == "3 nodes: 6 a100, 5 idle; 12 GiB of memory, 9 GiB idle"
    found, _ = played({"LISTING": told(NodeClass(1, NodeSize(8), NodeSize(8)))})
    assert (
        found["nodes"].words
        == "1 node: no GPUs; no memory is told, so that tasks that ask for memory do not go there"
    )
    shared = NodeSize(8, 4 * GIB, counts_memory=False)
    found, _ = played({"LISTING": told(NodeClass(2, shared, shared))})
    assert found["nodes"].words == "2 nodes: no GPUs; 8 GiB of memory, which jobs do not share out"
    found, _ = played()
    assert "nodes" not in found


COMPLEXES = """\
#name short type relop requestable consumable default urgency
gpu      gpu    INT    <= YES YES 0 0
h_vmem   hv     MEMORY <= YES {h_vmem} 0 0
gpu_type gt     STRING == YES NO  NONE 0
slots    s      INT    <= YES YES 1 1000
"""
ALL = {"memory_complex": "hv", "gpu_complex": "gpu", "gpu_kind_complex": "gpu_type"}
NODE = NodeSize(8, GIB, (("a100", 2),))


@pytest.mark.parametrize(
    ("settings", "h_vmem", "nodes", "sign", "words", "advice"),
    [
        (ALL, "YES", NODE, PASSED, "hv (memory), gpu (gpu), gpu_type (gpu kind)", ""),
        (ALL, "NO", NODE, WARNED, "hv is not consumable: nobody counts who uses", "consumable are gpu"),
        (ALL | {"gpu_complex": "gpus"}, "YES", NODE, FAILED, "no resource gpus", "consumable are gpu, h_"),
        (ALL | {"gpu_kind_complex": "kind"}, "YES", NODE, FAILED, "no resource kind", "gpu_kind_complex"),
        (ALL, "YES", NodeSize(8, GIB), WARNED, "no host has any gpu", "complex_values"),
        (ALL, "YES", NodeSize(8, -1, (("", 1),)), WARNED, "no host has any hv", "complex_values"),
        ({}, "YES", NODE, WARNED, "gpu can be asked for, and the grid file does not name it", "'gpu_complex: gpu'"),
        ({"gpu_complex": "gpu"}, "YES", NODE, WARNED, "h_vmem can be asked for", "'memory_complex: h_vmem'"),
        ({"gpu_complex": "gpu"}, "NO", NODE, PASSED, "gpu (gpu)", ""),
    ],
)  # fmt: skip
def test_consumables_are_there_used_up_and_named(
    settings: dict[str, str], h_vmem: str, nodes: NodeSize, sign: StepStatus, words: str, advice: str
) -> None:
    found, _ = played(
        {"qconf -sc": COMPLEXES.format(h_vmem=h_vmem), "LISTING": told(NodeClass(1, nodes, nodes))},
        kind="grid_engine",
        processors=6,
        **settings,  # type: ignore[arg-type]
    )
    assert (found["consumables"].sign, words in found["consumables"].words) == (sign, True), found["consumables"]
    assert advice in found["consumables"].advice


def test_a_cell_without_consumables_has_nothing_to_say_of_them() -> None:
    found, _ = played({"qconf -sc": ""}, kind="grid_engine", processors=6)
    assert "consumables" not in found
