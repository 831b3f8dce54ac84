"""What this machine has for an embedded site, beside what the grid file says of it: processors, memory and GPUs.

GPUs are those of NVIDIA, as CUDA counts them: an embedded site gives them away by ``CUDA_VISIBLE_DEVICES``.
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
    """Processors, memory, and the models of the GPUs; empty for one of which nobody tells the model."""

    processors: int
    memory_bytes: int
    gpus: tuple[str, ...] = ()


def this_machine() -> OwnMachine:
    """The machine that this runs on. Its memory is no more than its control group lets it have."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # there is no such file, or it says max
        memory_bytes = min(memory_bytes, int(_MEMORY_LIMIT.read_text()))
    return OwnMachine(processors=os.cpu_count() or 1, memory_bytes=memory_bytes, gpus=_gpus())


def _gpus() -> tuple[str, ...]:
    """A model for each device that can be opened here; empty where the driver tells fewer."""
    devices = len(list(_DEVICES.glob("nvidia[0-9]*")))
    models = []
    for path in sorted(_DRIVER.glob("*/information")):
        with contextlib.suppress(OSError):
            models.append(gpu_model(path.read_text(errors="replace")))
    return tuple([*models, *[""] * devices][:devices])


def gpu_model(information: str) -> str:
    """The model that the driver tells of a GPU, in a line such as ``Model: NVIDIA H200``."""
    lines = [line.partition(":")[2].strip() for line in information.splitlines() if line.startswith("Model:")]
    return lines[0] if lines else ""


def check_machine(site: Site, machine: OwnMachine) -> Iterator[Finding]:
    """What an embedded site says of its machine, beside what that has."""
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
    """Nothing where there are none and none are described."""
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
