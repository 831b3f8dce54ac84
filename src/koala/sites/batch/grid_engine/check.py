"""The steps of a check for Grid Engine: its programs, its master, its queues and parallel environments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import msgspec

from koala.model.nodes import UNTOLD
from koala.sites.batch.check.steps import CheckContext, StepResult, SystemChecks, failed, listed, passed, warned
from koala.sites.batch.grid_engine.keys import keys_of

_SEPARATORS = re.compile(r"[\s,\[\]=]+")


def parse_fields(printed: str) -> dict[str, str]:
    """Parse ``qconf -sq`` and ``qconf -sp``: a name and a value in each line, '\\' continues a line."""
    lines = printed.replace("\\\n", " ").splitlines()
    pairs = (line.split(None, 1) for line in lines if line.strip())
    return {pair[0]: " ".join(pair[1].split()) if len(pair) > 1 else "" for pair in pairs}


def parse_queue_summary(printed: str) -> dict[str, int]:
    """Return all slots of each cluster queue that ``qstat -g c`` prints."""
    slots = {}
    for line in printed.splitlines():
        fields = line.split()
        # Name, load, used, reserved, available, total, and how many are in which states.
        if len(fields) >= 8 and all(field.isdigit() for field in fields[2:6]):
            slots[fields[0]] = int(fields[5])
    return slots


async def controller(context: CheckContext) -> StepResult:
    """Check that sge_qmaster answers."""
    reply = await context.ask("qhost > /dev/null\n")
    if reply.code != 0:
        return failed(
            reply.reason,
            "check SGE_ROOT, SGE_CELL and SGE_QMASTER_PORT, which 'environment: {...}' sets; if they are right, "
            "the operator knows more",
        )
    return passed("qmaster answers")


async def queue(context: CheckContext) -> StepResult:
    """Check that the queue exists."""
    reply = await context.ask("qstat -g c\n")
    slots = parse_queue_summary(reply.printed)
    known = listed(sorted(slots))
    if reply.code != 0 or not slots:
        return failed(f"no queues are told: {reply.reason}", "'qstat -g c' should list them")
    if context.settings.queue is None:
        context.queue_processors = sum(slots.values())
        return passed(f"any of {known}: {context.queue_processors} slots")
    wanted = [name.partition("@")[0] for name in context.settings.queue.split(",")]
    missing = [name for name in wanted if name not in slots]
    if missing:
        return failed(f"there is no queue {listed(missing)}", f"correct 'queue: ...'; there are {known}")
    context.queue_processors = sum(slots[name] for name in set(wanted))
    return passed(f"{listed(wanted)}: {context.queue_processors} slots")


async def parallel_environment(context: CheckContext) -> StepResult:
    """Check that the parallel environment exists, that the queue offers it, and that components can use all their
    nodes."""
    name = keys_of(context.settings).parallel_environment
    reply = await context.ask("qconf -spl\n")
    offered = reply.printed.split() if reply.code == 0 else []
    known = listed(offered)
    if name is None and not offered:
        return warned("there is none: components of several processors find no place", "ask the operator for one")
    if name is None:
        return passed(f"none is named; one that the queue offers is taken, of {known}")
    reply = await context.ask(f"qconf -sp {shlex.quote(name)}\n")
    if reply.code != 0:
        return failed(reply.reason, f"correct 'parallel_environment: ...'; there are {known}")
    fields = parse_fields(reply.printed)
    if context.settings.queue is not None:
        missing = await _queues_without(context, name)
        if missing:
            return failed(
                f"the queue {listed(missing)} does not offer {name}",
                "name a queue and a parallel environment of its pe_list",
            )
    rule = fields.get("allocation_rule", "")
    if fields.get("control_slaves", "").upper() != "TRUE":
        return warned(
            f"{name} has no control_slaves: components over several nodes cannot start on all of them",
            "ask the operator for one with control_slaves TRUE",
        )
    if rule == "$pe_slots":
        return warned(f"{name} gives all slots on one node", "name another, if components are to span nodes")
    return passed(f"{name}, {fields.get('slots', '?')} slots, {rule}")


async def _queues_without(context: CheckContext, name: str) -> list[str]:
    assert context.settings.queue is not None
    queues = [each.partition("@")[0] for each in context.settings.queue.split(",")]
    missing = []
    for each in queues:
        reply = await context.ask(f"qconf -sq {shlex.quote(each)}\n")
        if name not in _SEPARATORS.split(parse_fields(reply.printed).get("pe_list", "")):
            missing.append(each)
    return missing


# Common names of the consumables for memory and GPUs.
_MEMORY_LIKE = re.compile(r"(h_|s_)?(v?mem|vmem|rss|ram|memory)(_?free|_?total|_?req)?|m_mem_free", re.IGNORECASE)
_GPU_LIKE = re.compile(r"n?gpus?|cuda|gpu_?cards?", re.IGNORECASE)
_USED_UP = ("YES", "JOB", "HOST")


class Complex(msgspec.Struct, frozen=True):
    """A resource as ``qconf -sc`` lists it."""

    name: str
    short: str
    kind: str
    used_up: str

    @property
    def is_consumable(self) -> bool:
        return self.used_up in _USED_UP


def parse_complexes(printed: str) -> list[Complex]:
    """Parse ``qconf -sc``, a line for each resource."""
    rows = [line.split() for line in printed.splitlines() if not line.startswith("#")]
    return [Complex(row[0], row[1], row[2], row[5].upper()) for row in rows if len(row) >= 7]


async def consumables(context: CheckContext) -> StepResult | None:
    """Check that the resources for memory and GPUs exist and are consumables, and name other candidates. No result if
    there are neither."""
    keys = keys_of(context.settings)
    reply = await context.ask("qconf -sc\n")
    if reply.code != 0:
        return failed(f"the resources cannot be listed: {reply.reason}", "find out with qconf -sc there")
    there = parse_complexes(reply.printed)
    named = {
        "memory_complex": keys.memory_complex,
        "gpu_complex": keys.gpu_complex,
        "gpu_kind_complex": keys.gpu_kind_complex,
    }
    known = listed([each.name for each in there if each.is_consumable and each.name != "slots"])
    for key, name in named.items():
        found = [each for each in there if name in (each.name, each.short)]
        if name is not None and not found:
            return failed(f"there is no resource {name}", f"correct '{key}: ...'; consumable are {known}")
        if name is not None and key == "gpu_complex" and not found[0].is_consumable:
            advice = f"correct '{key}: ...', or ask the operator to make it consumable; consumable are {known}"
            return failed(f"{name} is not consumable: nobody shares it out", advice)
        if name is not None and key == "memory_complex" and not found[0].is_consumable:
            advice = f"correct '{key}: ...', or ask the operator to make it consumable; consumable are {known}"
            return warned(f"{name} is not consumable: nobody counts who uses the memory of a host", advice)
    return _had(context, named) or _unnamed(there, named)


def _had(context: CheckContext, named: dict[str, str | None]) -> StepResult | None:
    """Check that hosts have the named resources."""
    for key, has in (
        ("memory_complex", any(each.whole.memory_bytes != UNTOLD for each in context.nodes)),
        ("gpu_complex", any(each.whole.gpus for each in context.nodes)),
    ):
        if named[key] is not None and not has:
            advice = "let the operator write it into complex_values of the hosts (qconf -me HOST), or leave it out"
            return warned(f"no host has any {named[key]}", advice)
    return None


def _unnamed(there: Sequence[Complex], named: dict[str, str | None]) -> StepResult | None:
    for key, pattern, what in (
        ("gpu_complex", _GPU_LIKE, "tasks with GPUs do not go there"),
        ("memory_complex", _MEMORY_LIKE, "nobody counts who uses the memory of a host"),
    ):
        like = [each.name for each in there if each.is_consumable and pattern.fullmatch(each.name)]
        if named[key] is None and like:
            words = f"{listed(like)} can be asked for, and the grid file does not name it: {what}"
            return warned(words, f"write '{key}: {like[0]}', if that is what it is for")
    uses = [f"{name} ({key.partition('_complex')[0].replace('_', ' ')})" for key, name in named.items() if name]
    return passed(listed(uses)) if uses else None


CHECKS = SystemChecks(
    programs=("qsub", "qstat", "qdel", "qacct", "qhost", "qconf"),
    programs_advice="put them into the PATH of the login there, or write 'environment: {PATH: ..., SGE_ROOT: ...}' "
    "with the directory of qsub",
    lists="qstat",
    dry_options=("-w", "v"),
    controller=controller,
    queue=queue,
    before_listing=(("parallel environment", parallel_environment),),
    after_listing=(("consumables", consumables),),
)
