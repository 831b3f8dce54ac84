"""A listing of a Grid Engine cell: the script that requests it, and the parser of the output of ``qstat`` and others.

``koala.sites.batch.grid_engine.xml`` turns XML into queues and jobs. This module interprets them: which slots our
users could get, who holds them, and which jobs are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from koala.model.grid import BatchSettings, Claims
from koala.model.nodes import NamedNode, few_alike, node_classes
from koala.sites.batch.grid_engine.keys import keys_of
from koala.sites.batch.grid_engine.needs import Needs, requests_of, wants_of
from koala.sites.batch.grid_engine.nodes import MEMORY_LOAD, CellNodes
from koala.sites.batch.grid_engine.xml import (
    JobLine,
    QueueInstance,
    Resource,
    SlotQuota,
    read_cell,
    read_hosts,
    read_quotas,
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
from koala.sites.shell_script import assign, call, shell_file

# Precedes the name of each part of the output. No line of Grid Engine begins like this.
_MARK = "koala: "
_PARTS = ("user", "jobs", "queues", "environment", "quotas", "errors", "complexes", "hosts", "end")
# The parts that a listing may lack.
_PARTS_OF_RESOURCES = ("complexes", "hosts")


def listing_script(settings: BatchSettings) -> str:
    """Return the script whose output ``ListingReader.read`` parses."""
    keys = keys_of(settings)
    of_tasks = [each for each in (keys.memory_complex, keys.gpu_complex) if each is not None]
    asked = ",".join([*requests_of(settings.submit_options), *of_tasks, MEMORY_LOAD])
    words = ["koala_listing", keys.parallel_environment or "", f",{asked},", keys.gpu_kind_complex or ""]
    if settings.queue is not None:
        words += ["-q", settings.queue]
    if keys.parallel_environment is not None:
        words += ["-pe", keys.parallel_environment]
    return assign(koala_job_prefix=JOB_NAME_PREFIX) + shell_file(__package__, "listing.sh") + call(*words)


class _Slots(msgspec.Struct, frozen=True):
    """The slots that our jobs could get in an empty cell, and how many of them are free."""

    total: int
    free: int

    def within(self, bounds: Iterable[_Slots]) -> _Slots:
        """Return the slots, limited to each of these bounds."""
        total, free = self.total, self.free
        for bound in bounds:
            total, free = min(total, bound.total), min(free, bound.free)
        return _Slots(max(0, total), max(0, free))


class ListingReader:
    """Reads the listings of a site with these settings."""

    def __init__(self, settings: BatchSettings) -> None:
        self._settings = settings
        self._queue = settings.queue
        self._project = settings.account
        self._environment = keys_of(settings).parallel_environment
        self._requests = requests_of(settings.submit_options)
        self._reserves = settings.claims is Claims.RESERVATION

    def read(self, printed: str) -> BatchListing:
        """Parse a listing. Raises ``BatchOutputError`` unless it is complete."""
        parts = _parts(printed)
        user = parts["user"].strip()
        instances, pending = read_cell(parts["jobs"])
        offered = set(parts["queues"].split())
        quotas = read_quotas(parts["quotas"])
        running = [job for instance in instances for job in instance.jobs]
        usable = [each for each in instances if each.name in offered and each.takes_jobs]
        ours_held = _held(instances, user)
        hosts = _hosts(parts["hosts"])
        needs = Needs(wants_of(parts["complexes"], self._requests), hosts)
        bounds = self._bounds(parts["environment"], running, quotas)
        # Our slots in queues that would accept no more of our jobs count all the same.
        more = ours_held - _held(usable, user)

        def slots_for(needs: Needs) -> tuple[_Slots, dict[str, _Slots]]:
            by_host = self._by_host(instances, usable, quotas, user, needs)
            slots = self._in_all(by_host, instances, usable, needs)
            return _Slots(slots.total + more, slots.free).within(bounds), by_host

        slots, by_host = slots_for(needs)
        # Jobs of others do not request what ours do: they may start where our jobs cannot.
        frees = {slots.free, slots_for(Needs())[0].free} if needs.wants else {slots.free}
        idle = min(free - self._taken_soon(pending, user, offered, free) for free in frees)
        processors = max(slots.total, ours_held + idle)
        sizes = CellNodes(self._settings, parts["complexes"], hosts).sizes(
            {host: (each.total, each.free) for host, each in by_host.items()}, instances, usable
        )
        return BatchListing(
            jobs=_our_jobs(running, pending, user, _reasons(parts["errors"])),
            processors=processors,
            others=processors - ours_held - idle,
            job_limit_s=_longest(usable),
            missing=self._missing(instances, offered, parts["environment"]),
            releases=tuple(_releases(usable, user)),
            nodes=node_classes((whole, free, ()) for whole, free in sizes.values()),
            named=few_alike(NamedNode(host, whole) for host, (whole, _) in sizes.items()),
        )

    def _missing(self, instances: list[QueueInstance], offered: set[str], environment: str) -> str:
        """Return what is wrong if a named queue, or every queue, has no place for us at all, or if the parallel
        environment does not exist."""
        if self._environment is not None and not environment.strip():
            cure = "correct 'parallel_environment: ...' in the grid file; qconf -spl there lists them"
            return f"there is no parallel environment {self._environment}; {cure}"
        if self._queue is None:
            return ""
        names = {each.name for each in instances}
        gone = [each for each in self._queue.split(",") if not _may_match(each.strip(), names)]
        if not gone and names.isdisjoint(offered):
            gone = [self._queue]
        cure = "correct 'queue: ...' in the grid file; qstat -g c there lists the queues"
        return f"there is no queue {', '.join(gone)} that is open to this account; {cure}" if gone else ""

    def _by_host(
        self,
        instances: list[QueueInstance],
        usable: list[QueueInstance],
        quotas: list[SlotQuota],
        user: str,
        needs: Needs,
    ) -> dict[str, _Slots]:
        """Return the slots of queues that accept jobs, by host. All queues of a host share what the host offers.
        Resources that our jobs request limit only the free slots: the amount in an empty cell is unknown."""
        found = {}
        most = {each.name: needs.slots(each) for each in usable}
        for host in dict.fromkeys(each.host for each in usable):
            here = [each for each in usable if each.host == host]
            used = sum(each.used for each in instances if each.host == host)
            bounds = [_Slots(each.host_free + used, each.host_free) for each in here if each.host_free is not None]
            bounds += [
                _Slots(quota.limit, quota.limit - quota.used)
                for quota in quotas
                if quota.host == host and self._concerns_us(quota)
            ]
            free = sum(_at_most(self._free(each, user), [most[each.name]], "q") for each in here)
            slots = _Slots(sum(each.total for each in here), free).within(bounds)
            found[host] = _Slots(slots.total, _at_most(slots.free, [most[each.name] for each in here], "h"))
        return found

    def _in_all(
        self,
        by_host: Mapping[str, _Slots],
        instances: list[QueueInstance],
        usable: list[QueueInstance],
        needs: Needs,
    ) -> _Slots:
        """Return the slots of all hosts, within what the whole cell offers."""
        used = sum(each.used for each in instances)
        cell = [_Slots(each.cell_free + used, each.cell_free) for each in usable if each.cell_free is not None]
        free = _at_most(sum(each.free for each in by_host.values()), map(needs.slots, usable), "g")
        return _Slots(sum(each.total for each in by_host.values()), free).within(cell)

    def _free(self, instance: QueueInstance, user: str) -> int:
        """Return the free slots. Our own jobs are in reservations only where we claim by them."""
        return instance.free(instance.used if self._reserves else instance.used - _held((instance,), user))

    def _bounds(self, environment: str, running: list[JobLine], quotas: list[SlotQuota]) -> list[_Slots]:
        """Return the bounds of the whole site: the slots of the parallel environment and the quotas in use."""
        bounds = [
            _Slots(quota.limit, quota.limit - quota.used)
            for quota in quotas
            if quota.host in (None, "*") and self._concerns_us(quota)
        ]
        if self._environment is not None and environment.strip():
            total = _environment_slots(environment)
            used = sum(job.slots for job in running if job.environment == self._environment)
            bounds.append(_Slots(total, total - used))
        return bounds

    def _concerns_us(self, quota: SlotQuota) -> bool:
        """Return True if a quota applies to us. A quota on some queues, projects or environments counts if the site
        uses no other."""
        pairs = (
            (quota.queue, self._queue),
            (quota.project, self._project),
            (quota.environment, self._environment),
        )
        return all(quoted in (None, "*") or (own is not None and fnmatchcase(own, quoted)) for quoted, own in pairs)

    def _taken_soon(self, pending: list[JobLine], user: str, offered: set[str], free: int) -> int:
        """Return how many slots waiting jobs of others will take. Grid Engine skips a job that has no room."""
        taken = 0
        for job in pending:
            if _is_ours(job, user) or not job.is_eligible:
                continue
            if job.queues and not any(_may_match(each, offered) for each in job.queues):
                continue
            if job.slots > 0:
                taken += job.slots * min(job.tasks, (free - taken) // job.slots)
        return taken


def _at_most(slots: int, most: Iterable[dict[str, int]], layer: str) -> int:
    """Return the slots of a layer, limited to each of these."""
    return min([slots, *(each[layer] for each in most if layer in each)])


def _parts(printed: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    name = None
    lines: list[str] = []
    for line in (*printed.split("\n"), _MARK):
        if not line.startswith(_MARK):
            lines.append(line)
            continue
        if name is not None:
            parts[name] = "\n".join(lines)
        elif "".join(lines).strip():
            raise BatchOutputError(f"the listing begins with {lines[0][:80]!r}")
        name, lines = line[len(_MARK) :].strip(), []
    without = tuple(each for each in _PARTS if each not in _PARTS_OF_RESOURCES)
    if tuple(parts) not in (_PARTS, without):
        raise BatchOutputError(f"the listing has the parts {', '.join(parts) or 'none'}; it is not whole")
    return dict.fromkeys(_PARTS_OF_RESOURCES, "") | parts


def _hosts(printed: str) -> Mapping[str, Sequence[Resource]]:
    """Return the resources of hosts from ``qhost``. Unintelligible output takes no slot away."""
    try:
        return read_hosts(printed) if printed.strip() else {}
    except BatchOutputError:
        return {}


def _longest(usable: list[QueueInstance]) -> float | None:
    """Return how long a job may run in its most generous queue; None if some queue has no limit."""
    limits = [each.job_limit_s for each in usable]
    known = [limit for limit in limits if limit is not None]
    return max(known) if known and len(known) == len(limits) else None


def _environment_slots(printed: str) -> int:
    for line in printed.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "slots" and words[1].isascii() and words[1].isdigit():
            return int(words[1])
    raise BatchOutputError(f"qconf -sp tells of no slots: {printed[:80]!r}")


def _may_match(pattern: str, names: Iterable[str]) -> bool:
    """Return True if a list of queues, in the form that jobs use, may include one of these instances or queues.

    Host groups and expressions with operators count as matches: their meaning is unknown here.
    """
    for each in pattern.split(","):
        queue, _, host = each.partition("@")
        if set("|&!()") & set(each):
            return True
        for name in names:
            name_queue, _, name_host = name.partition("@")
            if not fnmatchcase(name_queue, queue or "*"):
                continue
            if not host or not name_host or host.startswith("@") or fnmatchcase(name_host, host):
                return True
    return False


def _held(instances: Iterable[QueueInstance], user: str) -> int:
    """Return the slots that our jobs hold there."""
    return sum(job.slots for instance in instances for job in instance.jobs if _is_ours(job, user))


def _is_ours(job: JobLine, user: str) -> bool:
    return job.owner == user and job.name.startswith(JOB_NAME_PREFIX) and len(job.name) > len(JOB_NAME_PREFIX)


def _releases(instances: Iterable[QueueInstance], user: str) -> Iterator[tuple[float, int]]:
    """Yield when jobs of others reach their own limit, or the limit of their queue if it is shorter."""
    for instance in instances:
        for job in instance.jobs:
            limits = [limit for limit in (job.limit_s, instance.job_limit_s) if limit is not None]
            if job.started_at is not None and limits and not _is_ours(job, user):
                yield job.started_at + min(limits), job.slots


def _reasons(printed: str) -> dict[BatchId, str]:
    """Return why jobs are in error, from ``qstat -j``."""
    reasons: dict[BatchId, str] = {}
    job = ""
    for line in printed.splitlines():
        label, _, rest = line.partition(":")
        if label == "job_number":
            job = rest.strip()
        elif label.startswith("error reason") and rest.strip():
            reasons.setdefault(job, rest.strip())
    return reasons


def _our_jobs(
    running: list[JobLine], pending: list[JobLine], user: str, reasons: dict[BatchId, str]
) -> tuple[BatchJob, ...]:
    """Return our jobs. The output has one line for each queue in which a job has slots."""
    jobs: dict[BatchId, BatchJob] = {}
    for line in (*running, *pending):
        if not _is_ours(line, user):
            continue
        before = jobs.get(line.id)
        if before is None:
            jobs[line.id] = _our_job(line, reasons)
        else:
            jobs[line.id] = msgspec.structs.replace(before, processors=before.processors + line.slots)
    return tuple(jobs.values())


def _our_job(line: JobLine, reasons: dict[BatchId, str]) -> BatchJob:
    state, end, reason = _state_of(line), None, ""
    if line.is_in_error:
        reason = f"the job is in error ({line.state}): {reasons.get(line.id, 'Grid Engine does not say why')}"
        end = BatchEnd(kind=EndKind.SITE, reason=reason)
    token = line.name.removeprefix(JOB_NAME_PREFIX)
    return BatchJob(id=line.id, token=token, state=state, processors=line.slots, reason=reason, end=end)


def _state_of(line: JobLine) -> BatchState:
    if "d" in line.state or "z" in line.state:
        return BatchState.ENDING
    if line.is_running:
        return BatchState.RUNNING
    return BatchState.HELD if "h" in line.state else BatchState.PENDING
