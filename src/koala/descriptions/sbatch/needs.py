"""What each task needs beside processors by the options of a batch script: memory, GPUs and features of nodes.

Slurm counts memory and GPUs for a processor, a GPU, a task, a node or a job; here everything is converted
to one task.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from koala.model.nodes import CONSTRAINT_PATTERN, TaskNeeds

NEEDS_OPTIONS = (
    "mem",
    "mem-per-cpu",
    "mem-per-gpu",
    "gpus",
    "gpus-per-node",
    "gpus-per-task",
    "gres",
    "constraint",
)
_GPU_OPTIONS = ("gpus-per-task", "gpus-per-node", "gres", "gpus")
_MEMORY_OPTIONS = ("mem-per-cpu", "mem-per-gpu", "mem")
_SIZE = re.compile(r"([0-9]{1,12})([KMGT]?)B?", re.IGNORECASE)
_GPUS = re.compile(r"(?:([A-Za-z][A-Za-z0-9._-]*):)?([0-9]{1,9})")
_PER_TASK = "write --gpus-per-task"


class Layout(NamedTuple):
    """The number of tasks of a component, the number on one node if the script gives it, and their processors."""

    tasks: int
    on_a_node: int
    processors: int


class NeedsError(ValueError):
    """An option that cannot be honoured: which, what is wrong and what to write."""

    def __init__(self, option: str, message: str, advice: str) -> None:
        super().__init__(message)
        self.option = option
        self.message = message
        self.advice = advice


def needs_of(given: dict[str, str], layout: Layout) -> TaskNeeds | None:
    """Return what each task needs by these options and their values; None if nothing. Raises NeedsError."""
    gpus, kind = gpus_of_task(given, layout)
    constraint = given.get("constraint", "")
    if constraint and re.fullmatch(CONSTRAINT_PATTERN, constraint) is None:
        raise NeedsError("constraint", f"{constraint!r} is no constraint of nodes alike", "write a, a&b or a|b")
    needs = TaskNeeds(
        memory_bytes=_memory_bytes(given, layout, gpus), gpus=gpus, gpu=kind if gpus else "", constraint=constraint
    )
    return None if needs == TaskNeeds() else needs


def _one_of(given: dict[str, str], names: tuple[str, ...]) -> str | None:
    found = [name for name in names if name in given]
    if len(found) > 1:
        raise NeedsError(found[1], f"--{found[0]} and --{found[1]} are given together", "keep one of the two")
    return found[0] if found else None


def gpus_of_task(given: dict[str, str], layout: Layout) -> tuple[int, str]:
    """Return the GPUs of each task and their kind. Options that express the same in several ways
    may stand together."""
    found = {name: _gpus(name, given[name], layout) for name in _GPU_OPTIONS if name in given}
    if not found:
        return 0, ""
    (first, (count, kind)), *others = found.items()
    for name, (other_count, other_kind) in others:
        if other_count != count or (kind and other_kind and other_kind != kind):
            raise NeedsError(
                name, f"--{first} and --{name} do not say the same number of GPUs for a task", "keep one of the two"
            )
    return count, next((each for _, each in found.values() if each), "")


def _gpus(name: str, value: str, layout: Layout) -> tuple[int, str]:
    text = value
    if name == "gres":
        device, _, text = text.partition(":")
        if device != "gpu" or "," in text:
            raise NeedsError("gres", f"{value!r} is not one kind of GPU", "write gpu:NUMBER or gpu:KIND:NUMBER")
        text = text or "1"
    found = _GPUS.fullmatch(text) or _GPUS.fullmatch(f"{text}:1")
    if found is None:
        raise NeedsError(name, f"{text!r} is not a number of GPUs", "write NUMBER or KIND:NUMBER, such as a100:2")
    kind, count = found[1] or "", int(found[2])
    sharers = {"gpus-per-task": 1, "gpus": layout.tasks}.get(name, layout.on_a_node)
    if count % sharers:
        who = f"{sharers} tasks" + (" of a node" if name != "gpus" else "")
        gpus = "1 GPU is" if count == 1 else f"{count} GPUs are"
        raise NeedsError(name, f"{gpus} not the same number for each of {who}", _PER_TASK)
    return count // sharers, kind


def _memory_bytes(given: dict[str, str], layout: Layout, gpus: int) -> int:
    name = _one_of(given, _MEMORY_OPTIONS)
    if name is None:
        return 0
    found = _SIZE.fullmatch(given[name])
    if found is None:
        raise NeedsError(name, f"{given[name]!r} is not a size of memory", "write a number with K, M, G or T")
    size: int = int(found[1]) * 1024 ** ("KMGT".index((found[2] or "M").upper()) + 1)
    if not size:
        raise NeedsError(name, "0 asks for all the memory of a node, whatever that is", "write how much a task needs")
    if name == "mem-per-cpu":
        return size * layout.processors
    if name == "mem-per-gpu":
        if not gpus:
            raise NeedsError(name, "--mem-per-gpu without GPUs", "write --gpus-per-task, or --mem-per-cpu")
        return size * gpus
    return -(-size // layout.on_a_node)
