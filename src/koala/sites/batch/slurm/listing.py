"""The listing of a Slurm cluster: a parser for the output of its commands, and how much of the cluster we can use.
``koala.sites.batch.slurm.history`` has the ends of jobs that it no longer shows.

The formats work with all versions since 17; JSON is not used, since it differs between versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from koala.model.grid import BatchSettings
from koala.model.nodes import NamedNode, NodeSize, few_alike, node_classes
from koala.sites.batch.slurm.options import RequestedResources, Sharing, megabytes, requested_by
from koala.sites.batch.slurm.quota import SlurmQuota, Terms, parse_quota, terms_of
from koala.sites.batch.slurm.resources import ClusterResources, MemoryNeed, parse_resources
from koala.sites.batch.slurm.states import (
    end_of,
    is_at_a_limit,
    is_eligible,
    is_free,
    is_kept_for_a_job,
    never_starts,
    state_of,
)
from koala.sites.batch.system import (
    JOB_NAME_PREFIX,
    BatchEnd,
    BatchId,
    BatchJob,
    BatchListing,
    BatchOutputError,
    BatchState,
    EndKind,
)
from koala.sites.shell_script import assign, shell_file

# Precedes each of our jobs, whose name may contain anything.
_JOB_WORD = "job "
# Lines between the outputs of the commands of one listing.
_NODES_LINE = "koala nodes"
_WAITING_LINE = "koala waiting"
_QUOTA_LINE = "koala quota"
_RESOURCES_LINE = "koala resources"
_JOBS_LINE = "koala jobs"
# Limit for the wait for the database behind the controller.
DATABASE_S = 5
_NO_NAME = ("", "(null)")


def listing_script(settings: BatchSettings, function: str = "koala_listing", *, database_s: int = DATABASE_S) -> str:
    """Return a script that prints a listing, or the part of it that another function prints. The ``.sh`` file of the
    same name describes the output."""
    terms, asked = terms_of(settings), requested_by(settings)
    values = assign(
        koala_partition=settings.queue or "",
        koala_account=terms.account or "",
        koala_qos=terms.qos or "",
        koala_job_prefix=JOB_NAME_PREFIX,
        koala_database_s=database_s,
        koala_nodes_differ="yes" if asked.features.names or asked.sharing is Sharing.OWN_USER else "",
    )
    files = ("commands.sh", "listing.sh", "quota.sh", "resources.sh")
    return f"{values}{''.join(shell_file(__package__, name) for name in files)}{function}\n"


class _Node(msgspec.Struct, frozen=True):
    name: str
    state: str
    allocated: int
    idle: int
    partition: str
    is_default: bool
    is_up: bool
    limit_s: float | None
    memory_mb: int | None = None
    features: tuple[str, ...] = ()

    @property
    def is_answering(self) -> bool:
        return self.is_up and not self.state.endswith("*")


class MemoryReport(msgspec.Struct, frozen=True):
    """The allocation of memory: what our job needs in each partition, how many processors are idle, how many of these
    it could get, and how many it could get in an empty cluster."""

    needs: dict[str, MemoryNeed]
    idle: int
    free: int
    there: int


class _QueueLine(msgspec.Struct, frozen=True):
    """A waiting or running job, or several of one array that may start at a time. ``end_at`` is the latest end, if
    known."""

    number: BatchId
    processors: int
    times: int
    partitions: tuple[str, ...]
    reason: str
    state: BatchState = BatchState.PENDING
    end_at: float | None = None


class _Waiting(msgspec.Struct, frozen=True):
    """A waiting job, or several of one array that may start at a time."""

    number: BatchId
    processors: int
    times: int


def parse_listing(
    printed: str, partition: str | None, terms: Terms | None = None, asked: RequestedResources | None = None
) -> BatchListing:
    """Parse a listing. ``partition`` is where components go, or several partitions with commas between; None is the
    default partition. ``terms`` are the account and the QOS of submissions, ``asked`` is what they request besides
    processors."""
    parts = _parts(printed, (_NODES_LINE, _WAITING_LINE, _QUOTA_LINE, _RESOURCES_LINE, _JOBS_LINE))
    resources = parse_resources(parts[_RESOURCES_LINE], asked or RequestedResources())
    nodes = _chosen([_node(line) for line in parts[_NODES_LINE]], partition)
    names = {node.partition for node in nodes}
    lines = [_job_fields(line) for line in _whole_jobs(parts[_JOBS_LINE])]
    terms = terms or Terms()
    quota = parse_quota(parts[_QUOTA_LINE], terms, names, _newest_terms(lines, terms, names))
    ours = tuple(_within(quota, job) for fields in lines if (job := _job(fields, names)).token)
    unique = {node.name: node for node in nodes}.values()
    allocated = sum(node.allocated for node in unique)
    there = _there(nodes, resources)
    kept = sum(node.idle for node in unique if node.is_answering and is_kept_for_a_job(node.state))
    free = _free(nodes, resources)
    held = min(allocated, sum(job.processors for job in ours if job.state in (BatchState.RUNNING, BatchState.ENDING)))
    numbers = {job.id for job in ours}
    queued = [line for each in parts[_WAITING_LINE] if (line := _queue_line(each)).number not in numbers]
    queued = [line for line in queued if not names.isdisjoint(line.partitions)]
    if any(job.processors > 0 and job.end is None and is_at_a_limit(job.state, job.reason) for job in ours):
        left = 0
    else:
        waiting = _waiting_jobs(queued)
        # Jobs of others do not request what ours do: they may start where our jobs cannot.
        left = min(
            each - _taken_soon(waiting, kept, each + held) for each in (free, _free(nodes, ClusterResources()))
        )
    by_name = _sizes(nodes, resources)
    # We may hold some processors only because Slurm gives more than a job requests.
    working = _least(max(there, held + left), quota.most)
    return BatchListing(
        jobs=ours,
        processors=working,
        others=max(0, min(working, working - held - _least(left, quota.left))),
        job_limit_s=_job_limit_s(nodes, quota),
        missing=_missing(nodes, partition),
        releases=tuple((line.end_at, line.processors) for line in queued if line.end_at is not None),
        nodes=node_classes(by_name.values()),
        named=few_alike(NamedNode(name, whole, features) for name, (whole, _, features) in by_name.items()),
    )


def _sizes(
    nodes: Sequence[_Node], resources: ClusterResources
) -> dict[str, tuple[NodeSize, NodeSize, tuple[str, ...]]]:
    """Return the responding nodes by name: the total size, the free size, which is nothing for a node that accepts no
    jobs now, and the features."""
    unique = {node.name: node for node in nodes if node.is_answering}
    found = {}
    for node in unique.values():
        idle = node.idle if is_free(node.state) else 0
        sizes = resources.node_size(
            node.name, node.allocated + node.idle, idle, memory_mb=node.memory_mb, features=node.features
        )
        if sizes is not None:
            found[node.name] = sizes
    return found


def parse_memory(printed: str, partition: str | None, asked: RequestedResources) -> MemoryReport | None:
    """Return what the nodes and resources of a listing say about memory; None if it is not allocated."""
    parts = _parts(printed, (_NODES_LINE, _RESOURCES_LINE))
    resources = parse_resources(parts[_RESOURCES_LINE], asked)
    nodes = _chosen([_node(line) for line in parts[_NODES_LINE]], partition)
    needs = {node.partition: need for node in nodes if (need := resources.need(node.partition)) is not None}
    if not needs:
        return None
    return MemoryReport(needs, _free(nodes, ClusterResources()), _free(nodes, resources), _there(nodes, resources))


def _there(nodes: Sequence[_Node], resources: ClusterResources) -> int:
    """Return how many processors our jobs could get in an empty cluster. A node counts once, in its best
    partition."""
    best: dict[str, int] = {}
    for node in nodes:
        processors = node.allocated + (node.idle if node.is_answering else 0)
        ours = resources.processors_of_empty(node.name, node.partition, processors)
        best[node.name] = max(ours, best.get(node.name, 0))
    return sum(best.values())


def _free(nodes: Sequence[_Node], resources: ClusterResources) -> int:
    """Return how many processors our jobs could get now."""
    best: dict[str, int] = {}
    for node in nodes:
        if node.is_answering and is_free(node.state):
            ours = resources.processors(node.name, node.partition, node.idle, node.allocated)
            best[node.name] = max(ours, best.get(node.name, 0))
    return sum(best.values())


def _job_limit_s(nodes: Sequence[_Node], quota: SlurmQuota) -> float | None:
    """Return how long a job may run in its most generous partition, within the limits of its account and QOS."""
    limits = [node.limit_s for node in nodes if node.limit_s is not None]
    by_partition = [max(limits)] if limits and len(limits) == len(nodes) else []
    by_quota = [] if quota.longest_s is None else [quota.longest_s]
    return min([*by_partition, *by_quota], default=None)


def _least(number: int, limit: int | None) -> int:
    return number if limit is None else min(number, limit)


def _within(quota: SlurmQuota, job: BatchJob) -> BatchJob:
    """Return a job with the end that it never starts, if it waits for a limit below its request."""
    if quota.most is None or job.processors <= quota.most or not is_at_a_limit(job.state, job.reason):
        return job
    why = f"{job.reason}: it asks for {job.processors} processors, and the limit is {quota.why}"
    return msgspec.structs.replace(job, end=BatchEnd(kind=EndKind.UNSUITABLE, reason=why))


def _parts(printed: str, heads: Sequence[str]) -> dict[str, list[str]]:
    """Return the lines behind each head. The heads must come in this order; only the resources may be missing.
    Anything may follow the last one."""
    parts: dict[str, list[str]] = {}
    expected = list(heads)
    for line in printed.split("\n"):
        if expected[:1] == [_RESOURCES_LINE] and expected[1:2] == [line]:
            parts[expected.pop(0)] = []
        if expected and line == expected[0]:
            parts[expected.pop(0)] = []
        elif not parts:
            raise BatchOutputError(f"nobody asked for {line[:100]!r}")
        elif line.strip():
            parts[heads[len(parts) - 1]].append(line)
    if expected:
        raise BatchOutputError(f"there is nothing behind {expected[0]!r}")
    return parts


def _whole_jobs(lines: Sequence[str]) -> Iterator[str]:
    """Yield a line for each of this user's jobs; further lines of names with newlines are skipped."""
    if lines and not lines[0].startswith(_JOB_WORD):
        raise BatchOutputError(f"{lines[0][:200]!r} is not a job")
    return (line.removeprefix(_JOB_WORD) for line in lines if line.startswith(_JOB_WORD))


def _node(line: str) -> _Node:
    """Parse a node. Its memory may be missing, together with its features."""
    fields = line.split("|")
    if len(fields) not in (6, 8):
        raise BatchOutputError(f"{line[:200]!r} is not a node")
    name, state, processors, partition, available, limit, *more = (field.strip() for field in fields)
    counts = processors.split("/")
    if not name or not state or len(counts) != 4:
        raise BatchOutputError(f"{line[:200]!r} is not a node")
    allocated, idle = _count(counts[0]), _count(counts[1])
    return _Node(
        name,
        state.lower(),
        allocated,
        idle,
        partition.rstrip("*"),
        partition.endswith("*"),
        available == "up",
        _limit_s(limit),
        megabytes(more[0].removesuffix("+")) if more else None,
        tuple(sorted({*more[1].split(",")} - {*_NO_NAME})) if more else (),
    )


def _chosen(nodes: Sequence[_Node], partition: str | None) -> list[_Node]:
    """Return the nodes where components can run: all nodes if no partition is the default."""
    if partition is not None:
        wanted = {each.strip() for each in partition.split(",")}
        return [node for node in nodes if node.partition in wanted]
    return [node for node in nodes if node.is_default] or list(nodes)


def _missing(nodes: Sequence[_Node], partition: str | None) -> str:
    """Return what is wrong if components could not run in any partition, or in a named one."""
    if partition is None:
        return "" if nodes else "it shows no partition with nodes; sinfo there should list them"
    there = {node.partition for node in nodes}
    gone = ", ".join(name for each in partition.split(",") if (name := each.strip()) and name not in there)
    cure = "correct 'queue: ...' in the grid file; sinfo there lists the partitions"
    return f"there is no partition {gone} with nodes; {cure}" if gone else ""


def _job_fields(line: str) -> list[str]:
    fields = [field.strip() for field in line.split("|", 8)]
    if len(fields) != 9:
        raise BatchOutputError(f"{line[:200]!r} is not a job")
    if not (fields[0].isascii() and fields[0].isdigit()):
        raise BatchOutputError(f"{fields[0][:100]!r} is not the number of a job")
    return fields


def _job(fields: Sequence[str], partitions: set[str]) -> BatchJob:
    """Parse one of this user's jobs; jobs of other origin have no token, and jobs elsewhere no processors here."""
    number, word, processors, partition, submitted, _, _, reason, name = fields
    state = state_of(word, reason)
    end = end_of(word, reason) if state is BatchState.OVER else never_starts(state, reason)
    return BatchJob(
        id=number,
        token=name.removeprefix(JOB_NAME_PREFIX) if name.startswith(JOB_NAME_PREFIX) else "",
        state=state,
        submitted=submitted,
        processors=0 if partitions.isdisjoint(partition.split(",")) else _count(processors),
        reason=reason,
        end=end,
    )


def _newest_terms(jobs: Sequence[Sequence[str]], terms: Terms, partitions: set[str]) -> Terms:
    """Return the account and the QOS of Koala's newest job there; the next job will have the same. Other sites of the
    same user on the cluster may use other terms, so only a job in the same partitions counts."""
    found = Terms()
    for _, _, _, partition, _, account, qos, _, name in sorted(jobs, key=lambda fields: int(fields[0][-18:])):
        there = not partitions.isdisjoint(partition.split(",")) and terms.account in (None, account)
        if there and name.startswith(JOB_NAME_PREFIX):
            found = Terms(None if account in _NO_NAME else account, None if qos in _NO_NAME else qos)
    return found


def _queue_line(line: str) -> _QueueLine:
    """Parse a job of the queue. The state of a waiting job may be missing, together with its end."""
    fields = [field.strip() for field in line.split("|")]
    if len(fields) not in (4, 6):
        raise BatchOutputError(f"{line[:200]!r} is not a job that waits or runs")
    number, processors, partition, *told, reason = fields
    state, end_at = BatchState.PENDING, None
    if told:
        state = state_of(told[0], reason)
        holds = state in (BatchState.RUNNING, BatchState.ENDING)
        # NONE stands for no limit.
        end_at = float(told[1]) if holds and re.fullmatch(r"\d{1,12}", told[1], re.ASCII) else None
    partitions = tuple(partition.split(","))
    return _QueueLine(number, _count(processors), _array_tasks(number), partitions, reason, state, end_at)


def _waiting_jobs(queued: Sequence[_QueueLine]) -> list[_Waiting]:
    """Return waiting jobs of others, in the order in which Slurm considers them. The parts of a job that requested
    different nodes start together, or not at all."""
    found: dict[BatchId, _Waiting] = {}
    for line in queued:
        if line.state is not BatchState.PENDING or not is_eligible(line.reason):
            continue
        leader, _, part = line.number.partition("+")
        before = found.get(leader) if part else None
        wanted = line.processors + (before.processors if before is not None else 0)
        found[leader] = _Waiting(leader, wanted, line.times)
    return list(found.values())


def _taken_soon(waiting: Sequence[_Waiting], kept: int, available: int) -> int:
    """Return how many of the processors that are free or ours waiting jobs will take, beyond those that Slurm keeps
    for them already. A job without room, even after all of ours have ended, takes none: its wait for the jobs of
    others is unknown, and if Slurm lets nobody pass it, Slurm keeps nodes for it."""
    left = available
    for job in waiting:
        times = min(job.times, (kept + left) // job.processors) if job.processors > 0 else 0
        wanted = job.processors * times
        from_kept = min(kept, wanted)
        kept, left = kept - from_kept, left - (wanted - from_kept)
    return available - left


def _array_tasks(number: str) -> int:
    """Return how many jobs a line stands for: 3 for ``7_[1-9%3]``, since no more run at a time. Long ranges end in
    '...'."""
    match = re.fullmatch(r"[\d+]+(?:_(?:\d+|\[([\d,:.-]*)(?:%(\d{1,9}))?\]?))?\.*", number, re.ASCII)
    if match is None:
        raise BatchOutputError(f"{number[:100]!r} is not the number of a job")
    if match[1] is None:
        return 1
    tasks = sum(_range_length(each) for each in match[1].split(",") if each.strip("."))
    return max(1, min(tasks, int(match[2])) if match[2] else tasks)


def _range_length(text: str) -> int:
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?(?::(\d{1,9}))?\.*-?", text, re.ASCII)
    if match is None:
        return 1
    first, last, step = int(match[1]), int(match[2] or match[1]), max(1, int(match[3] or 1))
    return max(1, (last - first) // step + 1)


def _count(text: str) -> int:
    """Parse a number of processors; Slurm writes large ones as 1K or 1.5K in narrow columns."""
    match = re.fullmatch(r"(\d{1,9})(?:\.(\d{1,3}))?([KM]?)", text, re.ASCII)
    if match is None or (match[2] and not match[3]):
        raise BatchOutputError(f"{text[:100]!r} is not a number of processors")
    scale = {"": 1, "K": 1_000, "M": 1_000_000}[match[3]]
    return int(float(f"{match[1]}.{match[2] or 0}") * scale)


def _limit_s(text: str) -> float | None:
    """Parse ``1-00:00:00``, ``30:00`` or ``infinite``; None for no limit."""
    if text.lower() in ("infinite", "unlimited", "n/a", "not_set"):
        return None
    match = re.fullmatch(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6})(?::(\d{2}))?", text, re.ASCII)
    if match is None:
        raise BatchOutputError(f"{text[:100]!r} is not a time limit")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    if match[2] is not None and match[4] is None:  # 30:00 has minutes and seconds
        hours, minutes, seconds = 0, int(match[2]), int(match[3])
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
