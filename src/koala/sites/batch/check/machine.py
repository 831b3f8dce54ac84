"""Processors, memory and GPUs of this machine for an embedded site, compared with its entry in the grid file.

GPUs are NVIDIA GPUs in the order of CUDA: an embedded site assigns them by ``CUDA_VISIBLE_DEVICES``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from koala.model.grid import Site
from koala.model.nodes import UNTOLD, gpus_text, memory_text
from koala.sites.batch.check.steps import Finding, StepStatus

_DEVICES = Path("/dev")
_DRIVER = Path("/proc/driver/nvidia/gpus")
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")


class OwnMachine(msgspec.Struct, frozen=True, kw_only=True):
    """Processors, memory, and the models of the GPUs; an empty string stands for an unknown model."""

    processors: int
    memory_bytes: int
    gpus: tuple[str, ...] = ()


def this_machine() -> OwnMachine:
    """Return the machine that runs this process. Its memory is at most the limit of its control group."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # the file does not exist, or it contains max
        memory_bytes = min(memory_bytes, int(_MEMORY_LIMIT.read_text()))
    return OwnMachine(processors=os.cpu_count() or 1, memory_bytes=memory_bytes, gpus=_gpus())


def _gpus() -> tuple[str, ...]:
    """Return a model for each device that can be opened; empty for devices beyond those that the driver lists."""
    devices = len(list(_DEVICES.glob("nvidia[0-9]*")))
    models = []
    for path in sorted(_DRIVER.glob("*/information")):
        with contextlib.suppress(OSError):
            models.append(gpu_model(path.read_text(errors="replace")))
    return tuple([*models, *[""] * devices][:devices])


def gpu_model(information: str) -> str:
    """Return the model in the driver's description of a GPU, from a line such as ``Model: NVIDIA H200``."""
    lines = [line.partition(":")[2].strip() for line in information.splitlines() if line.startswith("Model:")]
    return lines[0] if lines else ""


def check_machine(site: Site, machine: OwnMachine) -> Iterator[Finding]:
    """Yield the findings for an embedded site, compared with its machine."""
    there = machine.processors
    if site.processors > there:
        words = f"{site.processors} are described, this machine has {there}: components share them"
        yield _warned("processors", words, f"write 'processors: {there}' if they should not")
    else:
        yield _passed("processors", f"{site.processors} described; this machine has {there}")
    yield _memory(site, machine)
    yield from _gpu_findings(site, machine)


def _memory(site: Site, machine: OwnMachine) -> Finding:
    described = max((each.whole.memory_bytes for each in site.node_classes), default=UNTOLD)
    there = f"this machine has {memory_text(machine.memory_bytes)}"
    if described == UNTOLD:
        return _passed("memory", f"none is described, so that tasks that ask for memory do not go there; {there}")
    if described > machine.memory_bytes:
        words = f"{memory_text(described)} are described, {there}: tasks may get less than they ask for"
        return _warned("memory", words, f"write 'memory: {machine.memory_bytes // 2**30}G' or less")
    return _passed("memory", f"{memory_text(described)} described; {there}")


def _gpu_findings(site: Site, machine: OwnMachine) -> Iterator[Finding]:
    """Yield nothing if the machine has no GPUs and the grid file describes none."""
    described = sum(each.whole.gpus_of() for each in site.node_classes)
    models = [model for model in dict.fromkeys(machine.gpus) if model]
    there = f"this machine has {gpus_text(len(machine.gpus), '') if machine.gpus else 'none'}"
    there += f" ({', '.join(models)})" if models else ""
    if described > len(machine.gpus):
        advice = f"write 'gpus: {len(machine.gpus)}'" if machine.gpus else "take 'gpus' out"
        words = f"{described} described, and {there}: jobs would be given GPUs that are not there"
        yield Finding(step="gpus", sign=StepStatus.FAILED, words=words, advice=advice)
    elif described < len(machine.gpus):
        words = f"{described or 'none'} described, and {there}: the others are used by no job"
        yield _warned("gpus", words, f"write 'gpus: {len(machine.gpus)}', if jobs may have them")
    elif described:
        yield _passed("gpus", f"{described} described; {there}")


def _passed(step: str, words: str) -> Finding:
    return Finding(step=step, sign=StepStatus.PASSED, words=words)


def _warned(step: str, words: str, advice: str) -> Finding:
    return Finding(step=step, sign=StepStatus.WARNED, words=words, advice=advice)
