"""Steps of a check that know Grid Engine: its programs, its master, its queues and parallel environments."""

from __future__ import annotations

import re
import shlex

from koala.sites.batch.check.steps import CheckContext, StepResult, failed, listed, passed, warned

PROGRAMS = ("qsub", "qstat", "qdel", "qacct", "qhost", "qconf")
PROGRAMS_ADVICE = (
    "put them into the PATH of the login there, or write 'environment: {PATH: ..., SGE_ROOT: ...}' with "
    "the directory of qsub"
)
DRY_OPTIONS = ("-w", "v")

_SEPARATORS = re.compile(r"[\s,\[\]=]+")


def parse_fields(printed: str) -> dict[str, str]:
    """What ``qconf -sq`` and ``qconf -sp`` print: a name and a value in each line, '\\' continues a line."""
    lines = printed.replace("\\\n", " ").splitlines()
    pairs = (line.split(None, 1) for line in lines if line.strip())
    return {pair[0]: " ".join(pair[1].split()) if len(pair) > 1 else "" for pair in pairs}


def parse_queue_summary(printed: str) -> dict[str, int]:
    """All slots of each cluster queue that ``qstat -g c`` prints."""
    slots = {}
    for line in printed.splitlines():
        fields = line.split()
        # Name, load, used, reserved, available, total, and how many are in which states.
        if len(fields) >= 8 and all(field.isdigit() for field in fields[2:6]):
            slots[fields[0]] = int(fields[5])
    return slots


async def controller(context: CheckContext) -> StepResult:
    """sge_qmaster answers."""
    reply = await context.ask("qhost > /dev/null\n")
    if reply.code != 0:
        return failed(
            reply.reason,
            "check SGE_ROOT, SGE_CELL and SGE_QMASTER_PORT, which 'environment: {...}' sets; if they are right, "
            "the operator knows more",
        )
    return passed("qmaster answers")


async def queue(context: CheckContext) -> StepResult:
    """The queue is there."""
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
    """The parallel environment is there, the queue offers it, and it lets components use all their nodes."""
    name = context.settings.parallel_environment
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
